#include "gguf_split.hpp"

#include "gguf_format.hpp"
#include "names.hpp"

#include <tenon/error.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace tenon::io {
namespace {

// "-00001-of-00003.gguf"
constexpr std::size_t suffix_bytes = 20;
constexpr std::string_view number_key = "split.no";

std::string shard_suffix(std::uint64_t number, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

bool is_digits(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<Split> find_split(const Metadata& metadata, const InputFile& file,
                                const Limits& limits) {
  const Split split{metadata.get_or<std::uint64_t>(number_key, 0),
                    metadata.get_or<std::uint64_t>("split.count", 0)};
  if (split.count <= 1 && split.number == 0) return std::nullopt;
  if (split.count > limits.shards) {
    throw Error(Errc::limit_exceeded, file.name(),
                fmt::format("{} shards, at most {} are allowed", split.count, limits.shards));
  }
  if (split.number >= split.count) {
    throw Error(Errc::bad_split, file.name(),
                fmt::format("'split.no' is {}, 'split.count' {}", split.number, split.count));
  }
  return split;
}

std::vector<std::string> shard_names(const Split& split, const std::string& name) {
  const std::string expected = shard_suffix(split.number, split.count);
  if (!name.ends_with(expected)) {
    throw Error(Errc::bad_split, name,
                fmt::format("shard {} of {} must be named '...{}' to find the others",
                            split.number + 1, split.count, expected));
  }
  const std::string prefix = name.substr(0, name.size() - expected.size());
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < split.count; ++i) {
    names.push_back(prefix + shard_suffix(i, split.count));
  }
  return names;
}

void check_shard(const Split& split, std::uint64_t number, const Metadata& metadata,
                 const InputFile& file, const Limits& limits) {
  const auto found = find_split(metadata, file, limits);
  if (found && found->number == number && found->count == split.count) return;
  throw Error(
      Errc::bad_split, file.name(),
      found ? fmt::format("says that it is shard {} of {}, expected {} of {}", found->number + 1,
                          found->count, number + 1, split.count)
            : fmt::format("is a whole model, expected shard {} of {}", number + 1, split.count));
}

void check_same_model(const Metadata& first, const Metadata& later, const InputFile& file) {
  for (const Metadata::Entry& entry : later.entries()) {
    if (entry.key == number_key) continue;
    const MetaValue* const expected = first.find(entry.key);
    // How a file's own tensors are aligned is not the model's.
    if (expected == nullptr && entry.key == gguf::alignment_key) continue;
    if (expected != nullptr && *expected == entry.value) continue;
    throw Error(Errc::bad_split, file.name(),
                fmt::format("belongs to another model: {} {}", quote_name(entry.key),
                            expected == nullptr ? "is not among the first shard's keys"
                                                : "is not what the first shard says"));
  }
}

void check_tensor_count(const Metadata& metadata, std::size_t found, const std::string& where) {
  const auto announced = metadata.get_or<std::uint64_t>("split.tensors.count", found);
  if (announced == found) return;
  throw Error(Errc::bad_split, where,
              fmt::format("'split.tensors.count' is {}, the shards hold {}", announced, found));
}

bool is_later_shard(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (name.size() < suffix_bytes) return false;
  const std::string_view suffix = std::string_view(name).substr(name.size() - suffix_bytes);
  return suffix[0] == '-' && is_digits(suffix.substr(1, 5)) && suffix.substr(6, 4) == "-of-" &&
         is_digits(suffix.substr(10, 5)) && suffix.substr(15) == ".gguf" &&
         suffix.substr(1, 5) != "00001";
}

}  // namespace tenon::io
