#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <limits>
#include <source_location>

namespace tenon {

// Losses: scalars of the prediction's dtype, composed of other ops. The mean over all elements, but
// for cross_entropy, which takes it over rows.

struct CrossEntropyOptions {
  /// The weight that is moved from the label to all classes alike: the target is
  /// 1 - s + s / C for the label and s / C for the others (Szegedy et al., arXiv:1512.00567).
  double label_smoothing = 0;
  /// Rows with this label count for nothing.
  std::int64_t ignored_label = -100;
};

/// -log softmax(logits)[label], averaged over the rows that are not ignored; 0 / 0 is NaN when all
/// are.
///
/// Inputs    logits: [..., C], floating; labels: [...], i32 or i64
/// Errors    C1 logits not floating or labels neither i32 nor i64     Errc::unsupported_dtype
///           C2 labels do not have the sizes of logits' rows          Errc::shape_mismatch
///           C3 label_smoothing outside [0, 1]                        Errc::bad_argument
///           when run: another label outside [0, C)                   Errc::out_of_range
Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                     const CrossEntropyOptions& options = {},
                     const std::source_location& where = std::source_location::current());

/// mean (x - target)^2 and mean |x - target|; broadcast as in x - target.
Tensor mse_loss(const Tensor& x, const Tensor& target,
                const std::source_location& where = std::source_location::current());
Tensor l1_loss(const Tensor& x, const Tensor& target,
               const std::source_location& where = std::source_location::current());

/// With d = |x - target|: mean of d^2 / 2 where d < delta, else delta (d - delta / 2).
Tensor huber_loss(const Tensor& x, const Tensor& target, double delta = 1,
                  const std::source_location& where = std::source_location::current());

/// mean of -(t log s + (1 - t) log(1 - s)), s = sigmoid(logits), computed without either logarithm:
/// max(x, 0) - x t + log(1 + e^-|x|). Targets in [0, 1].
Tensor binary_cross_entropy(const Tensor& logits, const Tensor& target,
                            const std::source_location& where = std::source_location::current());

/// sum of t (log t - log_p) over the last axis, averaged over rows; t = 0 counts as 0. `log_p`: log
/// probabilities, such as log_softmax gives.
Tensor kl_divergence(const Tensor& log_p, const Tensor& target,
                     const std::source_location& where = std::source_location::current());

}  // namespace tenon
