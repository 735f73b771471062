#pragma once

#include "blocks.hpp"
#include "elements.hpp"

#include <type_traits>

/// One block to floats and back; `quantize` and `dequantize` of the public header loop over these.
namespace tenon::quant {

#define TENON_BLOCK(type, Block) void decode(const Block& block, float* out) noexcept;
#include "block_types.def"
#undef TENON_BLOCK

/// Whether blocks are encoded without importances, too.
template <class Block>
inline constexpr bool is_encoded =
    !std::is_same_v<Block, BlockIQ1S> && !std::is_same_v<Block, BlockIQ1M> &&
    !std::is_same_v<Block, BlockIQ2XXS> && !std::is_same_v<Block, BlockIQ2XS>;

/// Takes Block::size floats, all of them finite. Importances, where they are used, are positive and at most 1; there are
/// some unless is_encoded<Block>.
#define TENON_BLOCK(type, Block) void encode(const Elements& in, Block& block) noexcept;
#include "block_types.def"
#undef TENON_BLOCK

}  // namespace tenon::quant
