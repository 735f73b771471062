// Snapshots for deployment: without the weights that backends have packed, and from older versions.
#include "core/layered_model.hpp"
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/remote_backend.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/calibration.hpp>
#include <tenon/log.hpp>
#include <tenon/ops.hpp>
#include <tenon/snapshot.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace tenon {
namespace {

using namespace testing;
using nlohmann::json;

constexpr Session::SaveOptions deployed{.weights = SavedWeights::needed};

/// The library's messages while it lives.
class Messages {
 public:
  Messages() : before_(set_log_sink([this](LogLevel, std::string_view line) { lines_ += line; })) {}
  ~Messages() { set_log_sink(std::move(before_)); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  bool contain(std::string_view text) const { return lines_.find(text) != std::string::npos; }

 private:
  std::string lines_;
  LogSink before_;
};

std::vector<BackendPtr> on_cpu(const BackendOptions& options = {.threads = 2}) {
  register_cpu_backend();
  return {make_backend("cpu", options)};
}

/// Convolutions of every form, then linear layers, one of whose weights is an embedding's table.
struct Images {
  Program program;
  std::map<std::string, Buffer> weights;
  std::vector<Buffer> inputs;

  Images() {
    Graph graph;
    const auto weight = [&](const std::string& name, const Shape& shape) {
      weights[name] = device(Random(weights.size() + 1).uniform(shape));
      return graph.constant(name, shape);
    };
    const Tensor image = graph.input("image", Shape({1, 16, 16, 16}, f32));
    const Tensor ids = graph.input("ids", Shape({2}, i32));
    const Conv2d same{.padding = {1, 1, 1, 1}};
    Conv2d each = same;
    each.groups = 32;
    Tensor x = relu(conv2d(image, weight("winograd", Shape({32, 16, 3, 3}, f32)),
                           weight("bias", Shape({32}, f32)), same));
    x = relu(conv2d(x, weight("depthwise", Shape({32, 1, 3, 3}, f32)), {}, each));
    x = conv2d(x, weight("pointwise", Shape({24, 32, 1, 1}, f32)), {}, {});
    const Tensor table = weight("table", Shape({40, 24}, f32));
    x = mean(x, {2, 3}) + embedding(ids, table);
    x = linear(rms_norm(x, weight("norm", Shape({24}, f32))), table);
    program = graph.program({&x, 1});
    inputs = {device(Random(90).uniform(Shape({1, 16, 16, 16}, f32))), device(ints({2}, {3, 39}))};
  }

