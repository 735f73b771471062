#include "array/size_text.hpp"
#include "program/words.hpp"

#include <tenon/error.hpp>
#include <tenon/shape.hpp>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr std::int64_t symbol_base = -(std::int64_t{1} << 62);

/// Errc::axis_out_of_range unless 0 <= index < end.
void check_index(const Shape& shape, int index, int end) {
  if (index >= 0 && index < end) return;
  throw Error(Errc::axis_out_of_range, "Shape",
              fmt::format("index {} out of range for {}", index, to_string(shape)));
}

}  // namespace

std::string size_text(std::int64_t size) {
  if (is_symbol(size)) return std::string(symbol_name(size).text());
  if (size == unknown_dim) return "_";
  return fmt::format("{}", size);
}

std::string sizes_text(std::span<const std::int64_t> sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : ", ") + size_text(size);
  return "[" + text + "]";
}

std::int64_t symbol(Name name) {
  if (!is_identifier(name.text()) || is_keyword(name.text())) {
    throw Error(Errc::bad_shape, "symbol",
                fmt::format("'{}' is no name for a size: at most 255 letters, digits and _, no "
                            "digit first, not _ alone, and no keyword of Python",
                            name.text()));
  }
  return symbol_base + name.id();
}

bool is_symbol(std::int64_t dim) noexcept { return dim > symbol_base && dim < symbol_base / 2; }

Name symbol_name(std::int64_t dim) noexcept {
  return Name::from_id(static_cast<std::uint32_t>(dim - symbol_base));
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw Error(Errc::shape_overflow, "Shape", fmt::format("{} * {} exceeds 2^63 - 1", a, b));
  }
  return product;
}

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw Error(Errc::shape_overflow, "Shape", fmt::format("{} + {} exceeds 2^63 - 1", a, b));
  }
  return sum;
}

Shape::Shape(std::initializer_list<Axis> axes, DType dtype)
    : Shape(std::span<const Axis>(axes.begin(), axes.size()), dtype) {}

Shape::Shape(std::span<const Axis> axes, DType dtype) : dtype_(dtype) {
  if (axes.size() > max_rank) {
    throw Error(Errc::bad_shape, "Shape", fmt::format("rank {} exceeds {}", axes.size(), max_rank));
  }
  rank_ = static_cast<std::int8_t>(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    dims_[i] = axes[i].size;
    tags_[i] = axes[i].tag;
  }
  check();
}

Shape::Shape(std::span<const std::int64_t> dims, DType dtype) : dtype_(dtype) {
  if (dims.size() > max_rank) {
    throw Error(Errc::bad_shape, "Shape", fmt::format("rank {} exceeds {}", dims.size(), max_rank));
  }
  rank_ = static_cast<std::int8_t>(dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
  check();
}

void Shape::check() const {
  std::int64_t count = 1;
  bool counted = true;
  for (int i = 0; i < rank_; ++i) {
    const std::int64_t size = (*this)[i];
    if (size < 0 && !is_symbol(size) && size != unknown_dim) {
      throw Error(Errc::bad_shape, "Shape", fmt::format("axis {} has size {}", i, size));
    }
    for (int j = 0; j < i; ++j) {
      if (!tag(i).empty() && tag(i) == tag(j)) {
        throw Error(Errc::bad_shape, "Shape",
                    fmt::format("axes {} and {} share the tag '{}'", j, i, tag(i).text()));
      }
    }
    // Sizes overflow even when a zero elsewhere makes the array empty: strides use the products.
    if (tenon::is_static(size)) {
      count = checked_multiply(count, std::max<std::int64_t>(size, 1));
    } else {
      counted = false;
    }
  }
  if (is_block(dtype_)) {
    const std::int64_t inner = rank_ == 0 ? 1 : (*this)[rank_ - 1];
    if (tenon::is_static(inner) && inner % block_size(dtype_) != 0) {
      throw Error(Errc::bad_shape, "Shape",
                  fmt::format("{} columns are not a multiple of {}'s block of {}", inner,
                              name(dtype_), block_size(dtype_)));
    }
  }
  if (counted) checked_multiply(count / block_size(dtype_), block_bytes(dtype_));
}

bool Shape::has_tags() const noexcept {
  for (int i = 0; i < rank_; ++i) {
    if (!tag(i).empty()) return true;
  }
  return false;
}

int Shape::axis(const AxisRef& ref) const {
  if (!ref.tag.empty()) {
    for (int i = 0; i < rank_; ++i) {
      if (tag(i) == ref.tag) return i;
    }
    throw Error(Errc::axis_out_of_range, "Shape",
                fmt::format("no axis '{}' in {}", ref.tag.text(), to_string(*this)));
  }
  const std::int64_t index = ref.index < 0 ? ref.index + rank_ : ref.index;
  if (index < 0 || index >= rank_) {
    throw Error(Errc::axis_out_of_range, "Shape",
                fmt::format("axis {} out of range for {}", ref.index, to_string(*this)));
  }
  return static_cast<int>(index);
}

bool Shape::is_static() const noexcept {
  return std::ranges::all_of(dims(), [](std::int64_t dim) { return tenon::is_static(dim); });
}

std::int64_t Shape::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims()) {
    if (!tenon::is_static(dim)) {
      throw Error(Errc::bad_shape, "Shape", to_string(*this) + " has no fixed element count");
    }
    count *= dim;  // check() has shown that this fits
  }
  return count;
}

