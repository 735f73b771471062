#pragma once

#include <tenon/lowered.hpp>

#include <span>
#include <vector>

namespace tenon::cpu {

/// Lets convolutions take over what follows them: the addition of a residual and one function of
/// one operand, in this order. Their steps become one of MergedConv2d, in the place of the last.
///
/// Only where nothing else sees what lay between, and where the memory plan allows: the result must
/// not lie over what the convolution reads.
void merge_convolutions(std::vector<Step>& steps, std::span<const Operand> leaves);

}  // namespace tenon::cpu
