// A program that has names of ours for its own things: it says `using tenon::Tensor;` for what it needs, and calls ops
// without any, since a call looks for them where its arguments' types are from.
#include <tenon/tenon.hpp>

#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace cpu {
inline int cores = 2;
}
namespace detail {}
struct Step {
  int count = 0;
};
struct Softmax {};
inline int view(int x) { return x; }
inline int relu(int x) { return x < 0 ? 0 : x; }
enum class Device { left, right };

namespace nn = tenon::nn;
using tenon::Shape;
using tenon::Tensor;

template <class T = Tensor>
struct Linear {
  nn::Linear<T> layer;
  T scale;
  TENON_FIELDS(layer, scale)

  Tensor forward(const Tensor& x) const { return softmax(relu(layer.forward(x)) * scale + 1, -1); }
};

TEST_CASE("names: a program with a Linear, Step, cpu and relu of its own") {
  const std::vector<std::pair<std::string, Shape>> names = {
      {"layer.weight", Shape({3, 2}, tenon::f32)}, {"scale", Shape({3}, tenon::f32)}};
  const tenon::WeightsView file("model", names);
  const Linear<> model{nn::Linear<>::init(file["layer"]), file.tensor("scale")};
  const tenon::DevicePtr device = tenon::cpu_device();
  const auto on_device = [&](const Shape& shape, std::initializer_list<float> values) {
    return tenon::HostBuffer::of<float>(shape, values).to_device(device);
  };
  auto run = tenon::compile<&Linear<>::forward>(model, {Shape({1, 2}, tenon::f32)}, device)
                 .bind({.layer = {on_device(Shape({3, 2}, tenon::f32), {1, 0, 0, 1, -1, 0}), {}},
                        .scale = on_device(Shape({3}, tenon::f32), {1, 2, 3})});
  const tenon::HostBuffer y = run(on_device(Shape({1, 2}, tenon::f32), {0.5f, 0.25f})).to_host();
  const double sum = 2 * std::exp(1.5) + std::exp(1.0);
  CHECK(y.at({0, 0}) == Approx(std::exp(1.5) / sum));
  CHECK(y.at({0, 2}) == Approx(std::exp(1.0) / sum));
  CHECK(view(static_cast<int>(Device::right)) + relu(Step{}.count) + cpu::cores == 3);
}
