#include "byte_reader.hpp"
#include "gguf_format.hpp"
#include "names.hpp"
#include "parsed_file.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace tenon::io {
namespace {

// Minimal sizes of a key with its value and of a tensor's description: they bound how many a file
// of a given size can have.
constexpr std::uint64_t min_key_bytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t min_tensor_bytes = 8 + 1 + 4 + 4 + 8;

class GgufParser {
 public:
  GgufParser(const std::shared_ptr<const InputFile>& file, std::span<const std::byte> bytes,
             std::shared_ptr<const void> keeper, const Limits& limits)
      : file_(file),
        keeper_(std::move(keeper)),
        limits_(limits),
        reader_(bytes, file->size(), limits.header_bytes, file->name()) {}

  ParsedFile parse() {
    check_frame();
    const std::uint64_t tensor_count = read_count("tensors", limits_.tensors, min_tensor_bytes);
    const std::uint64_t key_count =
        read_count("metadata keys", limits_.metadata_keys, min_key_bytes);
    ParsedFile parsed;
    read_metadata(key_count);
    read_tensors(tensor_count, parsed.tensors);
    place(parsed.tensors);
    parsed.metadata = Metadata(std::move(entries_), keeper_, file_->name());
    return parsed;
  }

 private:
  void check_frame() {
    check_magic();
    reader_.set_context("version", {});
    const auto version_at = reader_.position();
    const auto version = reader_.number<std::uint32_t>();
    if (version >= gguf::oldest_version && version <= gguf::newest_version) return;
    const std::uint32_t swapped = __builtin_bswap32(version);
    std::string message = fmt::format("version {}, versions {} to {} can be read", version,
                                      gguf::oldest_version, gguf::newest_version);
    if (swapped >= 1 && swapped <= gguf::newest_version) {
      message = fmt::format("a big-endian file (version {}), only little-endian ones can be read",
                            swapped);
    }
    throw Error(Errc::unsupported_version, reader_.where_at(version_at), message);
  }

  void check_magic() {
    reader_.set_context("magic", {});
    const std::string_view found(reinterpret_cast<const char*>(reader_.take(4)), 4);
    if (found == gguf::magic) return;
    std::string message = fmt::format("found {}, expected 'GGUF'", quote_name(found));
    std::string reversed(found.rbegin(), found.rend());
    if (found == "FUGG" || found == "FGUU" || found == "UGFG") {
      message += ": the bytes are swapped";
    }
    if (found == "PK\x03\x04") {
      message += ": a ZIP archive; `tenon import` reads those of torch.export";
    }
    if (found == "# te") message += ": `tenon run` runs texts of programs";
    // A protobuf whose first field is a version and whose next one is a name.
    if (found[0] == '\x08' && found[1] > 0 && found[1] < 0x20 && found[2] == '\x12') {
      message += ": `tenon import` reads ONNX models";
    }
    for (const std::string_view legacy : {"ggml", "ggmf", "ggjt", "ggla"}) {
      if (found == legacy || reversed == legacy) {
        message = fmt::format(
            "found {}, the older format '{}', expected 'GGUF'; "
            "llama.cpp's convert_llama_ggml_to_gguf.py converts such files",
            quote_name(found), legacy);
      }
    }
    throw Error(Errc::bad_magic, reader_.where_at(0), message);
  }

  std::uint64_t read_count(std::string_view what, std::uint64_t limit, std::uint64_t min_bytes) {
    reader_.set_context(what, {});
    const auto count = reader_.number<std::uint64_t>();
    if (count > limit) {
      reader_.fail(Errc::limit_exceeded,
                   fmt::format("{} {} announced, at most {} are allowed", count, what, limit));
    }
    reader_.check_room(count, min_bytes);
    return count;
  }

  std::string_view read_name(std::string_view kind) {
    const std::uint64_t at = reader_.position();
    reader_.set_context(kind, {});
    const std::string_view name = reader_.text();
    check_name(name, kind, limits_.name_bytes, reader_.where_at(at));
    return name;
  }

  void check_distinct(std::span<const std::string_view> names,
                      std::span<const std::uint64_t> positions, std::string_view kind) const {
    if (const auto pair = find_duplicate(names, sorted_positions(names))) {
      throw Error(Errc::duplicate_name, reader_.where_at(positions[pair->second]),
                  fmt::format("{} {} stands at byte {} already", kind,
                              quote_name(names[pair->first]), positions[pair->first]));
    }
  }

  void read_metadata(std::uint64_t count) {
    std::vector<std::string_view> keys;
    std::vector<std::uint64_t> positions;
    entries_.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      positions.push_back(reader_.position());
      const std::string_view key = read_name("key");
      reader_.set_context("value of ", key);
      const MetaType type = read_type(key);
      const std::uint64_t value_at = reader_.position();
      MetaValue value =
          type == MetaType::array ? MetaValue(read_array(key)) : read_scalar(key, type);
      if (key == gguf::alignment_key) set_alignment(value, value_at);
      entries_.push_back({key, std::move(value)});
      keys.push_back(key);
    }
    check_distinct(keys, positions, "key");
  }

