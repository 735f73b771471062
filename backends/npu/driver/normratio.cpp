// Which feature maps are held relative to a range of each channel.
//
// A convolution or linear layer can scale each channel of its result by multiplying with other
// numbers, and each channel of its input by folding the factor into its weights. What lies between
// (sums, maxima, pools, rectifiers) works channel by channel as long as all its operands share
// their ratios. So maps fall into groups of equal ratios, and a group with a member that needs one
// step for all channels (tables, element-wise multiplications, dynamic matrices, bounds other than
// 0), or whose channels' ranges nobody knows (views of other values), has none. Those of constants
// are known when weights are bound.
#include "graph.hpp"

#include <tenon/npu/quantize.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::npu {
namespace {

/// Ratios below this do not make a channel finer any more.
constexpr double min_ratio = 1.0 / 256;
/// Channels whose ranges are within this factor share a step well enough.
constexpr double alike = 0.5;

class Groups {
 public:
  explicit Groups(const Graph& graph)
      : graph_(graph),
        parent_(graph.maps.size()),
        flat_(graph.maps.size(), false),
        weighted_(graph.maps.size(), false) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    for (const Layer& layer : graph.layers) visit(layer);
    for (std::size_t i = 0; i < graph.maps.size(); ++i) {
      if (graph.maps[i].whole == no_map) continue;
      set_flat(static_cast<MapId>(i));
      set_flat(graph.root(static_cast<MapId>(i)).map);
    }
    for (std::size_t i = 0; i < parent_.size(); ++i) {
      if (flat_[i]) flat_[root(i)] = true;
      if (weighted_[i]) weighted_[root(i)] = true;
    }
  }

  std::size_t root(std::size_t i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }
  bool is_flat(std::size_t i) const { return flat_[root(i)]; }
  bool is_weighted(std::size_t i) const { return weighted_[root(i)]; }

 private:
  static std::size_t index(MapId id) { return static_cast<std::size_t>(id); }
  void join(MapId a, MapId b) { parent_[root(index(a))] = root(index(b)); }
  void set_flat(MapId id) { flat_[index(id)] = true; }

  // Bounds are the same number for all channels: only 0 is so whatever the ratio.
  static bool has_bounds(const Activation& activation) {
    return std::isfinite(activation.hi) || (std::isfinite(activation.lo) && activation.lo != 0);
  }

  void visit(const Layer& layer) {
    switch (layer.kind) {
      case Layer::Kind::quantize:
      case Layer::Kind::dequantize:
        return;
      case Layer::Kind::conv:
      case Layer::Kind::linear:
        weighted_[index(layer.input)] = true;
        break;
      case Layer::Kind::matmul:
        set_flat(layer.input);  // the sum is along its channels, not along those of `second`
        break;
      case Layer::Kind::max_pool:
      case Layer::Kind::sum_pool:
        join(layer.input, layer.made);
        break;
      case Layer::Kind::depthwise:
      case Layer::Kind::move:
        break;
    }
    if (has_bounds(layer.activation)) set_flat(layer.made);
    if (graph_.map(layer.output).dims.c != graph_.map(layer.made).dims.c) {
      set_flat(layer.made);
      set_flat(layer.output);
    }
    MapId before = layer.made;
    for (const Post& post : layer.posts) {
      visit(post, before);
      before = post.result;
    }
  }

  void visit(const Post& post, MapId before) {
    if (has_bounds(post.activation)) set_flat(post.result);
    if (post.kind == Post::Kind::lut || post.kind == Post::Kind::mul) {
      set_flat(before);
      set_flat(post.result);
      if (post.other != no_map) set_flat(post.other);
      return;
    }
    if (graph_.map(before).dims.c != graph_.map(post.result).dims.c) return;
    join(before, post.result);
    if (post.other != no_map) join(post.other, post.result);
  }

  const Graph& graph_;
  std::vector<std::size_t> parent_;
  std::vector<bool> flat_;
  std::vector<bool> weighted_;
};

/// Ranges of a map's channels, or null.
const ValueRange* channels_of(const FeatureMap& map, const CalibrationTable& calibration) {
  const ValueRange* range = calibration.find(map.name);
  const bool whole = range != nullptr && map.has_channels_of_value &&
                     static_cast<std::int64_t>(range->channels.size()) == map.dims.c;
  return whole ? range : nullptr;
}

}  // namespace

void assign_normratios(Graph& graph, const CalibrationTable& calibration) {
  const Groups groups(graph);
  for (std::size_t leader = 0; leader < graph.maps.size(); ++leader) {
    if (groups.root(leader) != leader || groups.is_flat(leader)) continue;
    std::vector<double> ratios(static_cast<std::size_t>(graph.maps[leader].dims.c), min_ratio);
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < graph.maps.size(); ++i) {
      if (groups.root(i) == leader) members.push_back(i);
    }
    bool known = true, any = false;
    for (const std::size_t i : members) {
      const ValueRange* range = channels_of(graph.maps[i], calibration);
      if (graph.maps[i].is_constant()) continue;
      // The step of a sum that was not calibrated follows from others' below.
      if (range == nullptr && calibration.find(graph.maps[i].name) == nullptr) continue;
      known = known && range != nullptr;
      if (range == nullptr || range->tensor.threshold <= 0) continue;
      any = true;
      for (std::size_t c = 0; c < ratios.size(); ++c) {
        ratios[c] = std::max(ratios[c],
                             std::min(1.0, range->channels[c].threshold / range->tensor.threshold));
      }
    }
    // Where weights compensate the ratio, half of the difference (in the exponent) stays in the
    // activations, since weights have only eight bits too (Xiao et al., SmoothQuant, 2022).
    if (groups.is_weighted(leader)) {
      for (double& ratio : ratios) ratio = std::sqrt(ratio);
    }
    const auto least = std::ranges::min_element(ratios);
    if (!known || !any || *least > alike) continue;
    for (const std::size_t i : members) {
      FeatureMap& map = graph.maps[i];
      map.plain_step = map.step;
      map.ratio_group = static_cast<int>(leader);
      map.normratio = ratios;
      const ValueRange* range = channels_of(map, calibration);
      if (range == nullptr) continue;  // its step is a bound in the same units
      double largest = 0;
      for (std::size_t c = 0; c < ratios.size(); ++c) {
        const double threshold = std::min(range->channels[c].threshold, range->tensor.threshold);
        largest = std::max(largest, threshold / ratios[c]);
      }
      map.step = int8_step(largest);
    }
  }
  // The sum before a residual, where it was not calibrated, is at most the difference of two
  // values.
  for (const Layer& layer : graph.layers) {
    if (layer.posts.empty() || layer.posts[0].kind != Post::Kind::add) continue;
    FeatureMap& made = graph.maps[static_cast<std::size_t>(layer.made)];
    if (made.normratio.empty() || calibration.find(made.name) != nullptr) continue;
    const Post& sum = layer.posts[0];
    made.step = graph.map(sum.result).step + graph.map(sum.other).step;
  }
}

}  // namespace tenon::npu
