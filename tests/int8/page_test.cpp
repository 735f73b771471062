// The example of docs/int8.md, run.
#include "io/temp_folder.hpp"
#include "support/op_testing.hpp"
#include "support/shown_code.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/calibration.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/save.hpp>
#include <tenon/ops.hpp>

#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

template <class T = Tensor>
struct Net {
  T filters;
  TENON_FIELDS(filters)

  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    return mean(relu(conv2d(x, filters)), {2, 3});
  }
};

TEST_CASE("docs/int8.md: its example runs") {
  register_cpu_backend();
  register_reference_backend();
  Random random(1);
  const HostBuffer images = random.uniform(Shape({2, 8, 9, 9}, f32));
  const std::vector<std::vector<HostBuffer>> samples{{images}};
  const TempFolder folder;
  const std::vector<io::NamedTensor> tensors{
      {"filters", random.uniform(Shape({16, 8, 3, 3}, f32))}};
  io::save_safetensors(folder / "net.safetensors", tensors);
  const io::File file = io::open(folder / "net.safetensors");
  const Net<> model{file.view().tensor("filters")};
  const DevicePtr device = cpu_device();

  auto exe = compile<&Net<>::forward>(model, {images.shape()}, device);
  auto bound = exe.bind(io::load(model, file, device));

  // 1. Ranges, from samples (std::vector<std::vector<HostBuffer>>) run in f32.
  Session session(exe.program());
  session.bind(std::make_shared<const WeightSet>(bound.weights().all()));
  const auto table = std::make_shared<const quant::CalibrationTable>(
      quant::calibrate(std::move(session), samples));

  // 2. The same network with them.
  CompileOptions options;
  options.backends = {make_backend("cpu", {.device = cpu::Options{.int8 = table}})};
  auto fast = compile<&Net<>::forward>(model, {images.shape()}, device, options);

  auto run = fast.bind(io::load(model, file, device));
  const HostBuffer y = run(images.to_device(device)).to_host();
  const HostBuffer real = bound(images.to_device(device)).to_host();
  std::string notes;
  for (const PlanReport::Part& part : run.report().parts) {
    for (const std::string& note : part.notes) notes += note + "\n";
  }
  CHECK(notes.find(": int8") != std::string::npos);
  for (std::size_t i = 0; i < real.values<float>().size(); ++i) {
    CHECK(y.values<float>()[i] == Approx(real.values<float>()[i]).margin(0.05));
  }
}

TEST_CASE("docs/int8.md: its example stands here") {
  check_shown_code("docs/int8.md", "tests/int8/page_test.cpp", 1);
}

}  // namespace
}  // namespace tenon::testing