  MetaType read_type(std::string_view key) {
    const auto id = reader_.number<std::uint32_t>();
    if (id >= meta_type_count) {
      reader_.fail(Errc::bad_type, fmt::format("value of {} has type {}, types 0 to {} exist",
                                               quote_name(key), id, meta_type_count - 1));
    }
    return static_cast<MetaType>(id);
  }

  void check_bool(std::string_view key, std::uint8_t byte) const {
    if (byte <= 1) return;
    reader_.fail(Errc::bad_type,
                 fmt::format("a bool of {} is {}, allowed are 0 and 1", quote_name(key), byte));
  }

  MetaValue read_scalar(std::string_view key, MetaType type) {
    switch (type) {
      case MetaType::u8:
        return reader_.number<std::uint8_t>();
      case MetaType::i8:
        return reader_.number<std::int8_t>();
      case MetaType::u16:
        return reader_.number<std::uint16_t>();
      case MetaType::i16:
        return reader_.number<std::int16_t>();
      case MetaType::u32:
        return reader_.number<std::uint32_t>();
      case MetaType::i32:
        return reader_.number<std::int32_t>();
      case MetaType::f32:
        return reader_.number<float>();
      case MetaType::u64:
        return reader_.number<std::uint64_t>();
      case MetaType::i64:
        return reader_.number<std::int64_t>();
      case MetaType::f64:
        return reader_.number<double>();
      case MetaType::string:
        return reader_.text();
      case MetaType::boolean: {
        const auto byte = reader_.number<std::uint8_t>();
        check_bool(key, byte);
        return byte == 1;
      }
      case MetaType::array:
        break;  // read_array()
    }
    throw Error(Errc::internal, reader_.where(), "a metadata type without a reader");
  }

  MetaArray read_array(std::string_view key) {
    const MetaType type = read_type(key);
    if (type == MetaType::array) {
      reader_.fail(Errc::unsupported, fmt::format("{} is an array of arrays", quote_name(key)));
    }
    const auto count = reader_.number<std::uint64_t>();
    if (count > limits_.array_elements) {
      reader_.fail(Errc::limit_exceeded,
                   fmt::format("{} has {} elements, at most {} are allowed", quote_name(key), count,
                               limits_.array_elements));
    }
    if (type == MetaType::string) return read_strings(count);
    reader_.check_room(count, size_bytes(type));
    const std::byte* const elements = reader_.take(count * size_bytes(type));
    if (type == MetaType::boolean) {
      for (std::uint64_t i = 0; i < count; ++i) {
        check_bool(key, static_cast<std::uint8_t>(elements[i]));
      }
    }
    return {type, elements, static_cast<std::size_t>(count)};
  }

