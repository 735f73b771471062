// A model struct compiled for an NPU by the device alone.
#include "io/temp_folder.hpp"
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/exe.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/weights_view.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

/// x [N, 3, 8, 8] -> [N, 10], in ops that the NPU has; `classify` ends with one that it has not.
template <class T = Tensor>
struct Classifier {
  T kernel;
  nn::Linear<T> head;
  TENON_FIELDS(kernel, head)

  static Classifier<> init(const WeightsView& view) {
    return {view.tensor("kernel"), nn::Linear<>::init(view["head"])};
  }
  Tensor forward(const Tensor& x) const {
    const Tensor y = relu(conv2d(x, kernel, {}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}));
    return head.forward(mean(y, {2, 3}));
  }
  Tensor classify(const Tensor& x) const { return softmax(forward(x), -1); }
};

const Shape input_shape({2, 3, 8, 8}, f32);

const WeightsView& weights_view() {
  static const std::vector<std::pair<std::string, Shape>> types{
      {"kernel", Shape({32, 3, 3, 3}, f32)}, {"head.weight", Shape({10, 32}, f32)}};
  static const WeightsView view("classifier", types);
  return view;
}

Buffer random_buffer(const Shape& shape, std::uint64_t seed) {
  return Random(seed).uniform(shape).to_device(cpu_device());
}

Bufferized<Classifier<>> weights() {
  Bufferized<Classifier<>> result;
  result.kernel = random_buffer(Shape({32, 3, 3, 3}, f32), 1);
  result.head.weight = random_buffer(Shape({10, 32}, f32), 2);
  return result;
}

template <auto Forward>
Options calibrated() {
  const auto exe = compile<Forward>(Classifier<>::init(weights_view()), {input_shape});
  std::vector<std::vector<HostBuffer>> samples;
  for (std::uint64_t seed = 10; seed < 14; ++seed) {
    samples.push_back({Random(seed).uniform(input_shape)});
  }
  Options options;
  options.calibration = std::make_shared<const CalibrationTable>(
      calibrate(exe.program(), exe.bind(weights()).weights(), samples));
  return options;
}

DevicePtr open_device() {
  register_cpu_backend();
  register_reference_backend();
  register_npu_sim();
  register_npu_backend();
  return Device::open("npu://sim?mac=16x16&ocm=64KiB");
}

template <auto Forward>
HostBuffer run(const Exe<Forward>& exe, const HostBuffer& x) {
  auto bound = exe.bind(weights());
  return bound(x.to_device(cpu_device())).to_host();
}

}  // namespace

TEST_CASE("npu compile: a model on a device runs there, near to what the CPU computes") {
  const DevicePtr device = open_device();
  const auto model = Classifier<>::init(weights_view());
  CompileOptions options;
  options.backend.device = calibrated<&Classifier<>::forward>();
  const auto exe = compile<&Classifier<>::forward>(model, {input_shape}, device, options);
  REQUIRE(exe.report().parts.size() == 1);
  CHECK(exe.report().parts[0].backend == "npu");

  const HostBuffer x = Random(11).uniform(input_shape);
  const HostBuffer got = run(exe, x);
  const HostBuffer want = run(compile<&Classifier<>::forward>(model, {input_shape}), x);
  CHECK(cosine(got, want) > 0.99);
  CHECK_FALSE(same_bits({got}, {want}));  // int8 it is

  // The same, spelled out.
  auto spelled = std::any_cast<Options>(options.backend.device);
  Session session(exe.program(), {.backends = {backend(device, spelled)}});
  auto weight_set = exe.bind(weights());
  session.bind(std::make_shared<const WeightSet>(weight_set.weights().all()));
  CHECK(same_bits({session.forward({x.to_device(cpu_device())})[0].to_host()}, {got}));
}

