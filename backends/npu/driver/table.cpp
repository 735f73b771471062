#include "table.hpp"

#include <tenon/npu/quantize.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::npu {

std::array<float, 256> table_values(const OpInstance& op, double step) {
  std::array<float, 256> in{}, out{};
  for (int q = -128; q < 128; ++q) {
    in[static_cast<std::size_t>(q + 128)] = static_cast<float>(q * step);
  }
  const Shape shape({256}, f32);
  const HostView input(in.data(), shape);
  op.def()->reference(op.attributes(), {&input, 1}, HostView(out.data(), shape));
  return out;
}

double table_step(const std::array<float, 256>& values) {
  double largest = 0;
  for (const float value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  return int8_step(largest);
}

std::array<std::int8_t, 256> quantize_table(const std::array<float, 256>& values, double step) {
  std::array<std::int8_t, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = quantize(values[i], static_cast<float>(1 / step));
  }
  return table;
}

}  // namespace tenon::npu
