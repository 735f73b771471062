#include "base/suggestion.hpp"
#include "names.hpp"
#include "parsed_file.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::io {
namespace {

bool is_aligned(const std::byte* bytes, DType dtype) noexcept {
  const auto step =
      is_block(dtype) ? std::int64_t{2} : block_bytes(dtype);  // blocks hold f16 scales
  return reinterpret_cast<std::uintptr_t>(bytes) % static_cast<std::uintptr_t>(step) == 0;
}

}  // namespace

std::string_view name(Format format) noexcept {
  switch (format) {
    case Format::gguf:
      return "gguf";
    case Format::safetensors:
      return "safetensors";
    case Format::safetensors_sharded:
      return "sharded safetensors";
  }
  return "?";
}

HostBuffer TensorEntry::data() const {
  if (file->is_mapped() && size_bytes > 0) {
    const std::byte* const bytes = file->mapped().data() + offset_bytes;
    if (is_aligned(bytes, shape.dtype())) {
      file->check_unchanged();
      return HostBuffer::mapped(file, offset_bytes, shape);
    }
  }
  HostBuffer copy = HostBuffer::uninitialized(shape);
  read({copy.view().data, static_cast<std::size_t>(size_bytes)});
  return copy;
}

void TensorEntry::read(std::span<std::byte> to) const {
  if (to.size() != size_bytes) {
    throw Error(Errc::bad_argument, file->name(),
                fmt::format("tensor {} has {} bytes, the memory given has {}", quote_name(name),
                            size_bytes, to.size()));
  }
  if (size_bytes > 0) file->read(offset_bytes, to);  // an empty tensor may begin at the file's end
}

WeightsView File::view() const {
  return with_memory_errors("File::view", [&] {
    std::call_once(state_->view_made, [&] {
      std::vector<std::pair<std::string, Shape>> weights;
      weights.reserve(state_->tensors.size());
      for (const TensorEntry& entry : state_->tensors) {
        weights.emplace_back(entry.name, entry.shape);
      }
      state_->view.emplace(state_->path.filename().string(), weights);
    });
    return *state_->view;
  });
}

File::File(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}

const std::filesystem::path& File::path() const { return state_->path; }
Format File::format() const { return state_->format; }
std::span<const TensorEntry> File::tensors() const& { return state_->tensors; }
const Metadata& File::metadata() const { return state_->metadata; }

std::span<const std::shared_ptr<const InputFile>> File::shards() const { return state_->shards; }

void File::check_pages() const {
  for (const auto& shard : state_->shards) {
    if (shard->has_lost_pages()) shard->check_unchanged();
  }
}

const TensorEntry* File::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(state_->by_name, name, {}, [&](std::uint32_t i) {
    return std::string_view(state_->tensors[i].name);
  });
  if (at == state_->by_name.end() || state_->tensors[*at].name != name) return nullptr;
  return &state_->tensors[*at];
}

const TensorEntry& File::at(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  std::vector<std::string_view> names;
  names.reserve(state_->tensors.size());
  for (const TensorEntry& entry : state_->tensors) names.push_back(entry.name);
  throw Error(Errc::bad_reference, path().filename().string(),
              "no tensor " + quote_name(name) + suggestion(name, names));
}

std::optional<std::filesystem::path> File::sibling(std::string_view name) const {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    throw Error(Errc::path_escape, path().filename().string(),
                quote_name(name) + " is not the name of a file in the same folder");
  }
  std::filesystem::path beside = path().parent_path() / name;
  std::error_code failure;
  if (!std::filesystem::is_regular_file(beside, failure)) return std::nullopt;
  return beside;
}

Shape file_shape(std::span<const std::int64_t> dims, DType dtype, const std::string& where,
                 std::string_view tensor_name) {
  try {
    return {dims, dtype};
  } catch (const Error& error) {
    throw Error(error.code(), where,
                fmt::format("tensor {}: {}", quote_name(tensor_name), error.message()));
  }
}

}  // namespace tenon::io
