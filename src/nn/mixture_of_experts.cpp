#include <tenon/error.hpp>
#include <tenon/nn/mixture_of_experts.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/softmax.hpp>
#include <tenon/ops/topk.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <limits>
#include <string>

#include <fmt/format.h>

namespace tenon::nn {
namespace {

void check(const RouterOptions& options, std::int64_t experts, const std::source_location& where) {
  const auto refuse = [&](const std::string& why) { throw Error(Errc::out_of_range, where, why); };
  const bool is_known = experts >= 0;
  if (options.used < 1 || (is_known && options.used > experts)) {
    refuse(fmt::format("{} of {} experts for each row", options.used, experts));
  }
  if (options.groups == 1) return;
  if (!is_known || options.groups < 1 || experts % options.groups != 0 ||
      experts / options.groups < 2) {
    refuse(fmt::format("{} groups of {} experts", options.groups, experts));
  }
  if (options.groups_used < 1 || options.groups_used > options.groups ||
      options.used > options.groups_used * (experts / options.groups)) {
    refuse(fmt::format("{} of {} groups for {} experts of each row", options.groups_used,
                       options.groups, options.used));
  }
}

/// The scores [..., E], but -inf for experts of groups that the row does not go to.
Tensor of_used_groups(const Tensor& scores, const RouterOptions& options,
                      const std::source_location& where) {
  const std::int64_t size = scores.dim(-1) / options.groups;
  const Tensor grouped = split_axis(scores, -1, {options.groups, size}, where);
  const Tensor best = sum(topk(grouped, 2, -1, where).values, {-1}, false, where);
  const Tensor chosen = topk(best, options.groups_used, -1, where).indices;
  const Tensor is_used = any(one_hot(chosen, options.groups, boolean, where), {-2}, false, where);
  const Tensor nothing = scalar_like(scores, -std::numeric_limits<double>::infinity(), where);
  return merge_axes(tenon::where(unsqueeze(is_used, -1, {}, where), grouped, nothing, where), -2,
                    -1, {}, where);
}

/// Two experts of each row and their weights, see route().
Routing sparse_mixture(const Tensor& logits, const std::source_location& where) {
  constexpr double nearness = 0.02;  // twice the jitter of the training
  const std::int64_t experts = logits.dim(-1);
  const auto [values, indices] = topk(logits, 2, -1, where);
  const Tensor first = one_hot(slice(indices, -1, 0, 1, 1, where), experts, boolean, where);
  const Tensor is_first = any(first, {-2}, false, where);
  const Tensor zero = scalar_like(logits, 0, where);
  const auto share = [&](std::int64_t rank) {
    const Tensor largest = slice(values, -1, rank, rank + 1, 1, where);  // [..., 1]
    const Tensor below =
        div(sub(largest, logits, where), maximum(abs(logits, where), largest, where), where);
    const Tensor is_far = gt(below, scalar_like(below, nearness, where), where);
    const Tensor is_out = rank == 0 ? is_far : logical_or(is_far, is_first, where);
    const Tensor parts = tenon::where(is_out, zero, exp(sub(logits, largest, where), where), where);
    const Tensor all = sum(parts, {-1}, true, where);
    return div(scalar_like(all, 1, where), all, where);
  };
  return {indices, concat({share(0), share(1)}, -1, where)};
}

}  // namespace

Routing route(const Tensor& logits, const RouterOptions& options, const Tensor& bias,
              const std::source_location& where) {
  const std::string_view word = options.scores.text();
  const bool is_sparse = word == "sparsemixer";
  if (word != "softmax" && word != "sigmoid" && !is_sparse) {
    throw Error(Errc::bad_attribute, where,
                fmt::format("no scores '{}'; there are softmax, sigmoid, sparsemixer", word));
  }
  check(options, logits.dim(-1), where);
  if (is_sparse) {
    if (options.used != 2 || options.normalized || options.scale != 1 || options.groups != 1 ||
        !bias.is_empty()) {
      throw Error(Errc::bad_attribute, where,
                  "sparsemixer is of two experts, without bias, groups, scale or normalisation");
    }
    return sparse_mixture(logits, where);
  }
  const Tensor scores = word == "softmax" ? softmax(logits, -1, where) : sigmoid(logits, where);
  Tensor compared = bias.is_empty() ? scores : add(scores, bias, where);
  if (options.groups > 1) compared = of_used_groups(compared, options, where);
  auto [values, indices] = topk(compared, options.used, -1, where);
  Tensor weights = bias.is_empty() ? values : take_along(scores, indices, -1, where);
  if (options.normalized) {
    Tensor all = sum(weights, {-1}, true, where);
    // Sigmoids, and scores chosen by a bias, may all be 0. The least sum is llama.cpp's.
    if (word == "sigmoid" || !bias.is_empty()) {
      all = maximum(all, scalar_like(all, 0x1p-14, where), where);
    }
    weights = div(weights, all, where);
  }
  if (options.scale != 1) weights = mul(weights, scalar_like(weights, options.scale, where), where);
  return {indices, weights};
}

}  // namespace tenon::nn
