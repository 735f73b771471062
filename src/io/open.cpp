#include "base/folder.hpp"
#include "base/folder_names.hpp"
#include "gguf_format.hpp"
#include "gguf_split.hpp"
#include "names.hpp"
#include "parsed_file.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tenon::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_suffix = ".safetensors.index.json";

bool has_suffix(const fs::path& path, std::string_view suffix) {
  return path.filename().string().ends_with(suffix);
}

void append(File::State& state, std::shared_ptr<const InputFile> file, ParsedFile parsed) {
  state.shards.push_back(std::move(file));
  if (state.tensors.empty()) {
    state.tensors = std::move(parsed.tensors);
  } else {
    std::ranges::move(parsed.tensors, std::back_inserter(state.tensors));
  }
}

File finish(std::shared_ptr<File::State> state) {
  std::vector<std::string_view> names;
  names.reserve(state->tensors.size());
  for (const TensorEntry& tensor : state->tensors) names.push_back(tensor.name);
  state->by_name = sorted_positions(names);
  if (const auto pair = find_duplicate(names, state->by_name)) {
    throw Error(Errc::duplicate_name, state->tensors[pair->second].file->name(),
                fmt::format("tensor {} stands in {} already", quote_name(names[pair->first]),
                            state->tensors[pair->first].file->name()));
  }
  File file(std::move(state));
  file.check_pages();  // of what has been read so far
  return file;
}

/// A shard, whose name comes from another file: `shard` says which it is, "shard 2 of 3". A link
/// may not lead out of the folder unless the caller allows it.
std::shared_ptr<const InputFile> open_shard(const Folder& folder, const std::string& name,
                                            const std::string& shard, const InputFile& named_by,
                                            const OpenOptions& options) {
  try {
    return folder.open(name, options.follow_links_outside ? Links::any : Links::beneath,
                       options.access);
  } catch (const Error& error) {
    if (error.code() == Errc::not_found) {
      throw Error(Errc::missing_shard, named_by.name(),
                  fmt::format("{} is missing: {}", shard, (folder.path() / name).string()));
    }
    if (error.code() != Errc::path_escape) throw;
    throw Error(Errc::path_escape, named_by.name(),
                fmt::format("{} is a link that may lead out of the folder: {}; "
                            "OpenOptions::follow_links_outside allows that",
                            shard, quote_name(name)));
  }
}

File open_gguf(const std::shared_ptr<const InputFile>& file, const OpenOptions& options) {
  auto state = std::make_shared<File::State>();
  state->path = file->path();
  state->format = Format::gguf;
  ParsedFile parsed = read_gguf(file, options.limits);
  const auto split = find_split(parsed.metadata, *file, options.limits);
  if (!split) {
    state->metadata = std::move(parsed.metadata);
    append(*state, file, std::move(parsed));
    return finish(std::move(state));
  }
  const std::vector<std::string> names = shard_names(*split, file->name());
  const Folder folder(file->path().parent_path());
  state->path = file->path().parent_path() / names.front();
  std::vector<std::shared_ptr<const InputFile>> shards;
  for (std::uint64_t i = 0; i < split->count; ++i) {
    if (i == split->number) {
      shards.push_back(file);
    } else {
      const std::string shard = fmt::format("shard {} of {}", i + 1, split->count);
      shards.push_back(open_shard(folder, names[i], shard, *file, options));
    }
  }
  for (std::uint64_t i = 0; i < split->count; ++i) {
    ParsedFile part =
        i == split->number ? std::exchange(parsed, {}) : read_gguf(shards[i], options.limits);
    check_shard(*split, i, part.metadata, *shards[i], options.limits);
    if (i == 0) {
      state->metadata = std::move(part.metadata);
    } else {
      check_same_model(state->metadata, part.metadata, *shards[i]);
    }
    append(*state, std::move(shards[i]), std::move(part));
  }
  check_tensor_count(state->metadata, state->tensors.size(), names.front());
  return finish(std::move(state));
}

File open_safetensors(std::shared_ptr<const InputFile> file, const OpenOptions& options) {
  auto state = std::make_shared<File::State>();
  state->path = file->path();
  state->format = Format::safetensors;
  ParsedFile parsed = read_safetensors(file, options.limits);
  state->metadata = std::move(parsed.metadata);
  append(*state, std::move(file), std::move(parsed));
  return finish(std::move(state));
}

