#include "ops/builder.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/log_softmax.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/loss.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

namespace tenon {

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                     const std::source_location& where) {
  const Shape &x = logits.shape(where), &rows = labels.shape(where);
  const auto refuse = [&](Errc code, std::string_view why) {
    fail_at(where, code, "cross_entropy",
            fmt::format("{}: logits {}, labels {}", why, to_string(x), to_string(rows)));
  };
  if (!is_floating(x.dtype()) || (rows.dtype() != i32 && rows.dtype() != i64)) {  // C1
    refuse(Errc::unsupported_dtype, "needs floating logits and labels of i32 or i64");
  }
  bool fits = x.rank() == rows.rank() + 1;  // C2
  for (int i = 0; fits && i < rows.rank(); ++i) fits = x[i] == rows[i];
  if (!fits) refuse(Errc::shape_mismatch, "labels need the sizes of logits but the last");
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1)) {  // C3
    fail_at(where, Errc::bad_argument, "cross_entropy",
            fmt::format("label_smoothing {} outside [0, 1]", smoothing));
  }

  const Tensor log_p = log_softmax(logits.with_tags({}), -1, where);
  const Tensor plain_labels = labels.with_tags({});
  const Tensor ignored =
      scalar_like(plain_labels, static_cast<double>(options.ignored_label), where);
  const Tensor is_ignored = eq(plain_labels, ignored, where);
  const Tensor zero = scalar_like(plain_labels, 0, where);
  const Tensor index =
      unsqueeze(tenon::where(is_ignored, zero, plain_labels, where), -1, {}, where);
  Tensor of_label = squeeze(take_along(log_p, index, -1, where), -1, where);
  if (smoothing > 0) {
    of_label = (1 - smoothing) * of_label + smoothing * mean(log_p, -1, false, where);
  }
  const Tensor counts = cast(logical_not(is_ignored, where), x.dtype(), where);
  return -sum(of_label * counts, {}, false, where) / sum(counts, {}, false, where);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, const std::source_location& where) {
  return mean(square(sub(x, target, where), where), {}, false, where);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, const std::source_location& where) {
  return mean(abs(sub(x, target, where), where), {}, false, where);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, double delta,
                  const std::source_location& where) {
  if (!(delta > 0)) {
    fail_at(where, Errc::bad_argument, "huber_loss", fmt::format("delta {} is not above 0", delta));
  }
  const Tensor difference = sub(x, target, where), d = abs(difference, where);
  // A square of |x - target| would lose its second derivative at 0.
  const Tensor near = 0.5 * square(difference, where), far = delta * (d - 0.5 * delta);
  return mean(tenon::where(lt(d, scalar_like(d, delta, where), where), near, far, where), {}, false,
              where);
}

Tensor binary_cross_entropy(const Tensor& logits, const Tensor& target,
                            const std::source_location& where) {
  // Each term is small where its probability is near 1, and has every derivative at 0.
  const Tensor of_one = mul(softplus(-logits, where), target, where);
  const Tensor of_zero = mul(softplus(logits, where), 1 - target, where);
  return mean(of_one + of_zero, {}, false, where);
}

Tensor kl_divergence(const Tensor& log_p, const Tensor& target, const std::source_location& where) {
  const Tensor zero = scalar_like(target, 0, where), one = scalar_like(target, 1, where);
  const Tensor is_positive = gt(target, zero, where);
  const Tensor safe = tenon::where(is_positive, target, one, where);
  const Tensor terms = target * (log(safe, where) - log_p);
  const Tensor rows = sum(tenon::where(is_positive, terms, zero, where), -1, false, where);
  return mean(rows, {}, false, where);
}

}  // namespace tenon
