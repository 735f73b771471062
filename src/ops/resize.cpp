#include "ops/filled.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/resize.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(resize, Resize);
TENON_DEFINE_OP(resize_backward, ResizeBackward);

namespace {

std::string_view mode_of(const Resize& op) { return op.mode.empty() ? "linear" : op.mode.text(); }

/// The position of an output as a fraction. Exact for sizes below 2^31.
struct Position {
  std::int64_t numerator, denominator;
};

Position position_of(std::string_view coordinates, std::int64_t size, std::int64_t outputs,
                     std::int64_t i) {
  if (coordinates == "asymmetric") return {i * size, outputs};
  if (outputs == 1 && coordinates != "half_pixel") return {0, 1};
  if (coordinates == "align_corners") return {i * (size - 1), outputs - 1};
  return {(2 * i + 1) * size - outputs, 2 * outputs};
}

std::int64_t floor_of(const Position& p) {
  const std::int64_t quotient = p.numerator / p.denominator;
  return quotient - (p.numerator % p.denominator < 0 ? 1 : 0);
}

std::int64_t nearest_of(const Position& p, std::string_view rounding) {
  const std::int64_t below = floor_of(p);
  const std::int64_t rest = p.numerator - below * p.denominator;
  if (rounding == "floor") return below;
  if (rounding == "ceil") return rest > 0 ? below + 1 : below;
  if (rounding == "round_prefer_floor") return 2 * rest > p.denominator ? below + 1 : below;
  return 2 * rest >= p.denominator ? below + 1 : below;
}

/// Weights of the four elements around a position that lies `t` after the second.
std::array<double, 4> cubic_weights(double t, double a) {
  const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

Resize forward_of(const ResizeBackward& op, const Shape& upstream) {
  Resize result{.sizes = {},
                .mode = op.mode,
                .coordinates = op.coordinates,
                .rounding = op.rounding,
                .cubic_coefficient = op.cubic_coefficient};
  const auto count = static_cast<int>(op.sizes.size());
  for (int i = upstream.rank() - count; i < upstream.rank(); ++i) {
    result.sizes.push_back(upstream[i]);
  }
  return result;
}

/// The type of x with the last axes as `sizes` say.
template <class Op>
Shape resized(const Op& op, const Shape& x) {
  constexpr std::string_view name = Op::name;
  require_floating(name, x);  // C1
  const auto negative = [](std::int64_t size) { return size < 0; };
  if (op.sizes.empty() || op.sizes.size() > 3 || std::ranges::any_of(op.sizes, negative)) {  // C2
    fail(Errc::bad_attribute, name,
         fmt::format("sizes [{}] need one to three values of at least 0",
                     fmt::join(op.sizes.span(), ", ")));
  }
  const auto one_of = [name](std::string_view attribute, Name word,
                             std::initializer_list<std::string_view> words) {
    if (word.empty() || std::ranges::find(words, word.text()) != words.end()) return;
    fail(Errc::bad_attribute, name,
         fmt::format("no {} '{}'; there are {}", attribute, word.text(), fmt::join(words, ", ")));
  };
  one_of("mode", op.mode, {"nearest", "linear", "cubic"});
  one_of("coordinates", op.coordinates,
         {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"});
  one_of("rounding", op.rounding, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  if (!std::isfinite(op.cubic_coefficient)) {
    fail(Errc::bad_attribute, name, fmt::format("cubic_coefficient {}", op.cubic_coefficient));
  }
  const auto count = static_cast<int>(op.sizes.size());
  if (x.rank() < count) {  // C3
    fail(Errc::shape_mismatch, name, fmt::format("{} sizes for {}", count, to_string(x)));
  }
  Shape y = x;
  for (int i = 0; i < count; ++i) {
    y = y.with_dim(x.rank() - count + i, op.sizes[static_cast<std::size_t>(i)]);
  }
  return y;
}

/// C4: there is nothing to take elements from.
void require_elements(std::string_view op, const Shape& from, const Shape& to, int count) {
  for (int i = from.rank() - count; i < from.rank(); ++i) {
    if (from[i] == 0 && to[i] != 0) {
      fail(Errc::bad_shape, op,
           fmt::format("an axis without elements: {} to {}", to_string(from), to_string(to)));
    }
  }
}

/// Calls visit(index in the output, index in the input, weight) for all pairs of elements that
/// resize from one shape to the other connects, output by output.
template <class Visit>
void for_each_connection(const Resize& op, const Shape& from, const Shape& to, Visit&& visit) {
  if (to.elements() == 0) return;
  const auto count = static_cast<int>(op.sizes.size());
  const int lead = to.rank() - count;
  std::vector<ResizeTaps> axes;
  Shape taps({}, DType::f32);
  for (int i = 0; i < count; ++i) {
    axes.push_back(resize_taps(op, from[lead + i], to[lead + i]));
    taps = taps.with_axis(i, Axis(axes.back().taps));
  }
  for_each_index(to, [&](std::span<const std::int64_t> index) {
    std::array<std::int64_t, max_rank> input{};
    std::ranges::copy(index, input.begin());
    for_each_index(taps, [&](std::span<const std::int64_t> tap) {
      double weight = 1;
      for (std::size_t i = 0; i < axes.size(); ++i) {
        const std::size_t axis = static_cast<std::size_t>(lead) + i;
        const auto at = static_cast<std::size_t>(tap[i] * axes[i].outputs + index[axis]);
        input[axis] = axes[i].inputs[at];
        weight *= axes[i].weights[at];
      }
      visit(index, std::span<const std::int64_t>(input.data(), index.size()), weight);
    });
  });
}

std::size_t position_in(const Shape& shape, std::span<const std::int64_t> index) {
  std::int64_t at = 0;
  for (int i = 0; i < shape.rank(); ++i) at = at * shape[i] + index[static_cast<std::size_t>(i)];
  return static_cast<std::size_t>(at);
}

double connections(const Resize& op, const Shape& out) {
  const std::string_view mode = mode_of(op);
  const double taps = mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;
  // One axis after the other; the last pass has as many elements as the output.
  return 2 * taps * static_cast<double>(op.sizes.size()) * static_cast<double>(out.elements());
}

}  // namespace

ResizeTaps resize_taps(const Resize& op, std::int64_t size, std::int64_t outputs) {
  const std::string_view mode = mode_of(op);
  const std::string_view coordinates =
      op.coordinates.empty() ? "half_pixel" : op.coordinates.text();
  const std::string_view rounding = op.rounding.empty() ? "round_prefer_floor" : op.rounding.text();
  ResizeTaps result;
  result.outputs = outputs;
  if (size == outputs) {  // every mode and every way of placing leaves it as it is
    result.inputs.resize(static_cast<std::size_t>(size));
    std::iota(result.inputs.begin(), result.inputs.end(), std::int64_t{0});
    result.weights.assign(result.inputs.size(), 1);
    return result;
  }
  result.taps = mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;
  result.inputs.resize(static_cast<std::size_t>(result.taps * outputs));
  result.weights.resize(result.inputs.size());
  for (std::int64_t i = 0; i < outputs; ++i) {
    const Position position = position_of(coordinates, size, outputs, i);
    std::array<double, 4> weights{1};
    std::int64_t first = 0;
    if (mode == "nearest") {
      first = nearest_of(position, rounding);
    } else {
      first = floor_of(position);
      const double t = static_cast<double>(position.numerator - first * position.denominator) /
                       static_cast<double>(position.denominator);
      if (mode == "linear") {
        weights = {1 - t, t};
      } else {
        weights = cubic_weights(t, op.cubic_coefficient);
        --first;
      }
    }
    for (std::int64_t k = 0; k < result.taps; ++k) {
      const auto at = static_cast<std::size_t>(k * outputs + i);
      result.inputs[at] = std::clamp<std::int64_t>(first + k, 0, size - 1);
      result.weights[at] = weights[static_cast<std::size_t>(k)];
    }
  }
  return result;
}

Shape Resize::infer(std::span<const Shape> in) const {
  const Shape y = resized(*this, in[0]);
  require_elements(name, in[0], y, static_cast<int>(sizes.size()));
  return y;
}

void Resize::reference(std::span<const HostView> in, const HostView& out) const {
  std::vector<double> sums(static_cast<std::size_t>(out.shape.elements()));
  const DType dtype = out.shape.dtype();
  for_each_connection(*this, in[0].shape, out.shape,
                      [&](std::span<const std::int64_t> output, std::span<const std::int64_t> input,
                          double weight) {
                        sums[position_in(out.shape, output)] +=
                            weight * load_as_double(dtype, in[0].at(input));
                      });
  std::size_t next = 0;
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    store_double(dtype, out.at(index), sums[next++]);
  });
}

namespace {

/// The gradient of resize along one axis whose size is not known: a product by the matrix of its
/// weights, which is what resize makes of the identity.
Tensor resized_back(const Resize& op, std::size_t at, const Tensor& x, int axis,
                    const Tensor& upstream) {
  Resize along = op;
  along.sizes = {op.sizes[at]};
  const Tensor place = iota(x, axis, i64).with_tags({});
  const Tensor one = cast(eq(unsqueeze(place, 1), place), x.dtype());  // [H, H]
  const Tensor weights = resize(one, along);                           // [H, outputs]
  const int last = upstream.rank() - 1;
  const Tensor rows = axis == last ? upstream : transpose(upstream, axis, last);
  const Tensor back = matmul(unsqueeze(rows, -2), transpose(weights, 0, 1));  // [.., 1, H]
  const Tensor result = squeeze(back, last);
  return axis == last ? result : transpose(result, axis, last);
}

}  // namespace

std::vector<Tensor> Resize::gradient(const Backward& at) const {
  const Shape& x = at.inputs[0].shape();
  const int lead = x.rank() - static_cast<int>(sizes.size());
  if (!std::ranges::all_of(x.dims().subspan(static_cast<std::size_t>(lead)), is_static)) {
    Tensor dx = at.upstream;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      dx = resized_back(*this, i, at.inputs[0], lead + static_cast<int>(i), dx);
    return {dx};
  }
  ResizeBackward back{.sizes = {},
                      .mode = mode,
                      .coordinates = coordinates,
                      .rounding = rounding,
                      .cubic_coefficient = cubic_coefficient};
  for (int i = lead; i < x.rank(); ++i) back.sizes.push_back(x[i]);
  return {resize_backward(at.upstream, back)};
}

double Resize::flops(std::span<const Shape>, const Shape& out) const {
  return connections(*this, out);
}

Shape ResizeBackward::infer(std::span<const Shape> in) const {
  const Shape x = resized(*this, in[0]).without_tags();
  require_elements(name, x, in[0], static_cast<int>(sizes.size()));
  return x;
}

void ResizeBackward::reference(std::span<const HostView> in, const HostView& out) const {
  const Shape& x = out.shape;
  std::vector<double> sums(static_cast<std::size_t>(x.elements()));
  for_each_connection(forward_of(*this, in[0].shape), x, in[0].shape,
                      [&](std::span<const std::int64_t> output, std::span<const std::int64_t> input,
                          double weight) {
                        sums[position_in(x, input)] +=
                            weight * load_as_double(x.dtype(), in[0].at(output));
                      });
  std::size_t next = 0;
  for_each_index(x, [&](std::span<const std::int64_t> index) {
    store_double(x.dtype(), out.at(index), sums[next++]);
  });
}

std::vector<Tensor> ResizeBackward::gradient(const Backward& at) const {
  const Shape& upstream = at.inputs[0].shape();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!is_static(upstream[upstream.rank() - 1 - static_cast<int>(i)])) {
      fail(Errc::unsupported, name, fmt::format("needs the sizes of {}", to_string(upstream)));
    }
  }
  return {resize(at.upstream, forward_of(*this, upstream))};
}

double ResizeBackward::flops(std::span<const Shape> in, const Shape&) const {
  return connections(forward_of(*this, in[0]), in[0]);
}

Tensor resize(const Tensor& x, const Resize& options, const std::source_location& where) {
  return record(options, {x}, where);
}

Tensor resize_backward(const Tensor& upstream, const ResizeBackward& options,
                       const std::source_location& where) {
  return record(options, {upstream}, where);
}

}  // namespace tenon
