#pragma once

#include "blocks.hpp"

/// One block to floats and back; `quantize` and `dequantize` of the public header loop over these.
///
/// Every encoder takes `Block::size` floats, all of them finite.
namespace tenon::quant {

void decode(const BlockQ4_0& block, float* out) noexcept;
void decode(const BlockQ4_1& block, float* out) noexcept;
void decode(const BlockQ5_0& block, float* out) noexcept;
void decode(const BlockQ5_1& block, float* out) noexcept;
void decode(const BlockQ8_0& block, float* out) noexcept;
void decode(const BlockQ2K& block, float* out) noexcept;
void decode(const BlockQ3K& block, float* out) noexcept;
void decode(const BlockQ4K& block, float* out) noexcept;
void decode(const BlockQ5K& block, float* out) noexcept;
void decode(const BlockQ6K& block, float* out) noexcept;
void decode(const BlockQ8K& block, float* out) noexcept;
void decode(const BlockIQ4NL& block, float* out) noexcept;
void decode(const BlockIQ4XS& block, float* out) noexcept;

void encode(const float* in, BlockQ4_0& block) noexcept;
void encode(const float* in, BlockQ4_1& block) noexcept;
void encode(const float* in, BlockQ5_0& block) noexcept;
void encode(const float* in, BlockQ5_1& block) noexcept;
void encode(const float* in, BlockQ8_0& block) noexcept;
void encode(const float* in, BlockQ2K& block) noexcept;
void encode(const float* in, BlockQ3K& block) noexcept;
void encode(const float* in, BlockQ4K& block) noexcept;
void encode(const float* in, BlockQ5K& block) noexcept;
void encode(const float* in, BlockQ6K& block) noexcept;
void encode(const float* in, BlockQ8K& block) noexcept;
void encode(const float* in, BlockIQ4NL& block) noexcept;
void encode(const float* in, BlockIQ4XS& block) noexcept;

}  // namespace tenon::quant
