// Gradients of random convolutional networks whose batch, height and width are symbolic, first and
// second ones, beside those of the same networks recorded for known sizes.
#include "grad/run_session.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

constexpr std::int64_t channels = 4;

/// One layer, whose numbers were drawn before: recorded twice, it is the same.
struct ImageLayer {
  enum class Kind : std::uint8_t { conv, transposed, pool, norm, unfold, resize };
  Kind kind = Kind::conv;
  std::int64_t groups = 1;
  std::array<std::int64_t, 2> kernel{}, stride{}, dilation{}, padding{}, added{};

  Shape weights(DType dtype) const {
    return Shape({channels, channels / groups, kernel[0], kernel[1]}, dtype);
  }
};

IntList list(std::array<std::int64_t, 2> values) { return {values[0], values[1]}; }

struct Network {
  std::vector<ImageLayer> layers;
  bool is_second = false;  ///< the gradients of a gradient

  /// The least height and width that every network takes.
  static constexpr std::int64_t least_side = 11;

  static Network random(Random& random) {
    Network net;
    net.is_second = random.integer(0, 2) == 0;
    const std::int64_t count = random.integer(1, 3);
    for (std::int64_t i = 0; i < count; ++i) {
      ImageLayer layer;
      layer.kind = static_cast<ImageLayer::Kind>(random.integer(0, 5));
      // Sizes that resize makes are small, and so is what unfold2d leaves for others.
      if (layer.kind >= ImageLayer::Kind::unfold && i + 1 < count)
        layer.kind = ImageLayer::Kind::conv;
      if (net.is_second && layer.kind == ImageLayer::Kind::resize)
        layer.kind = ImageLayer::Kind::conv;
      layer.groups = std::array<std::int64_t, 4>{1, 2, 4, 4}[std::size_t(random.integer(0, 3))];
      for (std::size_t axis = 0; axis < 2; ++axis) {
        layer.stride[axis] = i == 0 ? random.integer(1, 3) : 1;
        layer.kernel[axis] = i == 0 ? random.integer(1, 3) : random.integer(1, 2);
        layer.dilation[axis] = i == 0 ? random.integer(1, 3) : 1;
        const std::int64_t extent = (layer.kernel[axis] - 1) * layer.dilation[axis] + 1;
        // The first layer leaves a side of 3 at least: two more take windows of 2.
        layer.stride[axis] = std::min(layer.stride[axis], (least_side - extent) / 2);
        layer.padding[axis] = random.integer(0, std::min<std::int64_t>(extent - 1, 2));
        layer.added[axis] =
            random.integer(0, std::max(layer.stride[axis], layer.dilation[axis]) - 1);
      }
      net.layers.push_back(layer);
    }
    return net;
  }

  Tensor apply(const ImageLayer& layer, const Tensor& x, const Tensor& w) const {
    const IntList padding{layer.padding[0], layer.padding[0], layer.padding[1], layer.padding[1]};
    const std::array<std::int64_t, 2> half{layer.kernel[0] / 2, layer.kernel[1] / 2};
    switch (layer.kind) {
      case ImageLayer::Kind::conv:
        return conv2d(x, w, {},
                      {.stride = list(layer.stride),
                       .padding = padding,
                       .dilation = list(layer.dilation),
                       .groups = layer.groups});
      case ImageLayer::Kind::transposed:
        return conv_transpose2d(x, w, {},
                                {.stride = list(layer.stride),
                                 .padding = {},
                                 .output_padding = list(layer.added),
                                 .dilation = list(layer.dilation),
                                 .groups = layer.groups});
      case ImageLayer::Kind::pool:
        return avg_pool2d(x, {.kernel = list(layer.kernel),
                              .stride = list(layer.stride),
                              .padding = {half[0], half[0], half[1], half[1]}}) *
               mean(w);
      case ImageLayer::Kind::norm:
        return batch_norm_training(x).y * mean(w);
      case ImageLayer::Kind::unfold:
        return unfold2d(x, {.kernel = list(layer.kernel),
                            .stride = list(layer.stride),
                            .padding = padding,
                            .dilation = list(layer.dilation)}) *
               mean(w);
      case ImageLayer::Kind::resize:
        return resize(x, {.sizes = {5, 7}}) * mean(w);
    }
    return x;
  }

  /// Loss and gradients of x and of the layers' weights.
  Program program(std::int64_t batch, std::int64_t height, std::int64_t width, DType dtype) const {
    Graph graph;
    const Graph::Recording recording(graph);
    std::vector<Tensor> parameters{
        graph.input("x", Shape({batch, channels, height, width}, dtype))};
    Tensor y = parameters[0];
    for (const ImageLayer& layer : layers) {
      parameters.push_back(
          graph.input("w" + std::to_string(parameters.size()), layer.weights(dtype)));
      y = tanh(apply(layer, y, parameters.back()));
    }
    Tensor loss = sum(square(y)) * 0.1;
    if (is_second) {
      const std::vector<Tensor> first = grad(loss, parameters);
      for (const Tensor& gradient : first) loss = loss + sum(square(gradient)) * 0.1;
    }
    std::vector<Tensor> results = grad(loss, parameters);
    results.push_back(loss);
    return graph.program(results);
  }
};

