#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Writes keys or values into one layer of a cache:
/// cache[layer, b, h, position + s, :] = x[b, s, h, :]; every other element stays. Where each row
/// of the batch has its own position, row b writes from position[b] on.
///
/// With a table of pages, the cache is a pool of pages that all rows share: [L, pages, H, page_size,
/// D]. Position p of row b lies in page table[b, p / page_size] at p % page_size; T is then
/// max_pages * page_size. Entries of pages that are not written are not read. Two rows must not
/// write one place: which of them stays is not defined. `attention` reads such a cache by its table.
///
/// Inputs    cache: [L, B, H, T, D], a floating or a block type; consumed: the output takes over
///           its storage
///           layer: i64[]
///           x: [B, S, H, D], floating; converted to the cache's dtype
///           position: i32[] or i32[B]
///           table: i32[B, max_pages], when has_table
/// Output    the cache, of the same type and tags
/// Errors    C1 cache not of rank 5, x not of rank 4, layer not scalar, position neither
///           of rank 0 nor 1, table not of rank 2
///                                                            Errc::shape_mismatch
///           C2 cache neither floating nor of blocks, x not floating, layer not i64, position
///           or table not i32
///                                                            Errc::unsupported_dtype
///           C3 sizes or tags of B, H or D differ             Errc::shape_mismatch
///           C4 S > T, both known                             Errc::shape_mismatch
///           C5 wrong number of inputs for the flag           Errc::bad_argument
///           when run: layer outside [0, L), position < 0 or position + S > T of any row, a page
///           to be written outside [0, pages)
///                                                            Errc::out_of_range, cache untouched
struct CacheUpdate {
  static constexpr std::string_view name = "cache_update";
  static constexpr int min_inputs = 4, max_inputs = 5;
  static constexpr OpTraits traits{.updates_input = 0};
  bool has_table = false;
  static constexpr auto fields = FieldList{field("has_table", &CacheUpdate::has_table)};

  Shape infer(std::span<const Shape> in) const;
  /// `out` either is the cache's own storage or receives a copy of it first.
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(CacheUpdate);

Tensor cache_update(const Tensor& cache, const Tensor& layer, const Tensor& x,
                    const Tensor& position, const Tensor& table = {},
                    const std::source_location& where = std::source_location::current());

/// The pages of one layer of a cache, as `attention` with a table reads them; nothing is copied.
///
/// Inputs    cache: [L, pages, H, page_size, D];  layer: i64[] or i32[]
/// Output    y: [pages, page_size, H, D], without tags
/// Errors    of `select`
Tensor pages_of(const Tensor& cache, const Tensor& layer,
                const std::source_location& where = std::source_location::current());

/// A copy of the pages of every row, one after the other, where something other than `attention`
/// reads the keys or values of a layer:
///
///   y[b, p, h, :] = cache[layer, table[b, p / page_size], h, p % page_size, :]
///
/// Inputs    cache: [L, pages, H, page_size, D], floating;  layer: i64[] or i32[]
///           table: i32[B, max_pages]; entries beyond a row's last page must be pages too
/// Output    y: [B, max_pages * page_size, H, D], without tags
/// Errors    of `select` and `gather`: a page outside [0, pages) is Errc::out_of_range when run
/// Cost      a composition: all B * max_pages pages are copied in each run, those beyond a row's
///           position too.
Tensor gather_pages(const Tensor& cache, const Tensor& layer, const Tensor& table,
                    const std::source_location& where = std::source_location::current());

}  // namespace tenon
