// A sentence encoder split between the NPU and the CPU: linear layers on one, attention and norms
// on the other, every copy between them listed. Needs all-MiniLM-L6-v2 in TENON_TEST_MODELS.
#include "npu/driver_rig.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/exe.hpp>
#include <tenon/models/encoder.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr std::int64_t columns = 24;  // tokens per sentence, padded

std::string model_path() {
  const char* folder = std::getenv("TENON_TEST_MODELS");
  const std::filesystem::path path =
      std::filesystem::path(folder == nullptr ? "" : folder) / "all-MiniLM-L6-v2";
  if (folder == nullptr || !std::filesystem::exists(path)) {
    std::puts("SKIPPED: no all-MiniLM-L6-v2 in TENON_TEST_MODELS");
    std::fflush(stdout);
    std::_Exit(77);
  }
  return path.string();
}

/// ids and mask of one sentence.
std::vector<HostBuffer> inputs_for(const models::SentenceEncoder& encoder,
                                   const std::string& text) {
  const std::vector<std::int32_t> tokens = encoder.tokens(text);
  HostBuffer ids = HostBuffer::zeros(Shape({1, columns}, i32));
  HostBuffer mask = HostBuffer::zeros(Shape({1, columns}, f32));
  for (std::size_t i = 0; i < tokens.size() && i < columns; ++i) {
    ids.mutable_values<std::int32_t>()[i] = tokens[i];
    mask.mutable_values<float>()[i] = 1;
  }
  return {ids, mask};
}

TEST_CASE("npu: MiniLM runs its linear layers on the NPU, the rest on the CPU, copies listed") {
  register_npu_sim();
  register_cpu_backend();
  register_reference_backend();
  const auto encoder = models::SentenceEncoder::load(model_path(), {.backend = {.exact = true}});
  const models::EncoderConfig& config = encoder.config();
  models::SentenceModel<> model;
  model.encoder = models::Encoder<>::init(encoder.file().view(), config);
  const std::vector<Shape> shapes{Shape({1, columns}, i32), Shape({1, columns}, f32)};
  const auto cpu = make_backend("cpu", {.exact = true});
  CompileOptions compile_options;
  compile_options.backends = {cpu, make_backend("reference")};
  const auto exe =
      compile<&models::SentenceModel<>::embed>(model, {shapes[0], shapes[1]}, compile_options);

  Network network;
  network.program = exe.program();
  network.inputs = shapes;
  std::map<std::string, Buffer> weights;
  for (const ConstantSlot& slot : lower(unroll(network.program), shapes).constants) {
    if (network.program.folded.contains(slot.name)) continue;
    weights.emplace(slot.name, encoder.file().at(slot.name).data().to_device(cpu_device()));
  }
  network.weights = std::make_shared<const WeightSet>(std::move(weights));
  const char* calibrated[] = {"The weather is lovely today.",
                              "A chip multiplies matrices with very little energy.",
                              "She sold the old house by the sea and moved to the mountains."};
  std::vector<std::vector<HostBuffer>> samples;
  for (const char* text : calibrated) samples.push_back(inputs_for(encoder, text));
  network.calibration = std::make_shared<const CalibrationTable>(
      calibrate(network.program, *network.weights, samples, {.observer = {}, .per_channel = true}));

  Options options = options_for(network);
  const auto npu = backend(Device::open("npu://sim?mac=32x32&ocm=2MiB"), options);
  Session split(network.program, {.backends = {npu, cpu, make_backend("reference")}});
  split.bind(network.weights);
  Session whole(network.program, {.backends = {cpu, make_backend("reference")}});
  whole.bind(network.weights);
  Options on_host = options_for(network, Mode::exact);
  Session exact(network.program,
                {.backends = {backend(nullptr, on_host), cpu, make_backend("reference")}});
  exact.bind(network.weights);

  const auto forward = [](Session& session, const std::vector<HostBuffer>& inputs) {
    std::vector<Buffer> buffers;
    for (const HostBuffer& input : inputs) buffers.push_back(input.to_device(cpu_device()));
    return session.forward(std::move(buffers))[0].to_host();
  };
  for (const char* text : {"It is sunny outside.", "Accelerators save power on dense products.",
                           "He bought a flat in the city."}) {
    const auto inputs = inputs_for(encoder, text);
    const HostBuffer real = forward(whole, inputs);
    const HostBuffer quantized = forward(split, inputs);
    INFO(text);
    CHECK(same_bits({quantized}, {forward(exact, inputs)}));
    CHECK(cosine(quantized, real) > 0.97);
  }

  const PlanReport report = split.report(shapes);
  std::set<std::string> on_npu, on_cpu;
  for (const PlanReport::Part& part : report.parts) {
    (part.backend == "npu" ? on_npu : on_cpu).insert(part.values.begin(), part.values.end());
  }
  // Four linear layers of attention and two of the feed-forward network, in each layer.
  CHECK(static_cast<std::int64_t>(on_npu.size()) >= 6 * config.layers);
  CHECK_FALSE(on_cpu.empty());
  // Every value that crosses is listed with both memories and its size; nothing else moves.
  CHECK_FALSE(report.transfers.empty());
  for (const PlanReport::Transfer& transfer : report.transfers) {
    INFO(transfer.value << " " << transfer.from << " -> " << transfer.to);
    CHECK(transfer.bytes > 0);
    CHECK(std::set<std::string>{transfer.from, transfer.to} ==
          std::set<std::string>{"host", "etm"});
    const bool leaves_npu = transfer.from == "etm";
    CHECK((on_npu.contains(transfer.value) == leaves_npu));
  }
}

}  // namespace
}  // namespace tenon::npu
