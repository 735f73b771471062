#include "ops/gradient.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/grouped_linear.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/quantize.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(grouped_linear, GroupedLinear);

Shape GroupedLinear::infer(std::span<const Shape> in) const {
  const std::size_t expected = 3 + std::size_t{has_bias};
  if (in.size() != expected) {  // C1
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  const Shape &x = in[0], &w = in[1], &group = in[2];
  std::vector<std::string_view> names{"x", "w", "group", "bias"};
  const std::string operands = operands_text(names, in);

  require_floating(name, x);  // C2
  if (!is_floating(w.dtype()) && !is_block(w.dtype())) {
    fail(Errc::unsupported_dtype, name,
         fmt::format("w needs a floating or a block type: {}", operands));
  }
  if (!is_index_dtype(group.dtype())) {
    fail(Errc::unsupported_dtype, name, fmt::format("group needs i32 or i64: {}", operands));
  }
  if (has_bias) require_floating(name, in[3]);
  if (x.rank() < 2 || group.rank() != x.rank() - 1) {  // C3
    fail(Errc::shape_mismatch, name,
         fmt::format("group needs all axes of x but the last: {}", operands));
  }
  require_rank(name, "w", w, 3);
  if (has_bias) require_rank(name, "bias", in[3], 2);
  const int last = x.rank() - 1, choice = last - 1;
  common_axis(name, x, last, w, 2, "the contracted axis", operands);  // C4
  std::vector<Axis> axes;
  for (int i = 0; i < choice; ++i) {  // C5
    axes.push_back(common_axis(name, x, i, group, i, "a leading axis", operands));
  }
  axes.push_back(x[choice] == 1 ? group.axis_at(choice)
                                : common_axis(name, x, choice, group, choice, "the axis of choices",
                                              operands));
  Axis columns = w.axis_at(1);
  if (has_bias) {  // C6
    common_axis(name, w, 0, in[3], 0, "the groups of w and bias", operands);
    columns = common_axis(name, w, 1, in[3], 1, "the output axis", operands);
  }
  axes.push_back(columns);
  require_distinct_tags(name, axes, operands);  // C7
  return {std::span<const Axis>(axes), x.dtype()};
}

void GroupedLinear::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView &w = in[1], &group = in[2];
  const std::int64_t groups = w.shape[0], outputs = w.shape[1], inputs = w.shape[2];
  const int choice = group.shape.rank() - 1;
  const bool is_shared = in[0].shape[choice] == 1;
  const std::int64_t choices = group.shape[choice];

  // Rows of y by their group, so that each row of w is decoded once.
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(groups));
  std::int64_t row = 0;
  for_each_index(group.shape, [&](std::span<const std::int64_t> index) {
    const std::int64_t id = load_as_int64(group.shape.dtype(), group.at(index));
    if (id < 0 || id >= groups) {
      fail(Errc::out_of_range, name, fmt::format("group {} outside [0, {})", id, groups));
    }
    rows[static_cast<std::size_t>(id)].push_back(row++);
  });
  if (out.shape.elements() == 0) return;

  const std::vector<double> x = read_rows(in[0]);
  const std::vector<double> bias = has_bias ? read_rows(in[3]) : std::vector<double>();
  std::vector<double> y(static_cast<std::size_t>(out.shape.elements()));
  std::vector<double> weights(static_cast<std::size_t>(inputs));
  for (std::int64_t g = 0; g < groups; ++g) {
    if (rows[static_cast<std::size_t>(g)].empty()) continue;
    for (std::int64_t n = 0; n < outputs; ++n) {
      read_row(w.shape.dtype(), w.data + g * w.strides[0] + n * w.strides[1], w.strides[2],
               weights);
      const double first = has_bias ? bias[static_cast<std::size_t>(g * outputs + n)] : 0;
      for (const std::int64_t m : rows[static_cast<std::size_t>(g)]) {
        const double* from = x.data() + (is_shared ? m / choices : m) * inputs;
        y[static_cast<std::size_t>(m * outputs + n)] =
            first + dot_product(from, weights.data(), inputs);
      }
    }
  }
  write_row(y, out.shape.dtype(), out.data, block_bytes(out.shape.dtype()));
}

double GroupedLinear::flops(std::span<const Shape> in, const Shape& out) const {
  return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(in[1][2]);
}

/// The gradient of w multiplies each group's rows of upstream, and zeros for all others, by x.
std::vector<Tensor> GroupedLinear::gradient(const Backward& at) const {
  const Tensor &x = at.inputs[0], &w = at.inputs[1], &group = at.inputs[2], &g = at.upstream;
  const int last = x.rank() - 1;
  const Tensor plain = is_block(w.dtype()) ? dequantize(w, x.dtype()) : cast(w, x.dtype());
  const Tensor of_choices = grouped_linear(g, permute(plain, {0, 2, 1}), group);  // [..., J, K]
  std::vector<Tensor> result{sum_to(of_choices, x.shape()), Tensor(), Tensor()};
  const auto rows = [&](const Tensor& t) { return merge_axes(t, 0, last - 1); };
  const Tensor flat = last == 1 ? group : merge_axes(group, 0, last - 1);
  const Tensor numbers = iota(w, 0, flat.dtype()).with_tags({});
  const Tensor chosen = cast(eq(unsqueeze(numbers, 1), flat), x.dtype());  // [G, M]
  if (!is_block(w.dtype())) {
    const Tensor all = rows(broadcast_like(x, of_choices));           // [M, K]
    const Tensor own = unsqueeze(chosen, 2) * unsqueeze(rows(g), 0);  // [G, M, N]
    result[1] = cast(matmul(permute(own, {0, 2, 1}), all), w.dtype());
  }
  if (has_bias) result.push_back(cast(matmul(chosen, rows(g)), at.inputs[3].dtype()));
  return result;
}

Tensor grouped_linear(const Tensor& x, const Tensor& w, const Tensor& group, const Tensor& bias,
                      const std::source_location& where) {
  std::vector<Tensor> inputs{x, w, group};
  if (!bias.is_empty()) inputs.push_back(bias);
  return record(GroupedLinear{.has_bias = !bias.is_empty()}, std::span<const Tensor>(inputs),
                where);
}

}  // namespace tenon
