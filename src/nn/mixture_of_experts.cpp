#include <tenon/error.hpp>
#include <tenon/nn/mixture_of_experts.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/softmax.hpp>
#include <tenon/ops/topk.hpp>

#include <fmt/format.h>

namespace tenon::nn {

Routing route(const Tensor& logits, const RouterOptions& options, const Tensor& bias,
              const std::source_location& where) {
  const std::string_view word = options.scores.text();
  if (word != "softmax" && word != "sigmoid") {
    throw Error(Errc::bad_attribute, where,
                fmt::format("no scores '{}'; there are softmax, sigmoid", word));
  }
  const std::int64_t experts = logits.dim(-1);
  if (options.used < 1 || (experts >= 0 && options.used > experts)) {
    throw Error(Errc::out_of_range, where,
                fmt::format("{} of {} experts for each row", options.used, experts));
  }
  const Tensor scores = word == "softmax" ? softmax(logits, -1, where) : sigmoid(logits, where);
  const Tensor compared = bias.is_empty() ? scores : add(scores, bias, where);
  auto [values, indices] = topk(compared, options.used, -1, where);
  Tensor weights = bias.is_empty() ? values : take_along(scores, indices, -1, where);
  if (options.normalized) weights = div(weights, sum(weights, {-1}, true, where), where);
  if (options.scale != 1) weights = mul(weights, scalar_like(weights, options.scale, where), where);
  return {indices, weights};
}

}  // namespace tenon::nn
