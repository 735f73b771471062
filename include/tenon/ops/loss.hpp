#pragma once

#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <optional>
#include <source_location>

namespace tenon {

// Losses, composed of other ops, in the prediction's dtype. Formulas and names of parameters as in
// PyTorch's functions of the same names, where nothing else is said.

/// What becomes of a loss's terms, one for each element or, where it says so, for each row.
enum class Reduction : std::uint8_t {
  none,  ///< each of them
  sum,
  mean,  ///< by their number, with weights of classes by the sum of the weights
};

struct CrossEntropyOptions {
  /// The weight that is moved from the label to all classes alike: the target is
  /// 1 - s + s / C for the label and s / C for the others (Szegedy et al., arXiv:1512.00567).
  double label_smoothing = 0;
  /// Rows with this label count for nothing.
  std::int64_t ignored_label = -100;
  /// A factor for each class, [C], of the logits' dtype; empty: 1.
  Tensor weight{};
  Reduction reduction = Reduction::mean;
  /// The axis of the classes; PyTorch's is 1.
  AxisRef axis = -1;
};

/// -weight[label] log softmax(logits)[label] of each row. The mean is by the weights of the rows that
/// are not ignored; 0 / 0 is NaN when all are. Ignored rows are 0 without reduction.
///
/// Inputs    logits: [..., C], floating
///           labels: [...], i32 or i64; or probabilities in the sizes and dtype of logits, of which a
///           row is -sum_c weight[c] t[c] log softmax(logits)[c], and the mean by the number of rows
/// Errors    C1 logits not floating, or labels neither i32 nor i64    Errc::unsupported_dtype
///              nor of logits' dtype
///           C2 labels do not have the sizes of logits' rows          Errc::shape_mismatch
///           C3 label_smoothing outside [0, 1]                        Errc::bad_argument
///           C4 weight not [C] of logits' dtype                       Errc::shape_mismatch
///           when run: another label outside [0, C)                   Errc::out_of_range
Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                     const CrossEntropyOptions& options = {},
                     const std::source_location& where = std::source_location::current());

/// cross_entropy of logarithms of probabilities, such as log_softmax gives: -weight[label] log_p[label].
/// Labels are integers; otherwise as above.
Tensor nll_loss(const Tensor& log_p, const Tensor& labels, const CrossEntropyOptions& options = {},
                const std::source_location& where = std::source_location::current());

/// (x - target)^2 and |x - target|; broadcast as in x - target.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                const std::source_location& where = std::source_location::current());
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
               const std::source_location& where = std::source_location::current());

/// With d = |x - target|: d^2 / 2 where d < delta, else delta (d - delta / 2). Errc::bad_argument for a
/// delta not above 0.
Tensor huber_loss(const Tensor& x, const Tensor& target, double delta = 1,
                  Reduction reduction = Reduction::mean,
                  const std::source_location& where = std::source_location::current());

/// huber_loss / beta: d^2 / (2 beta) where d < beta, else d - beta / 2; of beta = 0 l1_loss.
/// Errc::bad_argument for a beta below 0.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta = 1,
                      Reduction reduction = Reduction::mean,
                      const std::source_location& where = std::source_location::current());

/// log cosh(x - target), without overflow.
Tensor log_cosh_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                     const std::source_location& where = std::source_location::current());

struct BinaryCrossEntropyOptions {
  Tensor weight{};           ///< a factor of each term, broadcast to x; empty: 1
  Tensor positive_weight{};  ///< a factor of t, broadcast to x: above 1 for recall; empty: 1
  Reduction reduction = Reduction::mean;  ///< the mean is by the number of terms
};

/// -(t log s + (1 - t) log(1 - s)), s = sigmoid(logits), computed without either logarithm:
/// max(x, 0) - x t + log(1 + e^-|x|). Targets in [0, 1]. PyTorch's
/// binary_cross_entropy_with_logits.
Tensor binary_cross_entropy(const Tensor& logits, const Tensor& target,
                            const BinaryCrossEntropyOptions& options = {},
                            const std::source_location& where = std::source_location::current());

struct FocalOptions {
  double alpha = 0.25;  ///< the weight of t, and 1 - alpha that of 1 - t; below 0: no weights
  double gamma = 2;     ///< how much terms count for less that are nearly right
  Reduction reduction = Reduction::mean;
};

/// binary_cross_entropy times alpha_t (1 - p_t)^gamma, where p_t is the probability that sigmoid(logits)
/// gives to the target (Lin et al., arXiv:1708.02002).
Tensor focal_loss(const Tensor& logits, const Tensor& target, const FocalOptions& options = {},
                  const std::source_location& where = std::source_location::current());

struct KlDivergenceOptions {
  bool log_target = false;  ///< targets are logarithms, too
  /// Of the elements; without one, PyTorch's "batchmean": the sum divided by the size of axis 0.
  std::optional<Reduction> reduction{};
};

