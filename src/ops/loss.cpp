#include "graph/graph_impl.hpp"
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
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/statistics.hpp>
#include <tenon/ops/stop_gradient.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <cmath>
#include <numbers>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

Tensor reduced(const Tensor& terms, Reduction reduction, const std::source_location& where) {
  if (reduction == Reduction::none) return terms;
  return reduction == Reduction::sum ? sum(terms, {}, false, where) : mean(terms, {}, false, where);
}

void require_above(std::string_view op, std::string_view name, double value, bool or_zero,
                   const std::source_location& where) {
  if (or_zero ? value >= 0 : value > 0) return;
  fail_at(where, Errc::bad_argument, op,
          fmt::format("{} {} is {} 0", name, value, or_zero ? "below" : "not above"));
}

bool is_integer_label(const Tensor& labels) {
  return labels.dtype() == i32 || labels.dtype() == i64;
}

/// Rows of scores, which have the classes on their last axis, and a label for each.
struct LabelledRows {
  std::string_view op;
  Tensor scores, labels;

  [[noreturn]] void refuse(Errc code, std::string_view why,
                           const std::source_location& where) const {
    fail_at(where, code, op,
            fmt::format("{}: scores {}, labels {}", why, to_string(scores.shape(where)),
                        to_string(labels.shape(where))));
  }

  void check(const std::source_location& where) const {
    const Shape &x = scores.shape(where), &rows = labels.shape(where);
    if (!is_floating(x.dtype()) || !is_integer_label(labels)) {  // C1
      refuse(Errc::unsupported_dtype, "needs floating scores and labels of i32 or i64", where);
    }
    bool fits = x.rank() == rows.rank() + 1;  // C2
    for (int i = 0; fits && i < rows.rank(); ++i) fits = x[i] == rows[i];
    if (!fits)
      refuse(Errc::shape_mismatch, "labels need the sizes of scores but the classes'", where);
  }
  void check_weight(const Tensor& weight, const std::source_location& where) const {
    if (weight.is_empty()) return;
    const Shape &w = weight.shape(where), &x = scores.shape(where);
    if (w.rank() == 1 && w.dtype() == x.dtype() && w[0] == x[x.rank() - 1]) return;  // C4
    refuse(
        Errc::shape_mismatch,
        fmt::format("the weight {} is not one number of their type for each class", to_string(w)),
        where);
  }
  /// Each row's score of its label.
  Tensor picked(const Tensor& of, const std::source_location& where) const {
    const Tensor made = take_along(of, unsqueeze(labels, -1, {}, where), -1, where);
    name_value(made, fmt::format("{}_label", op));
    return squeeze(made, -1, where);
  }
};

/// x without tags, the classes on the last axis.
Tensor with_classes_last(std::string_view op, const Tensor& x, const AxisRef& axis,
                         const std::source_location& where) {
  if (x.rank(where) == 0) {
    fail_at(where, Errc::shape_mismatch, op,
            fmt::format("scores without an axis of classes: {}", to_string(x.shape())));
  }
  const int classes = axis_of(x, axis, op, where);
  const Tensor plain = x.with_tags({});
  if (classes == x.rank() - 1) return plain;
  std::vector<AxisRef> order;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != classes) order.emplace_back(i);
  }
  order.emplace_back(classes);
  return permute(plain, std::span<const AxisRef>(order), where);
}

