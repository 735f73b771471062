#pragma once

#include <tenon/io/input_file.hpp>

#include <cstdint>

namespace tenon::io {

/// Limits on the content of a file. A value above its limit throws Errc::limit_exceeded unless
/// another code is named; one equal to its limit is accepted. All are checked before memory is
/// allocated.
struct Limits {
  /// Bytes of a header: the JSON of a safetensors file or index, everything before the data of a
  /// GGUF file, the dictionary of an npy file. The default is that of the safetensors reference.
  std::uint64_t header_bytes = 100'000'000;
  std::uint64_t tensors = 1'000'000;
  std::uint64_t metadata_keys = 1'000'000;
  /// Bytes of a tensor's name or of a metadata key.
  std::uint64_t name_bytes = 65'536;
  /// Elements of one array in the metadata of a GGUF file.
  std::uint64_t array_elements = std::uint64_t{1} << 26;
  /// `general.alignment` of a GGUF file; Errc::bad_alignment above it.
  std::uint64_t alignment = 1'048'576;
  /// Nesting depth of JSON; Errc::depth_limit above it.
  int depth = 512;
  /// Number of files of a split model.
  std::uint64_t shards = 65'535;
};

struct OpenOptions {
  Limits limits = {};
  Access access = Access::map;
  /// Whether shards may be symbolic links that lead out of the model's folder (as in the download
  /// cache of the Hugging Face hub). Otherwise such a link, or an absolute one, throws
  /// Errc::path_escape. The file that the caller names may always be a link.
  bool follow_links_outside = false;
};

}  // namespace tenon::io