TEST_CASE("npu compile: an op that the NPU refuses goes to the CPU only when that is asked for") {
  const DevicePtr device = open_device();
  const auto model = Classifier<>::init(weights_view());
  CompileOptions options;
  options.backend.device = calibrated<&Classifier<>::classify>();
  const auto compile_it = [&] {
    return compile<&Classifier<>::classify>(model, {input_shape}, device, options);
  };
  CHECK(expect_error(Errc::unsupported, compile_it).find("no backend runs softmax: npu: ") !=
        std::string::npos);
  options.cpu_fallback = true;
  const auto exe = compile_it();
  const PlanReport report = exe.report();
  REQUIRE(report.parts.size() == 2);
  CHECK(report.parts[0].backend == "npu");
  CHECK(report.parts[1].backend == "cpu");
  const HostBuffer y = run(exe, Random(12).uniform(input_shape));
  double sum = 0;
  for (const float p : y.values<float>()) sum += p;
  CHECK(sum == Approx(2));
}

TEST_CASE("npu compile: what a process compiled, the next one finds on disk") {
  const TempFolder folder;
  const DevicePtr device = open_device();
  const auto model = Classifier<>::init(weights_view());
  const HostBuffer x = Random(11).uniform(input_shape);
  const Options calibrated_options = calibrated<&Classifier<>::forward>();
  const auto session_text = [&](const Options& npu, HostBuffer& result) {
    CompileOptions options;
    options.backends = {backend(device, npu)};
    options.cache = folder.path();
    const auto exe = compile<&Classifier<>::forward>(model, {input_shape}, device, options);
    auto bound = exe.bind(weights());
    result = bound(x.to_device(cpu_device())).to_host();
    return dynamic_cast<const Npu&>(*options.backends[0]).networks().at(0).text;
  };
  HostBuffer want, got;
  const std::string text = session_text(calibrated_options, want);
  REQUIRE(folder.entries() == 1);
  const auto path = std::filesystem::directory_iterator(folder.path())->path();

  // A mark in the file shows whether it is what runs.
  std::map<std::string, std::string> sections;
  {
    const Snapshot snapshot = Snapshot::open(path);
    for (const Snapshot::Section& section : snapshot.sections()) {
      std::string bytes(snapshot.text(section.name));
      const std::size_t at = bytes.find("predicted");
      if (section.name.starts_with("of npu/") && at != std::string::npos) bytes[at] = 'P';
      sections.emplace(section.name, std::move(bytes));
    }
  }
  SnapshotWriter writer = SnapshotWriter::make_private(path);
  for (const auto& [name, bytes] : sections) writer.add(name, bytes);
  writer.commit();
  const std::string found = session_text(calibrated_options, got);
  CHECK(found != text);
  CHECK(found.find("Predicted") != std::string::npos);
  CHECK(same_bits({got}, {want}));

  // Other options and another calibration are other programs.
  Options other = calibrated_options;
  other.merge = false;
  CHECK(session_text(other, got).find("Predicted") == std::string::npos);
  CHECK(same_bits({got}, {want}));
  other = calibrated_options;
  auto ranges = *other.calibration;
  for (auto& [name, range] : ranges.values) range.tensor.threshold *= 2;
  other.calibration = std::make_shared<const CalibrationTable>(ranges);
  CHECK(session_text(other, got).find("Predicted") == std::string::npos);
  CHECK_FALSE(same_bits({got}, {want}));
}

TEST_CASE("npu compile: without calibration the error says what to do") {
  const DevicePtr device = open_device();
  const auto refused = [&](Errc code, const BackendOptions& backend) {
    CompileOptions options;
    options.backend = backend;
    return expect_error(code, [&] {
      compile<&Classifier<>::forward>(Classifier<>::init(weights_view()), {input_shape}, device,
                                      options);
    });
  };
  for (const BackendOptions& none :
       {BackendOptions{}, BackendOptions{.device = std::string("npu")}}) {
    CHECK(refused(Errc::bad_argument, none).find("npu::calibrate()") != std::string::npos);
  }
  CHECK(refused(Errc::unsupported, {.device = Options{}}).find("npu::calibrate()") !=
        std::string::npos);
  const BackendOptions exact{.exact = true, .device = calibrated<&Classifier<>::forward>()};
  CHECK(refused(Errc::unsupported, exact).find("exact") != std::string::npos);
}

}  // namespace tenon::npu