/// What cross_entropy and nll_loss are of log probabilities.
Tensor of_log_probabilities(LabelledRows rows, const CrossEntropyOptions& options,
                            const std::source_location& where) {
  const Tensor& log_p = rows.scores;
  const DType dtype = log_p.dtype(where);
  rows.check_weight(options.weight, where);
  const Tensor weight = options.weight.is_empty() ? Tensor() : options.weight.with_tags({});
  const double smoothing = options.label_smoothing;

  const Tensor ignored =
      scalar_like(rows.labels, static_cast<double>(options.ignored_label), where);
  const Tensor is_ignored = eq(rows.labels, ignored, where);
  rows.labels = tenon::where(is_ignored, scalar_like(rows.labels, 0, where), rows.labels, where);
  // Selected, since ignored rows may be of padding: -inf or NaN.
  const Tensor nothing = scalar_like(log_p, 0, where);
  const auto of_kept = [&](const Tensor& terms) {
    return tenon::where(is_ignored, nothing, terms, where);
  };
  const Tensor of_label = of_kept(rows.picked(log_p, where));
  Tensor counts = cast(logical_not(is_ignored, where), dtype, where);
  if (!weight.is_empty()) counts = mul(counts, gather(weight, rows.labels, 0, where), where);
  Tensor terms = weight.is_empty() && smoothing > 0 ? (1 - smoothing) * of_label : of_label;
  if (weight.is_empty()) {
    if (smoothing > 0) terms = terms + smoothing * of_kept(mean(log_p, -1, false, where));
    terms = mul(terms, counts, where);
  } else {
    terms = mul(terms, counts, where);
    if (smoothing > 0) {
      const Tensor even = mean(mul(log_p, weight, where), -1, false, where);
      terms = (1 - smoothing) * terms + smoothing * of_kept(even);
    }
  }
  if (options.reduction == Reduction::none) return -terms;
  const Tensor total = -sum(terms, {}, false, where);
  return options.reduction == Reduction::sum ? total
                                             : div(total, sum(counts, {}, false, where), where);
}

/// Rows of -sum_c weight[c] t[c] log_p[c].
Tensor of_class_probabilities(const LabelledRows& rows, const CrossEntropyOptions& options,
                              const std::source_location& where) {
  rows.check_weight(options.weight, where);
  const double smoothing = options.label_smoothing;
  Tensor target = rows.labels;
  if (smoothing > 0) {
    const Tensor ones = full_like(target, 1, where);
    target = (1 - smoothing) * target + smoothing / sum(ones, -1, true, where);
  }
  Tensor terms = mul(target, rows.scores, where);
  if (!options.weight.is_empty()) terms = mul(terms, options.weight.with_tags({}), where);
  return reduced(-sum(terms, -1, false, where), options.reduction, where);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                     const std::source_location& where) {
  constexpr std::string_view name = "cross_entropy";
  LabelledRows rows{name, with_classes_last(name, logits, options.axis, where), labels};
  const bool is_soft = is_floating(labels.dtype(where)) && labels.dtype() == logits.dtype() &&
                       labels.rank() == logits.rank();
  if (is_soft) {
    const Shape &x = logits.shape(), &t = labels.shape();
    bool fits = true;  // C2
    for (int i = 0; i < x.rank(); ++i) fits = fits && x[i] == t[i];
    if (!fits) rows.refuse(Errc::shape_mismatch, "probabilities need the sizes of logits", where);
    rows.labels =
        with_classes_last(name, labels, axis_of(logits, options.axis, name, where), where);
  } else {
    rows.labels = labels.with_tags({});
    rows.check(where);
  }
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1)) {  // C3
    fail_at(where, Errc::bad_argument, name,
            fmt::format("label_smoothing {} outside [0, 1]", smoothing));
  }
  rows.scores = log_softmax(rows.scores, -1, where);
  return is_soft ? of_class_probabilities(rows, options, where)
                 : of_log_probabilities(rows, options, where);
}

Tensor nll_loss(const Tensor& log_p, const Tensor& labels, const CrossEntropyOptions& options,
                const std::source_location& where) {
  constexpr std::string_view name = "nll_loss";
  const LabelledRows rows{name, with_classes_last(name, log_p, options.axis, where),
                          labels.with_tags({}, where)};
  rows.check(where);
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {  // C3
    fail_at(where, Errc::bad_argument, name,
            fmt::format("label_smoothing {} outside [0, 1]", options.label_smoothing));
  }
  return of_log_probabilities(rows, options, where);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction,
                const std::source_location& where) {
  return reduced(square(sub(x, target, where), where), reduction, where);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction,
               const std::source_location& where) {
  return reduced(abs(sub(x, target, where), where), reduction, where);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, double delta, Reduction reduction,
                  const std::source_location& where) {
  require_above("huber_loss", "delta", delta, false, where);
  const Tensor difference = sub(x, target, where), d = abs(difference, where);
  // A square of |x - target| would lose its second derivative at 0.
  const Tensor near = 0.5 * square(difference, where), far = delta * (d - 0.5 * delta);
  return reduced(tenon::where(lt(d, scalar_like(d, delta, where), where), near, far, where),
                 reduction, where);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta, Reduction reduction,
                      const std::source_location& where) {
  require_above("smooth_l1_loss", "beta", beta, true, where);
  if (beta == 0) return l1_loss(x, target, reduction, where);
  const Tensor difference = sub(x, target, where), d = abs(difference, where);
  const Tensor near = (0.5 / beta) * square(difference, where), far = d - 0.5 * beta;
  return reduced(tenon::where(lt(d, scalar_like(d, beta, where), where), near, far, where),
                 reduction, where);
}

