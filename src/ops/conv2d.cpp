#include "ops/convolved.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/conv2d.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(conv2d, Conv2d);

Shape Conv2d::infer(std::span<const Shape> in) const {
  const std::size_t expected = has_bias ? 3 : 2;
  if (in.size() != expected) {  // C1
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  const Shape& x = in[0];
  const Shape& w = in[1];
  constexpr std::array<std::string_view, 3> names{"x", "w", "bias"};
  const std::string operands = operands_text(names, in);
  for (const Shape& operand : in) require_floating(name, operand);  // C2
  require_rank(name, "x", x, 4);                                    // C3
  require_rank(name, "w", w, 4);
  if (has_bias) require_rank(name, "bias", in[2], 1);
  for (const Shape& operand : in) {
    if (operand.dtype() != x.dtype()) {
      fail(Errc::shape_mismatch, name, fmt::format("dtypes differ: {}", operands));
    }
  }
  check_channels(name, groups, x, w, operands);  // C4, C5
  Axis channels = w.axis_at(0);
  if (has_bias) channels = common_axis(name, w, 0, in[2], 0, "the output axis", operands);
  return convolved(name, *this, x, w, channels, operands);  // C6 to C8
}

void Conv2d::reference(std::span<const HostView> in, const HostView& out) const {
  const Shape& x = in[0].shape;
  const Shape& w = in[1].shape;
  if (out.shape.elements() == 0) return;
  const auto [rows, columns] = convolution_window(name, *this, w);
  const std::vector<double> image = read_rows(in[0]);
  const std::vector<double> weights = read_rows(in[1]);
  const std::vector<double> bias =
      has_bias ? read_rows(in[2]) : std::vector<double>(static_cast<std::size_t>(w[0]));
  const std::int64_t group_outputs = w[0] / groups;

  std::byte* next = out.data;
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const std::int64_t first_channel = index[1] / group_outputs * w[1];
    double sum = bias[static_cast<std::size_t>(index[1])];
    const auto down = rows.taps_inside(index[2], x[2]);
    const auto across = columns.taps_inside(index[3], x[3]);
    for (std::int64_t c = 0; c < w[1]; ++c) {
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        const double* taps = weights.data() + ((index[1] * w[1] + c) * w[2] + r) * w[3];
        const double* line =
            image.data() +
            ((index[0] * x[1] + first_channel + c) * x[2] + rows.input(index[2], r)) * x[3];
        for (std::int64_t s = across.begin; s < across.end; ++s) {
          sum += line[columns.input(index[3], s)] * taps[s];
        }
      }
    }
    store_double(out.shape.dtype(), next, sum);
    next += block_bytes(out.shape.dtype());
  });
}

double Conv2d::flops(std::span<const Shape> in, const Shape& out) const {
  const Shape& w = in[1];  // [O, C / groups, KH, KW]
  return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(w[1] * w[2] * w[3]);
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2d& options,
              const std::source_location& where) {
  Conv2d op = options;
  op.has_bias = !bias.is_empty();
  return op.has_bias ? record(op, {x, w, bias}, where) : record(op, {x, w}, where);
}

Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dOptions& options,
              const std::source_location& where) {
  const Conv2d op{.stride = {1, options.stride},
                  .padding = {0, 0, options.padding_left, options.padding_right},
                  .dilation = {1, options.dilation},
                  .groups = options.groups};
  const Tensor y =
      conv2d(unsqueeze(x, -2, {}, where), unsqueeze(w, -2, {}, where), bias, op, where);
  return squeeze(y, 2, where);
}

}  // namespace tenon
