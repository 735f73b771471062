#include "host_run.hpp"

#include "table.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace tenon::npu {
namespace {

std::int64_t rounding_shift(std::int64_t value, std::uint32_t s) noexcept {
  return s == 0 ? value : (value + (std::int64_t{1} << (s - 1))) >> s;
}

std::int8_t limited(std::int64_t value, const Limits& limits) noexcept {
  return static_cast<std::int8_t>(std::clamp<std::int64_t>(value, limits.lo, limits.hi));
}

/// Values of a map: pixel by pixel, channels innermost.
template <class T>
using Values = std::vector<T>;

std::size_t elements_of(const FeatureMap& map) noexcept {
  return static_cast<std::size_t>(map.dims.pixels() * map.dims.c);
}

/// Whether it has bytes of its own that a layer writes.
bool is_kept(const FeatureMap& map) noexcept { return !map.is_constant() && map.whole == no_map; }

/// The layers in int8 (T = std::int8_t), or in f32 with weights as they are or rounded.
template <class T>
class HostRun {
 public:
  static constexpr bool exact = std::is_same_v<T, std::int8_t>;
  using Sum = std::conditional_t<exact, std::int32_t, double>;

  HostRun(const BoundGraph& bound, const EdgeView& edges, bool rounded_weights)
      : bound_(bound), edges_(edges), rounded_weights_(rounded_weights) {
    maps_.resize(bound.graph.maps.size());
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      if constexpr (exact) {
        maps_[i] = bound.constants[i];
      } else {
        maps_[i] = bound.real_constants[i];
      }
    }
    // A map that contains others is read and written a part at a time, in any order.
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      const MapId id = static_cast<MapId>(i), root = bound.graph.root(id).map;
      if (root != id) maps_[static_cast<std::size_t>(root)].resize(size_of(root));
    }
  }

  void run() {
    for (std::size_t i = 0; i < bound_.layers.size(); ++i) {
      run(bound_.graph.layers[i], bound_.layers[i]);
    }
  }

  void run_step(int step, std::byte* kept) {
    for_each_kept([&](Values<T>& values, std::size_t at) {
      std::memcpy(values.data(), kept + at, values.size() * sizeof(T));
    });
    for (std::size_t i = 0; i < bound_.layers.size(); ++i) {
      if (bound_.graph.layers[i].step == step) run(bound_.graph.layers[i], bound_.layers[i]);
    }
    for_each_kept([&](const Values<T>& values, std::size_t at) {
      std::memcpy(kept + at, values.data(), values.size() * sizeof(T));
    });
  }

 private:
  const FeatureMap& map(MapId id) const { return bound_.graph.map(id); }
  std::size_t size_of(MapId id) const { return elements_of(map(id)); }

  /// Calls `visit(values, offset)` for all maps with bytes of their own, which later steps may
  /// read.
  template <class Visit>
  void for_each_kept(const Visit& visit) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      if (!is_kept(bound_.graph.maps[i])) continue;
      maps_[i].resize(elements_of(bound_.graph.maps[i]));
      visit(maps_[i], at);
      at += maps_[i].size() * sizeof(T);
    }
  }

  /// The values of a map. A map that is part of another is copied from it.
  const Values<T>& values(MapId id) {
    const Graph::Root root = bound_.graph.root(id);
    Values<T>& own = maps_[static_cast<std::size_t>(id)];
    if (root.map != id) {
      own.resize(size_of(id));
      for_each_pixel(id, root, [](T* part, T* whole, std::int64_t channels) {
        std::copy_n(whole, channels, part);
      });
    }
    return own;
  }
  void set_values(MapId id, Values<T> made) {
    const Graph::Root root = bound_.graph.root(id);
    maps_[static_cast<std::size_t>(id)] = std::move(made);
    if (root.map == id) return;
    for_each_pixel(id, root, [](T* part, T* whole, std::int64_t channels) {
      std::copy_n(part, channels, whole);
    });
  }
  template <class Visit>
  void for_each_pixel(MapId id, const Graph::Root& root, const Visit& visit) {
    const Dims& part = map(id).dims;
    const Dims& whole = map(root.map).dims;
    for (std::int64_t p = 0; p < part.pixels(); ++p) {
      visit(maps_[static_cast<std::size_t>(id)].data() + p * part.c,
            maps_[static_cast<std::size_t>(root.map)].data() + p * whole.c +
                root.first_block * block_channels,
            part.c);
    }
  }

  void run(const Layer& layer, const BoundLayer& bound) {
    if (layer.kind == Layer::Kind::quantize) return read_edge(layer);
    if (layer.kind == Layer::Kind::dequantize) return write_edge(layer);
    Values<T> tile = main(layer, bound);
    const Dims& made = map(layer.made).dims;
    for (std::size_t i = 0; i < layer.posts.size(); ++i) {
      apply(layer.posts[i], bound.posts[i], made, tile);
    }
    store(layer, made, std::move(tile));
  }

  // A concat's layers each fill some blocks of the output.
  void store(const Layer& layer, const Dims& made, Values<T> tile) {
    const Dims& out = map(layer.output).dims;
    if (out.c == made.c) return set_values(layer.output, std::move(tile));
    Values<T> whole = values(layer.output);
    whole.resize(size_of(layer.output));
    const std::int64_t first = layer.first_block * block_channels;
    for (std::int64_t p = 0; p < out.pixels(); ++p) {
      std::copy_n(tile.data() + p * made.c, made.c, whole.data() + p * out.c + first);
    }
    set_values(layer.output, std::move(whole));
  }

  // ---- edges ------------------------------------------------------------------------------------

  template <class Visit>
  void for_each_edge(const Layer& layer, const Dims& dims, const Visit& visit) {
    const HostView view = edges_(layer.edge);
    const bool image = view.shape.rank() == 4 && dims_of(view.shape, Form::image) == dims;
    std::int64_t next = 0;
    for_each_index(view.shape, [&](std::span<const std::int64_t> i) {
      std::int64_t at = next++;
      if (image) at = ((i[0] * dims.h + i[2]) * dims.w + i[3]) * dims.c + i[1];
      visit(reinterpret_cast<float*>(view.at(i)), static_cast<std::size_t>(at), at % dims.c);
    });
  }

  void read_edge(const Layer& layer) {
    const FeatureMap& to = map(layer.output);
    Values<T> out(size_of(layer.output));
    for_each_edge(layer, to.dims,
                  [&](const float* real, std::size_t at, [[maybe_unused]] std::int64_t channel) {
                    if constexpr (exact) {
                      out[at] = quantize(*real, static_cast<float>(1 / to.step_of(channel)));
                    } else {
                      out[at] = *real;
                    }
                  });
    set_values(layer.output, std::move(out));
  }

  void write_edge(const Layer& layer) {
    const FeatureMap& from = map(layer.input);
    const Values<T>& in = values(layer.input);
    for_each_edge(
        layer, from.dims, [&](float* real, std::size_t at, [[maybe_unused]] std::int64_t channel) {
          if constexpr (exact) {
            *real = static_cast<float>(in[at]) * static_cast<float>(from.step_of(channel));
          } else {
            *real = in[at];
          }
        });
  }

  // ---- main operations --------------------------------------------------------------------------

  Values<T> main(const Layer& layer, const BoundLayer& bound) {
    switch (layer.kind) {
      case Layer::Kind::conv:
      case Layer::Kind::linear:
        return conv(layer, bound);
      case Layer::Kind::depthwise:
        return depthwise(layer, bound);
      case Layer::Kind::matmul:
        return matmul(layer, bound);
      case Layer::Kind::max_pool:
      case Layer::Kind::sum_pool:
        return pool(layer, bound);
      default:
        return values(layer.input);
    }
  }

  T requantized(Sum sum, const Layer& layer, const BoundLayer& bound, std::size_t channel) const {
    if constexpr (exact) {
      const isa::QuantRecord& record = bound.records[channel];
      std::int64_t t = scale_accumulator(sum, record.bias, {record.m, record.s});
      if (layer.activation.slope != 1 && t < 0) {
        t = rounding_shift(t * static_cast<std::int64_t>(bound.neg_m), 15);
      }
      return limited(t, bound.limits);
    } else {
      if (!bound.real_bias.empty()) sum += double{bound.real_bias[channel]};
      return activated(sum, layer.activation);
    }
  }

  static float activated(double real, const Activation& activation) noexcept {
    if (real < 0) real *= activation.slope;
    return static_cast<float>(std::clamp(real, activation.lo, activation.hi));
  }

  // Weights in the type of the sums; per output channel `row` of them.
  std::vector<Sum> weights_of(const BoundLayer& bound) const {
    if constexpr (exact) {
      return {bound.weights.begin(), bound.weights.end()};
    } else if (rounded_weights_) {
      const std::size_t row = bound.weights.size() / bound.weight_steps.size();
      std::vector<Sum> result;
      const std::size_t part =
          row / std::max<std::size_t>(bound.input_ratios.size(), 1);  // of an input channel
      for (std::size_t i = 0; i < bound.weights.size(); ++i) {
        const double ratio = bound.input_ratios.empty() ? 1 : bound.input_ratios[i % row / part];
        result.push_back(bound.weights[i] * bound.weight_steps[i / row] / ratio);
      }
      return result;
    } else {
      return {bound.real_weights.begin(), bound.real_weights.end()};
    }
  }

  Values<T> conv(const Layer& layer, const BoundLayer& bound) {
    const Dims& in = map(layer.input).dims;
    const Dims& out = map(layer.made).dims;
    Window window = layer.window;
    if (layer.kind == Layer::Kind::linear) {  // an image per row: its one window
      window = Window();
      window.kernel_h = in.h;
      window.kernel_w = in.w;
    }
    const Values<T>& x = values(layer.input);
    const std::vector<Sum> weights = weights_of(bound);
    const std::int64_t taps = window.kernel_h * window.kernel_w;
    // [O][tap][C], so that the innermost loop runs along channels of both.
    std::vector<Sum> by_tap(weights.size());
    for (std::int64_t o = 0; o < out.c; ++o) {
      for (std::int64_t c = 0; c < in.c; ++c) {
        for (std::int64_t t = 0; t < taps; ++t) {
          by_tap[static_cast<std::size_t>((o * taps + t) * in.c + c)] =
              weights[static_cast<std::size_t>((o * in.c + c) * taps + t)];
        }
      }
    }
    Values<T> result;
    result.reserve(static_cast<std::size_t>(out.pixels() * out.c));
    for_each_window(out, [&](std::int64_t n, std::int64_t y, std::int64_t x0) {
      for (std::int64_t o = 0; o < out.c; ++o) {
        Sum sum = 0;
        for_each_tap(window, in, y, x0, [&](std::int64_t tap, std::int64_t iy, std::int64_t ix) {
          const T* a = x.data() + ((n * in.h + iy) * in.w + ix) * in.c;
          const Sum* b = by_tap.data() + (o * taps + tap) * in.c;
          for (std::int64_t c = 0; c < in.c; ++c) sum += static_cast<Sum>(a[c]) * b[c];
        });
        result.push_back(requantized(sum, layer, bound, static_cast<std::size_t>(o)));
      }
    });
    return result;
  }

  Values<T> depthwise(const Layer& layer, const BoundLayer& bound) {
    const Dims& in = map(layer.input).dims;
    const Dims& out = map(layer.made).dims;
    const Values<T>& x = values(layer.input);
    const std::vector<Sum> weights = weights_of(bound);
    const std::int64_t taps = layer.window.kernel_h * layer.window.kernel_w;
    Values<T> result;
    result.reserve(static_cast<std::size_t>(out.pixels() * out.c));
    for_each_window(out, [&](std::int64_t n, std::int64_t y, std::int64_t x0) {
      for (std::int64_t c = 0; c < out.c; ++c) {
        Sum sum = 0;
        for_each_tap(
            layer.window, in, y, x0, [&](std::int64_t tap, std::int64_t iy, std::int64_t ix) {
              const T a = x[static_cast<std::size_t>(((n * in.h + iy) * in.w + ix) * in.c + c)];
              sum += static_cast<Sum>(a) * weights[static_cast<std::size_t>(c * taps + tap)];
            });
        result.push_back(requantized(sum, layer, bound, static_cast<std::size_t>(c)));
      }
    });
    return result;
  }

  Values<T> matmul(const Layer& layer, const BoundLayer& bound) {
    const Dims& a = map(layer.input).dims;
    const Dims& b = map(layer.second).dims;
    const Values<T>& left = values(layer.input);
    const Values<T>& right = values(layer.second);
    const std::int64_t rows = a.n / layer.batch;
    Values<T> result;
    result.reserve(static_cast<std::size_t>(a.n * b.c));
    for (std::int64_t i = 0; i < a.n; ++i) {
      for (std::int64_t j = 0; j < b.c; ++j) {
        Sum sum = 0;
        for (std::int64_t k = 0; k < a.c; ++k) {
          sum += static_cast<Sum>(left[static_cast<std::size_t>(i * a.c + k)]) *
                 static_cast<Sum>(right[static_cast<std::size_t>((i / rows * a.c + k) * b.c + j)]);
        }
        result.push_back(requantized(sum, layer, bound, static_cast<std::size_t>(j)));
      }
    }
    return result;
  }

  Values<T> pool(const Layer& layer, const BoundLayer& bound) {
    const Dims& in = map(layer.input).dims;
    const Dims& out = map(layer.made).dims;
    const bool max = layer.kind == Layer::Kind::max_pool;
    const Values<T>& x = values(layer.input);
    Values<T> result;
    result.reserve(static_cast<std::size_t>(out.pixels() * out.c));
    for_each_window(out, [&](std::int64_t n, std::int64_t y, std::int64_t x0) {
      for (std::int64_t c = 0; c < out.c; ++c) {
        using Wide = std::conditional_t<exact, std::int64_t, double>;
        constexpr Wide least = std::numeric_limits<Wide>::has_infinity
                                   ? -std::numeric_limits<Wide>::infinity()
                                   : Wide(-128);
        Wide found = max ? least : Wide(0);
        for_each_tap(layer.window, in, y, x0, [&](std::int64_t, std::int64_t iy, std::int64_t ix) {
          const auto e = static_cast<Wide>(
              x[static_cast<std::size_t>(((n * in.h + iy) * in.w + ix) * in.c + c)]);
          found = max ? std::max(found, e) : found + e;
        });
        if constexpr (exact) {
          result.push_back(
              limited(rounding_shift(found * bound.scaling.m1, bound.scaling.s), bound.limits));
        } else {
          result.push_back(activated(found * layer.factor, layer.activation));
        }
      }
    });
    return result;
  }

  template <class Visit>
  static void for_each_window(const Dims& out, const Visit& visit) {
    for (std::int64_t n = 0; n < out.n; ++n) {
      for (std::int64_t y = 0; y < out.h; ++y) {
        for (std::int64_t x = 0; x < out.w; ++x) visit(n, y, x);
      }
    }
  }

  template <class Visit>
  static void for_each_tap(const Window& window, const Dims& in, std::int64_t y, std::int64_t x,
                           const Visit& visit) {
    for (std::int64_t r = 0; r < window.kernel_h; ++r) {
      const std::int64_t iy = y * window.stride_h + r * window.dilation_h - window.top;
      if (iy < 0 || iy >= in.h) continue;
      for (std::int64_t q = 0; q < window.kernel_w; ++q) {
        const std::int64_t ix = x * window.stride_w + q * window.dilation_w - window.left;
        if (ix < 0 || ix >= in.w) continue;
        visit(r * window.kernel_w + q, iy, ix);
      }
    }
  }

  // ---- element by element -----------------------------------------------------------------------

  void apply(const Post& post, const BoundPost& bound, const Dims& dims, Values<T>& tile) {
    if (post.kind == Post::Kind::lut) return look_up(post, bound, tile);
    const Values<T>* other = post.other == no_map ? nullptr : &values(post.other);
    for (std::int64_t p = 0; p < dims.pixels(); ++p) {
      const std::int64_t pixel = post.spread == Post::Spread::same    ? p
                                 : post.spread == Post::Spread::image ? p / (dims.h * dims.w)
                                                                      : 0;
      for (std::int64_t c = 0; c < dims.c; ++c) {
        T& a = tile[static_cast<std::size_t>(p * dims.c + c)];
        const T b =
            other == nullptr ? T(0) : (*other)[static_cast<std::size_t>(pixel * dims.c + c)];
        a = combined(post, bound, a, b);
      }
    }
  }

  static T combined(const Post& post, const BoundPost& bound, T a, T b) {
    if constexpr (exact) {
      const std::int64_t x = a, y = b, m1 = bound.scaling.m1, m2 = bound.scaling.m2;
      std::int64_t f = 0;
      switch (post.kind) {
        case Post::Kind::rescale:
          f = x * (x < 0 ? m2 : m1);
          break;
        case Post::Kind::add:
          f = x * m1 + y * m2;
          break;
        case Post::Kind::mul:
          f = x * y * m1;
          break;
        case Post::Kind::max:
          f = std::max(x * m1, y * m2);
          break;
        case Post::Kind::lut:
          break;
      }
      return limited(rounding_shift(f, bound.scaling.s), bound.limits);
    } else {
      const double x = a, y = b;
      double f = x;
      switch (post.kind) {
        case Post::Kind::add:
          f = x * post.first_sign + y * post.sign;
          break;
        case Post::Kind::mul:
          f = x * y;
          break;
        case Post::Kind::max:
          f = std::max(x, y);
          break;
        case Post::Kind::rescale:
        case Post::Kind::lut:
          break;
      }
      return activated(f, post.activation);
    }
  }

  void look_up(const Post& post, const BoundPost& bound, Values<T>& tile) {
    if constexpr (exact) {
      for (T& a : tile) a = bound.table[static_cast<std::size_t>(a + 128)];
    } else {
      const Shape shape({static_cast<std::int64_t>(tile.size())}, f32);
      Values<T> result(tile.size());
      const HostView input(tile.data(), shape);
      post.function.def()->reference(post.function.attributes(), {&input, 1},
                                     HostView(result.data(), shape));
      tile = std::move(result);
    }
  }

  const BoundGraph& bound_;
  const EdgeView& edges_;
  bool rounded_weights_;
  std::vector<Values<T>> maps_;
};

}  // namespace

std::string_view to_string(Mode mode) noexcept {
  constexpr std::string_view names[] = {"device", "exact", "fake_quantized", "floating"};
  return names[static_cast<std::size_t>(mode)];
}

void run_on_host(const BoundGraph& bound, const EdgeView& edges, Mode mode) {
  if (mode == Mode::exact) {
    HostRun<std::int8_t>(bound, edges, true).run();
  } else {
    HostRun<float>(bound, edges, mode == Mode::fake_quantized).run();
  }
}

void run_step_on_host(const BoundGraph& bound, const EdgeView& edges, Mode mode, int step,
                      std::byte* kept) {
  if (mode == Mode::exact) {
    HostRun<std::int8_t>(bound, edges, true).run_step(step, kept);
  } else {
    HostRun<float>(bound, edges, mode == Mode::fake_quantized).run_step(step, kept);
  }
}

std::int64_t kept_bytes(const Graph& graph, Mode mode) {
  std::size_t elements = 0;
  for (const FeatureMap& map : graph.maps) elements += is_kept(map) ? elements_of(map) : 0;
  return static_cast<std::int64_t>(elements *
                                   (mode == Mode::exact ? sizeof(std::int8_t) : sizeof(float)));
}

}  // namespace tenon::npu
