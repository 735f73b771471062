#include "ops/checks.hpp"
#include "ops/recurrence.hpp"

#include <tenon/ops/wkv7.hpp>

#include <array>
#include <string>

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
  return Shape({rows, known_sum(steps, states), heads, values}, type);
}

void Wkv7::reference(std::span<const HostView> in, const HostView& out) const {
  const DType type = in[v_at].shape.dtype();
  const auto value = [&](std::size_t operand, std::int64_t b, std::int64_t s, std::int64_t j,
                         std::int64_t n) {
    return load_as_double(type, in[operand].at(std::array{b, s, j, n}));
  };
  run_recurrence(
      name, in[state_at], has_lengths ? &in[lengths_at] : nullptr, out,
      [&](std::int64_t b, std::int64_t s, std::int64_t j, std::int64_t p, std::span<double> h) {
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
      });
}

double Wkv7::flops(std::span<const Shape> in, const Shape&) const {
  return 10.0 * static_cast<double>(in[v_at].elements()) * static_cast<double>(in[r_at][3]);
}

Wkv7Result wkv7(const Wkv7Inputs& in, const Tensor& state, const Tensor& lengths,
                const std::source_location& where) {
  const Wkv7 op{.has_lengths = !lengths.is_empty()};
  const auto [y, last] = record_recurrence(op, {in.r, in.w, in.k, in.v, in.a, in.b, state}, lengths,
                                           state.dim(1, where), where);
  return {y, last};
}

}  // namespace tenon
