#pragma once

#include <tenon/io/input_file.hpp>

#include <cstdint>

namespace tenon::io {

/// What a file may ask of the reader; beyond it, Errc::limit_exceeded unless another code is named.
/// A value equal to its limit is accepted. All are checked before memory is set aside.
struct Limits {
  /// Bytes of a header: the JSON of a safetensors file or index, everything before the data of a
  /// GGUF file, the dictionary of an npy file. The figure is the one of the safetensors reference.
  std::uint64_t header_bytes = 100'000'000;
  std::uint64_t tensors = 1'000'000;
  std::uint64_t metadata_keys = 1'000'000;
  /// Bytes of a tensor's name or of a metadata key.
  std::uint64_t name_bytes = 65'536;
  /// Elements of one array among the metadata of a GGUF file.
  std::uint64_t array_elements = std::uint64_t{1} << 26;
  /// `general.alignment` of a GGUF file; Errc::bad_alignment beyond it.
  std::uint64_t alignment = 1'048'576;
  /// Nesting of JSON; Errc::depth_limit beyond it.
  int depth = 512;
  /// Files of a split model.
  std::uint64_t shards = 65'535;
};

struct OpenOptions {
  Limits limits = {};
  Access access = Access::map;
  /// Whether the shards of a model may be links that lead out of its folder (as in the download
  /// cache of the Hugging Face hub). Otherwise such a link is Errc::path_escape, and so is an
  /// absolute one. The file that the caller names may always be a link.
  bool follow_links_outside = false;
};

}  // namespace tenon::io