/// t (log t - log_p); t = 0 counts as 0. `log_p`: log probabilities, such as log_softmax gives.
Tensor kl_divergence(const Tensor& log_p, const Tensor& target,
                     const KlDivergenceOptions& options = {},
                     const std::source_location& where = std::source_location::current());

/// ((x - target)^2 / v + log v) / 2, v = max(variance, eps), through which gradients pass as if it were
/// the variance; with `full`, + log(2 pi) / 2. The variance broadcasts to x.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& variance,
                         bool full = false, double eps = 1e-6,
                         Reduction reduction = Reduction::mean,
                         const std::source_location& where = std::source_location::current());

/// e^x - target x, or with `log_input` false x - target log(x + eps); with `full`, plus Stirling's
/// approximation of log(target!) where target > 1.
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, bool log_input = true,
                        bool full = false, double eps = 1e-8, Reduction reduction = Reduction::mean,
                        const std::source_location& where = std::source_location::current());

// Of targets that are 1 or -1.

/// max(0, margin - x target).
Tensor hinge_loss(const Tensor& x, const Tensor& target, double margin = 1,
                  Reduction reduction = Reduction::mean,
                  const std::source_location& where = std::source_location::current());

/// x where the target is 1, else max(0, margin - x).
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin = 1,
                            Reduction reduction = Reduction::mean,
                            const std::source_location& where = std::source_location::current());

/// log(1 + e^(-x target)), without overflow.
Tensor soft_margin_loss(const Tensor& x, const Tensor& target,
                        Reduction reduction = Reduction::mean,
                        const std::source_location& where = std::source_location::current());

/// max(0, margin - target (a - b)): 1 where a should be the larger one.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           double margin = 0, Reduction reduction = Reduction::mean,
                           const std::source_location& where = std::source_location::current());

/// Of each row (the last axis): 1 - cos(a, b) where the target is 1, else max(0, cos(a, b) - margin).
/// a, b: [..., K]; target: [...], of their dtype.
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             double margin = 0, Reduction reduction = Reduction::mean,
                             const std::source_location& where = std::source_location::current());

// Of distances and classes.

struct TripletOptions {
  double margin = 1;
  double p = 2;       ///< of the norm
  double eps = 1e-6;  ///< added to each element of a difference
  bool swap = false;  ///< the distance of positive and negative where that is the smaller one
  Reduction reduction = Reduction::mean;
};

/// max(0, |anchor - positive| - |anchor - negative| + margin) of each row (the last axis).
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletOptions& options = {},
                           const std::source_location& where = std::source_location::current());

struct MultiMarginOptions {
  double p = 1;  ///< 1 or 2
  double margin = 1;
  Tensor weight{};  ///< a factor for each class, [C]; empty: 1
  Reduction reduction = Reduction::mean;
};

/// Of each row of x, [..., C]: sum over c != label of weight[label] max(0, margin - x[label] + x[c])^p,
/// divided by C. Labels: [...], i32 or i64. The mean is by the number of rows.
///
/// Errors    x not floating, or labels neither i32 nor i64    Errc::unsupported_dtype
///           labels without the sizes of x's rows, or a       Errc::shape_mismatch
///           weight that is not [C] of x's dtype
///           p neither 1 nor 2, or C is a symbol              Errc::bad_argument
Tensor multi_margin_loss(const Tensor& x, const Tensor& labels,
                         const MultiMarginOptions& options = {},
                         const std::source_location& where = std::source_location::current());

struct CtcOptions {
  std::int64_t blank = 0;  ///< the class that stands for no label
  /// Losses of inputs too short for their labels count as 0 in place of infinity.
  bool zero_infinity = false;
  /// The mean is of losses by the numbers of their labels.
  Reduction reduction = Reduction::mean;
};

/// -log p(labels | log_p) over every alignment: connectionist temporal classification (Graves et al.,
/// ICML 2006), in logarithms, by a loop over the steps.
///
/// Inputs    log_p: [T, N, C], f32 or f64: log_softmax over classes of T steps of N sequences
///           labels: [N, S], i32 or i64, in [0, C) and not the blank; those behind a sequence's own count
///           for nothing
///           steps, counts: [N], i32 or i64: how many steps and labels each sequence has, within [0, T]
///           and [0, S]; others are Errc::out_of_range when it runs
/// Output    a scalar, or [N]. Where no alignment fits in the steps it is infinite (see zero_infinity)
/// Gradient  by log_p: 0 for sequences whose loss is infinite
/// Errors    C1 log_p neither f32 nor f64, or others neither i32 nor i64    Errc::unsupported_dtype
///           C2 shapes that do not fit                                      Errc::shape_mismatch
///           C3 T or S is a symbol, or blank is outside [0, C)              Errc::bad_argument
Tensor ctc_loss(const Tensor& log_p, const Tensor& labels, const Tensor& steps,
                const Tensor& counts, const CtcOptions& options = {},
                const std::source_location& where = std::source_location::current());

}  // namespace tenon
