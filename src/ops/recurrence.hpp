// Shared by recurrences over the steps of a sequence, whose result is y with the last state behind it.
#pragma once

#include "ops/builder.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/slice.hpp>
#include <tenon/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {

struct OperandAxis {
  std::size_t operand;
  int axis;
};

/// The size that these axes have, known where one of them is. Errc::shape_mismatch where they differ.
inline std::int64_t common_size(std::string_view op, std::string_view what,
                                std::span<const Shape> in, std::initializer_list<OperandAxis> axes,
                                const std::string& operands) {
  std::int64_t known = unknown_dim;
  for (const auto& [operand, axis] : axes) {
    if (!sizes_agree(known, in[operand][axis])) {
      fail(Errc::shape_mismatch, op, fmt::format("{} differs: {}", what, operands));
    }
    known = known_size(known, in[operand][axis]);
  }
  return known;
}

/// The sum of two sizes, where both are known.
inline std::int64_t known_sum(std::int64_t a, std::int64_t b) noexcept {
  return is_static(a) && is_static(b) ? a + b : unknown_dim;
}

/// The steps that each row has: `steps` without `lengths` (i32[rows]). Errc::out_of_range for one
/// outside [0, steps].
inline std::vector<std::int64_t> read_lengths(std::string_view op, const HostView* lengths,
                                              std::int64_t rows, std::int64_t steps) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(rows), steps);
  for (std::int64_t b = 0; lengths != nullptr && b < rows; ++b) {
    const std::int64_t length = load_as_int64(i32, lengths->data + b * lengths->strides[0]);
    if (length < 0 || length > steps) {
      fail(Errc::out_of_range, op,
           fmt::format("row {}: length {} outside [0, {}]", b, length, steps));
    }
    result[static_cast<std::size_t>(b)] = length;
  }
  return result;
}

/// The states of one row, head and channel.
using RecurrentStates = std::span<double>;

/// Calls visit(row, length, head, channel, h) with each row's number of steps and the states as they
/// begin: `state`, [rows, states, heads, channels].
template <class Visit>
void for_each_recurrence(std::string_view op, const HostView& state, const HostView* lengths,
                         std::int64_t steps, const Visit& visit) {
  const DType type = state.shape.dtype();
  const std::int64_t rows = state.shape[0], states = state.shape[1];
  const std::vector<std::int64_t> row_steps = read_lengths(op, lengths, rows, steps);
  std::vector<double> h(static_cast<std::size_t>(states));
  for_each_index(
      Shape({rows, state.shape[2], state.shape[3]}, type), [&](std::span<const std::int64_t> at) {
        const std::int64_t b = at[0], j = at[1], p = at[2];
        for (std::int64_t n = 0; n < states; ++n) {
          h[static_cast<std::size_t>(n)] = load_as_double(type, state.at(std::array{b, n, j, p}));
        }
        visit(b, row_steps[static_cast<std::size_t>(b)], j, p, RecurrentStates(h));
      });
}

/// The reference of a recurrence. Calls step(row, step, head, channel, h) for each step of a row: it
/// moves the states h on and gives y. The result is y, zeros for the steps that a row has not, and
/// the last states behind them.
template <class StepFunction>
void run_recurrence(std::string_view op, const HostView& state, const HostView* lengths,
                    const HostView& out, const StepFunction& step) {
  const std::int64_t steps = out.shape[1] - state.shape[1];
  for_each_recurrence(
      op, state, lengths, steps,
      [&](std::int64_t b, std::int64_t length, std::int64_t j, std::int64_t p, RecurrentStates h) {
        const auto store = [&](std::int64_t s, double number) {
          store_double(out.shape.dtype(), out.at(std::array{b, s, j, p}), number);
        };
        for (std::int64_t s = 0; s < length; ++s) store(s, step(b, s, j, p, h));
        for (std::int64_t s = length; s < steps; ++s) store(s, 0);
        for (std::size_t n = 0; n < h.size(); ++n) {
          store(steps + static_cast<std::int64_t>(n), h[n]);
        }
      });
}

/// The same with the states after each step as the result, [rows, steps, states, heads, channels].
template <class StepFunction>
void run_recurrence_states(std::string_view op, const HostView& state, const HostView* lengths,
                           const HostView& out, const StepFunction& step) {
  const std::int64_t steps = out.shape[1];
  for_each_recurrence(
      op, state, lengths, steps,
      [&](std::int64_t b, std::int64_t length, std::int64_t j, std::int64_t p, RecurrentStates h) {
        for (std::int64_t s = 0; s < steps; ++s) {
          if (s < length) step(b, s, j, p, h);
          for (std::size_t n = 0; n < h.size(); ++n) {
            const std::array at{b, s, static_cast<std::int64_t>(n), j, p};
            store_double(out.shape.dtype(), out.at(at), h[n]);
          }
        }
      });
}

/// Records a recurrence on operands without tags.
template <class Op>
Tensor record_untagged(const Op& op, std::vector<Tensor> operands, const Tensor& lengths,
                       const std::source_location& where) {
  if (op.has_lengths) operands.push_back(lengths);
  for (Tensor& operand : operands) operand = operand.with_tags({});
  return record(op, std::span<const Tensor>(operands), where);
}

/// The same: {y, the last state}, which are views of its result.
template <class Op>
std::pair<Tensor, Tensor> record_recurrence(const Op& op, std::vector<Tensor> operands,
                                            const Tensor& lengths, std::int64_t states,
                                            const std::source_location& where) {
  if (!is_static(states)) {
    fail_at(where, Errc::unsupported, Op::name, "the number of states is not known");
  }
  const Tensor both = record_untagged(op, std::move(operands), lengths, where);
  return {slice(both, 1, 0, -states, 1, where), slice(both, 1, -states, to_end, 1, where)};
}

}  // namespace tenon
