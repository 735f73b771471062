#pragma once

#include "blocks.hpp"
#include "elements.hpp"

/// The iq1, iq2 and iq3 types where errors of elements count differently. `in` has importances.
namespace tenon::quant {

void encode_by_importance(const Elements& in, BlockIQ1S& block) noexcept;
void encode_by_importance(const Elements& in, BlockIQ1M& block) noexcept;
void encode_by_importance(const Elements& in, BlockIQ2XXS& block) noexcept;
void encode_by_importance(const Elements& in, BlockIQ2XS& block) noexcept;
void encode_by_importance(const Elements& in, BlockIQ2S& block) noexcept;
void encode_by_importance(const Elements& in, BlockIQ3XXS& block) noexcept;
void encode_by_importance(const Elements& in, BlockIQ3S& block) noexcept;

}  // namespace tenon::quant
