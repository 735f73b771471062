// The two networks of vision.py in Tenon, as a process whose runs vision.py interleaves with
// others.
//
//   bench_vision resnet|mobilenet WEIGHTS.safetensors INPUT.safetensors [--threads N]
//                [--int8 SAMPLES.safetensors]
//
// With --int8 the network is calibrated on the images of SAMPLES and runs in int8.
//
// Commands on standard input, one a line: `run N` prints the seconds of each of N runs, `output
// FILE` writes the result of one as raw f32, `limit` prints the f32 operations per second that this
// machine reaches, `level` the instruction set, `notes` what the backend says of its convolutions.
#include "backends/cpu/limits.hpp"

#include <tenon/tenon.hpp>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;

nn::Conv2d<> square_conv(const WeightsView& view, std::int64_t size, std::int64_t stride,
                         std::int64_t groups = 1) {
  return nn::Conv2d<>::init(
      view, {.stride = {stride, stride}, .padding = {size / 2, size / 2}, .groups = groups});
}

/// 1x1, 3x3, 1x1 around a shortcut; the batch norms are folded into the convolutions.
template <class T = Tensor>
struct Bottleneck {
  nn::Conv2d<T> reduce, conv, expand;
  std::optional<nn::Conv2d<T>> shortcut;
  TENON_FIELDS(reduce, conv, expand, shortcut)

  static Bottleneck init(const WeightsView& view, std::int64_t stride) {
    Bottleneck block{square_conv(view["reduce"], 1, 1), square_conv(view["conv"], 3, stride),
                     square_conv(view["expand"], 1, 1), std::nullopt};
    if (view.contains("shortcut.weight")) {
      block.shortcut = square_conv(view["shortcut"], 1, stride);
    }
    return block;
  }
  Tensor forward(const Tensor& x) const {
    const Tensor h = expand.forward(relu(conv.forward(relu(reduce.forward(x)))));
    return relu(h + (shortcut ? shortcut->forward(x) : x));
  }
};

/// ResNet-50 (He et al., arXiv:1512.03385).
template <class T = Tensor>
struct ResNet {
  nn::Conv2d<T> stem;
  std::vector<Bottleneck<T>> blocks;
  nn::Linear<T> head;
  TENON_FIELDS(stem, blocks, head)

