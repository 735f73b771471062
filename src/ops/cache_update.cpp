#include "ops/rows.hpp"

#include <tenon/ops/cache_update.hpp>

#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(cache_update, CacheUpdate);

Shape CacheUpdate::infer(std::span<const Shape> in) const {
  const Shape& cache = in[0];
  const Shape& x = in[2];
  constexpr std::array<std::string_view, 4> names{"cache", "layer", "x", "position"};
  const std::string operands = operands_text(names, in);
  require_rank(name, "cache", cache, 5);  // C1
  require_rank(name, "layer", in[1], 0);
  require_rank(name, "x", x, 4);
  require_rank(name, "position", in[3], 0);
  require_values(name, cache);  // C2
  require_floating(name, x);
  require_dtype(name, "layer", in[1], DType::i64);
  require_dtype(name, "position", in[3], DType::i32);
  common_axis(name, cache, 1, x, 0, "the batch", operands);  // C3
  common_axis(name, cache, 2, x, 2, "the number of heads", operands);
  common_axis(name, cache, 4, x, 3, "the head's size", operands);
  if (is_static(x[1]) && is_static(cache[3]) && x[1] > cache[3]) {  // C4
    fail(Errc::shape_mismatch, name, fmt::format("more steps than the cache holds: {}", operands));
  }
  return cache;
}

void CacheUpdate::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView& x = in[2];
  const std::int64_t layer = load_as_int64(DType::i64, in[1].data);
  const std::int64_t position = load_as_int64(DType::i32, in[3].data);
  const std::int64_t layers = out.shape[0];
  const std::int64_t capacity = out.shape[3];
  const std::int64_t steps = x.shape[1];
  if (layer < 0 || layer >= layers) {
    fail(Errc::out_of_range, name, fmt::format("layer {} outside [0, {})", layer, layers));
  }
  if (position < 0 || position + steps > capacity) {
    fail(Errc::out_of_range, name,
         fmt::format("positions [{}, {}) outside [0, {})", position, position + steps, capacity));
  }
  if (out.data != in[0].data) copy_elements(in[0], out);
  std::vector<double> row(static_cast<std::size_t>(x.shape[3]));
  for_each_index(x.shape.without_tags().without_axis(3), [&](std::span<const std::int64_t> index) {
    read_row(x.shape.dtype(), slice_at(x, index), x.strides[3], row);
    const std::array to{layer, index[0], index[2], position + index[1]};
    write_row(row, out.shape.dtype(), slice_at(out, to), out.strides[4]);
  });
}

Tensor cache_update(const Tensor& cache, const Tensor& layer, const Tensor& x,
                    const Tensor& position, const std::source_location& where) {
  return record(CacheUpdate{}, {cache, layer, x, position}, where);
}

}  // namespace tenon
