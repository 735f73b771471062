#pragma once

#include <tenon/io/load.hpp>
#include <tenon/weights_view.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tenon::io {

/// What a file says of its weights, but with `dtype` for those that `choose` names: a model that is
/// declared from it computes with narrower weights than its file holds. Load it with load_as.
///
/// Only matrices of a floating type become of a block type, and only where a row is a whole number
/// of blocks; others keep the file's type. Tensors of the view stay valid while it, or a copy,
/// lives.
WeightsView declare_as(const File& file, DType dtype,
                       const std::function<bool(const TensorEntry& entry)>& choose);

/// The array of `buffer` as elements of `dtype` on `device`; `buffer` itself where that is its
/// type. As HostBuffer::to converts. Errors: unsupported_dtype, out_of_memory.
Buffer convert(const Buffer& buffer, DType dtype, const DevicePtr& device);

/// As load(), with every weight in the type that the model declares for it.
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
