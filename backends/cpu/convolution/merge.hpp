#pragma once

#include <tenon/lowered.hpp>

#include <span>
#include <vector>

namespace tenon::cpu {

/// Merges convolutions with the steps after them: the addition of a residual and one function of
/// one operand, in this order. They become one MergedConv2d step, in the place of the last.
///
/// Only where nothing else reads the values between, and where the memory plan allows it: the
/// result must not overlap what the convolution reads.
void merge_convolutions(std::vector<Step>& steps, std::span<const Operand> leaves);

}  // namespace tenon::cpu
