#include <tenon/error.hpp>
#include <tenon/nn/mixture_of_experts.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/softmax.hpp>
#include <tenon/ops/topk.hpp>
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

}  // namespace

Routing route(const Tensor& logits, const RouterOptions& options, const Tensor& bias,
              const std::source_location& where) {
  const std::string_view word = options.scores.text();
  if (word != "softmax" && word != "sigmoid") {
    throw Error(Errc::bad_attribute, where,
                fmt::format("no scores '{}'; there are softmax, sigmoid", word));
  }
  check(options, logits.dim(-1), where);
  const Tensor scores = word == "softmax" ? softmax(logits, -1, where) : sigmoid(logits, where);
  Tensor compared = bias.is_empty() ? scores : add(scores, bias, where);
  if (options.groups > 1) compared = of_used_groups(compared, options, where);
  auto [values, indices] = topk(compared, options.used, -1, where);
  Tensor weights = bias.is_empty() ? values : take_along(scores, indices, -1, where);
  if (options.normalized) weights = div(weights, sum(weights, {-1}, true, where), where);
  if (options.scale != 1) weights = mul(weights, scalar_like(weights, options.scale, where), where);
  return {indices, weights};
}

}  // namespace tenon::nn