Tensor log_cosh_loss(const Tensor& x, const Tensor& target, Reduction reduction,
                     const std::source_location& where) {
  const Tensor difference = sub(x, target, where);
  const Tensor zero = scalar_like(difference, 0, where);
  // |x - target|, but with every derivative at 0.
  const Tensor d = tenon::where(lt(difference, zero, where), -difference, difference, where);
  return reduced(d + softplus(-2 * d, where) - std::numbers::ln2, reduction, where);
}

namespace {

/// The terms of binary_cross_entropy: each is small where its probability is near 1, and has every
/// derivative at 0.
Tensor binary_terms(const Tensor& logits, const Tensor& target, const Tensor& positive_weight,
                    const std::source_location& where) {
  Tensor of_one = mul(softplus(-logits, where), target, where);
  if (!positive_weight.is_empty()) of_one = mul(of_one, positive_weight, where);
  return of_one + mul(softplus(logits, where), 1 - target, where);
}

}  // namespace

Tensor binary_cross_entropy(const Tensor& logits, const Tensor& target,
                            const BinaryCrossEntropyOptions& options,
                            const std::source_location& where) {
  Tensor terms = binary_terms(logits, target, options.positive_weight, where);
  if (!options.weight.is_empty()) terms = mul(terms, options.weight, where);
  return reduced(terms, options.reduction, where);
}

Tensor focal_loss(const Tensor& logits, const Tensor& target, const FocalOptions& options,
                  const std::source_location& where) {
  require_above("focal_loss", "gamma", options.gamma, true, where);
  const Tensor other = 1 - target;
  const Tensor missed =
      mul(sigmoid(-logits, where), target, where) + mul(sigmoid(logits, where), other, where);
  Tensor terms = binary_terms(logits, target, {}, where);
  if (options.gamma == 2) {
    terms = mul(terms, square(missed, where), where);
  } else if (options.gamma != 0) {
    terms = mul(terms, pow(missed, scalar_like(missed, options.gamma, where), where), where);
  }
  if (options.alpha >= 0) {
    terms = mul(terms, options.alpha * target + (1 - options.alpha) * other, where);
  }
  return reduced(terms, options.reduction, where);
}

Tensor kl_divergence(const Tensor& log_p, const Tensor& target, const KlDivergenceOptions& options,
                     const std::source_location& where) {
  Tensor terms;
  if (options.log_target) {
    terms = mul(exp(target, where), sub(target, log_p, where), where);
  } else {
    const Tensor zero = scalar_like(target, 0, where), one = scalar_like(target, 1, where);
    const Tensor is_zero = eq(target, zero, where);
    const Tensor safe = tenon::where(is_zero, one, target, where);
    terms = mul(target, sub(log(safe, where), log_p, where), where);
    terms = tenon::where(is_zero, zero, terms, where);
  }
  if (options.reduction) return reduced(terms, *options.reduction, where);
  return terms.rank(where) == 0 ? terms : sum(mean(terms, 0, false, where), {}, false, where);
}

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& variance, bool full,
                         double eps, Reduction reduction, const std::source_location& where) {
  require_above("gaussian_nll_loss", "eps", eps, false, where);
  // Below eps it is eps, with the gradient of what was given.
  const Tensor least = scalar_like(variance, eps, where);
  const Tensor raised = variance + stop_gradient(least - variance, where);
  const Tensor v = tenon::where(lt(variance, least, where), raised, variance, where);
  const Tensor squares = square(sub(x, target, where), where);
  Tensor terms = 0.5 * (div(squares, v, where) + log(v, where));
  if (full) terms = terms + 0.5 * std::log(2 * std::numbers::pi);
  return reduced(terms, reduction, where);
}

Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, bool log_input, bool full,
                        double eps, Reduction reduction, const std::source_location& where) {
  require_above("poisson_nll_loss", "eps", eps, true, where);
  Tensor terms = log_input ? exp(x, where) - mul(target, x, where)
                           : x - mul(target, log(x + eps, where), where);
  if (full) {
    const Tensor one = scalar_like(target, 1, where), is_above = gt(target, one, where);
    const Tensor t = tenon::where(is_above, target, one, where);
    const Tensor stirling = mul(t, log(t, where), where) - t + 0.5 * log(2 * std::numbers::pi * t);
    terms = terms + tenon::where(is_above, stirling, scalar_like(target, 0, where), where);
  }
  return reduced(terms, reduction, where);
}

