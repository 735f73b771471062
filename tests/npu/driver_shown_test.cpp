// The examples of docs/npu.md, run.
#include "support/op_testing.hpp"
#include "support/shown_code.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/exe.hpp>
#include <tenon/ops.hpp>
#include <tenon/weights_view.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

// The examples name what they do not use.
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-variable"

namespace tenon {
namespace {

using testing::Random;

template <class T = Tensor>
struct Net {
  T filters;
  TENON_FIELDS(filters)

  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    return softmax(mean(relu(conv2d(x, filters)), {2, 3}), 1);
  }
};

const Shape image({1, 3, 8, 8}, f32);
const Shape filter_shape({20, 3, 3, 3}, f32);

Net<> declared(const WeightsView& view) { return {view.tensor("filters")}; }
WeightsView weights_view() {
  return {"net", std::vector<std::pair<std::string, Shape>>{{"filters", filter_shape}}};
}

std::vector<std::vector<HostBuffer>> some_samples() {
  Random random(1);
  return {{random.uniform(image)}, {random.uniform(image)}};
}

void register_all() {
  register_npu_backend();
  register_npu_sim();
  register_cpu_backend();
  register_reference_backend();
}

TEST_CASE("docs/npu.md: a session") {
  register_all();
  const WeightsView view = weights_view();
  const Program program = compile<&Net<>::forward>(declared(view), {image}).program();
  const auto weights = std::make_shared<const WeightSet>(std::map<std::string, Buffer>{
      {"filters", Random(2).uniform(filter_shape).to_device(cpu_device())}});
  const auto samples = some_samples();
  const Buffer x = samples[0][0].to_device(cpu_device());
  const std::vector<Shape> shapes{image};

  register_npu_sim();
  const DevicePtr device = Device::open("npu://sim?mac=32x32&ocm=2MiB");

  npu::Options options;
  options.calibration = std::make_shared<const npu::CalibrationTable>(
      npu::calibrate(program, *weights, samples, {.observer = {}, .per_channel = true}));
  const auto npu = npu::backend(device, options);

  Session session(program, {.backends = {npu, make_backend("cpu"), make_backend("reference")}});
  session.bind(weights);
  auto y = session.forward({x});
  npu->last_run().cycles;            // what the device counted
  npu->networks()[0].text;           // what the compiler made of it
  session.report(shapes).transfers;  // every copy between the NPU and the CPU

  CHECK(npu->last_run().cycles > 0);
  CHECK_FALSE(npu->networks()[0].text.empty());
  CHECK_FALSE(session.report(shapes).transfers.empty());  // to the softmax
  CHECK(y.at(0).shape() == Shape({1, 20}, f32));
}

TEST_CASE("docs/npu.md: a model") {
  register_all();
  const WeightsView view = weights_view();
  const Net<> model = declared(view);
  const Bufferized<Net<>> weights{Random(2).uniform(filter_shape).to_device(cpu_device())};
  const auto samples = some_samples();
  const Exe<&Net<>::forward>::Shapes shapes{image};

  const auto on_cpu = compile<&Net<>::forward>(model, shapes);
  npu::Options options;
  options.calibration = std::make_shared<const npu::CalibrationTable>(
      npu::calibrate(on_cpu.program(), on_cpu.bind(weights).weights(), samples));
  auto run = compile<&Net<>::forward>(model, shapes, Device::open("npu://sim"),
                                      {.backend = {.device = options}, .cpu_fallback = true})
                 .bind(weights);

  const Buffer y = run(samples[0][0].to_device(cpu_device()));
  CHECK(y.shape() == Shape({1, 20}, f32));
  CHECK(run.report().parts.at(0).backend == "npu");
}

TEST_CASE("docs/npu.md: its examples stand here") {
  testing::check_shown_code("docs/npu.md", "tests/npu/driver_shown_test.cpp", 2);
}

}  // namespace
}  // namespace tenon
