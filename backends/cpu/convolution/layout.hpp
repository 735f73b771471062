#pragma once

#include <tenon/lowered.hpp>

#include <span>
#include <vector>

namespace tenon::cpu {

/// Has images lie with their channels last where nobody outside of `steps` sees them: what a chain
/// of convolutions, pools and element-wise ops hands on. An image takes the same bytes in either
/// order, so the memory plan stays; only strides change, and element-wise steps get their axes
/// turned, so that they are dense again.
///
/// Convolutions read and write both orders, so a chain begins and ends where it likes.
void put_channels_last(std::vector<Step>& steps, std::span<const Operand> leaves);

/// Whether the channels of [N, C, H, W] are neighbours in memory.
bool has_channels_last(const Operand& image) noexcept;

}  // namespace tenon::cpu
