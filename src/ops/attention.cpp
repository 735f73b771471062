#include "ops/filled.hpp"
#include "ops/gradient.hpp"
#include "ops/open_sizes.hpp"
#include "ops/positions.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/quantize.hpp>
#include <tenon/ops/softmax.hpp>
#include <tenon/ops/statistics.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(attention, Attention);

namespace {

void check_mask(const Shape& mask, const std::array<std::int64_t, 4>& scores,
                const std::string& operands) {
  if (mask.rank() > 4) {
    fail(Errc::shape_mismatch, Attention::name, fmt::format("mask has rank above 4: {}", operands));
  }
  for (int i = 0; i < mask.rank(); ++i) {
    const std::int64_t score_size = scores[static_cast<std::size_t>(4 - mask.rank() + i)];
    if (mask[i] != 1 && !sizes_agree(mask[i], score_size)) {
      fail(Errc::shape_mismatch, Attention::name,
           fmt::format("mask does not broadcast to [B, Hq, S, T]: {}", operands));
    }
  }
}

/// Byte step of the mask along each axis of the scores; 0 where it broadcasts.
std::array<std::int64_t, 4> mask_strides(const HostView& mask) {
  std::array<std::int64_t, 4> strides{};
  const int skipped = 4 - mask.shape.rank();
  for (int i = 0; i < mask.shape.rank(); ++i) {
    if (mask.shape[i] != 1) {
      strides[static_cast<std::size_t>(skipped + i)] = mask.strides[static_cast<std::size_t>(i)];
    }
  }
  return strides;
}

constexpr double hidden_score = -std::numeric_limits<double>::infinity();

/// Softmax of scores beside a sink, in place; false where every key is masked.
bool normalise(std::vector<double>& scores, double sink) {
  constexpr double hidden = hidden_score;
  double peak = sink;
  bool sees = false;
  for (const double score : scores) {
    peak = std::max(peak, score);
    sees = sees || score != hidden;  // a NaN is not masked, and propagates
  }
  if (!sees) return false;
  double sum = sink == hidden ? 0 : sink == peak ? 1 : std::exp(sink - peak);
  for (double& score : scores) {
    score = score == hidden ? 0 : std::exp(score - peak);
    sum += score;
  }
  for (double& score : scores) score /= sum;
  return true;
}

}  // namespace

Attention::KeyRange Attention::visible_keys(std::int64_t p, std::int64_t s, std::int64_t queries,
                                            std::int64_t keys) const noexcept {
  std::int64_t begin = 0;
  std::int64_t end = std::min(keys, p + (causal ? s + 1 : queries));
  if (window > 0) {
    begin = std::max(begin, p + s - window + 1);
    if (!causal) end = std::min(end, p + s + window);
  }
  return {begin, std::max(begin, end)};
}

