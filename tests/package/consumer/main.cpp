// A user's program: a model struct of its own, compiled, given weights and run with an installed
// Tenon.
#include <tenon/backends/cpu.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/fields.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/weights_view.hpp>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using namespace tenon;

template <class T = Tensor>
struct Layer {
  T weight;
  TENON_FIELDS(weight)
  Tensor forward(Tensor x) const { return linear(x, weight); }
};

int main() {
  register_cpu_backend();
  const std::vector<std::pair<std::string, Shape>> declared = {{"weight", Shape({2, 3}, f32)}};
  const WeightsView view("consumer", declared);
  const Layer<> model{view.tensor("weight")};

  const DevicePtr device = Device::open("cpu:");
  const auto weight = HostBuffer::of<float>(Shape({2, 3}, f32), {1, 2, 3, 4, 5, 6});
  auto run = compile<&Layer<>::forward>(model, {Shape({1, 3}, f32)}, device)
                 .bind({weight.to_device(device)});
  const auto x = HostBuffer::of<float>(Shape({1, 3}, f32), {1, 0, -1});
  const HostBuffer y = run(x.to_device(device)).to_host();
  std::printf("%g %g\n", y.at({0, 0}), y.at({0, 1}));
  if (y.at({0, 0}) != -2 || y.at({0, 1}) != -2) return 1;

  try {
    Device::open("nowhere:");
  } catch (const Error& error) {  // the type is the same on both sides of the library's border
    std::puts(error.what());
    return 0;
  }
  return 1;
}
