#pragma once

#include "../prepared.hpp"

#include <tenon/lowered.hpp>

#include <memory>

namespace tenon::cpu {

/// Makes PackedWeights of the rows W[N, K] of a linear layer, or of all rows of W[G, N, K], one group
/// after the other. They are kept on disk.
std::shared_ptr<const Recipe> pack_rows();
/// Whether W[G, N, K] of grouped linear layers is packed: a constant of a packable type, every group
/// of which begins with a panel. Others are read as they are.
bool are_groups_packed(const Operand& w) noexcept;
/// Whether a recipe is one that pack_rows() gave.
bool makes_packed_rows(const Recipe& recipe) noexcept;

}  // namespace tenon::cpu
