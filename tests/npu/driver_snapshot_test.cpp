// Sessions with partitions on the NPU, saved and loaded.
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>
#include <tenon/snapshot.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;
namespace fs = std::filesystem;

Network network() {
  return make_network(
      {Shape({1, 8, 12, 12}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) {
        const Conv2d same{.padding = {1, 1, 1, 1}};
        const Tensor a =
            relu(conv2d(in[0], graph.constant("a", Shape({32, 8, 3, 3}, f32)), {}, same));
        const Tensor b = conv2d(a, graph.constant("b", Shape({32, 32, 3, 3}, f32)), {}, same);
        return std::vector<Tensor>{softmax(relu(b + a), 1)};
      },
      21);
}

std::vector<BackendPtr> backends_for(const Network& network, const std::string& url,
                                     Options options) {
  register_npu_sim();
  register_reference_backend();
  options.calibration = network.calibration;
  return {backend(Device::open(url), options), make_backend("reference")};
}

std::string section_of(const fs::path& path) {
  const Snapshot snapshot = Snapshot::open(path);
  for (const Snapshot::Section& section : snapshot.sections()) {
    if (section.name.starts_with("plan/")) return section.name;
  }
  return "";
}

}  // namespace

TEST_CASE("npu snapshot: programs are kept, and run on an equal device only") {
  const fs::path path = fs::temp_directory_path() / "tenon_npu.snapshot";
  const std::string url = "npu://sim?mac=16x16&ocm=64KiB";
  const Network net = network();
  const HostBuffer input = net.sample(5)[0];
  const auto run_on = [&](Session& session) {
    return session.forward({input.to_device(cpu_device())})[0].to_host();
  };
  Session session(net.program, {.backends = backends_for(net, url, {})});
  session.bind(net.weights);
  const HostBuffer want = run_on(session);
  session.save(path);
  REQUIRE(section_of(path) == "plan/0/part/0");
  const auto& npu = dynamic_cast<const Npu&>(*session.backends()[0]);
  CHECK(Snapshot::open(path).bytes("plan/0/part/0").size() > 400);

  const auto again = backends_for(net, url, {});
  Session loaded = Session::load(path, again);
  const bool same = same_bits({run_on(loaded)}, {want});
  CHECK(same);
  const auto& restored = dynamic_cast<const Npu&>(*again[0]);
  CHECK(restored.networks().at(0).disassembly == npu.networks().at(0).disassembly);

  const auto refused = [&](const std::string& other, const Network& with, Options options = {}) {
    return expect_error(Errc::incompatible, [&] {
      Session::load(path, backends_for(with, other, std::move(options)));
    });
  };
  CHECK(refused("npu://sim?mac=32x16&ocm=64KiB", net).find("rows of the array was 16") !=
        std::string::npos);
  CHECK(refused("npu://sim?mac=16x16&ocm=32KiB", net).find("65536") != std::string::npos);
  CHECK(refused(url, net, {.fuse = false}).find("layers") != std::string::npos);
  Network other = net;
  auto ranges = *net.calibration;
  float factor = 1;
  for (auto& [name, range] : ranges.values) range.tensor.threshold *= factor *= 1.5F;
  other.calibration = std::make_shared<const CalibrationTable>(ranges);
  CHECK(refused(url, other).find("weights and calibration") != std::string::npos);
  fs::remove(path);
}

TEST_CASE("npu snapshot: damaged programs are refused, whatever was changed") {
  const fs::path path = fs::temp_directory_path() / "tenon_npu_a.snapshot";
  const fs::path changed = fs::temp_directory_path() / "tenon_npu_b.snapshot";
  const std::string url = "npu://sim?mac=16x16&ocm=64KiB";
  const Network net = network();
  Session session(net.program, {.backends = backends_for(net, url, {})});
  session.bind(net.weights);
  session.forward({net.sample(5)[0].to_device(cpu_device())});
  session.save(path);
  const Snapshot snapshot = Snapshot::open(path);
  const auto backends = backends_for(net, url, {});
  const auto loads = [&](std::span<const std::byte> programs) {
    SnapshotWriter writer(changed);
    for (const Snapshot::Section& section : snapshot.sections()) {
      const bool part = section.name.starts_with("plan/");
      writer.add(section.name, part ? programs : snapshot.bytes(section.name));
    }
    writer.commit();
    try {
      Session::load(changed, backends);
      return true;
    } catch (const Error& error) {
      const bool typed = error.code() == Errc::incompatible || error.code() == Errc::corrupt;
      CHECK(typed);
      return false;
    }
  };
  const auto whole = snapshot.bytes("plan/0/part/0");
  CHECK(loads(whole));
  for (std::size_t at = 0; at < whole.size(); at += at < 128 ? 1 : whole.size() / 40) {
    std::vector<std::byte> bytes(whole.begin(), whole.end());
    bytes[at] ^= std::byte{0x40};
    if (loads(bytes)) FAIL_CHECK("byte " << at);
  }
  for (const std::size_t size : {std::size_t{1}, std::size_t{50}, whole.size() - 1}) {
    CHECK_FALSE(loads(whole.first(size)));
  }
  fs::remove(path);
  fs::remove(changed);
}

}  // namespace tenon::npu
