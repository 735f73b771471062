#pragma once

#include <tenon/train/optimizers.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tenon::train {

// Optimisers whose steps depend on the gradients before, beside Adam; used in the same way. Formulas as
// in PyTorch's optimisers of the same names. Scalars that depend on the step's number are computed in
// f64, since powers of numbers near 1 would lose their digits in f32.

namespace detail {

inline Tensor root_mean_square(const Tensor& x) {
  return cast(sqrt(mean(square(widened(x)))), x.dtype());
}

}  // namespace detail

template <class Model>
struct RmsPropState {
  Model square;    ///< means of g^2
  Model mean;      ///< of g; empty arrays where the optimiser is not centred
  Model momentum;  ///< empty arrays where it has none
  TENON_FIELDS(square, mean, momentum)
};

/// g += weight_decay p; v = alpha v + (1 - alpha) g^2; d = g / (sqrt(v) + eps); p -= rate d, or with
/// momentum b = momentum b + d; p -= rate b. With `centered`, v - m^2 is in the place of v, m the mean of
/// g as v is of g^2 (Tieleman and Hinton, 2012; Graves, arXiv:1308.0850).
struct RmsProp {
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;

  template <class Buffers>
  RmsPropState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return {detail::zeros_like(parameters, device),
            detail::zeros_where(centered, parameters, device),
            detail::zeros_where(momentum != 0, parameters, device)};
  }

  template <class Model>
  std::pair<Model, RmsPropState<Model>> update(const Model& parameters, const Model& gradients,
                                               const RmsPropState<Model>& state,
                                               const Tensor& rate) const {
    auto [next, squares, means, moves] = detail::update_each<4>(
        [&](const Tensor& p, const Tensor& gradient, const Tensor& before, const Tensor& mean,
            const Tensor& moved) -> std::array<Tensor, 4> {
          const Tensor g = detail::with_decay(gradient, p, weight_decay);
          const Tensor v = alpha * before + (1 - alpha) * square(g);
          const Tensor m = centered ? alpha * mean + (1 - alpha) * g : mean;
          const Tensor d = g / (sqrt(centered ? v - square(m) : v) + eps);
          const Tensor b = momentum == 0 ? moved : momentum * moved + d;
          return {p - detail::scaled(momentum == 0 ? d : b, rate), v, m, b};
        },
        parameters, gradients, state.square, state.mean, state.momentum);
    return {next, {squares, means, moves}};
  }
};

template <class Model>
struct AdagradState {
  Model sum;                ///< of g^2
  leaf_of_t<Model> number;  ///< of steps, an f32 scalar
  TENON_FIELDS(sum, number)
};

/// g += weight_decay p; s += g^2; p -= rate / (1 + (t - 1) rate_decay) g / (sqrt(s) + eps), s = `initial`
/// before (Duchi et al., 2011).
struct Adagrad {
  double rate_decay = 0;
  double weight_decay = 0;
  double initial = 0;
  double eps = 1e-10;

  template <class Buffers>
  AdagradState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    const auto filled = map_fields<Buffer>(parameters, [&](const std::string&, const Buffer& p) {
      HostBuffer values = HostBuffer::zeros(p.shape().with_dtype(f64));
      std::ranges::fill(values.mutable_values<double>(), initial);
      return values.to(p.shape().dtype()).to_device(device);
    });
    return {filled, scalar(0, f32, device)};
  }

  template <class Model>
  std::pair<Model, AdagradState<Model>> update(const Model& parameters, const Model& gradients,
                                               const AdagradState<Model>& state,
                                               const Tensor& rate) const {
    const Tensor number = state.number + 1;
    const Tensor now = rate / (1 + rate_decay * cast(state.number, rate.dtype()));
    auto [next, sums] = detail::update_each<2>(
        [&](const Tensor& p, const Tensor& gradient,
            const Tensor& before) -> std::array<Tensor, 2> {
          const Tensor g = detail::with_decay(gradient, p, weight_decay);
          const Tensor s = before + square(g);
          return {p - detail::scaled(g / (sqrt(s) + eps), now), s};
        },
        parameters, gradients, state.sum);
    return {next, {sums, number}};
  }
};

template <class Model>
struct AdadeltaState {
  Model square;  ///< means of g^2
  Model moved;   ///< means of d^2
  TENON_FIELDS(square, moved)
};

/// g += weight_decay p; v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g;
/// u = rho u + (1 - rho) d^2; p -= rate d (Zeiler, arXiv:1212.5701). PyTorch's rate is 1.
struct Adadelta {
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;