namespace {

/// The inputs of an attention by what they are.
struct AttentionInputs {
  const Shape &q, &k, &v;
  const Shape *position, *mask, *sinks, *table;  ///< null: not given
  std::string text;                              ///< for errors
};

AttentionInputs inputs_of(const Attention& op, std::span<const Shape> in) {
  const std::size_t expected = op.table_index() + std::size_t{op.has_table};
  if (in.size() != expected) {  // C1
    fail(Errc::bad_argument, Attention::name,
         fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  std::vector<std::string_view> names{"q", "k", "v"};
  if (op.has_position) names.push_back("position");
  if (op.has_mask) names.push_back("mask");
  if (op.has_sinks) names.push_back("sinks");
  if (op.has_table) names.push_back("table");
  return {.q = in[0],
          .k = in[1],
          .v = in[2],
          .position = op.has_position ? &in[3] : nullptr,
          .mask = op.has_mask ? &in[op.mask_index()] : nullptr,
          .sinks = op.has_sinks ? &in[op.sinks_index()] : nullptr,
          .table = op.has_table ? &in[op.table_index()] : nullptr,
          .text = operands_text(names, in)};
}

void check_types(const AttentionInputs& in) {
  constexpr std::string_view name = Attention::name;
  require_floating(name, in.q);  // C2
  require_values(name, in.k);
  require_values(name, in.v);
  require_rank(name, "q", in.q, 4);  // C3
  require_rank(name, "k", in.k, 4);
  require_rank(name, "v", in.v, 4);
  if (in.position != nullptr) {
    if (in.position->rank() > 1) {
      fail(Errc::shape_mismatch, name, fmt::format("position has rank above 1: {}", in.text));
    }
    require_dtype(name, "position", *in.position, DType::i32);
  }
  if (in.sinks != nullptr) {
    require_rank(name, "sinks", *in.sinks, 1);
    require_dtype(name, "sinks", *in.sinks, DType::f32);
  }
  if (in.table != nullptr) {
    require_rank(name, "table", *in.table, 2);
    require_dtype(name, "table", *in.table, DType::i32);
  }
  if (in.k.dtype() != in.v.dtype()) {  // C4
    fail(Errc::shape_mismatch, name, fmt::format("dtypes of k and v differ: {}", in.text));
  }
}

/// Checks the sizes that inputs share, and returns the batch.
Axis check_sizes(const AttentionInputs& in) {
  constexpr std::string_view name = Attention::name;
  const auto& [q, k, v, position, mask, sinks, table, text] = in;
  const bool is_paged = table != nullptr;
  common_axis(name, k, 0, v, 0, is_paged ? "the number of pages" : "the batch", text);  // C5
  if (!is_paged) common_axis(name, q, 0, v, 0, "the batch", text);
  const Axis batch = common_axis(name, q, 0, is_paged ? *table : k, 0, "the batch", text);
  common_axis(name, k, 1, v, 1, is_paged ? "the page size" : "the number of keys", text);
  common_axis(name, k, 2, v, 2, "the number of key heads", text);
  common_axis(name, q, 3, k, 3, "the head's size", text);
  if (position != nullptr && position->rank() == 1) {
    common_axis(name, q, 0, *position, 0, "the batch", text);
  }
  if (sinks != nullptr) common_axis(name, q, 2, *sinks, 0, "the number of heads", text);
  const std::int64_t kv_heads = known_size(k[2], v[2]);
  if (is_static(q[2]) && is_static(kv_heads) &&  // C6
      (kv_heads == 0 ? q[2] != 0 : q[2] % kv_heads != 0)) {
    fail(Errc::shape_mismatch, name,
         fmt::format("{} heads are not a multiple of {} key heads: {}", q[2], kv_heads, text));
  }
  if (mask != nullptr) {  // C7
    if (mask->dtype() == boolean) {
      fail(Errc::unsupported_dtype, name,
           fmt::format("mask is {}, and is added to the scores: where(mask, 0, -inf) of f32",
                       to_string(*mask)));
    }
    require_dtype(name, "mask", *mask, DType::f32);
    std::int64_t keys = known_size(k[1], v[1]);
    if (is_paged) {
      const std::int64_t of_row = (*table)[1];
      keys = is_static(keys) && is_static(of_row) ? checked_multiply(keys, of_row) : unknown_dim;
    }
    check_mask(*mask, {batch.size, q[2], q[1], keys}, text);
  }
  return batch;
}

}  // namespace

Shape Attention::infer(std::span<const Shape> in) const {
  const AttentionInputs inputs = inputs_of(*this, in);
  check_types(inputs);
  const Axis batch = check_sizes(inputs);
  if (window < 0 || window > max_window) {  // C8
    fail(Errc::bad_attribute, name, fmt::format("window {} outside [0, {}]", window, max_window));
  }
  if (!(softcap >= 0) || !std::isfinite(softcap) || !std::isfinite(scale)) {
    fail(Errc::bad_attribute, name,
         fmt::format("softcap {} is negative or not finite, or scale {} is not finite", softcap,
                     scale));
  }
  const Shape &q = inputs.q, &v = inputs.v;
  std::vector<Axis> axes{batch, q.axis_at(1), q.axis_at(2), v.axis_at(3)};
  if (axes[3].tag.empty()) axes[3].tag = q.tag(3);
  require_distinct_tags(name, axes, inputs.text);  // C9
  return {std::span<const Axis>(axes), q.dtype()};
}

namespace {

/// Where keys and values are: in their row of the batch, or in the pages of a table.
class KeyPlaces {
 public:
  KeyPlaces(const HostView& k, const HostView* table) : k_(k), table_(table) {}

  /// The index of key `t` of row `b` along the first two axes of k and v.
  std::array<std::int64_t, 2> of(std::int64_t b, std::int64_t t) const {
    if (table_ == nullptr) return {b, t};
    const std::int64_t page_size = k_.shape[1];
    return {load_as_int64(DType::i32, table_->at(std::array{b, t / page_size})), t % page_size};
  }

  /// Whether row `b` has pages for keys [begin, end); Errc::out_of_range.
  void check(std::int64_t b, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t t = begin; table_ != nullptr && t < end; ++t) {
      const std::int64_t page = of(b, t)[0];
      if (page >= 0 && page < k_.shape[0]) continue;
      fail(Errc::out_of_range, Attention::name,
           fmt::format("row {}: page {} outside [0, {})", b, page, k_.shape[0]));
    }
  }

 private:
  const HostView& k_;
  const HostView* table_;
};

}  // namespace

void Attention::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView& q = in[0];
  const HostView& k = in[1];
  const HostView& v = in[2];
  const std::int64_t queries = q.shape[1];
  const std::int64_t keys = key_count(in);
  const std::int64_t head_dim = q.shape[3];
  const std::int64_t value_dim = v.shape[3];
  if (out.shape.elements() == 0) return;
  const std::int64_t group = q.shape[2] / k.shape[2];

