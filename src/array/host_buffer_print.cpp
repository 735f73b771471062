#include <tenon/host_buffer.hpp>
#include <tenon/quant.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

using Index = std::span<const std::int64_t>;

/// One element of any dtype; of a block type, by way of its whole block.
double element_at(const HostView& view, Index index) {
  const DType dtype = view.shape.dtype();
  if (!is_block(dtype)) return load_as_double(dtype, view.at(index));
  constexpr std::size_t max_block = 256;
  std::array<float, max_block> values;
  std::array<std::int64_t, max_rank> at{};
  std::ranges::copy(index, at.begin());
  std::int64_t& column = at[index.size() - 1];
  const std::int64_t within = column % block_size(dtype);
  column /= block_size(dtype);
  dequantize(dtype, view.at({at.data(), index.size()}), values.data(), block_size(dtype));
  return static_cast<double>(values[static_cast<std::size_t>(within)]);
}

/// Floating types show 6 significant digits: this text is for readers, not for parsers.
std::string element_text(const HostView& view, Index index) {
  const DType dtype = view.shape.dtype();
  if (is_object(dtype)) return "an object";
  if (dtype == DType::boolean) return load_as_int64(dtype, view.at(index)) != 0 ? "true" : "false";
  if (dtype == DType::u64) {
    std::uint64_t value = 0;
    std::memcpy(&value, view.at(index), sizeof value);
    return fmt::format("{}", value);
  }
  if (is_integer(dtype)) return fmt::format("{}", load_as_int64(dtype, view.at(index)));
  if (is_complex(dtype)) {
    complex64 value{};
    std::memcpy(&value, view.at(index), sizeof value);
    return fmt::format("{:.6g}{:+.6g}j", value.real, value.imag);
  }
  const double value = element_at(view, index);
  return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);  // whatever its sign
}

class Printer {
 public:
  Printer(const HostView& view, int edge) : view_(view), edge_(edge) {}

  std::string text() {
    measuring_ = true;  // columns line up, so the widest element comes first
    append_axis(0);
    measuring_ = false;
    append_axis(0);
    return std::move(out_);
  }

 private:
  void append_axis(int axis) {
    if (axis == view_.shape.rank()) return append_element();
    const std::int64_t size = view_.shape[axis];
    const bool shortened = size > 2 * edge_;
    put("[");
    for (std::int64_t i = 0; i < size; ++i) {
      if (i > 0) put_separator(axis);
      if (shortened && i == edge_) {
        put("...");
        put_separator(axis);
        i = size - edge_;
      }
      index_[static_cast<std::size_t>(axis)] = i;
      append_axis(axis + 1);
    }
    put("]");
  }

  void append_element() {
    const std::string text =
        element_text(view_, {index_.data(), static_cast<std::size_t>(view_.shape.rank())});
    if (measuring_) {
      width_ = std::max(width_, text.size());
    } else {
      out_ += fmt::format("{:>{}}", text, width_);
    }
  }

  /// Rows start on a line of their own below their bracket; matrices are a blank line apart, and so
  /// on.
  void put_separator(int axis) {
    const int inner_axes = view_.shape.rank() - 1 - axis;
    if (inner_axes == 0) return put(", ");
    put(",");
    put(std::string(static_cast<std::size_t>(inner_axes), '\n'));
    put(std::string(static_cast<std::size_t>(axis) + 1, ' '));
  }

  void put(std::string_view text) {
    if (!measuring_) out_ += text;
  }

  const HostView& view_;
  std::int64_t edge_;
  bool measuring_ = false;
  std::size_t width_ = 0;
  std::array<std::int64_t, max_rank> index_{};
  std::string out_;
};

}  // namespace

std::string to_string(const HostBuffer& array, int edge) {
  if (array.is_empty()) return "(no array)";
  const Shape& shape = array.shape();
  const std::string values =
      shape.elements() == 0 ? "[]" : Printer(array.view(), std::max(edge, 1)).text();
  return fmt::format("{} {}", values, to_string(shape));
}

std::ostream& operator<<(std::ostream& out, const HostBuffer& array) {
  return out << to_string(array);
}

}  // namespace tenon
