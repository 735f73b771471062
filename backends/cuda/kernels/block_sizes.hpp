// How many threads work on what part of a product: kernels and the host agree on it.
#pragma once

#include <cstdint>

namespace tenon::cuda {

// Products of up to `gemv_rows` rows: blocks of at most so many warps and teams of these, which multiply
// at most so many columns, of one row or of several.
inline constexpr std::uint32_t gemv_rows = 8, gemv_warps = 8, gemv_teams = 4;
inline constexpr std::uint32_t gemv_columns = 64, gemv_columns_of_rows = 16;
/// Elements of a column that a warp multiplies at a time, of plain types by their elements' bytes.
inline constexpr std::uint32_t gemv_block_slice = 1024, gemv_plain_slice_bytes = 1024;
// Those with weights that are codes (gemv_codes.hpp): the warps of a block, the columns that one
// multiplies at once, and at most so many times of one row.
inline constexpr std::uint32_t digit_step = 256, digit_bytes = 1088;  // of DigitsOfStep
inline constexpr std::uint32_t code_warps = 4, code_tile_columns = 16, code_tiles = 4;
inline constexpr std::uint32_t tile_rows = 64, tile_columns = 64, tile_depth = 32;
inline constexpr std::uint32_t tile_threads = 256;

inline constexpr std::uint32_t tensor_tile = 64, tensor_depth = 32, tensor_threads = 128;

// Rows rounded to bf16, in tensor cores (linear_rounded.hpp): a block has so many rows and columns, and
// takes `rounded_depth` of the depth at a time. Where the columns give fewer than
// `rounded_blocks` blocks, the depth is split over some, of at least `min_rounded_steps` such steps.
inline constexpr std::uint32_t rounded_tile_rows = 64, rounded_tile_columns = 128,
                               rounded_depth = 256;
inline constexpr std::uint32_t rounded_threads = 256;
// From so many rows on, where a library multiplies, weights are decoded to bf16 in scratch memory. That
// writes and reads 4 bytes of an element, and linear_rounded reads weights again for every 64 rows.
inline constexpr std::int64_t decoded_rows = 256;
inline constexpr std::uint32_t rounded_blocks = 132, min_rounded_steps = 2;

// Attention of few queries: the rows (heads of a query) of a block, and the keys that a warp reads at
// once. The keys that a query of up to `max_split_queries` sees are split over at most `max_splits`
// blocks, a multiple of `split_step` each: by their number alone, so that nothing else changes a row's
// bits.
inline constexpr std::uint32_t attention_threads = 128, attention_rows = 4, warp_keys = 8;
inline constexpr std::uint32_t max_head = 256;  ///< elements of a query, and of a value
inline constexpr std::uint32_t max_split_queries = 8, max_splits = 64, split_step = 32;

// Attention in tensor cores, of heads of up to 128 or 256 elements: the queries of a block, and the
// keys that it reads at once, have so many elements.
inline constexpr std::uint32_t short_head = 128, tensor_attention_threads = 128;
inline constexpr std::uint32_t tensor_query_elements = 16384, tensor_key_elements = 4096;
// Its blocks go through the queries of as many heads at a time as have keys and values of so many
// bytes: they stay in the L2 cache of an A100 or H100.
inline constexpr std::uint64_t tensor_group_bytes = std::uint64_t{24} << 20;

// Reductions of more than two parts of this many elements have a block for each part.
inline constexpr std::uint32_t reduce_part = 16384;

// Running sums of more than `scan_part` / 2 elements have a block, which takes so many at a time.
inline constexpr std::uint32_t scan_threads = 256, scan_part = 1024;

// Rope: the heads of a step that a thread rotates by one angle.
inline constexpr std::uint32_t rope_heads = 4;

// Norms of dense rows: a thread keeps eight elements in registers.
inline constexpr std::uint32_t dense_norm_length = 1024 * 8;

// Convolutions of codes: a thread has so many outputs, and as many columns.
inline constexpr std::uint32_t code_tile = 4;

}  // namespace tenon::cuda