  std::vector<std::int64_t> pasts(static_cast<std::size_t>(q.shape[0]), keys - queries);
  if (has_position) pasts = read_positions(name, in[3], q.shape[0], queries, keys);
  const KeyPlaces places(k, has_table ? &in[table_index()] : nullptr);
  for (std::int64_t b = 0; b < q.shape[0]; ++b) {
    const std::int64_t past = pasts[static_cast<std::size_t>(b)];
    places.check(b, visible_keys(past, 0, queries, keys).begin,
                 visible_keys(past, queries - 1, queries, keys).end);
  }
  const double factor =
      scale != 0 || head_dim == 0 ? scale : 1 / std::sqrt(static_cast<double>(head_dim));
  const HostView* mask = has_mask ? &in[mask_index()] : nullptr;
  const auto mask_step = mask != nullptr ? mask_strides(*mask) : std::array<std::int64_t, 4>{};

  std::vector<double> query(static_cast<std::size_t>(head_dim));
  std::vector<double> key(query.size());
  std::vector<double> value(static_cast<std::size_t>(value_dim));
  std::vector<double> sum(value.size());
  std::vector<double> scores;
  for_each_index(q.shape.without_tags().without_axis(3), [&](std::span<const std::int64_t> index) {
    const std::int64_t b = index[0];
    const std::int64_t s = index[1];
    const std::int64_t h = index[2];
    const auto [begin, end] = visible_keys(pasts[static_cast<std::size_t>(b)], s, queries, keys);
    read_row(q.shape.dtype(), slice_at(q, index), q.strides[3], query);
    scores.clear();
    for (std::int64_t t = begin; t < end; ++t) {
      const auto [row, at] = places.of(b, t);
      read_row(k.shape.dtype(), slice_at(k, std::array{row, at, h / group}), k.strides[3], key);
      double score = factor * dot_product(query.data(), key.data(), head_dim);
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
      if (mask != nullptr) {
        score += load_as_double(DType::f32, mask->data + b * mask_step[0] + h * mask_step[1] +
                                                s * mask_step[2] + t * mask_step[3]);
      }
      scores.push_back(score);
    }

    std::fill(sum.begin(), sum.end(), 0.0);
    const double sink =
        has_sinks ? load_as_double(DType::f32, in[sinks_index()].at(std::array{h})) : hidden_score;
    if (normalise(scores, sink)) {
      for (std::int64_t t = begin; t < end; ++t) {
        const double weight = scores[static_cast<std::size_t>(t - begin)];
        if (weight == 0) continue;  // a masked key's value is unspecified and may be NaN
        const auto [row, at] = places.of(b, t);
        read_row(v.shape.dtype(), slice_at(v, std::array{row, at, h / group}), v.strides[3], value);
        for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += weight * value[d];
      }
    }
    write_row(sum, out.shape.dtype(), slice_at(out, index), out.strides[3]);
  });
}

double Attention::flops(std::span<const Shape> in, const Shape& /*out*/) const {
  if (has_position) return std::numeric_limits<double>::quiet_NaN();
  const Shape &q = in[0], &k = in[1], &v = in[2];
  const std::int64_t queries = q[1], keys = has_table ? k[1] * in[table_index()][1] : k[1];
  std::int64_t seen = 0;
  for (std::int64_t s = 0; s < queries; ++s) {
    const KeyRange range = visible_keys(keys - queries, s, queries, keys);
    seen += std::max(range.end - range.begin, std::int64_t{0});
  }
  return 2.0 * static_cast<double>(q[0] * q[2]) * static_cast<double>(seen) *
         static_cast<double>(q[3] + v[3]);
}

