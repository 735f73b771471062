#include <tenon/error.hpp>
#include <tenon/nn/token_sampling.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <vector>

#include <fmt/format.h>

namespace tenon::nn {
namespace {

using Where = std::source_location;

constexpr double infinity = std::numeric_limits<double>::infinity();

HostBuffer number(double value) {
  return HostBuffer::of<float>(Shape(std::span<const Axis>(), f32), {static_cast<float>(value)});
}

template <class T>
HostBuffer row(DType dtype, const std::vector<T>& values) {
  return HostBuffer::of(Shape({1, static_cast<std::int64_t>(values.size())}, dtype),
                        std::span<const T>(values));
}

/// x [B, N] in blocks, [B, blocks, width], behind its end filled with `value`.
Tensor in_blocks(const Tensor& x, std::int64_t width, double value, const Where& at) {
  const std::int64_t blocks = (x.dim(1) + width - 1) / width, missing = blocks * width - x.dim(1);
  return split_axis(missing == 0 ? x : pad(x, 1, 0, missing, value, at), 1, {blocks, width}, at);
}

/// The rows of x [B, N, width] with these numbers, [B, K]: [B, K, width].
Tensor taken_rows(const Tensor& x, Tensor index, const Where& at) {
  if (x.dim(0) > 1) {
    const Tensor first = iota(x, 0, i32, 0, x.dim(1), at);
    index = add(index, unsqueeze(first, 1, {}, at), at);
  }
  return gather(merge_axes(x, 0, 1, {}, at), index, 0, at);
}

void check_logits(const Shape& logits, std::int64_t candidates, const Where& at) {
  const bool fits = logits.rank() == 2 && logits.is_static() && logits.dtype() == f32;
  if (fits && logits[1] > 0 && candidates > 0) return;
  throw Error(
      Errc::bad_argument, at,
      fmt::format("sampling: needs logits f32[B, V] of known sizes and a candidate, got {} and {}",
                  to_string(logits), candidates));
}

struct Ranked {
  Tensor values, tokens;  // [B, count]
};

/// The `count` largest logits, the largest first; of equal ones the lowest token first.
Ranked largest(const Tensor& logits, std::int64_t count, const Where& at) {
  constexpr std::int64_t digits = 6, width = std::int64_t{1} << digits;
  if (logits.dim(1) == count) {
    return {sort(logits, 1, true, at), argsort(logits, 1, true, at)};
  }
  if (logits.dim(1) < 4 * count * width) {
    const TopkResult top = topk(logits, count, 1, at);
    return {top.values, top.indices};
  }
  const Tensor parts = in_blocks(logits, width, -infinity, at);
  // They are in the `count` blocks whose maxima are largest. Blocks are taken in order, so that of
  // equal logits the first stays the first.
  const Tensor best = topk(max(parts, {2}, false, at), count, 1, at).indices;
  const Tensor chosen = sort(best, 1, false, at);
  const Tensor elements = merge_axes(taken_rows(parts, chosen, at), 1, 2, {}, at);
  const auto [values, places] = topk(elements, count, 1, at);
  const auto number = [&](std::int64_t value) {
    return scalar_like(places, static_cast<double>(value), at);
  };
  const Tensor part = take_along(chosen, shift_right(places, number(digits), at), 1, at);
  return {values,
          add(mul(part, number(width), at), bitwise_and(places, number(width - 1), at), at)};
}

/// Logits with biases and the repetition penalty applied.
Tensor adjusted(Tensor logits, const SamplingInputs<Tensor>& options, const Where& at) {
  if (options.biased.dim(1) > 0) {
    logits = scatter(logits, options.biased, options.bias, 1, "add", at);
  }
  if (options.seen.dim(1) > 0) {
    const Tensor seen = take_along(logits, options.seen, 1, at);
    const Tensor& penalty = options.repetition_penalty;
    const Tensor fewer = tenon::where(gt(seen, scalar_like(seen, 0, at), at),
                                      div(seen, penalty, at), mul(seen, penalty, at), at);
    logits = scatter(logits, options.seen, fewer, 1, {}, at);
  }
  return logits;
}

// Sums run through so many elements, so that little is lost, and then through blocks of them.
constexpr std::int64_t summed_width = 512;

Tensor block_sums(const Tensor& x, const Where& at) {
  return sum(in_blocks(x, summed_width, 0, at), {2}, false, at);
}

/// Running sums without each one's own element.
Tensor sums_before(const Tensor& sums, const Where& at) {
  return pad(slice(sums, 1, 0, sums.dim(1) - 1, 1, at), 1, 1, 0, 0, at);
}

/// Of x [B, N].
Tensor running_sums(const Tensor& x, const Where& at) {
  if (x.dim(1) <= summed_width) return cumsum(x, 1, at);
  const Tensor inside = cumsum(in_blocks(x, summed_width, 0, at), 2, at);
  const Tensor whole = squeeze(slice(inside, 2, summed_width - 1, summed_width, 1, at), 2, at);
  const Tensor before = unsqueeze(sums_before(cumsum(whole, 1, at), at), 2, {}, at);
  return slice(merge_axes(add(inside, before, at), 1, 2, {}, at), 1, 0, x.dim(1), 1, at);
}

/// The last of the first `count` [B, 1] elements of x [B, N].
Tensor last_of(const Tensor& x, const Tensor& count, const Where& at) {
  return take_along(x, sub(count, scalar_like(count, 1, at), at), 1, at);
}

/// Where running sums [B, N] exceed `target` [B, 1], and how far the target is above the sum before:
/// both [B, 1].
struct Place {
  Tensor index, rest;
};
Place place_of(const Tensor& sums, const Tensor& target, const Where& at) {
  // A target that rounding has made too large belongs to the last element above 0.
  const Tensor last = argmax(sums, 1, true, i32, at);
  const Tensor index = minimum(searchsorted(sums, target, true, at), last, at);
  return {index, sub(target, take_along(sums_before(sums, at), index, 1, at), at)};
}

}  // namespace

void check_in_program(const SamplerOptions& options, const char* where) {
  const bool is_drawn = options.temperature != 0;
  const bool is_mirostat = is_drawn && options.mirostat != 0;
  const bool is_bounded = is_drawn && !is_mirostat;
  const struct {
    const char* name;
    double value;
    bool matters;
  } refused[] = {
      {"frequency_penalty", options.frequency_penalty, options.frequency_penalty != 0},
      {"presence_penalty", options.presence_penalty, options.presence_penalty != 0},
      {"dry_multiplier", options.dry_multiplier, options.dry_multiplier != 0},
      {"mirostat", static_cast<double>(options.mirostat), is_mirostat},
      {"top_n_sigma", options.top_n_sigma, is_bounded && options.top_n_sigma > 0},
      {"dynatemp_range", options.dynatemp_range, is_bounded && options.dynatemp_range != 0},
      {"temperature_last", 1, is_bounded && options.temperature_last},
      {"typical_p", options.typical_p, is_bounded && options.typical_p < 1},
      {"xtc_probability", options.xtc_probability, is_bounded && options.xtc_probability != 0},
      {"adaptive_target", options.adaptive_target, is_bounded && options.adaptive_target >= 0},
  };
  for (const auto& option : refused) {
    if (!option.matters) continue;
    throw Error(Errc::unsupported, where,
                fmt::format("{} {} where the model runs: tokens can be drawn so on the host alone",
                            option.name, option.value));
  }
}

HostBuffer seen_tokens(const SamplerOptions& options, std::span<const std::int32_t> history,
                       std::int64_t vocabulary) {
  constexpr std::size_t fewest = 64;
  std::vector<std::int32_t> seen;
  if (options.repetition_penalty != 1) seen = options.seen(history);
  std::erase_if(seen, [&](std::int32_t id) { return id < 0 || id >= vocabulary; });
  if (!seen.empty()) seen.resize(std::bit_ceil(std::max(seen.size(), fewest)), seen.front());
  return row(i32, seen);
}

SamplingInputs<HostBuffer> sampling_inputs(const SamplerOptions& options,
                                           std::span<const std::int32_t> history,
                                           std::int64_t vocabulary) {
  options.check(vocabulary);
  check_in_program(options);
  const std::map<std::int32_t, float> biases(options.logit_bias.rbegin(),
                                             options.logit_bias.rend());
  std::vector<std::int32_t> biased;
  std::vector<float> bias;
  for (const auto& [token, value] : biases) {
    biased.push_back(token);
    bias.push_back(value);
  }
  const auto top_k =
      std::min<std::int64_t>(options.top_k, std::numeric_limits<std::int32_t>::max());
  const Shape one(std::span<const Axis>(), i32);
  SamplingInputs<HostBuffer> inputs;
  inputs.key = HostBuffer::of<std::uint32_t>(
      Shape({2}, u32),
      {static_cast<std::uint32_t>(options.seed), static_cast<std::uint32_t>(options.seed >> 32)});
  // Not 0 by rounding, nor so large that its reciprocal is none of f32's.
  constexpr double least = std::numeric_limits<float>::min(), most = 1e37;
  const double temperature = options.temperature;
  inputs.temperature = number(temperature == 0 ? 0 : std::clamp(temperature, least, most));
  inputs.top_p = number(std::max(options.top_p, least));
  inputs.min_p = number(options.min_p);
  inputs.top_k = HostBuffer::of<std::int32_t>(one, {static_cast<std::int32_t>(top_k)});
  inputs.repetition_penalty = number(options.repetition_penalty);
  inputs.seen = seen_tokens(options, history, vocabulary);
  inputs.biased = row(i32, biased);
  inputs.bias = row(f32, bias);
  return inputs;
}

KeptTokens kept_tokens(const Tensor& logits, const SamplingInputs<Tensor>& options,
                       std::int64_t candidates, const Where& at) {
  check_logits(logits.shape(at), candidates, at);
  const std::int64_t vocabulary = logits.dim(1), count = std::min(candidates, vocabulary);
  const auto like = [&](const Tensor& x, double value) { return scalar_like(x, value, at); };
  const auto both = [&](const Tensor& a, const Tensor& b) { return logical_and(a, b, at); };
  const auto either = [&](const Tensor& a, const Tensor& b) { return logical_or(a, b, at); };

  const Tensor x = adjusted(logits, options, at);
  const Ranked ranked = largest(x, count, at);
  const Tensor peak = slice(ranked.values, 1, 0, 1, 1, at);
  const Tensor factor = minimum(reciprocal(options.temperature, at), like(peak, 1e38), at);
  const auto weights_of = [&](const Tensor& values) {
    return exp(mul(sub(values, peak, at), factor, at), at);
  };
  const Tensor all = weights_of(x);
  const Tensor is_peak = eq(ranked.values, peak, at);  // of infinities, too
  const Tensor weights = tenon::where(is_peak, like(all, 1), weights_of(ranked.values), at);

  // How many stay below the bounds on their number, on their sum, and on each.
  const Tensor whole = like(ranked.tokens, static_cast<double>(count));
  const Tensor is_greedy =
      either(eq(options.temperature, like(options.temperature, 0), at), is_inf(peak, at));
  const Tensor has_limit =
      both(gt(options.top_k, like(options.top_k, 0), at),
           lt(options.top_k, like(options.top_k, static_cast<double>(vocabulary)), at));
  const Tensor by_number =
      tenon::where(is_greedy, like(whole, 1),
                   tenon::where(has_limit, minimum(options.top_k, whole, at), whole, at), at);
  const Tensor sums = running_sums(weights, at);
  const Tensor total = tenon::where(has_limit, last_of(sums, by_number, at),
                                    sum(block_sums(all, at), {1}, true, at), at);
  const Tensor has_no_sum = ge(options.top_p, like(options.top_p, 1), at);
  const Tensor before = searchsorted(sums, mul(options.top_p, total, at), false, at);
  const Tensor by_sum = tenon::where(has_no_sum, whole, add(before, like(before, 1), at), at);
  const Tensor least = broadcast_to(neg(options.min_p, at), {logits.dim(0), 1}, at);
  const Tensor by_least = searchsorted(neg(weights, at), least, true, at);
  const Tensor fewest = minimum(minimum(by_number, by_sum, at), by_least, at);
  const Tensor kept = maximum(fewest, like(whole, 1), at);

  const Tensor has_no_least = eq(options.min_p, like(options.min_p, 0), at);
  const Tensor is_all =
      both(logical_not(either(is_greedy, has_limit), at), both(has_no_sum, has_no_least));
  Tensor is_known = gt(peak, like(peak, -infinity), at);  // false for a NaN
  if (count < vocabulary) {
    const Tensor is_enough =
        tenon::where(has_limit, le(options.top_k, whole, at), lt(kept, whole, at), at);
    is_known = both(is_known, either(either(is_greedy, is_all), is_enough));
  }
  return {ranked.tokens, sums, kept, all, squeeze(is_all, 1, at), squeeze(is_known, 1, at)};
}

Tensor draw_index(const Tensor& weights, const Tensor& uniform, const Where& at) {
  const Tensor sums = cumsum(block_sums(weights, at), 1, at);
  const Tensor total = slice(sums, 1, sums.dim(1) - 1, sums.dim(1), 1, at);
  const Place part = place_of(sums, mul(uniform, total, at), at);
  const Tensor elements =
      squeeze(taken_rows(in_blocks(weights, summed_width, 0, at), part.index, at), 1, at);
  const Place inside = place_of(cumsum(elements, 1, at), part.rest, at);
  const Tensor first = mul(part.index, scalar_like(part.index, summed_width, at), at);
  return squeeze(add(first, inside.index, at), 1, at);
}

SampledToken<Tensor> sample_token(const Tensor& logits, const Tensor& counter,
                                  const SamplingInputs<Tensor>& options, std::int64_t candidates,
                                  const Where& at) {
  const KeptTokens kept = kept_tokens(logits, options, candidates, at);
  const Tensor key = fold_in(options.key, counter, at);
  const Tensor uniform = random_uniform(key, Shape({logits.dim(0), 1}, f32), 0, 1, at);
  const Tensor target = mul(uniform, last_of(kept.sums, kept.count, at), at);
  const Tensor below = searchsorted(kept.sums, target, true, at);
  const Tensor place = minimum(below, sub(kept.count, scalar_like(kept.count, 1, at), at), at);
  const Tensor of_kept = squeeze(take_along(kept.tokens, place, 1, at), 1, at);
  return {tenon::where(kept.is_all, draw_index(kept.all, uniform, at), of_kept, at), kept.is_known};
}

}  // namespace tenon::nn