  template <class Buffers>
  AdadeltaState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return {detail::zeros_like(parameters, device), detail::zeros_like(parameters, device)};
  }

  template <class Model>
  std::pair<Model, AdadeltaState<Model>> update(const Model& parameters, const Model& gradients,
                                                const AdadeltaState<Model>& state,
                                                const Tensor& rate) const {
    auto [next, squares, moves] = detail::update_each<3>(
        [&](const Tensor& p, const Tensor& gradient, const Tensor& before,
            const Tensor& moved) -> std::array<Tensor, 3> {
          const Tensor g = detail::with_decay(gradient, p, weight_decay);
          const Tensor v = rho * before + (1 - rho) * square(g);
          const Tensor d = sqrt(moved + eps) / sqrt(v + eps) * g;
          return {p - detail::scaled(d, rate), v, rho * moved + (1 - rho) * square(d)};
        },
        parameters, gradients, state.square, state.moved);
    return {next, {squares, moves}};
  }
};

template <class Model>
struct AdamaxState {
  Model mean;               ///< of the gradients
  Model largest;            ///< |g|, which decays
  leaf_of_t<Model> number;  ///< of steps, an f32 scalar
  TENON_FIELDS(mean, largest, number)
};

/// g += weight_decay p; m = b1 m + (1 - b1) g; u = max(b2 u, |g| + eps);
/// p -= rate / (1 - b1^t) m / u (Kingma and Ba, arXiv:1412.6980).
struct Adamax {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;

  template <class Buffers>
  AdamaxState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return {detail::zeros_like(parameters, device), detail::zeros_like(parameters, device),
            scalar(0, f32, device)};
  }

  template <class Model>
  std::pair<Model, AdamaxState<Model>> update(const Model& parameters, const Model& gradients,
                                              const AdamaxState<Model>& state,
                                              const Tensor& rate) const {
    const Tensor number = state.number + 1;
    const Tensor of_mean = cast(rate, f64) / (1 - detail::power(beta1, cast(number, f64)));
    auto [next, means, largest] = detail::update_each<3>(
        [&](const Tensor& p, const Tensor& gradient, const Tensor& mean,
            const Tensor& most) -> std::array<Tensor, 3> {
          const Tensor g = detail::with_decay(gradient, p, weight_decay);
          const Tensor m = beta1 * mean + (1 - beta1) * g;
          const Tensor u = maximum(beta2 * most, abs(g) + eps);
          return {p - detail::scaled(m, of_mean) / u, m, u};
        },
        parameters, gradients, state.mean, state.largest);
    return {next, {means, largest, number}};
  }
};

template <class Model>
struct NAdamState {
  Model mean;                ///< of the gradients
  Model square;              ///< of their squares
  leaf_of_t<Model> number;   ///< of steps, an f32 scalar
  leaf_of_t<Model> product;  ///< mu_1 .. mu_t, an f32 scalar
  TENON_FIELDS(mean, square, number, product)
};

/// Adam with Nesterov's momentum (Dozat, 2016): with mu_t = b1 (1 - 0.96^(t momentum_decay) / 2),
/// p -= rate ((1 - mu_t) g / (1 - mu_1 .. mu_t) + mu_t+1 m / (1 - mu_1 .. mu_t+1)) /
/// (sqrt(v / (1 - b2^t)) + eps). Weight decay as in Adam.
struct NAdam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled = false;

  template <class Buffers>
  NAdamState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return {detail::zeros_like(parameters, device), detail::zeros_like(parameters, device),
            scalar(0, f32, device), scalar(1, f32, device)};
  }

  template <class Model>
  std::pair<Model, NAdamState<Model>> update(const Model& parameters, const Model& gradients,
                                             const NAdamState<Model>& state,
                                             const Tensor& rate) const {
    const Tensor number = state.number + 1, t = cast(number, f64), wide = cast(rate, f64);
    const auto momentum = [&](const Tensor& step) {
      return beta1 * (1 - 0.5 * detail::power(0.96, step * momentum_decay));
    };
    const Tensor mu = momentum(t), next_mu = momentum(t + 1);
    const Tensor product = cast(state.product, f64) * mu;
    const Tensor of_gradient = wide * (1 - mu) / (1 - product);
    const Tensor of_mean = wide * next_mu / (1 - product * next_mu);
    const Tensor of_square = rsqrt(1 - detail::power(beta2, t));
    auto [next, means, squares] = detail::update_each<3>(
        [&](const Tensor& p, const Tensor& gradient, const Tensor& mean,
            const Tensor& before) -> std::array<Tensor, 3> {
          const Tensor g = decoupled ? gradient : detail::with_decay(gradient, p, weight_decay);
          const Tensor kept = decoupled ? detail::decayed(p, weight_decay, rate) : p;
          const Tensor m = beta1 * mean + (1 - beta1) * g;
          const Tensor v = beta2 * before + (1 - beta2) * square(g);
          const Tensor moved = detail::scaled(g, of_gradient) + detail::scaled(m, of_mean);
          return {kept - moved / (detail::scaled(sqrt(v), of_square) + eps), m, v};
        },
        parameters, gradients, state.mean, state.square);
    return {next, {means, squares, number, cast(product, f32)}};
  }
};

