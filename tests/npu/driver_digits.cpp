#include "npu/driver_digits.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/io/file.hpp>
#include <tenon/npu/calibration.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace tenon::npu::testing {
namespace {

/// Bilinear, centres of pixels at halves, edges repeated.
HostBuffer enlarged(const HostBuffer& images, std::int64_t side) {
  const std::int64_t small = images.shape()[2], count = images.shape()[0];
  struct Source {
    std::int64_t low;
    float high_share;
  };
  std::vector<Source> sources;
  for (std::int64_t i = 0; i < side; ++i) {
    const double centre =
        (static_cast<double>(i) + 0.5) * static_cast<double>(small) / static_cast<double>(side) -
        0.5;
    const double inside = std::clamp(centre, 0.0, static_cast<double>(small - 1));
    const std::int64_t low = std::min(static_cast<std::int64_t>(inside), small - 2);
    sources.push_back({low, static_cast<float>(inside - static_cast<double>(low))});
  }
  HostBuffer result = HostBuffer::zeros(Shape({count, 1, side, side}, f32));
  const auto from = images.values<float>();
  const auto to = result.mutable_values<float>();
  std::size_t next = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    for (const Source& y : sources) {
      for (const Source& x : sources) {
        const auto at = [&](std::int64_t row, std::int64_t column) {
          return from[static_cast<std::size_t>((n * small + row) * small + column)];
        };
        const auto row = [&](std::int64_t r) {
          return at(r, x.low) * (1 - x.high_share) + at(r, x.low + 1) * x.high_share;
        };
        to[next++] = row(y.low) * (1 - y.high_share) + row(y.low + 1) * y.high_share;
      }
    }
  }
  return result;
}

using Weight = std::function<Tensor(const std::string& name)>;
using Forward = std::function<Tensor(const Tensor& images, const Weight& weight)>;

/// A network whose constants are all tensors of a file, calibrated on its first samples.
Network from_file(const char* path, std::int64_t count, const HostBuffer& samples,
                  const CalibrationOptions& options, const Forward& forward) {
  register_reference_backend();
  const io::File file = io::open(path);
  std::map<std::string, Buffer> weights;
  const auto record = [&](std::int64_t images) {
    Graph graph;
    const Shape shape({images, 1, samples.shape()[2], samples.shape()[3]}, f32);
    const Weight weight = [&](const std::string& name) {
      weights.try_emplace(name, file.at(name).data().to_device(cpu_device()));
      return graph.constant(name, file.at(name).shape);
    };
    const Tensor scores = forward(graph.input("images", shape), weight);
    return std::pair(graph.program({&scores, 1}), shape);
  };
  const auto [calibrated, sample_shape] = record(samples.shape()[0]);
  const auto [program, shape] = record(count);
  Network network;
  network.program = program;
  network.inputs = {shape};
  network.weights = std::make_shared<const WeightSet>(std::move(weights));
  const std::vector<std::vector<HostBuffer>> inputs{{samples}};
  // Names do not depend on the number of images.
  network.calibration = std::make_shared<const CalibrationTable>(
      calibrate(calibrated, *network.weights, inputs, options));
  return network;
}

}  // namespace

Digits::Digits(std::int64_t side) {
  const io::File file = io::open("examples/data/digits_test.safetensors");
  count = file.at("images").shape.dim(0);
  images = file.at("images").data().reshape({count, 1, 8, 8});
  if (side != 8) images = enlarged(images, side);
  labels = file.at("labels").data();
}

HostBuffer Digits::part(std::int64_t begin, std::int64_t end) const {
  return images.slice(0, begin, end).contiguous();
}

std::int64_t Digits::right(const HostBuffer& scores, std::int64_t begin) const {
  const auto values = scores.values<float>();
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < scores.shape()[0]; ++i) {
    const auto row = values.subspan(static_cast<std::size_t>(i) * 10, 10);
    const auto best = std::ranges::max_element(row) - row.begin();
    found += best == labels.values<std::int32_t>()[static_cast<std::size_t>(begin + i)] ? 1 : 0;
  }
  return found;
}

Network digit_cnn(std::int64_t count, const HostBuffer& samples,
                  const CalibrationOptions& options) {
  return from_file("examples/data/digits_cnn.safetensors", count, samples, options,
                   [](const Tensor& images, const Weight& weight) {
                     const auto stage = [&](const Tensor& x, const std::string& name) {
                       const Tensor y = conv2d(x, weight(name + ".weight"), weight(name + ".bias"),
                                               {.padding = {1, 1, 1, 1}});
                       return max_pool2d(relu(y), {.kernel = {2, 2}, .stride = {2, 2}});
                     };
                     const Tensor features = stage(stage(images, "conv1"), "conv2");
                     return linear(flatten(features, 1, 3), weight("head.weight"),
                                   weight("head.bias"));
                   });
}

Network digit_mobilenet(std::int64_t count, const HostBuffer& samples,
                        const CalibrationOptions& options) {
  return from_file(
      "examples/data/digits_mobilenet.safetensors", count, samples, options,
      [](const Tensor& images, const Weight& weight) {
        const auto conv = [&](const Tensor& x, const std::string& name, std::int64_t stride) {
          const Tensor w = weight(name + ".weight");
          const std::int64_t pad = w.shape()[2] / 2;
          const std::int64_t groups = x.shape()[1] / w.shape()[1];
          return conv2d(x, w, weight(name + ".bias"),
                        {.stride = {stride, stride}, .padding = {pad, pad}, .groups = groups});
        };
        constexpr bool strided[] = {false, true, false, true, false, false, false};
        Tensor x = relu6(conv(images, "stem", 2));
        for (int i = 0; i < 7; ++i) {
          const std::string block = "block" + std::to_string(i);
          const Tensor wide = i == 0 ? x : relu6(conv(x, block + ".expand", 1));
          const Tensor deep = relu6(conv(wide, block + ".depthwise", strided[i] ? 2 : 1));
          const Tensor narrow = conv(deep, block + ".project", 1);
          x = narrow.shape() == x.shape() ? narrow + x : narrow;
        }
        x = relu6(conv(x, "last", 1));
        return linear(mean(x, {2, 3}), weight("head.weight"), weight("head.bias"));
      });
}

}  // namespace tenon::npu::testing
