// Sessions saved to a file and loaded again, and files that are not what they were.
#include "core/layered_model.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/remote_backend.hpp"
#include "support/rounds.hpp"

#include <tenon/ops.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/version.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace tenon {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class Folder {
 public:
  Folder() { fs::create_directories(path_); }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_ = fs::temp_directory_path() / "tenon_session_snapshot";
};

Buffer input() { return device(Random(9).uniform(Shape({3, 4}, f32))); }

/// The second layer's ops on a device that the CPU cannot address.
std::vector<BackendPtr> two_backends() {
  const auto remote = std::make_shared<RemoteBackend>(
      std::make_shared<FakeDevice>(),
      [](const Step& step) -> std::optional<std::string> {
        if (step.value.find("_1_") != std::string::npos) return std::nullopt;
        return "another layer's";
      },
      true);
  return {remote, backends("reference")[0]};
}

std::vector<char> read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::vector<char>& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

/// Makes a session of two backends with one plan, saves it, and returns what it computes.
std::vector<float> save(const fs::path& path, const Session::SaveOptions& options = {}) {
  Session run(layered_model(), {.backends = two_backends()});
  run.bind(layered_weight_set());
  const auto want = values(run.forward({input()})[0]);
  run.save(path, options);
  return want;
}

/// The snapshot at `from` with another manifest.
void with_manifest(const fs::path& from, const fs::path& to, const nlohmann::json& manifest) {
  const Snapshot snapshot = Snapshot::open(from);
  SnapshotWriter writer(to);
  for (const Snapshot::Section& section : snapshot.sections()) {
    if (section.name == "manifest") {
      writer.add("manifest", manifest.dump());
    } else {
      writer.add(section.name, snapshot.bytes(section.name));
    }
  }
  writer.commit();
}

}  // namespace

TEST_CASE("Session: saved and loaded, it computes the same, with its plans") {
  const Folder folder;
  const auto want = save(folder / "a.snap");
  const auto loading = two_backends();
  Session run = Session::load(folder / "a.snap", loading);
  CHECK(dynamic_cast<const RemoteBackend&>(*loading[0]).restored == 1);
  const PlanReport report = run.report(std::vector{Shape({3, 4}, f32)});
  CHECK(report.parts.size() == 3);
  CHECK(report.transfers.size() == 2);
  CHECK(values(run.forward({input()})[0]) == want);
  CHECK(print(run.program()) == print(layered_model()));
  run = Session::load(folder / "a.snap", two_backends());
  expect_error(Errc::call_order, [&] { run.set_merge(false); });
  run.save(folder / "b.snap");
  CHECK(read(folder / "a.snap") == read(folder / "b.snap"));
}

TEST_CASE("Session: views are saved too") {
  const Folder folder;
  const auto bound = two_backends();
  Session run(layered_model(),
              std::vector<BoundView>{{bound[0], view(layered_model(), 2, 4)},
                                     {bound[1], view(layered_model(), {0, 1, 4, 5, 6})}});
  run.bind(layered_weight_set());
  const auto want = values(run.forward({input()})[0]);
  run.save(folder / "a.snap");
  Session again = Session::load(folder / "a.snap", two_backends());
  CHECK(values(again.forward({input()})[0]) == want);
  CHECK(again.report(std::vector{Shape({3, 4}, f32)}).parts[1].backend == "remote");
}

TEST_CASE("Session: a snapshot without weights asks for the very same ones") {
  const Folder folder;
  const auto want = save(folder / "a.snap", {.weights = SavedWeights::digests});
  const auto load = [&](std::map<std::string, Buffer> given) {
    return Session::load(folder / "a.snap", two_backends(),
                         std::make_shared<const WeightSet>(std::move(given)));
  };
  CHECK(values(load(layered_weights()).forward({input()})[0]) == want);
  auto other = layered_weights();
  other["layers.1.w"] = device(Random(77).uniform(Shape({4, 4}, f32)));
  CHECK(expect_error(Errc::incompatible, [&] { load(other); }).find("'layers.1.w'") !=
        std::string::npos);
  other["layers.1.w"] = device(Random(77).uniform(Shape({4, 5}, f32)));
  CHECK(expect_error(Errc::incompatible, [&] { load(other); }).find("f32[4, 5]") !=
        std::string::npos);
  other.erase("layers.1.w");
  CHECK(expect_error(Errc::bad_reference, [&] { load(other); }).find("'layers.1.w'") !=
        std::string::npos);
  expect_error(Errc::bad_reference, [&] { Session::load(folder / "a.snap", two_backends()); });
}

