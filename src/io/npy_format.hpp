#pragma once

#include <tenon/dtype.hpp>

#include <cstddef>
#include <optional>
#include <string_view>

namespace tenon::io::npy {

/// Facts of numpy's npy format (numpy.lib.format).
inline constexpr std::string_view magic = "\x93NUMPY";
inline constexpr int newest_version = 3;
inline constexpr std::size_t data_alignment = 64;

/// The type of a code such as "f4", without its byte order.
std::optional<DType> find_dtype(std::string_view code) noexcept;
/// The code of a type, or nothing where numpy has none.
std::string_view dtype_code(DType dtype) noexcept;

}  // namespace tenon::io::npy
