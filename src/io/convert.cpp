#include <tenon/io/convert.hpp>

#include <string>
#include <vector>

namespace tenon::io {
namespace {

bool fits(const Shape& shape, DType dtype) {
  if (!is_block(dtype)) return true;
  return shape.rank() == 2 && is_floating(shape.dtype()) && shape.dtype() != DType::f64 &&
         shape[1] % block_size(dtype) == 0;
}

}  // namespace

WeightsView declare_as(const File& file, DType dtype,
                       const std::function<bool(const TensorEntry& entry)>& choose) {
  std::vector<std::pair<std::string, Shape>> weights;
  weights.reserve(file.tensors().size());
  for (const TensorEntry& entry : file.tensors()) {
    const bool converts = choose(entry) && fits(entry.shape, dtype);
    weights.emplace_back(entry.name, converts ? entry.shape.with_dtype(dtype) : entry.shape);
  }
  return {file.path().filename().string(), weights};
}

Buffer convert(const Buffer& buffer, DType dtype, const DevicePtr& device) {
  const DType from = buffer.shape().dtype();
  if (from == dtype) return buffer;
  HostBuffer array = buffer.to_host();
  if (is_block(dtype) && from != DType::f32) array = array.to(DType::f32);
  return array.to(dtype).to_device(device);
}

}  // namespace tenon::io
