#pragma once

#include <tenon/dtype.hpp>
#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/memory.hpp>
#include <tenon/name.hpp>
#include <tenon/shape.hpp>

#include <string>
#include <string_view>

#include <fmt/format.h>

/// fmt support: fmt::format("{:>20} in {}", shape, dtype). Format specifiers are those of strings;
/// the text is that of to_string, name or spelling.

template <>
struct fmt::formatter<tenon::DType> : fmt::formatter<std::string_view> {
  auto format(tenon::DType dtype, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(tenon::name(dtype), context);
  }
};

template <>
struct fmt::formatter<tenon::Errc> : fmt::formatter<std::string_view> {
  auto format(tenon::Errc code, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(tenon::spelling(code), context);
  }
};

template <>
struct fmt::formatter<tenon::Name> : fmt::formatter<std::string_view> {
  auto format(tenon::Name name, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(name.text(), context);
  }
};

template <>
struct fmt::formatter<tenon::Shape> : fmt::formatter<std::string_view> {
  auto format(const tenon::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(tenon::to_string(shape), context);
  }
};

template <>
struct fmt::formatter<tenon::MemPtr> : fmt::formatter<std::string_view> {
  auto format(const tenon::MemPtr& pointer, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(tenon::to_string(pointer), context);
  }
};

template <>
struct fmt::formatter<tenon::HostBuffer> : fmt::formatter<std::string_view> {
  auto format(const tenon::HostBuffer& array, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(tenon::to_string(array), context);
  }
};