/// Adam whose first steps, while the variance of v is not known well, move by the mean alone (Liu et
/// al., arXiv:1908.03265). Its state is Adam's; weight decay as there.
struct RAdam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;

  template <class Buffers>
  AdamState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return Adam{}.start(parameters, device);
  }

  template <class Model>
  std::pair<Model, AdamState<Model>> update(const Model& parameters, const Model& gradients,
                                            const AdamState<Model>& state,
                                            const Tensor& rate) const {
    const Tensor number = state.number + 1, t = cast(number, f64);
    const Tensor of_mean = cast(rate, f64) / (1 - detail::power(beta1, t));
    const Tensor decay = detail::power(beta2, t);
    const double most = 2 / (1 - beta2) - 1;
    const Tensor length = most - 2 * t * decay / (1 - decay);
    const Tensor is_known = gt(length, scalar_like(length, 5));
    const Tensor share = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length);
    const Tensor of_known = sqrt(where(is_known, share, scalar_like(share, 1)) * (1 - decay));
    auto [next, means, squares] = detail::update_each<3>(
        [&](const Tensor& p, const Tensor& gradient, const Tensor& mean,
            const Tensor& before) -> std::array<Tensor, 3> {
          const Tensor g = decoupled ? gradient : detail::with_decay(gradient, p, weight_decay);
          const Tensor kept = decoupled ? detail::decayed(p, weight_decay, rate) : p;
          const Tensor m = beta1 * mean + (1 - beta1) * g;
          const Tensor v = beta2 * before + (1 - beta2) * square(g);
          const Tensor moved = detail::scaled(m, of_mean);
          const Tensor known = detail::scaled(moved, of_known) / (sqrt(v) + eps);
          return {kept - where(is_known, known, moved), m, v};
        },
        parameters, gradients, state.mean, state.square);
    return {next, {means, squares, number}};
  }
};

template <class Model>
struct AdafactorState {
  // In f32 where parameters are of f16 or bf16.
  Model row;                ///< means of g^2 of rows, [..., n, 1]; of vectors those of each element
  Model column;             ///< of columns, [..., 1, m]; of vectors a scalar without a use
  leaf_of_t<Model> number;  ///< of steps, an f32 scalar
  TENON_FIELDS(row, column, number)
};

/// Adam without momentum, of a matrix (the last two axes) with means of rows and of columns of g^2 only,
/// whose rate is relative to the parameter's size (Shazeer and Stern, arXiv:1804.04235), as PyTorch has
/// it: with rho = min(rate, 1 / sqrt(t)) max(eps, rms(p)) and u = g / sqrt(v),
/// p -= rho u / max(1, rms(u) / clip). Weight decay is decoupled.
struct Adafactor {
  double decay = -0.8;
  std::optional<double> smallest{};  ///< the least root of v; none: the dtype's epsilon
  double eps = 1e-3;
  double clip = 1;
  double weight_decay = 0;

