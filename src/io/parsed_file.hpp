#pragma once

#include <tenon/io/file.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::io {

/// What the reader of one file hands to open().
struct ParsedFile {
  Metadata metadata;
  std::vector<TensorEntry> tensors;  // in the order of their bytes
};

/// What a File shares among its copies.
struct File::State {
  std::filesystem::path path;
  Format format = Format::gguf;
  Metadata metadata;
  std::vector<TensorEntry> tensors;
  std::vector<std::uint32_t> by_name;  // positions in tensors, ordered by name
  std::vector<std::shared_ptr<const InputFile>> shards;

  // Made when first asked for; declared tensors live as long as the file.
  mutable std::once_flag view_made;
  mutable std::optional<WeightsView> view;
};

ParsedFile read_gguf(const std::shared_ptr<const InputFile>& file, const Limits& limits);
ParsedFile read_safetensors(const std::shared_ptr<const InputFile>& file, const Limits& limits);

/// The shards that an index names, in the order of their names, and the tensors it expects in each.
struct ShardIndex {
  struct Shard {
    std::string file_name;
    std::vector<std::string> tensors;
  };
  std::vector<Shard> shards;
  Metadata metadata;
};

ShardIndex read_safetensors_index(const std::shared_ptr<const InputFile>& file,
                                  const Limits& limits);

/// Makes a Shape for an array of a file; errors name the place and the tensor.
Shape file_shape(std::span<const std::int64_t> dims, DType dtype, const std::string& where,
                 std::string_view tensor_name);

}  // namespace tenon::io
