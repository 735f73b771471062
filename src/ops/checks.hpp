// More checks that several ops share, with the messages of their numbered constraints.
#pragma once

#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <span>
#include <string_view>

#include <fmt/format.h>

namespace tenon {

/// Ops that look at single elements cannot take block types.
inline void require_plain(std::string_view op, const Shape& shape) {
  if (is_block(shape.dtype())) {
    fail(Errc::unsupported_dtype, op, fmt::format("takes no block type, got {}", to_string(shape)));
  }
}

/// Neither a block type nor one that is only stored.
inline void require_computed(std::string_view op, const Shape& shape) {
  require_plain(op, shape);
  if (is_complex(shape.dtype())) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("takes no complex numbers, got {}; view_as_real() gives their parts",
                     to_string(shape)));
  }
  if (is_stored(shape.dtype())) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("does not compute with {}, cast it", to_string(shape)));
  }
}

/// For messages about sizes that must be known: what to do where one is a symbol.
inline std::string_view advice_on_symbols(const Shape& shape) noexcept {
  return shape.is_static() ? ""
                           : "; record or compile it for one size: a compiled model records others "
                             "when it is called with them";
}

inline void require_bool(std::string_view op, const Shape& shape) {
  if (shape.dtype() != boolean) {
    fail(Errc::unsupported_dtype, op, fmt::format("needs bool, got {}", to_string(shape)));
  }
}

inline void require_number(std::string_view op, const Shape& shape) {
  if (!is_floating(shape.dtype()) && !is_integer(shape.dtype())) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("needs a floating or integer type, got {}", to_string(shape)));
  }
}

/// Indices are i32 or i64.
inline void require_index(std::string_view op, const Shape& shape) {
  if (shape.dtype() != i32 && shape.dtype() != i64) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("needs i32 or i64 indices, got {}", to_string(shape)));
  }
}

/// "f32[8, 64], f32[d=3] and i32[]": shapes as error messages list them.
inline std::string list_shapes(std::span<const Shape> shapes) {
  std::string text;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (i > 0) text += i + 1 == shapes.size() ? " and " : ", ";
    text += to_string(shapes[i]);
  }
  return text;
}

inline void require_same_dtype(std::string_view op, std::span<const Shape> in) {
  for (const Shape& shape : in) {
    if (shape.dtype() != in[0].dtype()) {
      fail(Errc::shape_mismatch, op, fmt::format("dtypes of {} differ", list_shapes(in)));
    }
  }
}

/// A scalar, or an array of one element.
inline bool is_one_number(const Shape& shape) noexcept {
  return shape.rank() == 0 || (shape.rank() == 1 && shape[0] == 1);
}

}  // namespace tenon
