// Sessions with partitions on the NPU, saved and loaded.
#include "io/temp_folder.hpp"
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/log.hpp>
#include <tenon/ops.hpp>
#include <tenon/prepared_cache.hpp>
#include <tenon/snapshot.hpp>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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

/// A network of one small convolution, which a file of an older version has.
Network small_network() {
  return make_network(
      {Shape({1, 4, 6, 6}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) {
        const Conv2d same{.padding = {1, 1, 1, 1}};
        const Tensor a =
            relu(conv2d(in[0], graph.constant("a", Shape({8, 4, 3, 3}, f32)), {}, same));
        return std::vector<Tensor>{softmax(a, 1)};
      },
      21);
}

constexpr const char* url = "npu://sim?mac=16x16&ocm=64KiB";
constexpr Session::SaveOptions deployed{.weights = SavedWeights::needed};

/// A file that is gone at the end.
struct File {
  explicit File(const char* name) : path(fs::temp_directory_path() / name) {}
  ~File() { fs::remove(path); }
  fs::path path;
};

/// Messages of the library while it lives.
class Messages {
 public:
  Messages() : before_(set_log_sink([this](LogLevel, std::string_view line) { lines += line; })) {}
  ~Messages() { set_log_sink(std::move(before_)); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  std::string lines;

 private:
  LogSink before_;
};

Session session_of(const Network& network, const std::vector<BackendPtr>& backends) {
  Session session(network.program, {.backends = backends});
  session.bind(network.weights);
  session.prepare(network.inputs);
  return session;
}

HostBuffer run_on(Session& session, const HostBuffer& input) {
  return session.forward({input.to_device(cpu_device())})[0].to_host();
}

/// Backends without a calibration.
std::vector<BackendPtr> loading_backends(const std::string& device_url = url,
                                         Options options = {}) {
  return {backend(Device::open(device_url), std::move(options)), make_backend("reference")};
}

const Npu& npu_of(const Session& session) {
  return dynamic_cast<const Npu&>(*session.backends()[0]);
}

}  // namespace

TEST_CASE("npu snapshot: deployed, it loads without weights and calibration") {
  const File file("tenon_npu.snapshot");
  const Network net = network();
  const HostBuffer input = net.sample(5)[0];
  Session session = session_of(net, backends_for(net, url, {}));
  const HostBuffer want = run_on(session, input);
  session.save(file.path, deployed);
  REQUIRE(section_of(file.path) == "plan/0/part/0");
  CHECK(Snapshot::open(file.path).find("weight/0") == nullptr);

  Messages messages;
  Session loaded = Session::load(file.path, loading_backends());
  CHECK(messages.lines.find("again") == std::string::npos);
  CHECK(same_bits({run_on(loaded, input)}, {want}));
  const NetworkReport was = npu_of(session).networks().at(0), is = npu_of(loaded).networks().at(0);
  CHECK(is.disassembly == was.disassembly);
  CHECK(is.text == was.text);
  CHECK(is.predicted_cycles == was.predicted_cycles);
  CHECK(npu_of(loaded).last_run().cycles == npu_of(session).last_run().cycles);
  const PlanReport report = loaded.report(net.inputs);
  REQUIRE(report.fallbacks.size() == 1);
  CHECK(report.fallbacks[0].why == session.report(net.inputs).fallbacks[0].why);

  const File again("tenon_npu_again.snapshot");
  loaded.save(again.path, deployed);
  Session twice = Session::load(again.path, loading_backends());
  CHECK(same_bits({run_on(twice, input)}, {want}));

  // What is not in the file would have to be compiled.
  loaded.bind(net.weights);
  CHECK(loaded.report(net.inputs).parts[0].backend == "reference");
}

TEST_CASE("npu snapshot: another device compiles again where the file has the weights") {
  const File with("tenon_npu_with.snapshot"), without("tenon_npu_without.snapshot");
  const Network net = network();
  Session session = session_of(net, backends_for(net, url, {}));
  session.save(with.path);
  session.save(without.path, deployed);
  const HostBuffer input = net.sample(5)[0];
  const auto changes = [&](const std::string& device_url, const std::string& what,
                           const Options& options = {}) {
    CAPTURE(device_url, what);
    const std::string refused = expect_error(Errc::incompatible, [&] {
      Session::load(without.path, loading_backends(device_url, options));
    });
    CHECK(refused.find(what) != std::string::npos);
    CHECK(refused.find("the file has no data of weight 'a'") != std::string::npos);
    Messages messages;
    Session loaded = Session::load(with.path, loading_backends(device_url, options));
    CHECK(messages.lines.find("'plan/0/part/0' is compiled again") != std::string::npos);
    CHECK(messages.lines.find(what) != std::string::npos);
    Options calibrated = options;
    Session wanted = session_of(net, backends_for(net, device_url, calibrated));
    CHECK(same_bits({run_on(loaded, input)}, {run_on(wanted, input)}));
  };
  changes("npu://sim?mac=32x16&ocm=64KiB", "the number of rows of the array was 16");
  changes("npu://sim?mac=16x16&ocm=32KiB", "the size of OCM was 65536");
  changes(url, "host_fallback", {.host_fallback = true});
  changes(url, "the mode is exact", {.mode = Mode::exact});
}

TEST_CASE("npu cache: constants that a program made tell its programs from others") {
  const TempFolder folder;
  Network net = small_network();
  const HostBuffer input = net.sample(5)[0];
  const auto run_with = [&](float factor, bool cached) {
    Network own = net;
    const HostBuffer weight = net.weights->find("a")->to_host();
    HostBuffer value = HostBuffer::zeros(weight.shape());
    for (std::size_t i = 0; i < value.mutable_values<float>().size(); ++i) {
      value.mutable_values<float>()[i] = factor * weight.values<float>()[i];
    }
    own.program.folded.insert_or_assign("a", value);
    own.weights = std::make_shared<const WeightSet>(
        std::map<std::string, Buffer>(),
        cached ? std::make_shared<PreparedCache>(PreparedFile{folder / "cache", "none"}) : nullptr);
    Session session = session_of(own, backends_for(own, url, {}));
    return run_on(session, input);
  };
  for (const float factor : {1.0F, 0.5F, 1.0F}) {
    CAPTURE(factor);
    CHECK(same_bits({run_with(factor, true)}, {run_with(factor, false)}));
  }
  CHECK(folder.entries() == 1);
  CHECK_FALSE(same_bits({run_with(1, true)}, {run_with(0.5F, true)}));
}

TEST_CASE("npu snapshot: a file of format 1 is compiled again, with a calibration") {
  const Network net = small_network();
  const HostBuffer input = net.sample(5)[0];
  Session wanted = session_of(net, backends_for(net, url, {}));
  Session loaded = Session::load(TENON_NPU_SESSION_FORMAT_1, backends_for(net, url, {}));
  CHECK(same_bits({run_on(loaded, input)}, {run_on(wanted, input)}));
  CHECK(npu_of(loaded).networks().at(0).disassembly == npu_of(wanted).networks().at(0).disassembly);
}

TEST_CASE("npu snapshot: without a calibration a backend says why it refuses to compile") {
  const Network net = small_network();
  Session session(net.program, {.backends = {loading_backends()[0]}});
  session.bind(net.weights);
  CHECK(expect_error(Errc::unsupported, [&] {
          session.prepare(net.inputs);
        }).find("no calibration is given") != std::string::npos);
}

TEST_CASE("npu snapshot: whatever was changed, programs are refused or stay in their memory",
          "[one_thread]") {
  const File file("tenon_npu_a.snapshot"), changed("tenon_npu_b.snapshot");
  const Network net = small_network();
  const HostBuffer input = net.sample(5)[0];
  Session session = session_of(net, backends_for(net, url, {}));
  session.save(file.path, deployed);
  const Snapshot snapshot = Snapshot::open(file.path);
  const auto backends = loading_backends(url, {.deadline = std::chrono::minutes(1), .retries = 0});
  const auto loads = [&](std::span<const std::byte> programs) {
    SnapshotWriter writer(changed.path);
    for (const Snapshot::Section& section : snapshot.sections()) {
      const bool part = section.name.starts_with("plan/");
      writer.add(section.name, part ? programs : snapshot.bytes(section.name));
    }
    writer.commit();
    std::optional<Session> loaded;
    try {
      loaded = Session::load(changed.path, backends);
    } catch (const Error& error) {
      const bool typed = error.code() == Errc::incompatible || error.code() == Errc::corrupt ||
                         error.code() == Errc::out_of_device_memory;
      CHECK(typed);
      return false;
    }
    try {
      run_on(*loaded, input);
    } catch (const Error& error) {
      CHECK(error.code() == Errc::device_error);
    }
    return true;
  };
  const auto whole = snapshot.bytes("plan/0/part/0");
  CHECK(loads(whole));
  int refused = 0, loaded = 0;
  for (std::size_t at = 0; at < whole.size(); at += at < 256 ? 1 : 7) {
    CAPTURE(at);
    std::vector<std::byte> bytes(whole.begin(), whole.end());
    bytes[at] ^= std::byte{0x40};
    (loads(bytes) ? loaded : refused) += 1;
  }
  CHECK(refused > 50);  // the header, lengths and programs; what loads has other numbers
  CHECK(loaded > 50);
  for (const std::size_t size : {std::size_t{1}, std::size_t{50}, whole.size() - 1}) {
    CHECK_FALSE(loads(whole.first(size)));
  }
}

}  // namespace tenon::npu
