#pragma once

#include <tenon/npu/isa/instruction.hpp>

#include <random>

namespace tenon::npu::testing {

/// A legal instruction of random kind whose fields take any values, extremes more often.
isa::Instruction random_instruction(std::mt19937_64& random);

}  // namespace tenon::npu::testing
