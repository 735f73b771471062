// A block per row: softmax and norms.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/digits.hpp"
#include "kernels/eights.hpp"
#include "kernels/reduce.hpp"

#include <cstdint>

namespace tenon::cuda {

TENON_DEVICE void softmax_row(const Thread& thread, const RowArgs& args) {
  for (std::uint32_t row = thread.block(); row < args.rows.count; row += thread.blocks()) {
    const Index at = index_of(args.rows, row);
    const std::int64_t from = offset_of(at, args.x.steps, args.rows.rank);
    const std::int64_t to = offset_of(at, args.y.steps, args.rows.rank);
    float peak = -infinity();
    for (std::uint32_t i = thread.index(); i < args.length; i += thread.count()) {
      peak = fmaxf(peak, load_as(0.0f, args.x, from + i * args.x_step));
    }
    peak = reduced_by_block(thread, Reduction::max, peak);
    float sum = 0;
    for (std::uint32_t i = thread.index(); i < args.length; i += thread.count()) {
      sum += expf(load_as(0.0f, args.x, from + i * args.x_step) - peak);
    }
    sum = reduced_by_block(thread, Reduction::sum, sum);
    const float log_sum = logf(sum);
    for (std::uint32_t i = thread.index(); i < args.length; i += thread.count()) {
      const float x = load_as(0.0f, args.x, from + i * args.x_step) - peak;
      store_as(args.takes_log ? x - log_sum : expf(x) / sum, args.y, to + i * args.y_step);
    }
  }
}

TENON_DEVICE float weight_at(const Array& weight, std::uint32_t i, float absent) {
  return weight.data == 0 ? absent : load_as(0.0f, weight, i * weight.steps.bytes[0]);
}

TENON_DEVICE void norm_row(const Thread& thread, const NormArgs& args) {
  const auto length = static_cast<float>(args.length);
  for (std::uint32_t row = thread.block(); row < args.rows.count; row += thread.blocks()) {
    const Index at = index_of(args.rows, row);
    const std::int64_t from = offset_of(at, args.x.steps, args.rows.rank);
    const std::int64_t to = offset_of(at, args.y.steps, args.rows.rank);
    float mean = 0;
    if (args.centres) {
      for (std::uint32_t i = thread.index(); i < args.length; i += thread.count()) {
        mean += load_as(0.0f, args.x, from + i * args.x_step);
      }
      mean = reduced_by_block(thread, Reduction::sum, mean) / length;
    }
    float squares = 0;
    for (std::uint32_t i = thread.index(); i < args.length; i += thread.count()) {
      const float x = load_as(0.0f, args.x, from + i * args.x_step) - mean;
      squares += x * x;
    }
    squares = reduced_by_block(thread, Reduction::sum, squares);
    const float factor = 1.0f / sqrtf(squares / length + args.eps);
    const std::uint32_t first = row % args.groups * args.channels;
    for (std::uint32_t i = thread.index(); i < args.length; i += thread.count()) {
      const std::uint32_t channel = first + i / args.positions;
      const float x = (load_as(0.0f, args.x, from + i * args.x_step) - mean) * factor;
      store_as(x * weight_at(args.weight, channel, 1) + weight_at(args.bias, channel, 0), args.y,
               to + i * args.y_step);
    }
  }
}

/// Eight elements of a weight or bias; what is absent is `absent`.
TENON_DEVICE void load_weights(const Array& weight, std::uint32_t i, std::uint32_t length,
                               float absent, float* out) {
  if (weight.data != 0) {
    load_eight(weight.dtype, weight.data, i, length, weight.data % 16 == 0, out);
    return;
  }
  TENON_UNROLL
  for (int e = 0; e < 8; ++e) out[e] = absent;
}

/// Of dense rows, of which each thread has eight elements. Weights are dense, too, one for each
/// element.
TENON_DEVICE void norm_dense_row(const Thread& thread, const NormArgs& args) {
  const std::uint32_t first = 8 * thread.index();
  const auto length = static_cast<float>(args.length);
  float weights[8], biases[8];
  if (!args.reads_ahead) wait_for_earlier();
  load_weights(args.weight, first, args.length, 1, weights);
  load_weights(args.bias, first, args.length, 0, biases);
  wait_for_earlier();  // what is above reads weights alone
  for (std::uint32_t row = thread.block(); row < args.rows.count; row += thread.blocks()) {
    const Index at = index_of(args.rows, row);
    const Address x =
        args.x.data + static_cast<Address>(offset_of(at, args.x.steps, args.rows.rank));
    const Address y =
        args.y.data + static_cast<Address>(offset_of(at, args.y.steps, args.rows.rank));
    float values[8];
    load_eight(args.x.dtype, x, first, args.length, x % 16 == 0, values);
    if (args.centres) {
      float mean = 0;
      TENON_UNROLL
      for (int e = 0; e < 8; ++e) mean += values[e];
      mean = reduced_by_block(thread, Reduction::sum, mean) / length;
      TENON_UNROLL
      for (std::uint32_t e = 0; e < 8; ++e) {
        values[e] = first + e < args.length ? values[e] - mean : 0.0f;
      }
    }
    float squares = 0;
    TENON_UNROLL
    for (int e = 0; e < 8; ++e) squares += values[e] * values[e];
    squares = reduced_by_block(thread, Reduction::sum, squares);
    const float factor = 1.0f / sqrtf(squares / length + args.eps);
    TENON_UNROLL
    for (int e = 0; e < 8; ++e) values[e] = values[e] * factor * weights[e] + biases[e];
    store_eight(args.y.dtype, y, first, args.length, y % 16 == 0, values);
    // With eight elements of a lane, a warp has a step of digits.
    const std::uint32_t steps = (args.length + digit_step - 1) / digit_step;
    if (args.digits != 0 && warp_of(thread) < steps) {
      store_digits(thread, digits_of(thread, values), args.digits, row * steps + warp_of(thread));
    }
  }
}

}  // namespace tenon::cuda
