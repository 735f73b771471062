#pragma once

#include <tenon/io/options.hpp>
#include <tenon/shape.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::io::safetensors {

/// One tensor as the JSON declares it: begin <= end, nothing checked against the file yet.
struct Declaration {
  std::string name;
  Shape shape;
  std::uint64_t begin = 0;  // from the first byte after the header
  std::uint64_t end = 0;
  std::uint64_t position = 0;  // of the description's end in the file
};

struct Header {
  std::vector<Declaration> tensors;  // in the order of the JSON
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Parses the JSON of a header, which begins at byte 8 of the file `file_name`.
///
/// Errors  syntax  not JSON, not an object from the first byte on, anything but spaces after it,
///                 numbers that are no plain integers
///         depth_limit, limit_exceeded, duplicate_name, bad_key, bad_encoding, bad_type
///         unsupported_dtype, bad_shape, shape_overflow, bad_offset
Header parse_header(std::string_view json, std::string_view file_name, const Limits& limits);

}  // namespace tenon::io::safetensors
