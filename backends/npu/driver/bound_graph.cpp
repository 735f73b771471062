#include "bound_graph.hpp"

#include "table.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

constexpr std::int32_t multiplier_max = 32767;
constexpr int shift_max = 47;
/// Two of its eight bits.
constexpr double much_coarser = 4;

Limits limits_of(const Activation& activation, double step) {
  const auto bound = [&](double real) {
    return static_cast<std::int32_t>(std::clamp(std::nearbyint(real / step), -128.0, 127.0));
  };
  return {bound(activation.lo), bound(activation.hi)};
}

/// m1 and m2 over a common 2^s, with the largest s for which both fit.
Scaling scaling_of(double f1, double f2, const std::string& what) {
  if (f1 == 1 && (f2 == 0 || f2 == 1)) return {1, static_cast<std::int32_t>(f2), 0};
  for (int s = shift_max; s >= 0; --s) {
    const double m1 = std::nearbyint(std::ldexp(f1, s));
    const double m2 = std::nearbyint(std::ldexp(f2, s));
    if (std::abs(m1) > multiplier_max || std::abs(m2) > multiplier_max) continue;
    return {static_cast<std::int32_t>(m1), static_cast<std::int32_t>(m2),
            static_cast<std::uint32_t>(s)};
  }
  throw Error(Errc::out_of_range, what,
              fmt::format("factors {} and {} are beyond 16 bits: ranges of operands and result are "
                          "too far apart",
                          f1, f2));
}

std::vector<float> dense_floats(const HostBuffer& buffer) {
  std::vector<float> result;
  result.reserve(static_cast<std::size_t>(buffer.shape().elements()));
  for_each_index(buffer.shape(), [&](std::span<const std::int64_t> index) {
    result.push_back(*reinterpret_cast<const float*>(buffer.view().at(index)));
  });
  return result;
}

class Binder {
 public:
  Binder(const Graph& graph, const ConstantSource& constants, const BindOptions& options)
      : constants_(constants), options_(options) {
    bound_.graph = graph;
    bound_.constants.resize(graph.maps.size());
    bound_.real_constants.resize(graph.maps.size());
  }

  BoundGraph bind() {
    for (std::size_t i = 0; i < bound_.graph.maps.size(); ++i) {
      if (bound_.graph.maps[i].constant) bind_constant(i);
      if (bound_.graph.maps[i].fill) bind_fill(i);
    }
    for (std::size_t i = 0; i < bound_.graph.maps.size(); ++i) {
      if (bound_.graph.maps[i].constant && is_coarsened(i))
        drop_ratios(bound_.graph.maps[i].ratio_group);
    }
    // A step that is raised for one part of a map is raised for its earlier parts too. Steps only
    // grow and propagate in the order of the layers, so this ends after at most as many rounds as
    // there are layers.
    do {
      shared_step_raised_ = false;
      bound_.layers.clear();
      for (const Layer& layer : bound_.graph.layers) bind_layer(layer);
    } while (shared_step_raised_);
    return std::move(bound_);
  }

 private:
  double step(MapId map) const { return bound_.graph.map(map).step; }

  /// The step of a result, raised until `factor` over it can be expressed: a value whose range is
  /// tiny compared to its operands' is held as coarsely as those allow.
  double result_step(MapId map, double factor, double largest) {
    const double needed = factor / largest;
    if (step(map) >= needed) return step(map);
    // A map that others share bytes with has been, or will be, read through them.
    shared_step_raised_ = shared_step_raised_ || bound_.graph.map(map).whole != no_map;
    bound_.graph.set_step(map, needed);
    return needed;
  }
  double largest_multiplier() const { return options_.profile == Profile::m8 ? 0.996 : 16383; }

  void bind_constant(std::size_t id) {
    FeatureMap& map = bound_.graph.maps[id];
    const HostBuffer buffer = constants_(*map.constant);
    const bool image =
        buffer.shape().rank() == 4 && dims_of(buffer.shape(), Form::image) == map.dims;
    const auto channels = static_cast<std::size_t>(map.dims.c);
    std::vector<float>& real = bound_.real_constants[id];
    real.resize(static_cast<std::size_t>(map.dims.pixels() * map.dims.c));
    std::size_t next = 0;
    double largest = 0;
    for_each_index(buffer.shape(), [&](std::span<const std::int64_t> index) {
      float value = *reinterpret_cast<const float*>(buffer.view().at(index));
      if (map.reciprocal) value = 1 / value;
      if (!std::isfinite(value)) throw Error(Errc::bad_input, map.name, "holds no finite number");
      largest = std::max(largest, std::abs(static_cast<double>(value)));
      std::size_t at = next++;
      if (image) {
        const std::int64_t pixel = (index[0] * map.dims.h + index[2]) * map.dims.w + index[3];
        at = static_cast<std::size_t>(pixel) * channels + static_cast<std::size_t>(index[1]);
      }
      real[at] = value;
    });
    if (!map.normratio.empty()) {
      largest = 0;
      for (std::size_t i = 0; i < real.size(); ++i) {
        largest = std::max(largest, std::abs(double{real[i]}) / map.normratio[i % channels]);
      }
    }
    map.step = int8_step(largest);
    bound_.constants[id].clear();
    for (std::size_t i = 0; i < real.size(); ++i) {
      const double own = map.step_of(static_cast<std::int64_t>(i % channels));
      bound_.constants[id].push_back(quantize(real[i], static_cast<float>(1 / own)));
    }
  }

