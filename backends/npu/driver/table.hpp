#pragma once

#include <tenon/op.hpp>

#include <array>
#include <cstdint>

namespace tenon::npu {

/// The results of an op of one f32 operand for q * step, q = -128 .. 127.
std::array<float, 256> table_values(const OpInstance& op, double step);

/// The step that holds the table's finite values.
double table_step(const std::array<float, 256>& values);

/// The table in int8: entry q + 128.
std::array<std::int8_t, 256> quantize_table(const std::array<float, 256>& values, double step);

}  // namespace tenon::npu
