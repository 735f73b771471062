#include "listing.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

std::string_view as_text(const std::byte* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text.empty() ? "-" : text;
}

std::string fnv(std::string_view bytes) {
  std::uint64_t value = 0xCBF29CE484222325;
  for (const char c : bytes) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

std::string value_text(const io::MetaValue& value) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using Value = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<Value, io::MetaArray>) {
          std::string bytes(as_text(v.bytes().data(), v.bytes().size()));
          for (const std::string_view text : v.strings()) {
            const std::uint64_t length = text.size();
            bytes.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(text);
          }
          return fmt::format("array-of-{} {}:{}", name(v.element_type()), v.size(), fnv(bytes));
        } else if constexpr (std::is_same_v<Value, std::string_view>) {
          return "string " + hex(v);
        } else if constexpr (std::is_floating_point_v<Value>) {
          return fmt::format("{} {}", name(io::type_of(value)),
                             hex({reinterpret_cast<const char*>(&v), sizeof(v)}));
        } else {
          return fmt::format("{} {:d}", name(io::type_of(value)), v);
        }
      },
      value);
}

std::string tensor_line(std::string_view tensor_name, const HostBuffer& data) {
  const Shape& shape = data.shape();
  return fmt::format("tensor {} {} [{}] {}\n", hex(tensor_name), name(shape.dtype()),
                     fmt::join(shape.dims(), ","),
                     fnv(as_text(data.bytes(), static_cast<std::size_t>(shape.bytes()))));
}

std::vector<std::string> key_lines(const io::Metadata& metadata) {
  std::vector<std::string> lines;
  for (const io::Metadata::Entry& entry : metadata.entries()) {
    lines.push_back(fmt::format("key {} {}\n", hex(entry.key), value_text(entry.value)));
  }
  return lines;
}

}  // namespace

std::string listing(const io::Metadata& metadata) {
  return fmt::format("{}", fmt::join(key_lines(metadata), ""));
}

std::string listing(const io::File& file) {
  std::vector<std::string> lines = key_lines(file.metadata());
  for (const io::TensorEntry& tensor : file.tensors()) {
    lines.push_back(tensor_line(tensor.name, tensor.data()));
  }
  if (file.format() != io::Format::gguf) std::ranges::sort(lines);
  return fmt::format("{}", fmt::join(lines, ""));
}

std::string listing(const HostBuffer& array) { return tensor_line("array", array); }

}  // namespace tenon::testing