File open_index(const std::shared_ptr<const InputFile>& file, const OpenOptions& options) {
  auto state = std::make_shared<File::State>();
  state->path = file->path();
  state->format = Format::safetensors_sharded;
  const Folder folder(file->path().parent_path());
  const ShardIndex index = read_safetensors_index(file, options.limits);
  std::vector<std::shared_ptr<const InputFile>> shards;
  for (const ShardIndex::Shard& shard : index.shards) {
    shards.push_back(open_shard(folder, shard.file_name, "shard", *file, options));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    ParsedFile parsed = read_safetensors(shards[i], options.limits);
    std::vector<std::string_view> present;
    for (const TensorEntry& tensor : parsed.tensors) present.push_back(tensor.name);
    std::ranges::sort(present);
    for (const std::string& expected : index.shards[i].tensors) {
      if (std::ranges::binary_search(present, std::string_view(expected))) continue;
      throw Error(Errc::bad_reference, file->name(),
                  fmt::format("tensor {} is not in its shard {}", quote_name(expected),
                              quote_name(index.shards[i].file_name)));
    }
    if (i == 0) state->metadata = std::move(parsed.metadata);
    append(*state, std::move(shards[i]), std::move(parsed));
  }
  return finish(std::move(state));
}

// The one model in a folder: an index before single files, and the first shard for all of a split.
fs::path find_model(const fs::path& folder) {
  std::vector<fs::path> indices;
  std::vector<fs::path> models;
  const std::error_code failure = for_each_name(folder, [&](std::string_view name) {
    fs::path path = folder / name;
    if (name.ends_with(index_suffix)) {
      indices.push_back(std::move(path));
    } else if (name.ends_with(".safetensors") ||
               (name.ends_with(".gguf") && !is_later_shard(path))) {
      models.push_back(std::move(path));
    }
  });
  if (failure) throw Error(Errc::io_error, folder.string(), failure.message());
  std::vector<fs::path>& found = indices.empty() ? models : indices;
  if (found.size() == 1) return found.front();
  if (const fs::path usual = folder / "model.safetensors"; std::ranges::count(found, usual) == 1) {
    return usual;
  }
  if (found.empty()) {
    throw Error(Errc::not_found, folder.string(),
                "no .safetensors.index.json, .safetensors or .gguf file in this folder");
  }
  std::ranges::sort(found);
  std::string names;
  for (const fs::path& path : found)
    names += (names.empty() ? "" : ", ") + path.filename().string();
  throw Error(Errc::bad_argument, folder.string(), "several models in this folder: " + names);
}

bool begins_as_gguf(const InputFile& file) {
  if (file.size() < gguf::magic.size()) return false;
  std::array<char, 4> found{};
  file.read(0, std::as_writable_bytes(std::span(found)));
  return std::string_view(found.data(), found.size()) == gguf::magic;
}

// Whether the first byte of a header stands where safetensors has it.
bool begins_as_safetensors(const InputFile& file) {
  if (file.size() < 10) return false;
  std::array<char, 9> found{};
  file.read(0, std::as_writable_bytes(std::span(found)));
  return found[8] == '{';
}

File open_any(const fs::path& path, const OpenOptions& options) {
  std::error_code failure;
  const bool is_folder = fs::is_directory(path, failure);
  auto file = InputFile::open(is_folder ? find_model(path) : path, options.access);
  if (begins_as_gguf(*file)) return open_gguf(file, options);
  if (has_suffix(file->path(), ".json")) return open_index(file, options);
  if (has_suffix(file->path(), ".safetensors")) return open_safetensors(std::move(file), options);
  if (!has_suffix(file->path(), ".gguf") && begins_as_safetensors(*file)) {
    return open_safetensors(std::move(file), options);
  }
  return open_gguf(file, options);  // which says what the magic is
}

}  // namespace

File open(const fs::path& path, const OpenOptions& options) {
  return with_memory_errors(path.native(), [&] { return open_any(path, options); });
}

}  // namespace tenon::io
