#pragma once

#include <tenon/io/input_file.hpp>
#include <tenon/io/metadata.hpp>
#include <tenon/io/options.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::io {

/// The part that a GGUF file is of a split model (keys `split.no`, `split.count`).
struct Split {
  std::uint64_t number = 0;  ///< from 0
  std::uint64_t count = 0;
};

/// The file's part, or nothing where the model is whole. Errc::bad_split for numbers that cannot
/// be.
std::optional<Split> find_split(const Metadata& metadata, const InputFile& file,
                                const Limits& limits);

/// Names of all shards in order, for the file `name`: `model-00001-of-0000N.gguf`. Errc::bad_split
/// when it is not named so itself.
std::vector<std::string> shard_names(const Split& split, const std::string& name);

/// Errc::bad_split when a file is not the shard `number` of the same split.
void check_shard(const Split& split, std::uint64_t number, const Metadata& metadata,
                 const InputFile& file, const Limits& limits);

/// Throws Errc::bad_split when a later shard contradicts the first: each of its keys, except its
/// number, must be in the first with the same value. (Writers repeat at least the numbers of shards
/// and of tensors; some repeat all keys.)
void check_same_model(const Metadata& first, const Metadata& later, const InputFile& file);

/// Throws Errc::bad_split unless the shards together have the number of tensors that the first one
/// declares.
void check_tensor_count(const Metadata& metadata, std::size_t found, const std::string& where);

/// Whether a file is named as a shard other than the first.
bool is_later_shard(const std::filesystem::path& path);

}  // namespace tenon::io