  static ResNet init(const WeightsView& view) {
    ResNet net{square_conv(view["stem"], 7, 2), {}, nn::Linear<>::init(view["head"])};
    constexpr int counts[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage) {
      for (int i = 0; i < counts[stage]; ++i) {
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        net.blocks.push_back(
            Bottleneck<>::init(view["blocks"][std::to_string(net.blocks.size())], stride));
      }
    }
    return net;
  }
  Tensor forward(const Tensor& images) const {
    Tensor x = max_pool2d(relu(stem.forward(images)),
                          {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    for (const Bottleneck<T>& block : blocks) x = block.forward(x);
    return head.forward(mean(x, {2, 3}));
  }
};

/// Expansion, depthwise 3x3, projection; a shortcut where the shapes agree.
template <class T = Tensor>
struct InvertedResidual {
  std::optional<nn::Conv2d<T>> expand;
  nn::Conv2d<T> depthwise, project;
  TENON_FIELDS(expand, depthwise, project)
  bool has_shortcut = false;

  Tensor forward(const Tensor& x) const {
    const Tensor wide = expand ? relu6(expand->forward(x)) : x;
    const Tensor y = project.forward(relu6(depthwise.forward(wide)));
    return has_shortcut ? x + y : y;
  }
};

/// MobileNetV2 (Sandler et al., arXiv:1801.04381).
template <class T = Tensor>
struct MobileNet {
  nn::Conv2d<T> stem;
  std::vector<InvertedResidual<T>> blocks;
  nn::Conv2d<T> last;
  nn::Linear<T> head;
  TENON_FIELDS(stem, blocks, last, head)

  static MobileNet init(const WeightsView& view) {
    MobileNet net{square_conv(view["stem"], 3, 2),
                  {},
                  square_conv(view["last"], 1, 1),
                  nn::Linear<>::init(view["head"])};
    struct Stage {
      std::int64_t factor, channels, count, stride;
    };
    constexpr Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    std::int64_t channels = 32;
    for (const Stage& stage : stages) {
      for (std::int64_t i = 0; i < stage.count; ++i) {
        const WeightsView part = view["blocks"][std::to_string(net.blocks.size())];
        const std::int64_t stride = i == 0 ? stage.stride : 1;
        InvertedResidual<> block;
        if (stage.factor != 1) block.expand = square_conv(part["expand"], 1, 1);
        block.depthwise = square_conv(part["depthwise"], 3, stride, channels * stage.factor);
        block.project = square_conv(part["project"], 1, 1);
        block.has_shortcut = stride == 1 && channels == stage.channels;
        net.blocks.push_back(std::move(block));
        channels = stage.channels;
      }
    }
    return net;
  }
  Tensor forward(const Tensor& images) const {
    Tensor x = relu6(stem.forward(images));
    for (const InvertedResidual<T>& block : blocks) x = block.forward(x);
    return head.forward(mean(relu6(last.forward(x)), {2, 3}));
  }
};

struct Arguments {
  std::string weights, input, samples;
  int threads = 0;
};

/// Ranges of the values, from images one by one.
template <class Model>
quant::CalibrationTable calibrated(const Model& model, const io::File& file,
                                   const std::string& samples) {
  const HostBuffer images = io::open(samples).at("images").data();
  std::vector<std::vector<HostBuffer>> inputs;
  for (std::int64_t i = 0; i < images.shape()[0]; ++i) {
    inputs.push_back({images.slice(0, i, i + 1).contiguous()});
  }
  const DevicePtr device = Device::open("cpu:");
  auto exe = compile<&Model::forward>(model, {inputs[0][0].shape()}, device);
  const auto bound = exe.bind(io::load(model, file, device));
  Session session(exe.program());
  session.bind(std::make_shared<const WeightSet>(bound.weights().all()));
  return quant::calibrate(std::move(session), inputs);
}

template <class Model>
void serve(const Arguments& arguments) {
  register_cpu_backend();
  const io::File file = io::open(arguments.weights);
  const auto model = Model::init(file.view());
  const DevicePtr device = Device::open("cpu:");
  const HostBuffer images = io::open(arguments.input).at("images").data();
  CompileOptions options;
  BackendOptions backend{.threads = arguments.threads};
  if (!arguments.samples.empty()) {
    backend.device = cpu::Options{std::make_shared<const quant::CalibrationTable>(
        calibrated(model, file, arguments.samples))};
  }
  options.backends = {make_backend("cpu", backend)};
  auto exe = compile<&Model::forward>(model, {images.shape()}, device, options);
  auto run = exe.bind(io::load(model, file, device));
  const Buffer input = images.to_device(device);
  for (std::string line; std::getline(std::cin, line);) {
    if (line.starts_with("run ")) {
      std::string times;
      for (int i = std::stoi(line.substr(4)); i > 0; --i) {
        const auto begin = std::chrono::steady_clock::now();
        static_cast<void>(run(input));
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        times += fmt::format("{:.9f} ", time.count());
      }
      fmt::print("{}\n", times);
    } else if (line.starts_with("output ")) {
      const HostBuffer result = run(input).to_host();
      const auto values = result.values<float>();
      std::ofstream(line.substr(7), std::ios::binary)
          .write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(values.size_bytes()));
      fmt::print("done\n");
    } else if (line == "notes") {
      std::string notes;
      for (const PlanReport::Part& part : exe.report().parts) {
        for (const std::string& note : part.notes) notes += note + "; ";
      }
      fmt::print("{}\n", notes);
    } else if (line == "limit") {
      cpu::ThreadPool pool(arguments.threads);
      fmt::print("{}\n", cpu::measure_limits(pool, 0.2).f32_ops);
    } else {
      fmt::print("{}\n", cpu::name(cpu::active_isa()));
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) {
    fmt::print(stderr,
               "usage: bench_vision resnet|mobilenet WEIGHTS INPUT [--threads N] "
               "[--int8 SAMPLES]\n");
    return 2;
  }
  Arguments arguments{argv[2], argv[3], {}};
  for (int i = 4; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--threads") arguments.threads = std::stoi(argv[i + 1]);
    if (std::string_view(argv[i]) == "--int8") arguments.samples = argv[i + 1];
  }
  std::string_view(argv[1]) == "resnet" ? serve<ResNet<>>(arguments)
                                        : serve<MobileNet<>>(arguments);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
