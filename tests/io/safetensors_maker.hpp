#pragma once

#include "byte_writer.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::testing {

/// A safetensors file with this header and this many bytes of data (0, 1, 2, ...).
inline std::string safetensors(std::string_view header, std::size_t data_bytes = 0,
                               std::optional<std::uint64_t> announced = {}) {
  ByteWriter file;
  file.u64(announced.value_or(header.size())).raw(header);
  for (std::size_t i = 0; i < data_bytes; ++i) file.u8(static_cast<std::uint8_t>(i));
  return file.bytes;
}

/// `"name":{...}` of a header.
inline std::string declare(std::string_view name, std::string_view dtype, std::string_view shape,
                           std::string_view offsets) {
  std::string text = "\"";
  text.append(name).append("\":{\"dtype\":\"").append(dtype).append("\",\"shape\":").append(shape);
  return text.append(",\"data_offsets\":").append(offsets).append("}");
}

/// One f32[2] tensor "x" whose fields are given as JSON.
inline std::string one_tensor(std::string_view shape, std::string_view offsets,
                              std::string_view dtype = "F32") {
  return "{" + declare("x", dtype, shape, offsets) + "}";
}

}  // namespace tenon::testing
