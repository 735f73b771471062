#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Scaled dot-product attention with grouped heads:
///
///   score[b, h, s, t] = cap(scale * q[b, s, h] . k[b, t, g]) + mask[b, h, s, t]
///   y[b, s, h] = sum_t softmax_t(score[b, h, s, t]) * v[b, t, g]
///
/// with g = h / (Hq / Hkv), over the keys that query s may see. With sinks, the softmax's
/// denominator has one term more, exp(sinks[h]), that belongs to no value. Query s stands at
/// position p + s among the keys, where p is the input `position`, that of row b where it has one
/// for each, or T - S without one: the last query stands at the last key. It sees
///   causal                 t <= p + s
///   not causal             t < p + S
///   window > 0             of these, t > p + s - window; if not causal, also t < p + s + window
/// Keys and values that no query of their row sees are not read: they may be uninitialised.
///
/// With a table of pages, keys and values are read where `cache_update` has put them, in pages that
/// rows may share: key t of row b is k[table[b, t / page_size], t % page_size], and T is
/// max_pages * page_size. Entries of pages that no query of their row sees are not read.
///
/// Inputs    q: [B, S, Hq, D]; k: [B, T, Hkv, D]; v: [B, T, Hkv, Dv]; f16, bf16, f32 or f64;
///           k and v of one dtype, which may be a block type. With a table
///           k: [pages, page_size, Hkv, D]; v: [pages, page_size, Hkv, Dv]
///           position: i32[] or i32[B], when has_position
///           mask: f32, of rank <= 4 and broadcastable to [B, Hq, S, T], when has_mask; -inf hides
///           sinks: f32[Hq], when has_sinks; not capped, not masked, -inf is none
///           table: i32[B, max_pages], when has_table
/// Output    y: [B, S, Hq, Dv], dtype of q; tags of q, and of v's last axis where it has one.
///           A query that sees no key, or whose scores are all -inf, gives zeros.
/// Attributes scale: 0 stands for 1/sqrt(D);  softcap: cap(s) = softcap * tanh(s / softcap), 0 none
/// Errors    C1 wrong number of inputs for the flags              Errc::bad_argument
///           C2 q not floating, k or v neither floating nor a block type, position or table not
///              i32, mask or sinks not f32
///                                                                Errc::unsupported_dtype
///           C3 q, k or v not of rank 4, position neither of rank 0 nor 1, mask of rank above 4,
///              sinks not of rank 1, table not of rank 2
///                                                                Errc::shape_mismatch
///           C4 k and v differ in dtype                           Errc::shape_mismatch
///           C5 sizes or tags of B, T, Hkv, D or Hq differ, of pages or page_size
///                                                                Errc::shape_mismatch
///           C6 Hq not a multiple of Hkv                          Errc::shape_mismatch
///           C7 mask does not broadcast to [B, Hq, S, T]          Errc::shape_mismatch
///           C8 window outside [0, max_window]; softcap negative; scale or softcap not finite
///                                                                Errc::bad_attribute
///           C9 two axes of the result with one tag               Errc::shape_mismatch
///           when run: position < 0 or position + S > T, of any row; a page with keys that a row
///           sees outside [0, pages)                              Errc::out_of_range
/// Numerics  reference in f64. Gradients gather all pages of the table, so that every entry must be
///           a page, and use y itself, with its rounding where it is f16 or bf16.
/// Source    Vaswani et al., Attention Is All You Need (2017); grouped heads: Ainslie et al.
///           (2023); soft cap: Gemma Team, Gemma 2 (2024), section 2; sinks: OpenAI, gpt-oss model card
///           (2025), as eager attention of transformers' modeling_gpt_oss.py
struct Attention {
  static constexpr std::string_view name = "attention";
  static constexpr int min_inputs = 3, max_inputs = 7;
  /// Larger than any axis; adding it to a position cannot overflow.
  static constexpr std::int64_t max_window = std::int64_t{1} << 62;
  bool causal = false;
  std::int64_t window = 0;
  double scale = 0;
  double softcap = 0;
  bool has_position = false;
  bool has_mask = false;
  bool has_sinks = false;
  bool has_table = false;
  static constexpr auto fields = FieldList{field("causal", &Attention::causal),
                                           field("window", &Attention::window),
                                           field("scale", &Attention::scale),
                                           field("softcap", &Attention::softcap),
                                           field("has_position", &Attention::has_position),
                                           field("has_mask", &Attention::has_mask),
                                           field("has_sinks", &Attention::has_sinks),
                                           field("has_table", &Attention::has_table)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;

  /// Where these inputs lie among the operands, if there.
  std::size_t mask_index() const noexcept { return has_position ? 4 : 3; }
  std::size_t sinks_index() const noexcept { return mask_index() + std::size_t{has_mask}; }
  std::size_t table_index() const noexcept { return sinks_index() + std::size_t{has_sinks}; }
  /// T, by the sizes of operands of any kind that has a `shape`.
  template <class Operands>
  std::int64_t key_count(const Operands& in) const noexcept {
    const std::int64_t keys = in[1].shape[1];
    return has_table ? keys * in[table_index()].shape[1] : keys;
  }

  /// The keys [begin, end) that the query at position p + s sees; queries = S, keys = T.
  struct KeyRange {
    std::int64_t begin;
    std::int64_t end;
  };
  KeyRange visible_keys(std::int64_t p, std::int64_t s, std::int64_t queries,
                        std::int64_t keys) const noexcept;
};
TENON_DECLARE_OP(Attention);

/// `attention(q, k, v, {.causal = true}, position)`. An empty `position`, `mask`, `sinks` or `table`
/// means none; has_position, has_mask, has_sinks and has_table of `options` are ignored and set
/// accordingly. Of a cache in pages: `pages_of(cache, layer)` as k or v, and its table.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Attention& options = {},
                 const Tensor& position = {}, const Tensor& mask = {}, const Tensor& sinks = {},
                 const Tensor& table = {},
                 const std::source_location& where = std::source_location::current());

}  // namespace tenon
