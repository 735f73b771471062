#include "ops/positions.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/cache_update.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/select.hpp>

#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(cache_update, CacheUpdate);

Shape CacheUpdate::infer(std::span<const Shape> in) const {
  const std::size_t expected = has_table ? 5 : 4;
  if (in.size() != expected) {  // C5
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  const Shape& cache = in[0];
  const Shape& x = in[2];
  const Shape& position = in[3];
  constexpr std::array<std::string_view, 5> names{"cache", "layer", "x", "position", "table"};
  const std::string operands = operands_text(names, in);
  require_rank(name, "cache", cache, 5);  // C1
  require_rank(name, "layer", in[1], 0);
  require_rank(name, "x", x, 4);
  if (position.rank() > 1) {
    fail(Errc::shape_mismatch, name, fmt::format("position has rank above 1: {}", operands));
  }
  if (has_table) require_rank(name, "table", in[4], 2);
  require_values(name, cache);  // C2
  require_floating(name, x);
  require_dtype(name, "layer", in[1], DType::i64);
  require_dtype(name, "position", position, DType::i32);
  if (has_table) require_dtype(name, "table", in[4], DType::i32);
  common_axis(name, has_table ? in[4] : cache, has_table ? 0 : 1, x, 0, "the batch",  // C3
              operands);
  if (position.rank() == 1) common_axis(name, position, 0, x, 0, "the batch", operands);
  common_axis(name, cache, 2, x, 2, "the number of heads", operands);
  common_axis(name, cache, 4, x, 3, "the head's size", operands);
  const bool is_known = is_static(cache[3]) && (!has_table || is_static(in[4][1]));
  const std::int64_t capacity =
      is_known && has_table ? checked_multiply(cache[3], in[4][1]) : cache[3];
  if (is_static(x[1]) && is_known && x[1] > capacity) {  // C4
    fail(Errc::shape_mismatch, name, fmt::format("more steps than the cache holds: {}", operands));
  }
  return cache;
}

void CacheUpdate::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView& x = in[2];
  const std::int64_t layer = load_as_int64(DType::i64, in[1].data);
  const std::int64_t layers = out.shape[0];
  const std::int64_t page_size = out.shape[3];
  const std::int64_t capacity = has_table ? page_size * in[4].shape[1] : page_size;
  const std::int64_t steps = x.shape[1];
  if (layer < 0 || layer >= layers) {
    fail(Errc::out_of_range, name, fmt::format("layer {} outside [0, {})", layer, layers));
  }
  const std::vector<std::int64_t> positions =
      read_positions(name, in[3], x.shape[0], steps, capacity);
  // Of position p of row b: its place along axes 1 and 3.
  const auto place = [&](std::int64_t b, std::int64_t p) {
    if (!has_table) return std::array{b, p};
    const std::int64_t page = load_as_int64(DType::i32, in[4].at(std::array{b, p / page_size}));
    if (page < 0 || page >= out.shape[1]) {
      fail(Errc::out_of_range, name,
           fmt::format("row {}: page {} outside [0, {})", b, page, out.shape[1]));
    }
    return std::array{page, p % page_size};
  };
  for (std::int64_t b = 0; has_table && b < x.shape[0]; ++b) {  // before anything is written
    for (std::int64_t s = 0; s < steps; ++s) place(b, positions[static_cast<std::size_t>(b)] + s);
  }
  if (out.data != in[0].data) copy_elements(in[0], out);
  std::vector<double> row(static_cast<std::size_t>(x.shape[3]));
  for_each_index(x.shape.without_tags().without_axis(3), [&](std::span<const std::int64_t> index) {
    read_row(x.shape.dtype(), slice_at(x, index), x.strides[3], row);
    const auto b = static_cast<std::size_t>(index[0]);
    const auto [row_or_page, at] = place(index[0], positions[b] + index[1]);
    const std::array to{layer, row_or_page, index[2], at};
    write_row(row, out.shape.dtype(), slice_at(out, to), out.strides[4]);
  });
}

Tensor cache_update(const Tensor& cache, const Tensor& layer, const Tensor& x,
                    const Tensor& position, const Tensor& table,
                    const std::source_location& where) {
  const CacheUpdate op{.has_table = !table.is_empty()};
  return op.has_table ? record(op, {cache, layer, x, position, table}, where)
                      : record(op, {cache, layer, x, position}, where);
}

Tensor pages_of(const Tensor& cache, const Tensor& layer, const std::source_location& where) {
  return permute(select(cache.with_tags({}), layer, where), {0, 2, 1, 3}, where);
}

Tensor gather_pages(const Tensor& cache, const Tensor& layer, const Tensor& table,
                    const std::source_location& where) {
  const Tensor pages = select(cache.with_tags({}), layer, where);  // [pages, H, page_size, D]
  const Tensor rows = gather(pages, table.with_tags({}), 0, where);
  return merge_axes(permute(rows, {0, 1, 3, 2, 4}, where), 1, 2, {}, where);
}

}  // namespace tenon
