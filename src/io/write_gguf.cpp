#include "base/atomic_file.hpp"
#include "gguf_format.hpp"
#include "gguf_writer.hpp"
#include "names.hpp"
#include "write_tensors.hpp"

#include <tenon/error.hpp>
#include <tenon/io/save.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include <fmt/format.h>

namespace tenon::io {
namespace {

constexpr std::string_view save_gguf_name = "save_gguf";
constexpr std::uint64_t max_alignment = std::uint64_t{1} << 20;

std::uint64_t find_alignment(const Metadata& metadata, std::string_view caller) {
  const MetaValue* const value = metadata.find(gguf::alignment_key);
  if (value == nullptr) return gguf::default_alignment;
  const auto* const number = std::get_if<std::uint32_t>(value);
  if (number == nullptr) {
    throw Error(Errc::bad_type, std::string(caller),
                fmt::format("'{}' is {}, expected u32", gguf::alignment_key, type_text(*value)));
  }
  if (!gguf::is_alignment(*number, max_alignment)) {
    throw Error(Errc::bad_alignment, std::string(caller),
                fmt::format("'{}' is {}, allowed are powers of two from {} to {}",
                            gguf::alignment_key, *number, gguf::min_alignment, max_alignment));
  }
  return *number;
}

void check_tensor(const TensorPlan& tensor, std::string_view caller) {
  const Shape& shape = tensor.shape;
  if (!gguf::find_id(shape.dtype())) {
    throw Error(Errc::unsupported_dtype, std::string(caller),
                fmt::format("tensor {} is {}, which GGUF lacks", quote_name(tensor.name),
                            name(shape.dtype())));
  }
  if (shape.rank() > gguf::max_rank) {
    throw Error(Errc::bad_shape, std::string(caller),
                fmt::format("tensor {} is {}, GGUF has at most {} dimensions",
                            quote_name(tensor.name), to_string(shape), gguf::max_rank));
  }
}

void write_text(AtomicFile& file, std::string_view text) {
  file.write_number(static_cast<std::uint64_t>(text.size()));
  file.write(text);
}

void write_type(AtomicFile& file, MetaType type) {
  file.write_number(static_cast<std::uint32_t>(type));
}

void write_value(AtomicFile& file, const MetaValue& value) {
  write_type(file, type_of(value));
  std::visit(
      [&](const auto& v) {
        using Value = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<Value, std::string_view>) {
          write_text(file, v);
        } else if constexpr (std::is_same_v<Value, MetaArray>) {
          write_type(file, v.element_type());
          file.write_number(static_cast<std::uint64_t>(v.size()));
          file.write(v.bytes());
          for (const std::string_view text : v.strings()) write_text(file, text);
        } else {
          file.write_number(v);
        }
      },
      value);
}

void write_description(AtomicFile& file, const TensorPlan& tensor, std::int64_t offset) {
  const Shape& shape = tensor.shape;
  write_text(file, tensor.name);
  file.write_number(static_cast<std::uint32_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) file.write_number(shape[axis]);
  file.write_number(*gguf::find_id(shape.dtype()));
  file.write_number(offset);
}

}  // namespace

void write_gguf(const std::filesystem::path& path, const Metadata& metadata,
                std::span<const TensorPlan> tensors, std::string_view caller,
                const std::function<void(std::size_t, AtomicFile&)>& write_data) {
  const auto alignment = static_cast<std::int64_t>(find_alignment(metadata, caller));
  for (const TensorPlan& tensor : tensors) check_tensor(tensor, caller);
  const auto padding = [&](std::int64_t size) {
    return (alignment - size % alignment) % alignment;
  };

  AtomicFile file(path);
  file.write(gguf::magic);
  file.write_number(gguf::newest_version);
  file.write_number(static_cast<std::uint64_t>(tensors.size()));
  file.write_number(static_cast<std::uint64_t>(metadata.size()));
  for (const Metadata::Entry& entry : metadata.entries()) {
    write_text(file, entry.key);
    write_value(file, entry.value);
  }
  std::int64_t offset = 0;
  for (const TensorPlan& tensor : tensors) {
    write_description(file, tensor, offset);
    const std::int64_t end = checked_add(offset, tensor.shape.bytes());
    offset = checked_add(end, padding(end));
  }
  file.write_zeros(static_cast<std::size_t>(padding(static_cast<std::int64_t>(file.size()))));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    write_data(i, file);
    file.write_zeros(static_cast<std::size_t>(padding(tensors[i].shape.bytes())));
  }
  file.commit();
}

void save_gguf(const std::filesystem::path& path, const Metadata& metadata,
               std::span<const NamedTensor> tensors) {
  with_memory_errors(path.native(), [&] {
    find_alignment(metadata, save_gguf_name);
    check_tensor_names(tensors, save_gguf_name);
    std::vector<TensorPlan> plans;
    plans.reserve(tensors.size());
    for (const NamedTensor& tensor : tensors) plans.push_back({tensor.name, tensor.data.shape()});
    write_gguf(path, metadata, plans, save_gguf_name,
               [&](std::size_t i, AtomicFile& file) { write_array(file, tensors[i].data); });
  });
}

}  // namespace tenon::io
