#include "ops/checks.hpp"
#include "ops/gradient.hpp"
#include "ops/open_sizes.hpp"
#include "ops/recurrence.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/selective_scan.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/wkv7.hpp>

#include <array>
#include <cmath>
#include <string>

namespace tenon {

TENON_DEFINE_OP(selective_scan, SelectiveScan);

namespace {
// The operands' places.
enum : std::size_t { x_at, dt_at, a_at, in_at, out_at, state_at, lengths_at };
}  // namespace

Shape SelectiveScan::infer(std::span<const Shape> in) const {
  const std::size_t expected = 6 + std::size_t{has_lengths};
  if (in.size() != expected) {  // C1
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  constexpr std::array<std::string_view, 7> names{"x", "dt", "a", "in", "out", "state", "lengths"};
  const std::string operands = operands_text(names, in);
  const DType type = in[x_at].dtype();
  if (type != f32 && type != f64) {  // C2
    fail(Errc::unsupported_dtype, name, fmt::format("x needs f32 or f64: {}", operands));
  }
  if (has_lengths) require_dtype(name, "lengths", in[lengths_at], i32);
  require_same_dtype(name, in.first(6));  // C3
  constexpr std::array<int, 7> ranks{4, 3, 2, 4, 4, 4, 1};
  for (std::size_t i = 0; i < expected; ++i) require_rank(name, names[i], in[i], ranks[i]);  // C4

  const auto size = [&](std::string_view what, std::initializer_list<OperandAxis> axes) {  // C5
    return common_size(name, what, in, axes, operands);
  };
  const std::int64_t rows =
      has_lengths
          ? size("the batch",
                 {{x_at, 0}, {dt_at, 0}, {in_at, 0}, {out_at, 0}, {state_at, 0}, {lengths_at, 0}})
          : size("the batch", {{x_at, 0}, {dt_at, 0}, {in_at, 0}, {out_at, 0}, {state_at, 0}});
  const std::int64_t steps =
      size("the number of steps", {{x_at, 1}, {dt_at, 1}, {in_at, 1}, {out_at, 1}});
  const std::int64_t heads =
      size("the number of heads", {{x_at, 2}, {dt_at, 2}, {a_at, 0}, {state_at, 2}});
  const std::int64_t channels = size("the head's size", {{x_at, 3}, {state_at, 3}});
  const std::int64_t groups = size("the number of groups", {{in_at, 2}, {out_at, 2}});
  const std::int64_t states =
      size("the size of the state", {{in_at, 3}, {out_at, 3}, {state_at, 1}});
  if (in[a_at][1] != 1 && !sizes_agree(in[a_at][1], states)) {
    fail(Errc::shape_mismatch, name, fmt::format("a needs 1 or {} columns: {}", states, operands));
  }
  if (states == 0) {  // C6
    fail(Errc::shape_mismatch, name, fmt::format("a state without numbers: {}", operands));
  }
  if (is_static(groups) && (groups == 0 || (is_static(heads) && heads % groups != 0))) {
    fail(Errc::shape_mismatch, name,
         fmt::format("{} heads do not divide into {} groups: {}", heads, groups, operands));
  }
  return Shape({rows, known_sum(steps, states), heads, channels}, type);
}

void SelectiveScan::reference(std::span<const HostView> in, const HostView& out) const {
  const DType type = in[x_at].shape.dtype();
  const std::int64_t in_a_group = in[x_at].shape[2] / in[in_at].shape[2];  // heads
  const bool has_one_decay = in[a_at].shape[1] == 1;
  const auto value = [&](std::size_t operand, auto... index) {
    return load_as_double(type,
                          in[operand].at(std::array<std::int64_t, sizeof...(index)>{index...}));
  };
  run_recurrence(
      name, in[state_at], has_lengths ? &in[lengths_at] : nullptr, out,
      [&](std::int64_t b, std::int64_t s, std::int64_t j, std::int64_t p, RecurrentStates h) {
        const std::int64_t g = j / in_a_group;
        const double dt = value(dt_at, b, s, j), added = dt * value(x_at, b, s, j, p);
        double y = 0;
        std::int64_t n = 0;
        for (double& now : h) {
          const double decay = std::exp(dt * value(a_at, j, has_one_decay ? 0 : n));
          now = decay * now + added * value(in_at, b, s, g, n);
          y += value(out_at, b, s, g, n) * now;
          ++n;
        }
        return y;
      });
}

double SelectiveScan::flops(std::span<const Shape> in, const Shape&) const {
  const Shape &x = in[x_at], &b = in[in_at];
  return 5.0 * static_cast<double>(x.elements()) * static_cast<double>(b[3]);
}

std::vector<Tensor> SelectiveScan::gradient(const Backward& at) const {
  return gradient_of_composition(at, [&](std::span<const Tensor> in) {
    const Tensor dt = unsqueeze(in[dt_at], 3);  // [B, S, J, 1]
    const auto of_heads = [&](const Tensor& of_groups) {
      return of_each_member(of_groups, 2, in[x_at], 2);
    };
    const Tensor keys = of_heads(in[in_at]), none = filled_like(keys, 0);
    const Tensor decays = exp(dt * in[a_at] + none);  // [B, S, J, N]: `a` may have one column
    return record_untagged(
        Wkv7{.has_lengths = has_lengths},
        {of_heads(in[out_at]), decays, keys, dt * in[x_at], none, none, in[state_at]},
        has_lengths ? in[lengths_at] : Tensor(), std::source_location::current());
  });
}

SelectiveScanResult selective_scan(const Tensor& x, const Tensor& dt, const Tensor& a,
                                   const Tensor& in, const Tensor& out, const Tensor& state,
                                   const Tensor& lengths, const std::source_location& where) {
  const SelectiveScan op{.has_lengths = !lengths.is_empty()};
  const auto [y, last] =
      record_recurrence(op, {x, dt, a, in, out, state}, lengths, state.dim(1, where), where);
  return {y, last};
}

}  // namespace tenon