  /// Whether ratios of channels round a constant much more coarsely than its own range would.
  bool is_coarsened(std::size_t id) const {
    const FeatureMap& map = bound_.graph.maps[id];
    if (map.normratio.empty()) return false;
    double largest = 0;
    for (const float real : bound_.real_constants[id])
      largest = std::max(largest, std::abs(double{real}));
    return map.step > much_coarser * int8_step(largest);
  }
  void drop_ratios(int group) {
    for (std::size_t i = 0; i < bound_.graph.maps.size(); ++i) {
      FeatureMap& map = bound_.graph.maps[i];
      if (map.ratio_group != group) continue;
      map.normratio.clear();
      map.step = map.plain_step;
      if (map.constant) bind_constant(i);
    }
  }

  void bind_fill(std::size_t id) {
    FeatureMap& map = bound_.graph.maps[id];
    const auto count = static_cast<std::size_t>(map.dims.pixels() * map.dims.c);
    map.step = int8_step(*map.fill);
    bound_.real_constants[id].assign(count, *map.fill);
    bound_.constants[id].assign(count, quantize(*map.fill, static_cast<float>(1 / map.step)));
  }

  void bind_layer(const Layer& layer) {
    BoundLayer bound;
    switch (layer.kind) {
      case Layer::Kind::conv:
      case Layer::Kind::depthwise:
      case Layer::Kind::linear:
        bind_weights(layer, bound);
        break;
      case Layer::Kind::matmul:
        bind_matmul(layer, bound);
        break;
      case Layer::Kind::max_pool:
      case Layer::Kind::sum_pool:
        bind_pool(layer, bound);
        break;
      default:
        break;
    }
    MapId before = layer.made;
    for (const Post& post : layer.posts) {
      bound.posts.push_back(bind_post(layer, post, before));
      before = post.result;
    }
    bound_.layers.push_back(std::move(bound));
  }

  void set_result(const Layer& layer, BoundLayer& bound) const {
    bound.limits = limits_of(layer.activation, step(layer.made));
    if (layer.activation.slope != 1) {
      bound.neg_m = static_cast<std::uint32_t>(
          std::clamp(std::nearbyint(layer.activation.slope * 32768), 0.0, 32767.0));
    }
  }

  isa::QuantRecord record(std::int64_t bias, double factor, const std::string& what) const {
    const Multiplier by = encode_multiplier(factor, options_.profile, what);
    isa::QuantRecord result;
    result.bias = static_cast<std::int32_t>(bias);
    result.m = by.m;
    result.s = by.s;
    return result;
  }

  void bind_weights(const Layer& layer, BoundLayer& bound) {
    const std::string& what = layer.values.front();
    const HostBuffer weights = constants_(*layer.weights);
    bound.real_weights = dense_floats(weights);
    if (layer.bias) bound.real_bias = dense_floats(constants_(*layer.bias));
    const FeatureMap& in = bound_.graph.map(layer.input);
    const bool channelwise = layer.kind == Layer::Kind::depthwise;
    if (!channelwise) bound.input_ratios = in.normratio;
    const std::vector<double> ratios = ratios_along(weights.shape(), in, bound.input_ratios);
    QuantizedWeights quantized =
        quantize_weights(weights.view(), ratios, options_.per_channel, what);
    const std::size_t channels = quantized.steps.size();
    const std::size_t row = bound.real_weights.size() / std::max<std::size_t>(channels, 1);
    const std::size_t taps = row / static_cast<std::size_t>(weights.shape()[1]);
    std::vector<double> acc_steps;
    std::vector<double> folded(row);
    for (std::size_t o = 0; o < channels; ++o) {
      const double bias = bound.real_bias.empty() ? 0.0 : double{bound.real_bias[o]};
      if (!std::isfinite(bias)) throw Error(Errc::bad_input, what, "the bias is not finite");
      const double in_step = channelwise ? in.step_of(static_cast<std::int64_t>(o)) : in.step;
      for (std::size_t i = 0; i < row; ++i) {
        const double ratio = ratios.size() == 1 ? ratios[0] : ratios[i / taps];
        folded[i] = double{bound.real_weights[o * row + i]} * ratio;
      }
      coarsen({quantized.values.data() + o * row, row}, folded, bias / in_step, quantized.steps[o]);
      acc_steps.push_back(in_step * quantized.steps[o]);
    }
    set_records(layer.made, acc_steps, bound, what);
    bound.weights = std::move(quantized.values);
    bound.weight_steps = std::move(quantized.steps);
    set_result(layer, bound);
  }