std::int64_t Shape::bytes() const { return elements() / block_size(dtype_) * block_bytes(dtype_); }

Shape Shape::with_dtype(DType dtype) const {
  Shape result = *this;
  result.dtype_ = dtype;
  result.check();
  return result;
}

Shape Shape::with_dim(int index, std::int64_t size) const {
  check_index(*this, index, rank_);
  Shape result = *this;
  result.dims_[static_cast<std::size_t>(index)] = size;
  result.check();
  return result;
}

Shape Shape::with_tag(int index, Name tag) const {
  check_index(*this, index, rank_);
  Shape result = *this;
  result.tags_[static_cast<std::size_t>(index)] = tag;
  result.check();
  return result;
}

Shape Shape::with_tags(std::span<const Name> tags) const {
  if (static_cast<int>(tags.size()) != rank_) {
    throw Error(Errc::bad_shape, "Shape",
                fmt::format("{} tags for {}", tags.size(), to_string(*this)));
  }
  Shape result = *this;
  std::ranges::copy(tags, result.tags_.begin());
  result.check();
  return result;
}

Shape Shape::with_layout(Name layout) const noexcept {
  Shape result = *this;
  result.layout_ = layout;
  return result;
}

Shape Shape::without_tags() const noexcept {
  Shape result = *this;
  result.tags_ = {};
  return result;
}

Shape Shape::without_axis(int index) const {
  check_index(*this, index, rank_);
  std::vector<Axis> axes;
  for (int i = 0; i < rank_; ++i) {
    if (i != index) axes.push_back(axis_at(i));
  }
  return {std::span<const Axis>(axes), dtype_};
}

Shape Shape::with_axis(int index, const Axis& axis) const {
  check_index(*this, index, rank_ + 1);
  std::vector<Axis> axes;
  for (int i = 0; i < rank_; ++i) axes.push_back(axis_at(i));
  axes.insert(axes.begin() + index, axis);
  return {std::span<const Axis>(axes), dtype_};
}

bool operator==(const Shape& a, const Shape& b) noexcept {
  return a.dtype_ == b.dtype_ && std::ranges::equal(a.dims(), b.dims());
}

std::string to_string(const Shape& shape) {
  std::string text(name(shape.dtype()));
  if (is_object(shape.dtype()) && shape.rank() == 0) return text;
  text += '[';
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    if (!shape.tag(i).empty()) text += std::string(shape.tag(i).text()) + "=";
    text += size_text(shape[i]);
  }
  text += ']';
  return text;
}

}  // namespace tenon
