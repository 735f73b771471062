// Two classifiers of handwritten digits: a small perceptron and a small convolutional network, on
// images that training never saw.
#include "digits_networks.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <cstdio>

using namespace tenon;

/// How many images get their highest score for their label.
template <class Model>
std::int64_t count_right(const char* weights_path, const HostBuffer& images,
                         std::span<const std::int32_t> labels) {
  const io::File file = io::open(weights_path);
  const auto model = Model::init(file.view());
  const DevicePtr device = Device::open("cpu:");
  auto run =
      compile<&Model::forward>(model, {images.shape()}, device).bind(io::load(model, file, device));
  const HostBuffer scores = run(images.to_device(device)).to_host();
  const auto values = scores.template values<float>();
  std::int64_t right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = values.subspan(i * 10, 10);
    right += std::ranges::max_element(row) - row.begin() == labels[i] ? 1 : 0;
  }
  return right;
}

int main() try {
  const io::File digits = io::open("examples/data/digits_test.safetensors");
  const std::int64_t count = digits.at("images").shape.dim(0);
  const HostBuffer images = digits.at("images").data().reshape({count, 1, 8, 8});
  const HostBuffer labels = digits.at("labels").data();
  const auto report = [&](const char* name, std::int64_t right) {
    std::printf("%s: %lld of %lld digits right, %.2f %%\n", name, static_cast<long long>(right),
                static_cast<long long>(count),
                100.0 * static_cast<double>(right) / static_cast<double>(count));
  };
  report("mlp", count_right<Mlp<>>("examples/data/digits_mlp.safetensors", images,
                                   labels.values<std::int32_t>()));
  report("cnn", count_right<Cnn<>>("examples/data/digits_cnn.safetensors", images,
                                   labels.values<std::int32_t>()));
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
