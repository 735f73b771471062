#include "npu/driver_checks.hpp"

#include "npu/driver_open.hpp"

#include <tenon/backends/reference.hpp>

#include <catch2/catch.hpp>

namespace tenon::npu::testing {
namespace {

/// Everything must run on the NPU.
void check_all_taken(const Network& network) {
  register_reference_backend();
  Session session(network.program,
                  {.backends = {backend(nullptr, options_for(network, Mode::exact)),
                                make_backend("reference")}});
  session.bind(network.weights);
  const PlanReport report = session.report(network.inputs);
  REQUIRE(report.parts.size() == 1);
  CHECK(report.parts[0].backend == "npu");
}

}  // namespace

void check(const Network& network, double likeness) {
  const std::vector<HostBuffer> inputs = network.sample(99);
  const auto exact = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
  const auto real = run_reference(network, inputs);
  const auto floating =
      run(network, backend(nullptr, options_for(network, Mode::floating)), inputs);
  const auto rounded =
      run(network, backend(nullptr, options_for(network, Mode::fake_quantized)), inputs);
  for (std::size_t i = 0; i < real.size(); ++i) {
    INFO("output " << i);
    CHECK(cosine(floating[i], real[i]) > 0.999999);
    CHECK(cosine(rounded[i], real[i]) > likeness);
    CHECK(cosine(exact[i], real[i]) > likeness);
  }
  for (const char* url : {large_device, small_device}) {
    for (const Placement placement :
         {Placement::none, Placement::global, Placement::dp, Placement::evict, Placement::best}) {
      INFO(url << " placement " << to_string(placement));
      Options options = options_for(network);
      options.placement = placement;
      const auto npu = backend(open_npu(url), options);
      const bool same = same_bits(run(network, npu, inputs), exact);
      CHECK(same);
      const RunReport report = npu->last_run();
      CHECK(report.cycles > 0);
    }
    Options options = options_for(network);
    options.merge = false;
    const bool same = same_bits(run(network, backend(open_npu(url), options), inputs), exact);
    CHECK(same);
  }
}

Network of(const std::vector<Shape>& inputs, const Record& record,
           const CalibrationOptions& options) {
  Network network = make_network(inputs, record, 42, options);
  check_all_taken(network);
  return network;
}

}  // namespace tenon::npu::testing
