#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <tuple>

namespace tenon {

/// Writes keys or values into one layer of a cache:
/// cache[layer, b, h, position + s, :] = x[b, s, h, :]; every other element stays.
///
/// Inputs    cache: [L, B, H, T, D], a floating or a block type; consumed: the output takes over
///           its storage
///           layer: i64[]
///           x: [B, S, H, D], floating; converted to the cache's dtype
///           position: i32[]
/// Output    the cache, of the same type and tags
/// Errors    C1 cache not of rank 5, x not of rank 4, layer or position not scalar
///                                                            Errc::shape_mismatch
///           C2 cache neither floating nor of blocks, x not floating, layer not i64, position
///           not i32
///                                                            Errc::unsupported_dtype
///           C3 sizes or tags of B, H or D differ             Errc::shape_mismatch
///           C4 S > T, both known                             Errc::shape_mismatch
///           when run: layer outside [0, L), position < 0, position + S > T
///                                                            Errc::out_of_range, cache untouched
struct CacheUpdate {
  static constexpr std::string_view name = "cache_update";
  static constexpr int min_inputs = 4, max_inputs = 4;
  static constexpr OpTraits traits{.updates_input = 0};
  static constexpr std::tuple<> fields{};

  Shape infer(std::span<const Shape> in) const;
  /// `out` either is the cache's own storage or receives a copy of it first.
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(CacheUpdate);

Tensor cache_update(const Tensor& cache, const Tensor& layer, const Tensor& x,
                    const Tensor& position,
                    const std::source_location& where = std::source_location::current());

}  // namespace tenon
