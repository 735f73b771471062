#pragma once

#include <tenon/dtype.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::io::npy {

struct Header {
  DType dtype = DType::f32;
  bool is_big_endian = false;
  bool is_column_major = false;
  std::vector<std::int64_t> dims;
};

/// Parses the dictionary of a header: a Python literal with exactly the keys descr, fortran_order
/// and shape. `begin` is its position in the file `file_name`, for messages.
Header parse_header(std::string_view text, std::string_view file_name, std::uint64_t begin);

}  // namespace tenon::io::npy
