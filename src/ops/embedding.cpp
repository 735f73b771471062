#include "ops/filled.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/cast.hpp>
#include <tenon/ops/embedding.hpp>
#include <tenon/ops/scatter.hpp>

#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(embedding, Embedding);

Shape Embedding::infer(std::span<const Shape> in) const {
  const Shape& ids = in[0];
  const Shape& table = in[1];
  constexpr std::array<std::string_view, 2> names{"ids", "table"};
  const std::string operands = operands_text(names, in);
  if (!is_index_dtype(ids.dtype())) {  // C1
    fail(Errc::unsupported_dtype, name, fmt::format("ids need i32 or i64: {}", operands));
  }
  if (!is_floating(table.dtype()) && !is_block(table.dtype())) {
    fail(Errc::unsupported_dtype, name,
         fmt::format("the table needs a floating or a block type: {}", operands));
  }
  if (!is_floating(dtype)) {  // C2
    fail(Errc::bad_attribute, name, fmt::format("dtype {} is not floating", tenon::name(dtype)));
  }
  require_rank(name, "the table", table, 2);  // C3
  if (ids.rank() == max_rank) {               // C4
    fail(Errc::bad_shape, name,
         fmt::format("the result's rank exceeds {}: {}", max_rank, operands));
  }
  std::vector<Axis> axes;
  for (int i = 0; i < ids.rank(); ++i) axes.push_back(ids.axis_at(i));
  axes.push_back(table.axis_at(1));
  require_distinct_tags(name, axes, operands);  // C5
  return {std::span<const Axis>(axes), dtype};
}

void Embedding::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView& ids = in[0];
  const HostView& table = in[1];
  const std::int64_t limit = table.shape[0];
  std::vector<double> row(static_cast<std::size_t>(table.shape[1]));
  const std::int64_t element = block_bytes(out.shape.dtype());
  std::byte* next = out.data;
  for_each_index(ids.shape, [&](std::span<const std::int64_t> index) {
    const std::int64_t id = load_as_int64(ids.shape.dtype(), ids.at(index));
    if (id < 0 || id >= limit) {
      fail(Errc::out_of_range, name, fmt::format("id {} outside [0, {})", id, limit));
    }
    read_row(table.shape.dtype(), table.data + id * table.strides[0], table.strides[1], row);
    write_row(row, out.shape.dtype(), next, element);
    next += element * static_cast<std::int64_t>(row.size());
  });
}

std::vector<Tensor> Embedding::gradient(const Backward& at) const {
  const Tensor& table = at.inputs[1];
  if (is_block(table.dtype())) return {Tensor(), Tensor()};
  const Tensor zeros = filled_like(table, 0, dtype);
  return {Tensor(), cast(index_add(zeros, at.inputs[0], at.upstream, 0), table.dtype())};
}

Tensor embedding(const Tensor& ids, const Tensor& table, DType dtype,
                 const std::source_location& where) {
  return record(Embedding{.dtype = dtype}, {ids, table}, where);
}

}  // namespace tenon
