// Networks that were trained: right answers in int8 beside those in f32, and what staying on chip
// saves.
#include "npu/driver_digits.hpp"
#include "npu/driver_open.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* device_url = "npu://sim?mac=32x32&ocm=2MiB&acc=256KiB&strict=1";
constexpr ObserverKind observers[] = {ObserverKind::min_max, ObserverKind::percentile,
                                      ObserverKind::entropy};

using Make = std::function<Network(std::int64_t count, const HostBuffer& samples,
                                   const CalibrationOptions&)>;

/// Percent of the images from `kept` on that a network gets right; it runs `batch` at a time.
double accuracy(const Digits& digits, std::int64_t kept, std::int64_t batch,
                const std::function<HostBuffer(const HostBuffer&)>& scores) {
  std::int64_t right = 0;
  for (std::int64_t i = kept; i < digits.count; i += batch) {
    right += digits.right(scores(digits.part(i, i + batch)), i);
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(digits.count - kept);
}

/// Calibrated on the first `kept` images, f32 and int8 on the others: within a point, whatever
/// observer. With 0 kept all are counted, and 40 of them, without their labels, calibrate.
void check_accuracy(const Digits& digits, std::int64_t kept, std::int64_t batch, const Make& make) {
  for (const ObserverKind kind : observers) {
    INFO(to_string(kind));
    CalibrationOptions calibration;
    calibration.observer.kind = kind;
    const Network network =
        make(batch, digits.part(0, std::max<std::int64_t>(kept, 40)), calibration);
    Session real(network.program, {.backends = {make_backend("reference")}});
    const auto npu = backend(open_npu(device_url), options_for(network));
    Session quantized(network.program, {.backends = {npu, make_backend("reference")}});
    const auto exact = backend(nullptr, options_for(network, Mode::exact));
    real.bind(network.weights);
    quantized.bind(network.weights);
    const auto scores_of = [](Session& session) {
      return [&session](const HostBuffer& images) {
        return session.forward({images.to_device(cpu_device())})[0].to_host();
      };
    };
    const double before = accuracy(digits, kept, batch, scores_of(real));
    const double after = accuracy(digits, kept, batch, scores_of(quantized));
    WARN(to_string(kind) << ": " << before << " % in f32, " << after << " % in int8");
    CHECK(before > 95);
    CHECK(after >= before - 1);
    // All of it ran there, and gave the integers that it should.
    CHECK(quantized.report(network.inputs).parts.size() == 1);
    const std::vector<HostBuffer> some{digits.part(kept, kept + batch)};
    const bool same = same_bits(run(network, exact, some), {scores_of(quantized)(some[0])});
    CHECK(same);
  }
}

TEST_CASE("npu accuracy: the digit CNN in int8 is within a point of f32, with every observer",
          "[accuracy]") {
  check_accuracy(Digits(8), 60, 300, digit_cnn);
}

TEST_CASE("npu accuracy: inverted residuals in int8 are within a point of f32, with every observer",
          "[accuracy]") {
  check_accuracy(Digits(32), 0, 120, digit_mobilenet);
}

TEST_CASE("npu accuracy: weights in f32 do what training said", "[accuracy]") {
  const Digits digits(32);
  const Network network = digit_mobilenet(digits.count, digits.part(0, 4), {});
  const HostBuffer scores = run_reference(network, {digits.images})[0];
  const auto said = nlohmann::json::parse(std::ifstream("examples/data/digits_mobilenet.json"));
  CHECK(digits.right(scores, 0) == said["correct"].get<std::int64_t>());
  std::size_t next = 0;
  for (const auto& image : said["first_logits"]) {
    for (const auto& logit : image) {
      CHECK(scores.values<float>()[next++] == Approx(logit.get<float>()).margin(1e-3));
    }
  }
}

TEST_CASE("npu accuracy: on chip and not, the same answers for fewer bytes and cycles",
          "[one_thread]") {
  const Digits digits(32);
  const Network network = digit_mobilenet(1, digits.part(0, 40), {});
  const std::vector<HostBuffer> image{digits.part(7, 8)};
  const auto exact = run(network, backend(nullptr, options_for(network, Mode::exact)), image);
  std::map<Placement, RunReport> runs;
  for (const Placement placement :
       {Placement::none, Placement::global, Placement::dp, Placement::evict, Placement::best}) {
    Options options = options_for(network);
    options.placement = placement;
    const auto npu = backend(open_npu(device_url), options);
    const bool same = same_bits(run(network, npu, image), exact);
    CHECK(same);
    const RunReport& report = runs[placement] = npu->last_run();
    WARN(to_string(placement) << ": " << report.cycles << " cycles, "
                              << report.ddr_read + report.ddr_write << " bytes");
  }
  const RunReport& off = runs[Placement::none];
  for (const auto& [placement, on] : runs) {
    INFO(to_string(placement));
    CHECK(on.macs == off.macs);
    if (placement == Placement::none) continue;
    CHECK(on.ddr_read + on.ddr_write < off.ddr_read + off.ddr_write);
    CHECK(on.cycles < off.cycles);
  }
}

}  // namespace
}  // namespace tenon::npu
