// Parameters and state of a training, written to a file and read back.
#pragma once

#include <tenon/buffer.hpp>
#include <tenon/error.hpp>
#include <tenon/fields.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/save.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace tenon::train {

/// Writes the buffers of a struct, or of a tuple of structs, to a safetensors file, atomically,
/// under the paths of their fields, and `others` under their names. Errors: Errc::call_order, naming a buffer without
/// data; those of io::save_safetensors.
template <class Buffers>
void save(const std::filesystem::path& path, const Buffers& buffers,
          std::vector<io::NamedTensor> others = {}) {
  std::vector<io::NamedTensor>& tensors = others;
  visit_fields(buffers, [&](const std::string& name, const Buffer& buffer) {
    if (!buffer.has_data())
      throw Error(Errc::call_order, "train::save", "'" + name + "' has no data");
    tensors.push_back({name, buffer.to_host()});
  });
  io::save_safetensors(path, tensors);
}

/// The buffers of a file that save() wrote, in the form of `like`, whose shapes they must have.
/// Errors: those of io::open; Errc::bad_reference for a missing tensor; Errc::shape_mismatch.
template <class Buffers>
Buffers load(const io::File& file, const Buffers& like, const DevicePtr& device) {
  return map_fields<Buffer>(like, [&](const std::string& name, const Buffer& buffer) {
    const HostBuffer data = file.at(name).data();
    if (!(data.shape() == buffer.shape())) {
      throw Error(Errc::shape_mismatch, "train::load",
                  "'" + name + "' is " + to_string(data.shape()) + ", the model has " +
                      to_string(buffer.shape()));
    }
    return data.to_device(device);
  });
}
template <class Buffers>
Buffers load(const std::filesystem::path& path, const Buffers& like, const DevicePtr& device) {
  return load(io::open(path), like, device);
}

}  // namespace tenon::train