TEST_CASE("grad: random convolutional networks of symbolic batch, height and width") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const std::vector<BackendPtr> cpu{make_backend("cpu", {.threads = 2, .exact = true}),
                                    make_backend("reference")};
  const std::vector<BackendPtr> reference{cpu[1]};
  const Axis b = symbol("B"), h = symbol("H"), w = symbol("W");
  for (int round = 0; round < rounds(40); ++round) {
    const Network net = Network::random(random);
    const DType dtype = round % 2 == 0 ? f64 : f32;
    // Only the batch, a side, or all of them.
    const std::int64_t open = random.integer(0, 3);
    const std::int64_t known_height = random.integer(Network::least_side, 14),
                       known_width = random.integer(Network::least_side, 14);
    const std::int64_t height = open % 2 == 0 ? known_height : h.size;
    const std::int64_t width = open < 2 ? known_width : w.size;
    Session session(net.program(b.size, height, width, dtype),
                    {.backends = dtype == f64 ? reference : cpu});
    INFO(print(session.program()));
    for (int sizes = 0; sizes < 2; ++sizes) {
      const Shape x({random.integer(1, 3), channels,
                     is_static(height) ? height : random.integer(Network::least_side, 15),
                     is_static(width) ? width : random.integer(Network::least_side, 15)},
                    dtype);
      INFO(to_string(x));
      std::vector<HostBuffer> arrays{random.uniform(x, -1, 1)};
      for (const ImageLayer& layer : net.layers)
        arrays.push_back(random.uniform(layer.weights(dtype), -0.7, 0.7));
      Session closed(net.program(x[0], x[2], x[3], dtype), {.backends = reference});
      const std::vector<HostBuffer> want = run_session(closed, arrays),
                                    got = run_session(session, arrays);
      for (std::size_t i = 0; i < want.size(); ++i) {
        double largest = 1;
        for (const double value : elements(want[i])) largest = std::max(largest, std::fabs(value));
        expect_close(got[i], want[i], (dtype == f64 ? 1e-10 : 2e-4) * largest, 1e-6);
      }
    }
  }
}

TEST_CASE("grad: training steps of a convolutional network with a symbolic batch") {
  register_cpu_backend();
  register_reference_backend();
  const std::vector<BackendPtr> backends{make_backend("cpu", {.threads = 1}),
                                         make_backend("reference")};
  const auto step = [](std::int64_t batch) {
    Graph graph;
    const Graph::Recording recording(graph);
    const Tensor x = graph.input("x", Shape({batch, 1, 8, 8}, f32));
    const Tensor labels = graph.input("labels", Shape({batch}, i32));
    const std::vector<Tensor> net{graph.input("w1", Shape({6, 1, 3, 3}, f32)),
                                  graph.input("w2", Shape({8, 6, 3, 3}, f32)),
                                  graph.input("w3", Shape({10, 8}, f32))};
    Tensor y = relu(conv2d(x, net[0], {}, {.stride = {2, 2}, .padding = {1, 1}}));
    y = max_pool2d(relu(conv2d(y, net[1], {}, {.padding = {1, 1}})), {.kernel = {2, 2}});
    const Tensor loss = cross_entropy(linear(mean(y, {2, 3}), net[2]), labels);
    const std::vector<Tensor> gradients = grad(loss, net);
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < net.size(); ++i) results.push_back(net[i] - gradients[i] * 0.1);
    results.push_back(loss);
    return graph.program(results);
  };
  Random random;
  const Axis batch = symbol("B");
  Session open(step(batch.size), {.backends = backends});
  std::vector<HostBuffer> net{random.uniform(Shape({6, 1, 3, 3}, f32), -0.5, 0.5),
                              random.uniform(Shape({8, 6, 3, 3}, f32), -0.5, 0.5),
                              random.uniform(Shape({10, 8}, f32), -0.5, 0.5)};
  for (const std::int64_t rows : {5, 1, 32, 5}) {
    INFO("batch " << rows);
    std::vector<HostBuffer> arrays{random.uniform(Shape({rows, 1, 8, 8}, f32), 0, 1),
                                   random.uniform(Shape({rows}, i32), 0, 10)};
    arrays.insert(arrays.end(), net.begin(), net.end());
    Session closed(step(rows), {.backends = {backends[1]}});
    const std::vector<HostBuffer> want = run_session(closed, arrays),
                                  got = run_session(open, arrays);
    for (std::size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i], 1e-5, 1e-4);
    net.assign(got.begin(), got.begin() + 3);
  }
}

}  // namespace
}  // namespace tenon::testing