  template <class Buffers>
  AdafactorState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    const auto zeros = [&](bool is_row) {
      return map_fields<Buffer>(parameters, [&](const std::string&, const Buffer& p) {
        const Shape& shape = p.shape();
        std::vector<Axis> axes;
        for (int i = 0; i < shape.rank(); ++i) axes.emplace_back(shape[i]);
        if (axes.size() >= 2) {
          axes[axes.size() - (is_row ? 1 : 2)] = 1;
        } else if (!is_row) {
          axes.clear();
        }
        const DType dtype = shape.dtype();
        return HostBuffer::zeros(
                   Shape(std::span<const Axis>(axes), dtype == f16 || dtype == bf16 ? f32 : dtype))
            .to_device(device);
      });
    };
    return {zeros(true), zeros(false), scalar(0, f32, device)};
  }

  template <class Model>
  std::pair<Model, AdafactorState<Model>> update(const Model& parameters, const Model& gradients,
                                                 const AdafactorState<Model>& state,
                                                 const Tensor& rate) const {
    const Tensor number = state.number + 1, t = cast(number, f64);
    const Tensor share = exp2(log2(t) * decay), limited = minimum(cast(rate, f64), rsqrt(t));
    auto [next, rows, columns] = detail::update_each<3>(
        [&](const Tensor& p, const Tensor& g, const Tensor& row,
            const Tensor& column) -> std::array<Tensor, 3> {
          const double least = smallest.value_or(epsilon(p.dtype()));
          const auto at_least = [](const Tensor& x, double bound) {
            return maximum(x, scalar_like(x, bound));
          };
          const auto moved = [&](const Tensor& from, const Tensor& to) {
            const Tensor old = detail::widened(from);
            return cast(old + detail::scaled(to - old, share), from.dtype());
          };
          const Tensor own_rate =
              detail::scaled(at_least(detail::root_mean_square(p), eps), limited);
          const Tensor kept = detail::decayed(p, weight_decay, rate);
          const bool is_matrix = p.rank() >= 2;
          const Tensor wide = detail::widened(g), squares = square(wide);
          const Tensor r = moved(row, is_matrix ? mean(squares, -1, true) : squares);
          const Tensor c = is_matrix ? moved(column, mean(squares, -2, true)) : column;
          const Tensor by_row = detail::widened(r), by_column = detail::widened(c);
          const Tensor v =
              is_matrix ? by_row * by_column / at_least(mean(by_row, -2, true), least) : by_row;
          const Tensor u = cast(wide * rsqrt(at_least(v, least * least)), g.dtype());
          const Tensor limit = at_least(detail::root_mean_square(u) / clip, 1);
          return {kept - u * (own_rate / limit), r, c};
        },
        parameters, gradients, state.row, state.column);
    return {next, {rows, columns, number}};
  }

 private:
  static double epsilon(DType dtype) {
    if (dtype == f64) return std::numeric_limits<double>::epsilon();
    if (dtype == f16) return 0x1p-10;
    return dtype == bf16 ? 0x1p-7 : 0x1p-23;
  }
};

template <class Model>
struct MuonState {
  Model momentum;
  TENON_FIELDS(momentum)
};

/// For matrices: m = momentum m + (1 - momentum) g; u = (1 - momentum) g + momentum m, or without
/// nesterov m; p = p (1 - rate weight_decay) - rate f o(u), where o makes singular values about 1 by
/// `steps` steps of Newton and Schulz, and f = sqrt(max(1, rows / columns)), or, for AdamW's rates
/// (`match_adamw`), 0.2 sqrt(max(rows, columns)) (Jordan et al., 2024). Computed in the parameter's
/// dtype; PyTorch takes bf16. Other parameters go to another optimiser by Groups (groups.hpp); here they
/// are Errc::bad_argument, and so are sizes that are not known.
struct Muon {
  double momentum = 0.95;
  double weight_decay = 0.1;
  bool nesterov = true;
  int steps = 5;
  std::array<double, 3> coefficients{3.4445, -4.775, 2.0315};
  double eps = 1e-7;
  bool match_adamw = false;

  template <class Buffers>
  MuonState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return {detail::zeros_like(parameters, device)};
  }

  template <class Model>
  std::pair<Model, MuonState<Model>> update(const Model& parameters, const Model& gradients,
                                            const MuonState<Model>& state,
                                            const Tensor& rate) const {
    auto [next, moments] = detail::update_each<2>(
        [&](const Tensor& p, const Tensor& g, const Tensor& before) -> std::array<Tensor, 2> {
          const double factor = factor_of(p);
          const Tensor m = momentum * before + (1 - momentum) * g;
          const Tensor u = orthogonal(nesterov ? (1 - momentum) * g + momentum * m : m);
          const Tensor kept = detail::decayed(p, weight_decay, rate);
          return {kept - factor * detail::scaled(u, rate), m};
        },
        parameters, gradients, state.momentum);
    return {next, {moments}};
  }

 private:
  double factor_of(const Tensor& p) const {
    if (p.rank() != 2 || !is_static(p.dim(0)) || !is_static(p.dim(1))) {
      throw Error(Errc::bad_argument, "Muon",
                  "a parameter is no matrix of known sizes: " + to_string(p.shape()));
    }
    const auto rows = static_cast<double>(p.dim(0)), columns = static_cast<double>(p.dim(1));
    return match_adamw ? 0.2 * std::sqrt(std::max(rows, columns))
                       : std::sqrt(std::max(1.0, rows / columns));
  }

  Tensor orthogonal(Tensor x) const {
    const bool is_tall = x.dim(0) > x.dim(1);
    if (is_tall) x = transpose(x);
    const Tensor wide = detail::widened(x), length = sqrt(sum(square(wide)));
    x = cast(wide / maximum(length, scalar_like(length, eps)), x.dtype());
    const auto [a, b, c] = coefficients;
    for (int i = 0; i < steps; ++i) {
      const Tensor gram = matmul(x, transpose(x));
      x = a * x + matmul(b * gram + c * matmul(gram, gram), x);
    }
    return is_tall ? transpose(x) : x;
  }
};

}  // namespace tenon::train
