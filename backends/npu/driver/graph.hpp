// A run of steps as the NPU sees it: feature maps in int8, and layers that compute them. Each layer
// is one pass over its output: a main operation, then the fused element-wise ones, tile by tile.
#pragma once

#include <tenon/lowered.hpp>
#include <tenon/npu/calibration.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <npu/isa/integer_math.hpp>

namespace tenon::npu {

/// Channels of a line; feature maps are stored in blocks of so many.
inline constexpr std::int64_t block_channels = 32;

/// How a value's axes become pixels and channels.
enum class Form : std::uint8_t {
  image,  ///< [N, C, H, W]
  rows,   ///< [..., C]: every row is an image of one pixel
};

struct Dims {
  std::int64_t n = 1, h = 1, w = 1, c = 1;

  std::int64_t pixels() const noexcept { return n * h * w; }
  std::int64_t blocks() const noexcept { return ceil_div(c, block_channels); }
  friend bool operator==(const Dims& a, const Dims& b) noexcept = default;
};

/// The pixels and channels of an array; nothing when an image is not of rank 4.
std::optional<Dims> dims_of(const Shape& shape, Form form) noexcept;

using MapId = int;
inline constexpr MapId no_map = -1;

/// A value in int8: real = q * step * normratio of its channel. Constants get their step when
/// weights are bound.
struct FeatureMap {
  std::string name;
  Dims dims;
  double step = 0;
  std::optional<Operand> constant;
  bool reciprocal = false;          ///< the constant's elements are divided by
  std::vector<double> normratio{};  ///< per channel; empty: 1 for all
  int ratio_group = -1;             ///< maps of one have the same normratio
  double plain_step = 0;            ///< with a normratio: the step without it
  std::optional<float> fill{};      ///< a constant whose elements are all this
  /// Whether its channels are those of the value it is named after. A view of that has others, and
  /// so have rows of an image.
  bool has_channels_of_value = false;
  /// A map that is a run of another's blocks (a slice, a part of a concatenation): it has no bytes
  /// of its own, and the other's step.
  MapId whole = no_map;
  std::int64_t first_block = 0;  ///< where it begins in `whole`

  bool is_constant() const noexcept { return constant.has_value() || fill.has_value(); }
  double step_of(std::int64_t channel) const noexcept {
    return normratio.empty() ? step : step * normratio[static_cast<std::size_t>(channel)];
  }
};

/// A moving window; `top` and `left` are how far the first one begins outside.
struct Window {
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t top = 0, left = 0;
};

/// Bounds of a result, in real numbers, and its factor below zero.
struct Activation {
  double lo = -std::numeric_limits<double>::infinity();
  double hi = std::numeric_limits<double>::infinity();
  double slope = 1;

  bool is_none() const noexcept { return *this == Activation(); }
  friend bool operator==(const Activation& a, const Activation& b) noexcept = default;
};

/// Something done to a tile element by element after the main operation.
struct Post {
  enum class Kind : std::uint8_t {
    rescale,  ///< a, times `activation.slope` below zero
    lut,      ///< the op's own function of one operand, as a table of 256
    add,      ///< a + sign * b
    mul,      ///< a * b
    max,      ///< the greater of a and b
  };
  /// Which element of the second operand meets an element of the first.
  enum class Spread : std::uint8_t {
    same,     ///< that of the same pixel and channel
    image,    ///< that of its image and channel: b is [N, C, 1, 1]
    channel,  ///< that of its channel: b is one pixel
  };
  Kind kind = Kind::rescale;
  MapId other = no_map;
  Spread spread = Spread::same;
  double sign = 1;        ///< add: of b
  double first_sign = 1;  ///< add: of a
  OpInstance function;    ///< lut
  Activation activation;
  MapId result = no_map;
};

struct Layer {
  enum class Kind : std::uint8_t {
    quantize,    ///< plain f32 at `edge` -> output
    dequantize,  ///< input -> plain f32 at `edge`
    conv,
    depthwise,
    linear,  ///< rows times constant weights; an image flattened to a row is read tap by tap
    matmul,  ///< rows times the matrix `second`, per batch
    max_pool,
    sum_pool,  ///< the sum over the window times `factor`
    move,      ///< the input itself, for what is fused behind it
  };
  Kind kind = Kind::move;
  MapId input = no_map;
  MapId second = no_map;         ///< matmul
  std::int64_t batch = 1;        ///< matmul: matrices of n / batch rows each
  std::int64_t first_block = 0;  ///< where in the output's blocks the results go (concat)
  Window window;
  double factor = 1;
  std::optional<Operand> weights;
  std::optional<Operand> bias;
  Activation activation;  ///< of the main operation
  MapId made = no_map;    ///< the result of the main operation
  std::vector<Post> posts;
  MapId output = no_map;  ///< the result of the last post, or `made`
  Operand edge;
  std::string op;                   ///< name of the main op
  std::vector<std::string> values;  ///< the program's values that this layer computes, in order
  int step = -1;                    ///< the last of the steps that this layer computes
  SourceLine line;

  /// Whether the main operation only picks values of its input (the greatest of some, those inside
  /// a padding): its result then has its input's step, and no rounding.
  bool keeps_step() const noexcept {
    const bool one_tap = window.kernel_h == 1 && window.kernel_w == 1 && factor == 1;
    return kind == Kind::max_pool || kind == Kind::move || (kind == Kind::sum_pool && one_tap);
  }
};

std::string_view to_string(Layer::Kind kind) noexcept;
std::string_view to_string(Post::Kind kind) noexcept;

struct Graph {
  std::vector<FeatureMap> maps;
  std::vector<Layer> layers;  ///< by their steps
  std::vector<MapId> shown;   ///< with GraphOptions::show, per step: what was written, or none

  const FeatureMap& map(MapId id) const { return maps[static_cast<std::size_t>(id)]; }
  /// The map with bytes of its own that `id` lies in, and where: `id` itself, at 0, mostly.
  struct Root {
    MapId map = no_map;
    std::int64_t first_block = 0;
  };
  Root root(MapId id) const;
  /// Gives `id`, what it lies in, and all that lies in that, one step.
  void set_step(MapId id, double step);
};

/// What quantisation needs to know of a run of steps beyond the steps.
struct GraphOptions {
  const CalibrationTable& calibration;
  bool fuse = true;  ///< put element-wise ops behind the layer that makes their operand
  /// Write every value that is held when its step ends to its place in memory. The layers compute
  /// the same numbers.
  bool show = false;
  /// OCM of the device: what is put behind a layer leaves room for a row of it. The layers compute
  /// the same numbers. 0: there is no limit.
  std::int64_t ocm_bytes = 0;
};

/// Gives a normratio to maps whose channels differ in range, where weights and multipliers can
/// compensate it and the calibration has ranges of channels.
void assign_normratios(Graph& graph, const CalibrationTable& calibration);

/// Builds the layers. Errc::bad_input naming a value that is read and not calibrated.
Graph build_graph(const Lowered& program, std::span<const Step> steps, const GraphOptions& options);

}  // namespace tenon::npu
