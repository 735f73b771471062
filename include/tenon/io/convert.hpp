#pragma once

#include <tenon/io/load.hpp>
#include <tenon/weights_view.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tenon::io {

/// The view of a file with the weights that `choose` selects declared as `dtype`: a model that is
/// declared from it computes with narrower weights than the file has. Load it with load_as().
///
/// Only matrices of a floating type can become a block type, and only where a row is a whole number
/// of blocks; other weights keep the file's type. Tensors of the view stay valid while it, or a
/// copy of it, exists.
WeightsView declare_as(const File& file, DType dtype,
                       const std::function<bool(const TensorEntry& entry)>& choose);

/// `buffer` converted to `dtype`, on `device`, by the rules of HostBuffer::to; `buffer` itself when
/// it has that type. Errors: unsupported_dtype, out_of_memory.
Buffer convert(const Buffer& buffer, DType dtype, const DevicePtr& device);

/// As load(), with every weight converted to the type that the model declares.
template <class Model>
Bufferized<Model> load_as(const Model& model, const File& file, const DevicePtr& device,
                          LoadOptions options = {}) {
  const Bufferized<Model> stored = load(model, file, device, std::move(options));
  std::vector<DType> types;
  visit_fields(model, [&](const std::string&, const Tensor& tensor) {
    types.push_back(tensor.is_empty() ? DType::f32 : tensor.shape().dtype());
  });
  std::size_t next = 0;
  Bufferized<Model> converted;
  transform_fields(stored, converted, [&](const std::string&, const Buffer& from, Buffer& to) {
    const DType dtype = types[next++];
    if (from.has_data()) to = convert(from, dtype, device);
  });
  return converted;
}

}  // namespace tenon::io
