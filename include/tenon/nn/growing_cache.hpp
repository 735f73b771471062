#pragma once

#include <tenon/attributes.hpp>
#include <tenon/host_view.hpp>
#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::nn {

/// Keys and values of past positions as an object of a program (tenon/object.hpp), "KvCache" in
/// texts: linear. It grows as positions are appended, so that its length is in no shape, and one plan
/// serves every length; the tensors of KvCache<> (tenon/nn/kv_cache.hpp) have a capacity, every
/// dtype and every backend's kernels. Rows are f32.
class GrowingCache {
 public:
  /// Errc::bad_argument for a negative number.
  explicit GrowingCache(std::int64_t layers);

  std::int64_t layers() const noexcept { return static_cast<std::int64_t>(layers_.size()); }
  /// Positions of a layer.
  std::int64_t length(std::int64_t layer) const { return at(layer).length; }

  /// Appends positions: [B, S, H, D] and [B, S, H, Dv] of f16, bf16, f32 or f64, any strides.
  /// Errc::shape_mismatch where B, H, D or Dv are not those of the positions before.
  void append(std::int64_t layer, const HostView& keys, const HostView& values);

  /// Attention of queries [B, S, Hq, D] f32 that stand at the last S positions, causal, to
  /// `output`: [B, S, Hq, Dv] f32, dense. Of the B * Hq pairs of row and head only those of
  /// [begin, end). Errc::shape_mismatch.
  void attend(std::int64_t layer, const HostView& queries, float scale, const HostView& output,
              std::int64_t begin, std::int64_t end) const;

  /// Errc::corrupt for bytes that save() did not write.
  std::string save() const;
  static GrowingCache load(std::string_view bytes);

 private:
  struct Layer {
    std::int64_t batch = 0, heads = 0, key_size = 0, value_size = 0, length = 0;
    /// Of row and head b * heads + h: `length` rows.
    std::vector<std::vector<float>> keys, values;
  };
  const Layer& at(std::int64_t layer) const;

  std::vector<Layer> layers_;
};

/// Appends keys and values of S positions to a layer of a cache.
///
/// Inputs    cache: KvCache, updated; layer: i64[]
///           keys: [B, S, H, D]; values: [B, S, H, Dv]; f16, bf16, f32 or f64
/// Output    y: KvCache
/// Errors    C1 no KvCache                                       Errc::bad_type
///           C2 layer not i64[]; keys, values not of rank 4, not floating, or of other B, S or H
///                                                               Errc::shape_mismatch
///           when run: layer outside of the cache                Errc::out_of_range
///           B, H, D or Dv not as before                         Errc::shape_mismatch
struct KvAppend {
  static constexpr std::string_view name = "kv_append";
  static constexpr int min_inputs = 4, max_inputs = 4;
  static constexpr OpTraits traits{.updates_input = 0, .takes_objects = true};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// Attention of the queries of the last S positions to all positions of a layer up to theirs; heads
/// in groups, as `attention` has them.
///
/// Inputs    cache: KvCache; layer: i64[]; q: [B, S, Hq, D] f32
/// Output    y: [B, S, Hq, value_size] f32
/// Attributes scale: 0 stands for 1/sqrt(D);  value_size: Dv, 0 stands for D
/// Errors    C1 no KvCache                                       Errc::bad_type
///           C2 layer not i64[]; q not f32 of rank 4             Errc::shape_mismatch
///           C3 a negative value_size, a scale that is not finite  Errc::bad_attribute
///           when run: layer outside of the cache                Errc::out_of_range
///           B, D or Dv not the cache's, Hq no multiple of H, fewer than S positions
///                                                               Errc::shape_mismatch
/// Numerics  sums in f32, softmax over running maxima
struct KvAttention {
  static constexpr std::string_view name = "kv_attention";
  static constexpr int min_inputs = 3, max_inputs = 3;
  static constexpr OpTraits traits{.takes_objects = true};
  double scale = 0;
  std::int64_t value_size = 0;
  static constexpr auto fields =
      FieldList{field("scale", &KvAttention::scale), field("value_size", &KvAttention::value_size)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  /// The part of `reference` of these rows and heads; see GrowingCache::attend().
  void attend(std::span<const HostView> in, const HostView& out, std::int64_t begin,
              std::int64_t end) const;
};

/// Positions of a layer of a cache: i64[]. Errors as KvAttention.
struct KvLength {
  static constexpr std::string_view name = "kv_length";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.takes_objects = true};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

Tensor kv_append(const Tensor& cache, const Tensor& layer, const Tensor& keys, const Tensor& values,
                 const std::source_location& where = std::source_location::current());
Tensor kv_attention(const Tensor& cache, const Tensor& layer, const Tensor& queries,
                    const KvAttention& attributes = {},
                    const std::source_location& where = std::source_location::current());
Tensor kv_length(const Tensor& cache, const Tensor& layer,
                 const std::source_location& where = std::source_location::current());

}  // namespace tenon::nn