TEST_CASE("Session: a snapshot of a session that forbids fallbacks forbids them") {
  const Folder folder;
  Session run(layered_model(), {.backends = two_backends(), .forbid_fallback = true});
  run.bind(layered_weight_set());
  run.save(folder / "a.snap");
  Session again = Session::load(folder / "a.snap", two_backends());
  CHECK(contains(expect_error(Errc::unsupported, [&] { again.forward({input()}); }),
                 "fallbacks are forbidden"));

  auto manifest = nlohmann::json::parse(Snapshot::open(folder / "a.snap").text("manifest"));
  REQUIRE(manifest.erase("forbid_fallback") == 1);  // as files written before have it
  with_manifest(folder / "a.snap", folder / "b.snap", manifest);
  CHECK(Session::load(folder / "b.snap", two_backends()).forward({input()}).size() == 1);
}

TEST_CASE("Session: a snapshot that does not fit says which field") {
  const Folder folder;
  save(folder / "a.snap");
  CHECK(expect_error(Errc::incompatible,
                     [&] { Session::load(folder / "a.snap", backends("reference")); })
            .find("'backends' names 2, 1 are given: remote, reference and reference") !=
        std::string::npos);
  CHECK(expect_error(Errc::incompatible, [&] {
          Session::load(folder / "a.snap", {});
        }).find("'backends' names 'remote', which has to be given") != std::string::npos);
  CHECK(expect_error(Errc::incompatible, [&] {
          auto swapped = two_backends();
          std::swap(swapped[0], swapped[1]);
          Session::load(folder / "a.snap", swapped);
        }).find("'backends[0]' is 'remote', given 'reference'") != std::string::npos);
  expect_error(Errc::bad_argument, [&] { Session::load(folder / "a.snap", {nullptr, nullptr}); });
  expect_error(Errc::not_found, [&] { Session::load(folder / "none.snap", two_backends()); });

  auto manifest = nlohmann::json::parse(Snapshot::open(folder / "a.snap").text("manifest"));
  CHECK(manifest["library"] == version());
  manifest["format"] = 3;
  manifest["library"] = "7.8.9";
  with_manifest(folder / "a.snap", folder / "b.snap", manifest);
  const std::string refused =
      expect_error(Errc::incompatible, [&] { Session::load(folder / "b.snap", two_backends()); });
  CHECK(refused.find("'format' is 3, written by Tenon 7.8.9") != std::string::npos);
  CHECK(refused.find(version()) != std::string::npos);
}

TEST_CASE("Session: a snapshot of another version of the library loads when its format is known") {
  const Folder folder;
  const auto want = save(folder / "a.snap");
  auto manifest = nlohmann::json::parse(Snapshot::open(folder / "a.snap").text("manifest"));
  for (const char* const written_by : {"0.1.99", "9.0.0"}) {
    manifest["library"] = written_by;
    with_manifest(folder / "a.snap", folder / "b.snap", manifest);
    Session run = Session::load(folder / "b.snap", two_backends());
    CHECK(values(run.forward({input()})[0]) == want);
  }
}

TEST_CASE("Session: every flipped bit and every truncation of a snapshot is found",
          "[one_thread]") {
  const Folder folder;
  save(folder / "a.snap");
  const std::vector<char> whole = read(folder / "a.snap");
  const auto loads = [&](const std::vector<char>& bytes) {
    write(folder / "b.snap", bytes);
    try {
      Session::load(folder / "b.snap", two_backends());
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  REQUIRE(loads(whole));
  for (std::size_t i = 0; i < whole.size(); i += testing::round_stride) {
    std::vector<char> bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    if (loads(bytes)) FAIL_CHECK("bit " << i % 8 << " of byte " << i);
  }
  for (std::size_t length = 0; length < whole.size(); length += 7 * testing::round_stride) {
    if (loads({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)})) {
      FAIL_CHECK("cut to " << length);
    }
  }
}

TEST_CASE("Session: an untrusted manifest ends in an error or in a session", "[one_thread]") {
  const Folder folder;
  save(folder / "a.snap");
  const auto manifest = nlohmann::json::parse(Snapshot::open(folder / "a.snap").text("manifest"));
  const nlohmann::json odd[] = {nullptr,
                                -1,
                                3,
                                1e300,
                                "x",
                                "f32",
                                true,
                                nlohmann::json::array(),
                                nlohmann::json::object(),
                                std::int64_t{1} << 40};
  int refused = 0, loaded = 0, number = 0;
  const auto leaves = manifest.flatten();
  for (const auto& [path, unused] : leaves.items()) {
    for (const nlohmann::json& value : odd) {
      if (number++ % testing::round_stride != 0) continue;
      auto changed = manifest;
      changed[nlohmann::json::json_pointer(path)] = value;
      with_manifest(folder / "a.snap", folder / "b.snap", changed);
      try {
        Session::load(folder / "b.snap", two_backends());
        ++loaded;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  CHECK(refused > loaded);
  CHECK(loaded > 0);
}

}  // namespace tenon
