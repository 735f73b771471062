#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>

/// Masks for `attention`, of existing ops: a mask of S * T numbers per head or row is computed and
/// read, where attributes of the op (causal, window) and its sinks cost nothing. None of them hides
/// what `causal` does; combine masks by addition. 0 where a query sees a key, -inf where it does
/// not. Queries and keys have positions as in `attention`: query s of S stands at p + s, p being
/// `position` (i32[] or i32[B]; empty: keys - queries).
namespace tenon {

/// Slopes of the linear biases of ALiBi: f32[heads]. With n the largest power of two <= heads,
/// 2^(-max_bias (h + 1) / n) for h < n, then 2^(-max_bias (2 (h - n) + 1) / (2 n)).
/// Errors    heads < 1, max_bias not positive and finite   Errc::bad_argument
/// Source    Press et al., Train Short, Test Long (2022), max_bias 8; heads that are no power of two
///           as its authors' code and ggml's soft_max_ext have them
Tensor alibi_slopes(std::int64_t heads, double max_bias = 8,
                    const std::source_location& where = std::source_location::current());

/// -slopes[h] * |t - (p + s)|: f32[H, S, T], or f32[B, H, S, T] where rows have their own position.
/// Inputs    slopes: f32[H]
Tensor alibi_mask(const Tensor& slopes, std::int64_t queries, std::int64_t keys,
                  const Tensor& position = {},
                  const std::source_location& where = std::source_location::current());

/// Document masks: a query sees the keys of its own segment. f32[B, 1, S, T].
/// Inputs    of_queries: i32[B, S];  of_keys: i32[B, T]
Tensor segment_mask(const Tensor& of_queries, const Tensor& of_keys,
                    const std::source_location& where = std::source_location::current());

/// Segments from the sizes of blocks: {2, 3} gives i32[5] 0 0 1 1 1. With them as both operands
/// (`unsqueeze(segments, 0)`), segment_mask is block-diagonal.
/// Errors    a negative size   Errc::bad_argument
Tensor segments_of(std::span<const std::int64_t> sizes,
                   const std::source_location& where = std::source_location::current());

/// Prefix language models: keys before `prefix` are seen by all queries, the others causally.
/// Inputs    prefix: i32[] or i32[B]
/// Output    f32[S, T], or f32[B, 1, S, T] where prefixes or positions are of rows
Tensor prefix_mask(const Tensor& prefix, std::int64_t queries, std::int64_t keys,
                   const Tensor& position = {},
                   const std::source_location& where = std::source_location::current());

/// A causal window beside the first keys of all: t <= p + s, and t < first_keys or
/// t > p + s - window. Shape as of prefix_mask.
/// Errors    a negative window or number of keys   Errc::bad_argument
/// Source    Xiao et al., Efficient Streaming Language Models with Attention Sinks (2024)
Tensor streaming_mask(std::int64_t window, std::int64_t first_keys, std::int64_t queries,
                      std::int64_t keys, const Tensor& position = {},
                      const std::source_location& where = std::source_location::current());

}  // namespace tenon
