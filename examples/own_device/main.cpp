// A device of one's own, outside Tenon: tried by the kit for devices, then digits recognised in int8 on it.
#include "own_device.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/npu/testkit.hpp>
#include <tenon/tenon.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

using namespace tenon;

template <class T = Tensor>
struct Mlp {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)

  static Mlp init(const WeightsView& weights) {
    return {nn::Linear<T>::init(weights["up"]), nn::Linear<T>::init(weights["down"])};
  }
  Tensor forward(Tensor x) const { return down.forward(silu(up.forward(x))); }
};

int main(int argc, char** argv) try {
  own::register_own_device();
  register_npu_backend();
  const DevicePtr device = Device::open("npu://own");
  const std::vector<std::string> findings = testkit::check_npu(device);
  for (const std::string& finding : findings) std::printf("%s\n", finding.c_str());

  if (argc > 2) throw Error(Errc::bad_argument, argv[2], "is one argument too many");
  const std::string data = argc > 1 ? argv[1] : "examples/data";
  const auto file = io::open(data + "/digits_mlp.safetensors");
  const auto model = Mlp<>::init(file.view());
  const auto weights = io::load_async(model, file, cpu_device()).get();
  const auto test = io::open(data + "/digits_test.safetensors");
  const HostBuffer images = test.at("images").data().reshape({360, 64});
  const HostBuffer labels = test.at("labels").data();

  const std::vector<Shape> shapes{images.shape()};
  const auto on_cpu = compile<&Mlp<>::forward>(model, {shapes[0]});
  npu::Options options;
  options.calibration = std::make_shared<const npu::CalibrationTable>(
      npu::calibrate(on_cpu.program(), on_cpu.bind(weights).weights(),
                     std::vector<std::vector<HostBuffer>>{{images}}));
  auto run = compile<&Mlp<>::forward>(model, {shapes[0]}, device, {.backend = {.device = options}})
                 .bind(weights);
  const HostBuffer scores = run(images.to_device(cpu_device())).to_host();
  int right = 0;
  for (std::int64_t i = 0; i < 360; ++i) {
    std::int64_t best = 0;
    for (std::int64_t digit = 1; digit < 10; ++digit) {
      if (scores.at({i, digit}) > scores.at({i, best})) best = digit;
    }
    right += static_cast<double>(best) == labels.at({i}) ? 1 : 0;
  }
  std::printf("%d of 360 handwritten digits recognised on %s, %zu findings\n", right,
              run.report().parts.at(0).backend.c_str(), findings.size());
  return findings.empty() ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
