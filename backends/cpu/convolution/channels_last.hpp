#pragma once

#include <tenon/lowered.hpp>

#include <span>
#include <vector>

namespace tenon::cpu {

/// Stores images with their channels last where nothing outside of `steps` reads them: the values
/// in a chain of convolutions, pools and element-wise ops. An image takes the same bytes in either
/// order, so the memory plan stays; only strides change, and element-wise steps get their axes
/// permuted, so that they are dense again.
///
/// Convolutions read and write both orders, so a chain may begin and end anywhere.
void put_channels_last(std::vector<Step>& steps, std::span<const Operand> leaves);

/// Whether the channels of [N, C, H, W] are adjacent in memory.
bool has_channels_last(const Operand& image) noexcept;

}  // namespace tenon::cpu
