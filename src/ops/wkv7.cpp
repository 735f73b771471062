#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/gradient.hpp"
#include "ops/recurrence.hpp"

#include <tenon/control.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/ops/wkv7.hpp>

#include <array>
#include <string>
#include <utility>

namespace tenon {

TENON_DEFINE_OP(wkv7, Wkv7);

namespace {
// The operands' places.
enum : std::size_t { r_at, w_at, k_at, v_at, a_at, b_at, state_at, lengths_at };
}  // namespace

Shape Wkv7::infer(std::span<const Shape> in) const {
  const std::size_t expected = 7 + std::size_t{has_lengths};
  if (in.size() != expected) {  // C1
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  constexpr std::array<std::string_view, 8> names{"r", "w", "k", "v", "a", "b", "state", "lengths"};
  const std::string operands = operands_text(names, in);
  const DType type = in[r_at].dtype();
  if (type != f32 && type != f64) {  // C2
    fail(Errc::unsupported_dtype, name, fmt::format("r needs f32 or f64: {}", operands));
  }
  if (has_lengths) require_dtype(name, "lengths", in[lengths_at], i32);
  require_same_dtype(name, in.first(7));        // C3
  for (std::size_t i = 0; i < expected; ++i) {  // C4
    require_rank(name, names[i], in[i], i == lengths_at ? 1 : 4);
  }
  const auto size = [&](std::string_view what, std::initializer_list<OperandAxis> axes) {  // C5
    return common_size(name, what, in, axes, operands);
  };
  std::int64_t rows =
      size("the batch",
           {{r_at, 0}, {w_at, 0}, {k_at, 0}, {v_at, 0}, {a_at, 0}, {b_at, 0}, {state_at, 0}});
  if (has_lengths) rows = size("the batch", {{r_at, 0}, {state_at, 0}, {lengths_at, 0}});
  const std::int64_t steps = size(
      "the number of steps", {{r_at, 1}, {w_at, 1}, {k_at, 1}, {v_at, 1}, {a_at, 1}, {b_at, 1}});
  const std::int64_t heads =
      size("the number of heads",
           {{r_at, 2}, {w_at, 2}, {k_at, 2}, {v_at, 2}, {a_at, 2}, {b_at, 2}, {state_at, 2}});
  const std::int64_t states = size(
      "the size of keys", {{r_at, 3}, {w_at, 3}, {k_at, 3}, {a_at, 3}, {b_at, 3}, {state_at, 1}});
  const std::int64_t values = size("the size of values", {{v_at, 3}, {state_at, 3}});
  if (states == 0) {  // C6
    fail(Errc::shape_mismatch, name, fmt::format("a state without numbers: {}", operands));
  }
  if (every_state) return Shape({rows, steps, states, heads, values}, type);
  return Shape({rows, known_sum(steps, states), heads, values}, type);
}

void Wkv7::reference(std::span<const HostView> in, const HostView& out) const {
  const DType type = in[v_at].shape.dtype();
  const auto value = [&](std::size_t operand, std::int64_t b, std::int64_t s, std::int64_t j,
                         std::int64_t n) {
    return load_as_double(type, in[operand].at(std::array{b, s, j, n}));
  };
  const auto step = [&](std::int64_t b, std::int64_t s, std::int64_t j, std::int64_t p,
                        RecurrentStates h) {
    double mixed = 0, y = 0;
    std::int64_t n = 0;
    for (const double before : h) mixed += value(a_at, b, s, j, n++) * before;
    n = 0;
    for (double& now : h) {
      now = value(w_at, b, s, j, n) * now + value(b_at, b, s, j, n) * mixed +
            value(k_at, b, s, j, n) * value(v_at, b, s, j, p);
      y += value(r_at, b, s, j, n) * now;
      ++n;
    }
    return y;
  };
  const HostView* const lengths = has_lengths ? &in[lengths_at] : nullptr;
  if (every_state) {
    run_recurrence_states(name, in[state_at], lengths, out, step);
  } else {
    run_recurrence(name, in[state_at], lengths, out, step);
  }
}

double Wkv7::flops(std::span<const Shape> in, const Shape&) const {
  return 10.0 * static_cast<double>(in[v_at].elements()) * static_cast<double>(in[r_at][3]);
}

namespace {

// What has the states' axes, [B, S, N, J, P], times what has none of keys or values, and the sum.
Tensor sum_over_values(const Tensor& states, const Tensor& y) {  // [B, S, J, P] -> [B, S, J, N]
  return transpose(sum(states * unsqueeze(y, 2), {4}), 2, 3);
}
Tensor sum_over_keys(const Tensor& states, const Tensor& y) {  // [B, S, J, N] -> [B, S, J, P]
  return sum(states * unsqueeze(transpose(y, 2, 3), 4), {2});
}

/// Where a row has a step, bool[B, S, 1, 1]; empty without lengths.
Tensor own_steps(const Tensor& x, const Tensor& lengths) {
  if (lengths.is_empty()) return {};
  return unsqueeze(unsqueeze(lt(iota(x, 1), unsqueeze(lengths, 1)), 2), 3);
}
/// `otherwise` in steps that a row has not.
Tensor only_in(const Tensor& own, const Tensor& x, double otherwise = 0) {
  return own.is_empty() ? x : where(own, x, scalar_like(x, otherwise));
}

struct StateGradients {
  Tensor
      each;  ///< [B, S, N, J, P], of the state after each step, with what comes through those behind
  Tensor first;  ///< [B, N, J, P], of the state before the first
};

/// d_s = upstream_s + (diag(w) + b a^T)^T d of the step behind s: a loop from the last step to the first,
/// since what a step adds has as many ranks as it likes.
StateGradients state_gradients(const Wkv7Inputs& in, const Tensor& upstream) {
  const auto steps_first = [](const Tensor& x) { return transpose(flip(x, 1), 0, 1); };
  const auto of_states = [&](const Tensor& x) {  // [S, B, N, J, 1]
    return unsqueeze(transpose(steps_first(x), 2, 3), 4);
  };
  const auto in_order = [](const Tensor& x) { return flip(transpose(x, 0, 1), 1); };
  using Slices = std::array<Tensor, 4>;
  const Slices all{steps_first(upstream), of_states(in.w), of_states(in.a), of_states(in.b)};
  const auto step = [](const Tensor& behind, const Slices& now) {
    const Tensor d = now[0] + behind;
    return std::pair(now[1] * d + now[2] * sum(now[3] * d, {1}, /*keep=*/true), d);
  };
  const Tensor none = sum(all[0] * 0.0, {0});
  if (is_static(upstream.dim(1))) {
    const auto [first, each] = scan(none, all, step);
    return {in_order(each), first};
  }
  using Carry = std::array<Tensor, 3>;  // the step's index, what comes through it, d of all steps
  const Tensor count = size_along(all[0], 0, i64);
  const Carry last = while_loop(
      Carry{scalar_like(count, 0), none, filled_like(all[0], 0)},
      [&](const Carry& now) { return lt(now[0], count); },
      [&](const Carry& now) {
        Slices slices;
        for (std::size_t i = 0; i < all.size(); ++i) slices[i] = select(all[i], now[0]);
        const auto [through, d] = step(now[1], slices);
        return Carry{now[0] + scalar_like(now[0], 1), through, update_slice(now[2], now[0], d)};
      });
  return {in_order(last[2]), last[1]};
}

}  // namespace

std::vector<Tensor> Wkv7::gradient(const Backward& at) const {
  const Tensor lengths = has_lengths ? at.inputs[lengths_at] : Tensor();
  const Tensor own = own_steps(at.inputs[v_at], lengths);
  const auto input = [&](std::size_t i) { return only_in(own, at.inputs[i], i == w_at ? 1 : 0); };
  const Wkv7Inputs in{.r = input(r_at),
                      .w = input(w_at),
                      .k = input(k_at),
                      .v = input(v_at),
                      .a = input(a_at),
                      .b = input(b_at)};
  const Tensor& first = at.inputs[state_at];
  std::vector<Tensor> result(at.inputs.size());
  // From the gradients of all states, d, with what comes through the steps behind them.
  const auto add_of_states = [&](const Tensor& d, const Tensor& after) {
    const Tensor before = slice(concat({unsqueeze(first, 1), after}, 1), 1, 0, -1);
    result[w_at] = only_in(own, transpose(sum(d * before, {4}), 2, 3));
    result[k_at] = only_in(own, sum_over_values(d, in.v));
    result[v_at] = only_in(own, sum_over_keys(d, in.k));
    result[a_at] = only_in(own, sum_over_values(before, sum_over_keys(d, in.b)));
    result[b_at] = only_in(own, sum_over_values(d, sum_over_keys(before, in.a)));
  };
  if (every_state) {
    const StateGradients d = state_gradients(in, at.upstream);
    add_of_states(d.each, at.output);
    result[state_at] = d.first;
    return result;
  }

  const std::array parts{at.inputs[v_at], first};
  const std::vector<Tensor> of_parts =
      Concat{.axis = 1}.gradient({parts, at.upstream, at.upstream});
  const Tensor dy = only_in(own, of_parts[0]), &dlast = of_parts[1];

  const Tensor after = wkv7_states(in, first);

  // The gradient of the state after step s is r_s dy_s^T, and what comes through the step behind it,
  // (diag(w) + b a^T)^T: the same recurrence from the last step to the first, a and b exchanged. One
  // step more gives the gradient of the first state.
  const auto of_next_step = [](const Tensor& x, double last) {
    return pad(flip(x, 1), 1, 1, 0, last);
  };
  const auto of_step = [](const Tensor& x) { return pad(flip(x, 1), 1, 0, 1); };
  const Tensor backwards = wkv7_states({.r = of_step(in.r),
                                        .w = of_next_step(in.w, 1),
                                        .k = of_step(in.r),
                                        .v = of_step(dy),
                                        .a = of_next_step(in.b, 0),
                                        .b = of_next_step(in.a, 0)},
                                       dlast);
  add_of_states(flip(slice(backwards, 1, 0, -1), 1), after);
  result[r_at] = sum_over_values(after, dy);
  result[state_at] = squeeze(slice(backwards, 1, -1, to_end), 1);
  return result;
}

Wkv7Result wkv7(const Wkv7Inputs& in, const Tensor& state, const Tensor& lengths,
                const std::source_location& where) {
  const Wkv7 op{.has_lengths = !lengths.is_empty()};
  const auto [y, last] = record_recurrence(op, {in.r, in.w, in.k, in.v, in.a, in.b, state}, lengths,
                                           state.dim(1, where), where);
  return {y, last};
}

Tensor wkv7_states(const Wkv7Inputs& in, const Tensor& state, const Tensor& lengths,
                   const std::source_location& where) {
  const Wkv7 op{.has_lengths = !lengths.is_empty(), .every_state = true};
  return record_untagged(op, {in.r, in.w, in.k, in.v, in.a, in.b, state}, lengths, where);
}

}  // namespace tenon