namespace {

/// The parts of attention as products and a softmax, in f32 at least, for gradients. Heads that share keys
/// are one more axis of q: [B, Hkv, Hq / Hkv, S, D]; where their number is not known, each has keys of
/// its own.
class Composition {
 public:
  Composition(const Attention& op, std::span<const Tensor> in)
      : op_(op), in_(in), dtype_(in[0].dtype() == f64 ? f64 : f32), every_key_(rows_of(in[1])) {
    const std::int64_t groups = in[1].dim(2), heads = in[0].dim(2);
    shares_ = is_static(groups) && is_static(heads);
    groups_ = groups;
    shared_ = !shares_ || groups == 0 ? 1 : heads / groups;
  }

  /// f32 or f64 [B, Hq, S, T]. Scores that are not seen are lowered to `hidden` instead of -inf, so that a
  /// query without keys has gradients of 0 instead of NaN. Those that a finite number hides stay above it, where all
  /// below -1e38 are alike: where there are no others, they are what the query sees.
  Tensor scores() const {
    const Tensor k = of_groups(every_key_);
    const Tensor q = grouped(heads_first(in_[0]));
    Tensor scores = ungrouped(matmul(q, transpose(k, -2, -1)));
    if (op_.scale == 0 && !is_static(in_[0].dim(3))) {
      scores = scores / sqrt(size_along(in_[0], 3, dtype_));
    } else {
      scores =
          scores * (op_.scale != 0 ? op_.scale : 1 / std::sqrt(static_cast<double>(in_[0].dim(3))));
    }
    if (op_.softcap != 0) scores = op_.softcap * tanh(scores * (1 / op_.softcap));
    const Tensor low = scalar_like(scores, hidden);
    if (op_.has_mask) {
      const Tensor mask = cast(in_[op_.mask_index()], dtype_);
      constexpr double no_score = -std::numeric_limits<double>::infinity();
      const Tensor least = scalar_like(scores, least_seen);
      scores = where(eq(mask, scalar_like(mask, no_score)), low, maximum(scores + mask, least));
    }
    return where(seen(), scores, low);
  }

  /// [B, Hq, S, T]: how much of each value there is in a result. Rows of queries without keys are 0.
  Tensor weights(const Tensor& scores) const {
    Tensor weights = softmax(scores, 3);
    const std::int64_t queries = in_[0].dim(1), keys = every_key_.dim(1);
    // w / (1 + e^(sink - lse)) is w * (1 - what the sink takes).
    if (op_.has_sinks && keys != 0)
      weights = weights * sigmoid(logsumexp(scores, 3, true) - sink());
    const bool see_one = !op_.has_mask && is_static(keys) && is_static(queries) && keys >= queries;
    if (keys != 0 && !see_one) {
      const Tensor limit = scalar_like(scores, hidden / 2);
      const Tensor sees_one =  // there may turn out to be no key
          is_static(keys) ? gt(max(scores, 3, true), limit) : any(gt(scores, limit), 3, true);
      weights = weights * cast(sees_one, dtype_);
    }
    return weights;
  }

  /// [B, Hq, S, 1]: x times what the sinks take of each query, which is all of it where there is no key.
  Tensor of_sinks(const Tensor& scores, const Tensor& x) const {
    return every_key_.dim(1) == 0 ? x : x * sigmoid(sink() - logsumexp(scores, 3, true));
  }

  /// [B, S, Hq, Dv]
  Tensor mixed(const Tensor& weights) const {
    const Tensor mixed = ungrouped(matmul(grouped(weights), of_groups(rows_of(in_[2]))));
    return cast(permute(mixed, {0, 2, 1, 3}), in_[0].dtype());
  }

  /// The sums of a . b, of tensors like the result: [B, Hq, S, 1].
  Tensor dots(const Tensor& a, const Tensor& b) const {
    return heads_first(sum(plain(a) * plain(b), 3, true));
  }

 private:
  static constexpr double hidden = -3e38, least_seen = -1e38;

  Tensor heads_first(const Tensor& x) const { return permute(plain(x), {0, 2, 1, 3}); }
  Tensor plain(const Tensor& x) const {
    return is_block(x.dtype()) ? dequantize(x, dtype_) : cast(x, dtype_);
  }
  Tensor rows_of(const Tensor& x) const {  // [B, T, Hkv, ..]
    if (!op_.has_table) return plain(x);
    return merge_axes(gather(plain(x).with_tags({}), in_[op_.table_index()].with_tags({}), 0), 1,
                      2);
  }
  Tensor of_groups(const Tensor& x) const {
    const Tensor first = heads_first(x);
    return shares_ ? unsqueeze(first, 2) : of_each_member(first, 1, in_[0], 2);
  }
  Tensor grouped(const Tensor& x) const {
    return shares_ ? split_axis(x, 1, {groups_, shared_}) : x;
  }
  Tensor ungrouped(const Tensor& x) const { return shares_ ? merge_axes(x, 1, 2) : x; }
  Tensor sink() const {
    return split_axis(cast(in_[op_.sinks_index()], dtype_).with_tags({}), 0, {-1, 1, 1});
  }