  MetaArray read_strings(std::uint64_t count) {
    constexpr std::uint64_t min_string_bytes = 8;
    reader_.check_room(count, min_string_bytes);
    std::vector<std::string_view> strings;
    strings.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) strings.push_back(reader_.text());
    return MetaArray(std::move(strings));
  }

  void set_alignment(const MetaValue& value, std::uint64_t at) {
    const auto* const number = std::get_if<std::uint32_t>(&value);
    if (number == nullptr) {
      throw Error(Errc::bad_type, reader_.where_at(at),
                  fmt::format("'{}' is {}, expected u32", gguf::alignment_key, type_text(value)));
    }
    if (!gguf::is_alignment(*number, limits_.alignment)) {
      throw Error(
          Errc::bad_alignment, reader_.where_at(at),
          fmt::format("'{}' is {}, allowed are powers of two from {} to {}", gguf::alignment_key,
                      *number, gguf::min_alignment, limits_.alignment));
    }
    alignment_ = *number;
  }

  void read_tensors(std::uint64_t count, std::vector<TensorEntry>& tensors) {
    std::vector<std::string_view> names;
    tensors.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = reader_.position();
      tensor_positions_.push_back(at);
      const std::string_view name = read_name("tensor name");
      names.push_back(name);
      reader_.set_context("description of tensor ", name);
      TensorEntry& tensor = tensors.emplace_back();
      tensor.name = name;
      tensor.shape = read_shape(name, at);
      tensor.offset_bytes = reader_.number<std::uint64_t>();  // from the data section: see place()
      tensor.size_bytes = static_cast<std::uint64_t>(tensor.shape.bytes());
      tensor.file = file_;
    }
    check_distinct(names, tensor_positions_, "tensor");
  }

  Shape read_shape(std::string_view name, std::uint64_t at) {
    const auto rank = reader_.number<std::uint32_t>();
    if (rank > static_cast<std::uint32_t>(gguf::max_rank)) {
      reader_.fail(Errc::bad_shape,
                   fmt::format("tensor {} has {} dimensions, at most {} are allowed",
                               quote_name(name), rank, gguf::max_rank));
    }
    std::array<std::int64_t, gguf::max_rank> dims{};
    for (std::uint32_t i = 0; i < rank; ++i) {
      const auto size = reader_.number<std::int64_t>();
      if (size < 0) {
        reader_.fail(Errc::bad_shape,
                     fmt::format("tensor {} has size {} on axis {}", quote_name(name),
                                 static_cast<std::uint64_t>(size), i));
      }
      dims[rank - 1 - i] = size;  // the file lists the innermost axis first
    }
    const auto id = reader_.number<std::uint32_t>();
    const auto dtype = gguf::find_dtype(id);
    if (!dtype) {
      const std::string_view foreign = gguf::foreign_name(id);
      reader_.fail(Errc::unsupported_dtype,
                   fmt::format("tensor {} has element type {}{}", quote_name(name), id,
                               foreign.empty() ? std::string(", which does not exist")
                                               : fmt::format(" ({})", foreign)));
    }
    return file_shape({dims.data(), rank}, *dtype, reader_.where_at(at), name);
  }

  // Tensors are in the order of their descriptions, each at the first aligned byte after the
  // previous one. Sums are checked for overflow before they are compared with the file's size.
  void place(std::vector<TensorEntry>& tensors) const {
    if (tensors.empty()) return;
    const auto step = static_cast<std::int64_t>(alignment_);
    const auto padded = [&](std::int64_t size, std::size_t tensor) {
      std::int64_t sum = 0;
      if (__builtin_add_overflow(size, step - 1, &sum)) fail_total(tensor);
      return sum / step * step;
    };
    const std::int64_t data_begin = padded(static_cast<std::int64_t>(reader_.position()), 0);
    std::int64_t expected = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      check_offset(tensors[i], i, static_cast<std::uint64_t>(expected));
      std::int64_t end = 0;
      std::int64_t file_end = 0;
      if (__builtin_add_overflow(expected, static_cast<std::int64_t>(tensors[i].size_bytes),
                                 &end) ||
          __builtin_add_overflow(data_begin, end, &file_end)) {
        fail_total(i);
      }
      expected = padded(end, i);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      TensorEntry& tensor = tensors[i];
      tensor.offset_bytes += static_cast<std::uint64_t>(data_begin);
      const std::uint64_t end = tensor.offset_bytes + tensor.size_bytes;
      if (end <= reader_.file_size() || tensor.size_bytes == 0) continue;
      throw Error(Errc::truncated, reader_.where_at(tensor.offset_bytes),
                  fmt::format("tensor {} ends at byte {}, the file after {}",
                              quote_name(tensor.name), end, reader_.file_size()));
    }
  }

  void check_offset(const TensorEntry& tensor, std::size_t index, std::uint64_t expected) const {
    const std::uint64_t found = tensor.offset_bytes;
    if (found == expected) return;
    const bool overlaps = found < expected && found % alignment_ == 0;
    throw Error(
        overlaps ? Errc::overlap : Errc::bad_offset, reader_.where_at(tensor_positions_[index]),
        fmt::format("tensor {} begins at offset {} of the data, expected {}{}",
                    quote_name(tensor.name), found, expected,
                    found % alignment_ == 0 ? std::string()
                                            : fmt::format(" (a multiple of {})", alignment_)));
  }

  [[noreturn]] void fail_total(std::size_t index) const {
    throw Error(Errc::shape_overflow, reader_.where_at(tensor_positions_[index]),
                "the sizes of the tensors sum to more than 2^63 - 1 bytes");
  }

  const std::shared_ptr<const InputFile>& file_;
  std::shared_ptr<const void> keeper_;
  const Limits& limits_;
  ByteReader reader_;
  std::uint64_t alignment_ = gguf::default_alignment;
  std::vector<Metadata::Entry> entries_;
  std::vector<std::uint64_t> tensor_positions_;
};

}  // namespace

ParsedFile read_gguf(const std::shared_ptr<const InputFile>& file, const Limits& limits) {
  if (file->is_mapped() || file->size() == 0) {
    return GgufParser(file, file->mapped(), file, limits).parse();
  }
  // The header's length is unknown: parse increasingly longer prefixes of the file.
  constexpr std::uint64_t first_try = std::uint64_t{1} << 18;
  for (std::uint64_t size = first_try;; size *= 4) {
    auto prefix = std::make_shared<std::vector<std::byte>>(
        std::min({size, file->size(), limits.header_bytes}));
    file->read(0, *prefix);
    try {
      return GgufParser(file, *prefix, prefix, limits).parse();
    } catch (const HeaderContinues&) {
    }
  }
}

}  // namespace tenon::io