Tensor hinge_loss(const Tensor& x, const Tensor& target, double margin, Reduction reduction,
                  const std::source_location& where) {
  return reduced(relu(margin - mul(x, target, where), where), reduction, where);
}

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin,
                            Reduction reduction, const std::source_location& where) {
  const Tensor is_one = eq(target, scalar_like(target, 1, where), where);
  return reduced(tenon::where(is_one, x, relu(margin - x, where), where), reduction, where);
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction,
                        const std::source_location& where) {
  return reduced(softplus(-mul(x, target, where), where), reduction, where);
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                           Reduction reduction, const std::source_location& where) {
  return reduced(relu(margin - mul(target, sub(a, b, where), where), where), reduction, where);
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                             Reduction reduction, const std::source_location& where) {
  const auto dot = [&](const Tensor& x, const Tensor& y) {
    return sum(mul(x, y, where), -1, false, where);
  };
  constexpr double eps = 1e-12;  // PyTorch's
  const Tensor cosine = mul(dot(a, b), rsqrt(mul(dot(a, a) + eps, dot(b, b) + eps, where), where));
  const Tensor is_one = eq(target, scalar_like(target, 1, where), where);
  return reduced(tenon::where(is_one, 1 - cosine, relu(cosine - margin, where), where), reduction,
                 where);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletOptions& options, const std::source_location& where) {
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return norm(sub(a, b, where) + options.eps, options.p, -1, false, where);
  };
  Tensor far = distance(anchor, negative);
  if (options.swap) far = minimum(far, distance(positive, negative), where);
  const Tensor terms = relu(distance(anchor, positive) - far + options.margin, where);
  return reduced(terms, options.reduction, where);
}

Tensor multi_margin_loss(const Tensor& x, const Tensor& labels, const MultiMarginOptions& options,
                         const std::source_location& where) {
  constexpr std::string_view name = "multi_margin_loss";
  const LabelledRows rows{name, with_classes_last(name, x, -1, where), labels.with_tags({}, where)};
  rows.check(where);
  rows.check_weight(options.weight, where);
  const std::int64_t classes = x.dim(-1);
  if ((options.p != 1 && options.p != 2) || !is_static(classes)) {
    fail_at(where, Errc::bad_argument, name,
            fmt::format("needs p 1 or 2, not {}, and a known number of classes: {}", options.p,
                        to_string(x.shape())));
  }
  const Tensor own = unsqueeze(rows.picked(rows.scores, where), -1, {}, where);
  Tensor terms = relu(options.margin - own + rows.scores, where);
  if (options.p == 2) terms = square(terms, where);
  if (!options.weight.is_empty()) {
    const Tensor weight = gather(options.weight.with_tags({}), rows.labels, 0, where);
    terms = mul(terms, unsqueeze(weight, -1, {}, where), where);
  }
  const Tensor is_other = logical_not(one_hot(rows.labels, classes, boolean, where), where);
  terms = tenon::where(is_other, terms, scalar_like(terms, 0, where), where);
  return reduced(sum(terms, -1, false, where) / static_cast<double>(classes), options.reduction,
                 where);
}

}  // namespace tenon
