#pragma once

#include "../prepared.hpp"

#include <memory>

namespace tenon::cpu {

/// Makes PackedWeights of the rows W[N, K] of a linear layer. They are kept on disk.
std::shared_ptr<const Recipe> pack_rows();
/// Whether a recipe is one that pack_rows() gave.
bool makes_packed_rows(const Recipe& recipe) noexcept;

}  // namespace tenon::cpu
