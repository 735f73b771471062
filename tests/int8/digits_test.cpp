// Accuracy in int8: the networks of examples/data on digits that they were not trained on.
#include "npu/driver_digits.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/session.hpp>

#include <cstdint>
#include <memory>

#include <catch2/catch.hpp>

namespace tenon::npu::testing {
namespace {

/// Digits that are told right, of all; samples are images without their labels.
std::int64_t right(const Network& network, const Digits& digits, bool in_int8) {
  register_cpu_backend();
  BackendOptions options{.threads = 2};
  if (in_int8) options.device = cpu::Options{network.calibration};
  Session session(network.program, {.backends = {make_backend("cpu", options)}});
  session.bind(network.weights);
  const HostBuffer scores =
      session.forward({digits.images.contiguous().to_device(cpu_device())})[0].to_host();
  if (in_int8) {
    for (const PlanReport::Part& part : session.report(network.inputs).parts) {
      for (const std::string& note : part.notes) CHECK(note.ends_with(": int8"));
    }
  }
  return digits.right(scores, 0);
}

void check(const Network& network, const Digits& digits) {
  const std::int64_t exact = right(network, digits, false), got = right(network, digits, true);
  INFO("f32: " << exact << " of " << digits.count << ", int8: " << got);
  // At most one percent of the digits.
  CHECK((exact - got) * 100 <= digits.count);
}

TEST_CASE("int8: the digit CNN loses next to nothing") {
  const Digits digits(8);
  check(digit_cnn(digits.count, digits.part(0, 40), {}), digits);
}

TEST_CASE("int8: the digit MobileNet loses next to nothing") {
  const Digits digits(32);
  check(digit_mobilenet(digits.count, digits.part(0, 40), {}), digits);
}

}  // namespace
}  // namespace tenon::npu::testing
