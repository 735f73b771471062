#pragma once

#include <tenon/buffer.hpp>
#include <tenon/ops.hpp>
#include <tenon/train/fields.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tenon::train {

// Optimisers are part of the program. Parameters and the optimiser's state are arguments and results
// of one `forward`; moved in, they are updated in place:
//
//   template <class T> using State = train::AdamState<Net<T>>;
//   std::tuple<Net<Tensor>, State<Tensor>, Tensor> step(Net<Tensor> net, State<Tensor> state,
//                                                       Tensor x, Tensor y, Tensor rate) const {
//     const Tensor loss = cross_entropy(net.forward(x), y);
//     auto [next, next_state] = optimizer.update(net, grad(loss, net), state, rate);
//     return {next, next_state, loss};
//   }
//
// What becomes of one parameter is recorded in a row, so that a backend can compute it in one pass.
//
// `rate` is an f32 scalar, so that a schedule needs no new program. Formulas as in PyTorch's
// optimisers of the same names. State has the dtype of the gradients' struct passed to `update`:
// for mixed precision keep f32 parameters, cast them to bf16 for `forward`, and differentiate with
// respect to the f32 ones.

/// A program argument of the dtype and value: the rate of a step.
inline Buffer scalar(double value, DType dtype, const DevicePtr& device) {
  return HostBuffer::of<double>(Shape(std::span<const Axis>(), f64), {value})
      .to(dtype)
      .to_device(device);
}

namespace detail {

/// Zeros of the buffers' shapes.
template <class Buffers>
Buffers zeros_like(const Buffers& parameters, const DevicePtr& device) {
  return map_fields<Buffer>(parameters, [&](const std::string&, const Buffer& buffer) {
    return HostBuffer::zeros(buffer.shape()).to_device(device);
  });
}

/// zeros_like(), or where that state is not used, empty arrays.
template <class Buffers>
Buffers zeros_where(bool is_used, const Buffers& parameters, const DevicePtr& device) {
  if (is_used) return zeros_like(parameters, device);
  return map_fields<Buffer>(parameters, [&](const std::string&, const Buffer& buffer) {
    return HostBuffer::zeros(Shape({0}, buffer.shape().dtype())).to_device(device);
  });
}

/// x * value in x's dtype, for a scalar tensor of any floating dtype.
inline Tensor scaled(const Tensor& x, const Tensor& scalar) { return x * cast(scalar, x.dtype()); }

/// x in f32 where its own dtype is a half one: squares of numbers from 256 on are infinite in f16.
inline Tensor widened(const Tensor& x) {
  return x.dtype() == f16 || x.dtype() == bf16 ? cast(x, f32) : x;
}

inline Tensor with_decay(const Tensor& g, const Tensor& p, double weight_decay) {
  return weight_decay == 0 ? g : g + weight_decay * p;
}

inline Tensor decayed(const Tensor& p, double weight_decay, const Tensor& rate) {
  return weight_decay == 0 ? p : scaled(p, 1 - weight_decay * rate);
}

/// base^exponent of a number in [0, 1) and a scalar above 0.
inline Tensor power(double base, const Tensor& exponent) {
  return base > 0 ? exp2(exponent * std::log2(base)) : exponent * 0;
}

/// step(tensors...) of the structs' tensors, row by row, is an array of N tensors: a struct of each.
template <std::size_t N, class Step, class Model, class... Others>
std::array<Model, N> update_each(const Step& step, const Model& parameters,
                                 const Others&... others) {
  const std::vector<std::vector<Tensor>> columns{tensors_of(parameters), tensors_of(others)...};
  std::array<std::vector<Tensor>, N> made;
  for (std::size_t i = 0; i < columns[0].size(); ++i) {
    const std::array<Tensor, N> row = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return step(columns[I][i]...);
    }(std::make_index_sequence<1 + sizeof...(Others)>());
    for (std::size_t k = 0; k < N; ++k) made[k].push_back(row[k]);
  }
  return [&]<std::size_t... K>(std::index_sequence<K...>) {
    return std::array<Model, N>{with_tensors(parameters, made[K])...};
  }(std::make_index_sequence<N>());
}

}  // namespace detail

template <class Model>
struct SgdState {
  Model momentum;  ///< empty arrays where the optimiser has none
  TENON_FIELDS(momentum)
};

/// g += weight_decay p; m = momentum m + g; p -= rate m, or with nesterov p -= rate (g + momentum m).
struct Sgd {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;

  /// The state before the first step: zeros.
  template <class Buffers>
  SgdState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return {detail::zeros_where(momentum != 0, parameters, device)};
  }

  template <class Model>
  std::pair<Model, SgdState<Model>> update(const Model& parameters, const Model& gradients,
                                           const SgdState<Model>& state, const Tensor& rate) const {
    auto [next, means] = detail::update_each<2>(
        [&](const Tensor& p, const Tensor& gradient,
            const Tensor& before) -> std::array<Tensor, 2> {
          const Tensor g = detail::with_decay(gradient, p, weight_decay);
          if (momentum == 0) return {p - detail::scaled(g, rate), before};
          const Tensor m = momentum * before + g;
          return {p - detail::scaled(nesterov ? g + momentum * m : m, rate), m};
        },
        parameters, gradients, state.momentum);
    return {next, {means}};
  }
};

template <class Model>
struct AdamState {
  Model mean;               ///< of the gradients
  Model square;             ///< of their squares
  leaf_of_t<Model> number;  ///< of steps, an f32 scalar
  TENON_FIELDS(mean, square, number)
};

/// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= rate (m / (1 - b1^t)) /
/// (sqrt(v / (1 - b2^t)) + eps). Adam adds weight_decay p to g (Kingma and Ba, arXiv:1412.6980);
/// AdamW first multiplies p by 1 - rate weight_decay (Loshchilov and Hutter, arXiv:1711.05101).
struct Adam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;

  template <class Buffers>
  AdamState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return {detail::zeros_like(parameters, device), detail::zeros_like(parameters, device),
            scalar(0, f32, device)};
  }

  template <class Model>
  std::pair<Model, AdamState<Model>> update(const Model& parameters, const Model& gradients,
                                            const AdamState<Model>& state,
                                            const Tensor& rate) const {
    const Tensor number = state.number + 1;
    const Tensor steps = cast(number, rate.dtype());
    // 1 - beta^t; the power itself would lose the digits that beta, near 1, differs by.
    const auto correction = [&](double beta) { return -expm1(steps * std::log(beta)); };
    const Tensor of_mean = rate / correction(beta1);
    const Tensor of_square = rsqrt(correction(beta2));
    auto [next, means, squares] = detail::update_each<3>(
        [&](const Tensor& p, const Tensor& gradient, const Tensor& mean,
            const Tensor& before) -> std::array<Tensor, 3> {
          const Tensor g = decoupled ? gradient : detail::with_decay(gradient, p, weight_decay);
          const Tensor kept = decoupled ? detail::decayed(p, weight_decay, rate) : p;
          const Tensor m = beta1 * mean + (1 - beta1) * g;
          const Tensor v = beta2 * before + (1 - beta2) * (g * g);
          return {kept - detail::scaled(m, of_mean) / (detail::scaled(sqrt(v), of_square) + eps), m,
                  v};
        },
        parameters, gradients, state.mean, state.square);
    return {next, {means, squares, number}};
  }
};

inline Adam adamw(double weight_decay = 0.01) {
  return {.weight_decay = weight_decay, .decoupled = true};
}

template <class Model>
struct LionState {
  Model mean;
  TENON_FIELDS(mean)
};

/// p = p (1 - rate weight_decay) - rate sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g
/// (Chen et al., arXiv:2302.06675).
struct Lion {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;

  template <class Buffers>
  LionState<Buffers> start(const Buffers& parameters, const DevicePtr& device) const {
    return {detail::zeros_like(parameters, device)};
  }

  template <class Model>
  std::pair<Model, LionState<Model>> update(const Model& parameters, const Model& gradients,
                                            const LionState<Model>& state,
                                            const Tensor& rate) const {
    auto [next, means] = detail::update_each<2>(
        [&](const Tensor& p, const Tensor& g, const Tensor& m) -> std::array<Tensor, 2> {
          const Tensor step = sign(beta1 * m + (1 - beta1) * g);
          return {detail::decayed(p, weight_decay, rate) - detail::scaled(step, rate),
                  beta2 * m + (1 - beta2) * g};
        },
        parameters, gradients, state.mean);
    return {next, {means}};
  }
};

namespace detail {

/// In f64 where one of the tensors is.
inline Tensor norm_of(std::span<const Tensor> tensors) {
  if (tensors.empty()) fail(Errc::bad_argument, "global_norm", "there is no tensor");
  const auto is_f64 = [](const Tensor& x) { return x.dtype() == f64; };
  const DType dtype = std::ranges::any_of(tensors, is_f64) ? f64 : f32;
  Tensor total;
  for (const Tensor& x : tensors) {
    const Tensor squares = cast(sum(square(widened(x))), dtype);
    total = total.is_empty() ? squares : total + squares;
  }
  return sqrt(total);
}

}  // namespace detail

/// sqrt of the sum of all squares, an f32 scalar.
///
/// Errors    there is no tensor    Errc::bad_argument
template <class Model>
Tensor global_norm(const Model& gradients) {
  return cast(detail::norm_of(tensors_of(gradients)), f32);
}

/// The gradients times min(1, max_norm / (their norm + 1e-6)), and the norm before.
template <class Model>
std::pair<Model, Tensor> clip_norm(const Model& gradients, double max_norm) {
  const Tensor norm = detail::norm_of(tensors_of(gradients));
  const Tensor factor = minimum(scalar_like(norm, 1), max_norm / (norm + 1e-6));
  return {zip_fields([&](const Tensor& g) { return detail::scaled(g, factor); }, gradients),
          cast(norm, f32)};
}

/// The gradients within [-limit, limit].
template <class Model>
Model clip_value(const Model& gradients, double limit) {
  return zip_fields([&](const Tensor& g) { return clamp(g, -limit, limit); }, gradients);
}

/// decay average + (1 - decay) parameters: an exponential moving average of the parameters of all
/// steps, whose network is often the better one.
template <class Model>
Model averaged(const Model& average, const Model& parameters, double decay = 0.999) {
  return zip_fields([&](const Tensor& a, const Tensor& p) { return a + (1 - decay) * (p - a); },
                    average, parameters);
}

/// a + b: gradients of several batches before one update.
template <class Model>
Model accumulate(const Model& a, const Model& b) {
  return zip_fields([](const Tensor& x, const Tensor& y) { return x + y; }, a, b);
}

/// The struct in another dtype: bf16 copies of f32 parameters, through which gradients pass.
template <class Model>
Model cast_fields(const Model& model, DType dtype) {
  return zip_fields([&](const Tensor& x) { return cast(x, dtype); }, model);
}

}  // namespace tenon::train