  Session session(const std::vector<BackendPtr>& backends) const {
    Session made(program, {.backends = backends});
    made.bind(std::make_shared<const WeightSet>(weights));
    return made;
  }
  std::vector<float> result(Session& session) const { return values(session.forward(inputs)[0]); }
  std::vector<Shape> shapes() const { return {inputs[0].shape(), inputs[1].shape()}; }
};

json manifest_of(const std::filesystem::path& path) {
  return json::parse(Snapshot::open(path).text("manifest"));
}

std::set<std::string> weights_in(const std::filesystem::path& path) {
  std::set<std::string> names;
  const json manifest = manifest_of(path);
  for (const json& weight : manifest["weights"]) {
    if (weight["bytes"].get<bool>()) names.insert(weight["name"].get<std::string>());
  }
  return names;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("deployed session: it has what the CPU packed, and the weights read as they are") {
  const TempFolder folder;
  const auto path = folder / "a.snapshot";
  const Images images;
  std::vector<float> want;
  expect_error(Errc::call_order,
               [&] { Session(images.program, {.backends = on_cpu()}).save(path, deployed); });
  CHECK_FALSE(std::filesystem::exists(path));
  {
    Session session = images.session(on_cpu());
    CHECK(expect_error(Errc::call_order, [&] { session.save(path, deployed); }).find("prepare") !=
          std::string::npos);  // no plan needs a weight yet
    session.prepare(images.shapes());
    session.save(path, deployed);
    want = images.result(session);
  }
  CHECK(weights_in(path) == std::set<std::string>{"bias", "norm"});
  CHECK(manifest_of(path)["prepared"].size() == 4);
  const Messages messages;
  Session loaded = Session::load(path, on_cpu());
  CHECK(images.result(loaded) == want);
  CHECK_FALSE(messages.contain("again"));

  loaded.save(folder / "b.snapshot", deployed);
  CHECK(read(folder / "b.snapshot") == read(path));
  CHECK(expect_error(Errc::call_order, [&] {
          loaded.save(folder / "c.snapshot");
        }).find("has no data to save") != std::string::npos);
}

TEST_CASE("deployed session: layers of a loop, and sizes that were not saved") {
  const TempFolder folder;
  const auto path = folder / "a.snapshot";
  Session session(layered_model(), {.backends = on_cpu()});
  session.bind(layered_weight_set());
  session.prepare(std::vector{Shape({3, 4}, f32)});
  session.save(path, deployed);
  CHECK(weights_in(path).empty());
  Session loaded = Session::load(path, on_cpu());
  for (const std::int64_t rows : {3, 7}) {
    const Buffer x = device(Random(9).uniform(Shape({rows, 4}, f32)));
    CHECK(values(loaded.forward({x})[0]) == values(session.forward({x})[0]));
  }
}

TEST_CASE("deployed session: plans that are not bound yet are bound when they are saved") {
  const TempFolder folder;
  const Images images;
  Session session = images.session(on_cpu());
  static_cast<void>(session.report(images.shapes()));
  session.save(folder / "a.snapshot", deployed);
  CHECK(manifest_of(folder / "a.snapshot")["prepared"].size() == 4);
  Session loaded = Session::load(folder / "a.snapshot", on_cpu());
  CHECK(images.result(loaded) == images.result(session));
}

TEST_CASE("deployed session: on another kind of device the error names what differs") {
  const TempFolder folder;
  const auto path = folder / "a.snapshot";
  const Images images;
  Session session = images.session(on_cpu());
  session.prepare(images.shapes());
  session.save(path, deployed);
  const std::vector<BackendPtr> exact = on_cpu({.threads = 2, .exact = true});
  const std::string refused = expect_error(Errc::incompatible, [&] { Session::load(path, exact); });
  CHECK(refused.find("no data of weight 'winograd'") != std::string::npos);
  CHECK(refused.find("its precision was 'fast', and is 'exact'") != std::string::npos);

  // With weights, given or in the file, everything is packed again.
  Session wanted = images.session(exact);
  const std::vector<float> want = images.result(wanted);
  const Messages messages;
  Session given = Session::load(path, exact, std::make_shared<const WeightSet>(images.weights));
  CHECK(images.result(given) == want);
  session.save(path, {.weights = SavedWeights::all, .prepared = true});
  Session loaded = Session::load(path, exact);
  CHECK(images.result(loaded) == want);
  CHECK(messages.contain("weights are packed again; its precision was 'fast', and is 'exact'"));
}

TEST_CASE("deployed session: given weights must be those that were saved") {
  const TempFolder folder;
  const auto path = folder / "a.snapshot";
  const Images images;
  Session session = images.session(on_cpu());
  session.prepare(images.shapes());
  session.save(path, deployed);
  auto weights = images.weights;
  weights["table"] = device(Random(77).uniform(Shape({40, 24}, f32)));
  const auto refused = [&] {
    return expect_error(Errc::incompatible, [&] {
      Session::load(path, on_cpu(), std::make_shared<const WeightSet>(weights));
    });
  };
  CHECK(refused().find("'table'") != std::string::npos);
  session.save(path);  // with every weight: others are not ignored
  CHECK(refused().find("'table'") != std::string::npos);
}

TEST_CASE("deployed session: saved without weights, it takes those that it is loaded with") {
  const TempFolder folder;
  const Images images;
  const Session unbound(images.program, {.backends = on_cpu()});
  unbound.save(folder / "a.snapshot");
  Session loaded = Session::load(folder / "a.snapshot", on_cpu(),
                                 std::make_shared<const WeightSet>(images.weights));
  Session wanted = images.session(on_cpu());
  CHECK(images.result(loaded) == images.result(wanted));
}

TEST_CASE("deployed session: what others wrote into it cannot make a backend read out of bounds") {
  const TempFolder folder;
  const auto path = folder / "a.snapshot";
  const Images images;
  Session session = images.session(on_cpu());
  session.prepare(images.shapes());
  session.save(path, deployed);
  const Snapshot snapshot = Snapshot::open(path);
  const auto loads = [&](const std::string& changed, std::span<const std::byte> bytes) {
    SnapshotWriter writer(folder / "b.snapshot");
    for (const Snapshot::Section& section : snapshot.sections()) {
      writer.add(section.name, section.name == changed ? bytes : snapshot.bytes(section.name));
    }
    writer.commit();
    Session loaded = Session::load(folder / "b.snapshot", on_cpu());
    images.result(loaded);
  };
  for (const Snapshot::Section& section : snapshot.sections()) {
    if (!section.name.starts_with("prepared/")) continue;
    const auto whole = snapshot.bytes(section.name);
    CHECK_NOTHROW(loads(section.name, whole));
    expect_error(Errc::corrupt, [&] { loads(section.name, whole.first(whole.size() - 4)); });
    expect_error(Errc::corrupt, [&] { loads(section.name, {}); });
  }
}

TEST_CASE("deployed session: convolutions in int8 need no calibration to load") {
  const TempFolder folder;
  const auto path = folder / "a.snapshot";
  const Images images;
  std::vector<std::vector<HostBuffer>> samples(1);
  for (const Buffer& input : images.inputs) samples[0].push_back(input.to_host());
  const auto table = std::make_shared<const quant::CalibrationTable>(
      quant::calibrate(images.program, WeightSet(images.weights), samples));
  const cpu::Options int8{.int8 = table};
  Session session = images.session(on_cpu({.threads = 2, .device = int8}));
  session.prepare(images.shapes());
  session.save(path, deployed);
  const std::vector<float> want = images.result(session);
  Session plain = images.session(on_cpu());
  REQUIRE(images.result(plain) != want);
  Session loaded = Session::load(path, on_cpu());
  CHECK(images.result(loaded) == want);
  CHECK(loaded.report(images.shapes()).parts[0].notes ==
        session.report(images.shapes()).parts[0].notes);

  // Other weights have other ranges: a plan of their own is made.
  loaded.bind(std::make_shared<const WeightSet>(images.weights));
  CHECK(images.result(loaded) == images.result(plain));
}

TEST_CASE("deployed session: what a backend cannot restore is compiled again, and says so") {
  const TempFolder folder;
  const auto path = folder / "a.snapshot";
  const auto remote = [] {
    return std::make_shared<RemoteBackend>(std::make_shared<FakeDevice>(), nullptr, true);
  };
  const Buffer x = device(Random(9).uniform(Shape({3, 4}, f32)));
  Session session(layered_model(), {.backends = {remote()}});
  session.bind(layered_weight_set());
  const auto want = values(session.forward({x})[0]);
  session.save(path);
  const Messages messages;
  auto same = remote(), other = remote();
  CHECK(values(Session::load(path, {same}).forward({x})[0]) == want);
  CHECK(same->restored == 1);
  CHECK(same->compiled == 0);
  CHECK_FALSE(messages.contain("again"));
  other->kind = 'q';
  CHECK(values(Session::load(path, {other}).forward({x})[0]) == want);
  CHECK(other->restored == 0);
  CHECK(other->compiled == 1);
  CHECK(messages.contain("compiled again: "));
}

TEST_CASE("Session: a snapshot of format 1 is compiled again") {
  const std::filesystem::path path = TENON_SESSION_FORMAT_1;
  const auto remote = std::make_shared<RemoteBackend>(
      std::make_shared<FakeDevice>(),
      [](const Step& step) -> std::optional<std::string> {
        if (step.value.find("_1_") != std::string::npos) return std::nullopt;
        return "another layer's";
      },
      true);
  REQUIRE(manifest_of(path)["format"] == 1);
  Session loaded = Session::load(path, {remote, backends("reference")[0]});
  CHECK(remote->restored == 0);
  CHECK(remote->compiled == 1);
  Session wanted(layered_model(), {.backends = backends("reference")});
  wanted.bind(layered_weight_set());
  const Buffer x = device(Random(9).uniform(Shape({3, 4}, f32)));
  CHECK(values(loaded.forward({x})[0]) == values(wanted.forward({x})[0]));
  CHECK(loaded.report(std::vector{x.shape()}).parts.size() == 3);
}

}  // namespace tenon