  /// bool [S, T], or [B, 1, S, T] where rows have positions of their own.
  Tensor seen() const {
    const std::int64_t queries = in_[0].dim(1), keys = every_key_.dim(1);
    const Tensor key = iota(every_key_, 1, i32).with_tags({});
    const Tensor steps = size_along(in_[0], 1, i32);
    Tensor first = op_.has_position ? in_[3] : size_along(every_key_, 1, i32) - steps;
    if (op_.has_position && first.rank() == 1)
      first = split_axis(first.with_tags({}), 0, {-1, 1, 1, 1});
    const Tensor query = unsqueeze(iota(in_[0], 1, i32).with_tags({}), 1) + first;  // [S, 1]
    Tensor sees = op_.causal ? le(key, query) : lt(key, first + steps);
    const bool is_open = !is_static(keys) || !is_static(queries);
    if (op_.window > 0 && (is_open || op_.window < keys + queries)) {
      const auto window = static_cast<double>(op_.window);
      sees = logical_and(sees, gt(key, query - window));
      if (!op_.causal) sees = logical_and(sees, lt(key, query + window));
    }
    return sees;
  }

  const Attention& op_;
  std::span<const Tensor> in_;
  DType dtype_;
  Tensor every_key_;
  bool shares_ = false;
  std::int64_t groups_ = 0, shared_ = 1;
};

}  // namespace

// With y = sum_t w_t v_t and dw_t = dy . v_t, the softmax's rule for scores is ds = w (dw - sum_t w_t dw_t), and
// that sum is dy . y: no pass over the scores (Dao et al., FlashAttention, 2022, appendix B). It holds with sinks,
// too, whose values are 0.
std::vector<Tensor> Attention::gradient(const Backward& at) const {
  std::vector<Tensor> leaves;  // of the inputs, then the weights
  leaves.reserve(at.inputs.size() + 1);
  for (const Tensor& input : at.inputs)
    leaves.push_back(is_floating(input.dtype()) ? as_leaf(input) : input);
  const Composition parts(*this, std::span(leaves));
  const Tensor scores = parts.scores(), weights = parts.weights(scores);

  leaves.push_back(as_leaf(weights));
  std::vector<Tensor> result(leaves.size());
  const auto differentiate = [&](const Tensor& output, const Tensor& upstream,
                                 std::vector<std::size_t> inputs) {
    std::erase_if(inputs, [&](std::size_t i) { return !is_floating(leaves[i].dtype()); });
    std::vector<Tensor> of;
    for (const std::size_t i : inputs) of.push_back(leaves[i]);
    std::vector<Tensor> gradients = grad({&output, 1}, {&upstream, 1}, of);
    for (std::size_t i = 0; i < inputs.size(); ++i) result[inputs[i]] = std::move(gradients[i]);
  };
  differentiate(parts.mixed(leaves.back()), at.upstream, {2, leaves.size() - 1});
  const Tensor shared = parts.dots(at.upstream, at.output);
  std::vector<std::size_t> of_scores{0, 1};
  if (has_mask) of_scores.push_back(mask_index());
  differentiate(scores, weights * (result.back() - shared), std::move(of_scores));
  result.pop_back();
  if (has_sinks) {
    result[sinks_index()] = cast(neg(sum(parts.of_sinks(scores, shared), {0, 2, 3})), f32);
  }
  return result;
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Attention& options,
                 const Tensor& position, const Tensor& mask, const Tensor& sinks,
                 const Tensor& table, const std::source_location& where) {
  Attention op = options;
  op.has_position = !position.is_empty();
  op.has_mask = !mask.is_empty();
  op.has_sinks = !sinks.is_empty();
  op.has_table = !table.is_empty();
  std::vector<Tensor> inputs{q, k, v};
  if (op.has_position) inputs.push_back(position);
  if (op.has_mask) inputs.push_back(mask);
  if (op.has_sinks) inputs.push_back(sinks);
  if (op.has_table) inputs.push_back(table);
  return record(op, std::span<const Tensor>(inputs), where);
}

}  // namespace tenon
