// One model struct and one binary on every kind of device: from a file to a freed result, in the
// nine steps of examples/lifecycle.cpp.
#include "npu/socket_folder.hpp"
#include "support/remote_device.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_remote.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/tenon.hpp>

#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

template <class T = Tensor>
struct Mlp {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)

  static Mlp init(const WeightsView& weights) {
    return {nn::Linear<>::init(weights["up"]), nn::Linear<>::init(weights["down"])};
  }
  Tensor forward(const Tensor& x) const { return down.forward(silu(up.forward(x))); }
};

constexpr std::int64_t count = 60;
const Shape images_shape({count, 64}, f32);

std::string data_path(const std::string& name) { return TENON_EXAMPLES_DATA "/" + name; }
HostBuffer images() {
  return io::open(data_path("digits_test.safetensors"))
      .at("images")
      .data()
      .reshape({360, 64})
      .slice(0, 0, count)
      .contiguous();
}

/// The model's results for the images.
HostBuffer nine_steps(const DevicePtr& device, CompileOptions options = {}) {
  // 1  Open the file.
  const io::File file = io::open(data_path("digits_mlp.safetensors"));
  // 2  Make the model struct.
  const Mlp<Tensor> model = Mlp<>::init(file.view());
  // 4  Load the weights, while ...
  std::future<Bufferized<Mlp<>>> loading = io::load_async(model, file, device);
  // 3  ... the model compiles.
  const auto exe = compile<&Mlp<>::forward>(model, {images_shape}, device, std::move(options));
  // 5  Bind.
  auto run = exe.bind(loading.get());
  // 6  The input, on the device.
  const Buffer x = images().to_device(device);
  CHECK(x.is_on(device->default_mem_region()));
  // 7  Call it, and submit it.
  const Buffer y = run(x);
  CHECK(y.is_on(device->default_mem_region()));
  const Buffer later = run.submit(x);
  CHECK(later.is_on(device->default_mem_region()));
  // 8  Back to CPU memory.
  const HostBuffer logits = y.to_host(), again = later.to_host();
  CHECK(std::equal(logits.bytes(), logits.bytes() + logits.shape().bytes(), again.bytes()));
  return logits;
  // 9  Destructors give everything back.
}

float largest(const HostBuffer& a) {
  float most = 0;
  for (const float value : a.values<float>()) most = std::max(most, std::abs(value));
  return most;
}
float largest_difference(const HostBuffer& a, const HostBuffer& b) {
  float most = 0;
  const auto left = a.values<float>(), right = b.values<float>();
  for (std::size_t i = 0; i < left.size(); ++i) most = std::max(most, std::abs(left[i] - right[i]));
  return most;
}

CompileOptions npu_options() {
  const io::File file = io::open(data_path("digits_mlp.safetensors"));
  const Mlp<Tensor> model = Mlp<>::init(file.view());
  const Program program = compile<&Mlp<>::forward>(model, {images_shape}).program();
  std::map<std::string, Buffer> weights;
  for (const io::TensorEntry& entry : file.tensors()) {
    weights[entry.name] = entry.data().to_device(cpu_device());
  }
  const std::vector<std::vector<HostBuffer>> samples{{images()}};
  npu::Options options;
  options.calibration = std::make_shared<const npu::CalibrationTable>(
      npu::calibrate(program, WeightSet(std::move(weights)), samples));
  return {.backend = {.device = options}};
}

}  // namespace

TEST_CASE("nine steps: the same on the CPU and where the CPU cannot address the memory") {
  testing::register_opaque_devices();
  const HostBuffer wanted = nine_steps(Device::open("cpu:"));
  const DevicePtr opaque = Device::open("opaque://test");
  CHECK_FALSE(Buffer::allocate(images_shape, opaque->default_mem_region()).data().has_cptr());
  CHECK(largest_difference(nine_steps(opaque), wanted) <= 1e-4F * largest(wanted));
  CHECK(opaque->default_mem_region().all_chunks().empty());
}

TEST_CASE("nine steps: the same on an NPU of this process and of another") {
  register_npu_backend();
  register_npu_sim();
  register_npu_remote();
  const HostBuffer wanted = nine_steps(Device::open("cpu:"));
  const DevicePtr here = Device::open("npu://sim");
  const HostBuffer on_npu = nine_steps(here, npu_options());
  CHECK(largest_difference(on_npu, wanted) <= 0.05F * largest(wanted));

  const npu::testing::SocketFolder folder;
  const NpuServer server(Device::open("npu://sim"), folder.socket());
  const HostBuffer remote =
      nine_steps(Device::open("npu://unix:" + folder.socket()), npu_options());
  CHECK(largest_difference(remote, on_npu) == 0);
}

}  // namespace tenon