  // A factor per entry of axis 1 of the weights: a flattened image has all pixels of a channel
  // there.
  static std::vector<double> ratios_along(const Shape& weights, const FeatureMap& in,
                                          const std::vector<double>& ratios) {
    if (ratios.empty()) return {1.0};
    const std::int64_t pixels = weights[1] / in.dims.c;
    std::vector<double> result;
    for (const double ratio : ratios) {
      result.insert(result.end(), static_cast<std::size_t>(pixels), ratio);
    }
    return result;
  }

  // The records that take sums of these steps to the result's, per output channel.
  void set_records(MapId made, const std::vector<double>& acc_steps, BoundLayer& bound,
                   const std::string& what) {
    double largest = 0;
    const auto ratio = [&](std::size_t o) {
      const auto& ratios = bound_.graph.map(made).normratio;
      return ratios.empty() ? 1.0 : ratios[o];
    };
    for (std::size_t o = 0; o < acc_steps.size(); ++o) {
      largest = std::max(largest, acc_steps[o] / ratio(o));
    }
    const double out = result_step(made, largest, largest_multiplier());
    for (std::size_t o = 0; o < acc_steps.size(); ++o) {
      const double bias = bound.real_bias.empty() ? 0.0 : double{bound.real_bias[o]};
      bound.records.push_back(
          record(std::llrint(bias / acc_steps[o]), acc_steps[o] / (out * ratio(o)), what));
    }
  }

  // Raises a channel's step until neither the bias nor the longest sum can leave int32. Rare: tiny
  // weights with a large bias, or sums of more than 131072 terms.
  static void coarsen(std::span<std::int8_t> values, std::span<const double> real, double bias,
                      double& step) {
    const double needed = std::abs(bias) / static_cast<double>(bias_limit);
    bool changed = needed > step;
    step = std::max(step, needed);
    for (;;) {
      if (changed) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] =
              static_cast<std::int8_t>(std::clamp(std::nearbyint(real[i] / step), -127.0, 127.0));
        }
      }
      std::int64_t sum = 0;
      for (const std::int8_t value : values) sum += std::abs(int{value});
      if (sum * 128 + bias_limit <= (std::int64_t{1} << 31) - 1) return;
      step *= 2;
      changed = true;
    }
  }

  void bind_matmul(const Layer& layer, BoundLayer& bound) {
    const std::string& what = layer.values.front();
    const auto channels = static_cast<std::size_t>(bound_.graph.map(layer.made).dims.c);
    std::vector<double> acc_steps;
    for (std::size_t c = 0; c < channels; ++c) {
      const FeatureMap& second = bound_.graph.map(layer.second);
      acc_steps.push_back(step(layer.input) * second.step_of(static_cast<std::int64_t>(c)));
    }
    set_records(layer.made, acc_steps, bound, what);
    set_result(layer, bound);
  }

  void bind_pool(const Layer& layer, BoundLayer& bound) {
    const double in = step(layer.input) * layer.factor;
    if (layer.keeps_step()) bound_.graph.set_step(layer.made, in);  // it may have been raised
    const double ratio = in / result_step(layer.made, in, multiplier_max / 2);
    if (ratio != 1) {
      const Multiplier by = encode_multiplier(ratio, Profile::m15, layer.values.front());
      bound.scaling = {by.m, 0, by.s};
    }
    set_result(layer, bound);
  }

  BoundPost bind_post(const Layer& layer, const Post& post, MapId before) {
    BoundPost bound;
    const double a = step(before);
    const double b = post.other == no_map ? 0 : step(post.other);
    const double most = post.kind == Post::Kind::lut   ? 0
                        : post.kind == Post::Kind::mul ? a * b
                                                       : std::max(a, b);
    const double out = result_step(post.result, most, multiplier_max);
    const std::string& what = layer.values.back();
    bound.limits = limits_of(post.activation, out);
    switch (post.kind) {
      case Post::Kind::rescale:
        // A lower bound of 0 or above makes the slope below zero irrelevant.
        bound.scaling = scaling_of(a / out, a / out * post.activation.slope, what);
        break;
      case Post::Kind::lut:
        bound.table = quantize_table(table_values(post.function, a), out);
        bound.scaling = {0, 0, 0};
        break;
      case Post::Kind::add:
        bound.scaling = scaling_of(post.first_sign * a / out, post.sign * b / out, what);
        break;
      case Post::Kind::max:
        bound.scaling = scaling_of(a / out, b / out, what);
        break;
      case Post::Kind::mul:
        bound.scaling = scaling_of(a * b / out, 0, what);
        break;
    }
    return bound;
  }

  const ConstantSource& constants_;
  const BindOptions& options_;
  BoundGraph bound_;
  bool shared_step_raised_ = false;
};

}  // namespace

BoundGraph bind_graph(const Graph& graph, const ConstantSource& constants,
                      const BindOptions& options) {
  return Binder(graph, constants, options).bind();
}

}  // namespace tenon::npu
