// Loading and unloading backends from shared libraries, good and bad.
#include "core/plugins/shared_op.hpp"
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"
#include "support/literals.hpp"

#include <tenon/backend.hpp>
#include <tenon/backends/cpu.hpp>
#include <tenon/backends/null.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/op.hpp>
#include <tenon/ops.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/stat.h>

namespace tenon {
namespace {

using testing::expect_error;
using testing::floats;
using testing::TempFolder;
namespace fs = std::filesystem;

std::string plugin(const std::string& name) {
  return std::string(TENON_TEST_PLUGINS) + "/plugin_" + name + ".so";
}

bool is_registered(std::string_view name) {
  const auto names = backend_names();
  return std::ranges::count(names, name) == 1;
}

/// Whether the process has the file mapped.
bool is_mapped(const std::string& path) {
  const std::string file = fs::canonical(path).string();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(file) != std::string::npos) return true;
  }
  return false;
}

/// Refused, nothing registered, and tried twice: the first try left no trace.
std::string expect_refused(Errc code, const std::string& path) {
  INFO(path);
  const auto before = backend_names();
  const std::string what = expect_error(code, [&] { load_plugin(path); });
  CHECK(backend_names() == before);
  CHECK(expect_error(code, [&] { load_plugin(path); }) == what);
  return what;
}

/// y = (x + w) * x on the backend.
HostBuffer run_on(const BackendPtr& backend, const std::shared_ptr<const WeightSet>& weights) {
  Graph graph;
  const Tensor x = graph.input("x", Shape({3}, f32));
  const Tensor y = (x + graph.constant("w", Shape({3}, f32))) * x;
  Session session(graph.program({&y, 1}), {.backends = {backend}});
  session.bind(weights);
  return session.forward({floats({3}, {1, 2, 3}).to_device(cpu_device())}).at(0).to_host();
}

}  // namespace

TEST_CASE("Plugin: loaded, its backend runs programs, unloaded") {
  CHECK_FALSE(is_registered("working"));
  CHECK(load_plugin(plugin("working")) == "working");
  CHECK(is_registered("working"));
  {
    const BackendPtr backend = make_backend("working");
    CHECK(backend->name() == "working");
    CHECK(backend->properties().at("kind") == "test");
    const auto weights = std::make_shared<const WeightSet>(
        std::map<std::string, Buffer>{{"w", floats({3}, {10, 20, 30}).to_device(cpu_device())}});
    testing::expect_error(Errc::duplicate_name, [] { register_backend("working", nullptr); });
    const HostBuffer y = run_on(backend, weights);
    CHECK(std::ranges::equal(y.values<float>(), std::vector<float>{11, 44, 99}));
    Graph graph;
    const Tensor twice = graph.input("x", Shape({3}, f32)) + 1.0F;
    Session session(graph.program({&twice, 1}), {.backends = {backend}});
    const Shape in({3}, f32);
    const auto parts = session.report({&in, 1}).parts;
    REQUIRE(parts.size() == 1);
    CHECK(parts[0].notes == std::vector{parts[0].values.front() + ": by its reference"});
  }
  unload_plugin("working");
  CHECK_FALSE(is_registered("working"));
  expect_error(Errc::unavailable, [] { make_backend("working"); });
  expect_error(Errc::bad_reference, [] { unload_plugin("working"); });
}

TEST_CASE("Plugin: its ops are read and its kernels run, and it stays loaded") {
  const std::string text = R"(# tenon 1.0
from __future__ import annotations
from tenon.ir import *

module("model", opset=1)

def forward(x: f32[3]):
    y = plugin_cube(x)
    return y
)";
  const auto cubes = [&](const std::vector<BackendPtr>& backends) {
    Session session(parse(text), {.backends = backends});
    const auto outputs = session.forward({floats({3}, {1, 2, 3}).to_device(cpu_device())});
    const HostBuffer y = outputs.at(0).to_host();
    return std::vector<float>(y.values<float>().begin(), y.values<float>().end());
  };
  expect_error(Errc::unknown_op, [&] { parse(text); });
  CHECK(load_plugin(plugin("ops")) == "plugin_cube");
  CHECK_FALSE(is_registered("plugin_cube"));  // as a backend
  CHECK(cubes({make_reference_backend({})}) == std::vector<float>{1, 8, 27});
  CHECK(cubes({make_cpu_backend({.threads = 2})}) == std::vector<float>{2, 16, 54});
  CHECK(load_plugin(plugin("ops")) == "plugin_cube");
  unload_plugin("plugin_cube");
  contains(expect_error(Errc::busy, [] { unload_plugin("plugin_cube"); }), "added ops");
  CHECK(cubes({make_reference_backend({})}) == std::vector<float>{1, 8, 27});
}

TEST_CASE("Plugin: one that fails after it has added an op is refused, and its op works on") {
  contains(expect_error(Errc::plugin_init, [] { load_plugin(plugin("ops_thrown")); }),
           "and no further");
  const OpDef* const def = find_op("thrown_cube");
  REQUIRE(def != nullptr);
  const Shape shape({2}, f32);
  CHECK(def->infer(def->defaults, std::span(&shape, 1)) == shape);
  expect_error(Errc::bad_reference, [] { unload_plugin("thrown_cube"); });
}

TEST_CASE("Plugin: its op is the program's if both include its header, and refused if another's") {
  register_op<testing::SharedOp>();
  contains(expect_refused(Errc::plugin_init, plugin("shared_op_other")),
           "'shared_op' is another op, registered before with another struct");
  contains(expect_refused(Errc::plugin_init, plugin("shared_op_newer")),
           "registered before with no gradient");
  CHECK(find_op("shared_op") == &op_def<testing::SharedOp>());
  CHECK(load_plugin(plugin("shared_op")) == "shared_op");
  CHECK(find_op("shared_op") == &op_def<testing::SharedOp>());
}

TEST_CASE("Plugin: its backend serves the devices of its scheme while it is loaded") {
  const DevicePtr device = std::make_shared<testing::FakeDevice>();
  expect_error(Errc::unavailable, [&] { device_backends(device); });
  load_plugin(plugin("working"));
  contains(expect_error(Errc::bad_argument, [&] { device_backends(device); }), "no options");
  {
    const auto backends = device_backends(device, {.device = 1});
    REQUIRE(backends.size() == 1);
    CHECK(backends[0]->name() == "working");
    expect_error(Errc::busy, [] { unload_plugin("working"); });
  }
  unload_plugin("working");
  expect_error(Errc::unavailable, [&] { device_backends(device, {.device = 1}); });
}

TEST_CASE("Plugin: stays while a backend of it, or a weight that it packed, lives") {
  load_plugin(plugin("working"));
  auto weights = std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"w", floats({3}, {0, 0, 0}).to_device(cpu_device())}});
  BackendPtr backend = make_backend("working");
  contains(expect_error(Errc::busy, [] { unload_plugin("working"); }), "working");
  run_on(backend, weights);
  backend.reset();  // the weights outlive backend and session
  expect_error(Errc::busy, [] { unload_plugin("working"); });
  CHECK(is_registered("working"));  // a refused unload changes nothing
  CHECK(make_backend("working") != nullptr);
  weights.reset();
  unload_plugin("working");
  CHECK_FALSE(is_registered("working"));
}

TEST_CASE("Plugin: stays while an array in the memory of its device lives") {
  load_plugin(plugin("working"));
  BackendPtr backend = make_backend("working", {.exact = true});
  Buffer array = floats({3}, {1, 2, 3}).to_device(cpu_device()).to(backend->region());
  backend.reset();
  contains(expect_error(Errc::busy, [] { unload_plugin("working"); }), "arrays in the memory");
  CHECK(array.to_host().values<float>()[2] == 3);
  array = {};
  unload_plugin("working");
  CHECK_FALSE(is_registered("working"));
}

TEST_CASE("Plugin: one instance under all its paths, counted") {
  const TempFolder folder;
  const fs::path link = folder / "link.so";
  fs::create_symlink(fs::canonical(TENON_NULL_PLUGIN), link);
  CHECK(load_plugin(TENON_NULL_PLUGIN) == "null");
  CHECK(load_plugin(link.string()) == "null");
  CHECK(load_plugin(fs::relative(TENON_NULL_PLUGIN).string()) == "null");
  unload_plugin("null");
  unload_plugin("null");
  CHECK(is_registered("null"));
  {
    const BackendPtr backend = make_backend("null");
    CHECK(backend->refuses(Step{}) == "null runs nothing");
    expect_error(Errc::unsupported, [&] { backend->compile({}, {}); });
  }
  unload_plugin("null");
  CHECK_FALSE(is_registered("null"));
  expect_error(Errc::bad_reference, [] { unload_plugin("null"); });
}

TEST_CASE("Plugin: files that are no library") {
  const TempFolder folder;
  const fs::path root = folder.path();
  contains(expect_refused(Errc::plugin_load, (root / "nothing.so").string()), "nothing.so");
  expect_refused(Errc::plugin_load, "");
  expect_refused(Errc::plugin_load, root.string());
  // A bare name is a file here, not something to search for: libc.so.6 is not loaded.
  contains(expect_refused(Errc::plugin_load, "libc.so.6"), fs::current_path().string());
  REQUIRE(mkfifo((root / "pipe.so").c_str(), 0600) == 0);
  expect_refused(Errc::plugin_load, (root / "pipe.so").string());  // and does not wait for a writer

  const auto refused = [&](std::string_view name, std::string_view bytes) {
    contains(expect_refused(Errc::plugin_load, folder.write(name, bytes).string()), name);
  };
  refused("empty.so", "");
  refused("text.so", "all work and no play\n");
  const std::string good = testing::read_bytes(TENON_NULL_PLUGIN);
  REQUIRE(good.size() > 4096);
  // Cut short: the loader would map pages that are not there, and die of reading them.
  for (const std::size_t size : {std::size_t{4}, std::size_t{64}, std::size_t{600},
                                 std::size_t{4096}, good.size() / 8, good.size() / 4}) {
    refused("cut.so", std::string_view(good).substr(0, size));
  }
  std::string other = good;
  other[18] = static_cast<char>(183);  // e_machine: AArch64
  refused("aarch64.so", other);
  other = good;
  other[4] = 1;  // ELFCLASS32
  refused("i386.so", other);
}

TEST_CASE("Plugin: libraries without a usable entry point") {
  contains(expect_refused(Errc::invalid_plugin, plugin("no_entry")), plugin_entry);
  contains(expect_refused(Errc::invalid_plugin, plugin("null")), "null");
  contains(expect_refused(Errc::invalid_plugin, plugin("no_name")), "no name");
  contains(expect_refused(Errc::invalid_plugin, plugin("no_create")), "no backends");
  contains(expect_refused(Errc::invalid_plugin, plugin("half_scheme")), "create_for");
  contains(expect_refused(Errc::invalid_plugin, plugin("other_name")), "'other'");
}

TEST_CASE("Plugin: of another interface version") {
  const std::string host = std::to_string(plugin_abi_version);
  contains(expect_refused(Errc::abi_mismatch, plugin("old_abi")),
           "interface " + std::to_string(plugin_abi_version - 1));
  contains(expect_refused(Errc::abi_mismatch, plugin("new_abi")), "library has " + host);
  contains(expect_refused(Errc::abi_mismatch, plugin("short")), "with 8 bytes");
  // A longer descriptor is a newer minor version: accepted.
  CHECK(load_plugin(plugin("none")) == "faulty");
  unload_plugin("faulty");
}

TEST_CASE("Plugin: a backend that cannot start") {
  const std::string what = expect_refused(Errc::plugin_init, plugin("init_error"));
  contains(what, "DeviceLost");
  contains(what, "gone since boot");
  expect_refused(Errc::plugin_init, plugin("init_foreign"));
  expect_refused(Errc::plugin_init, plugin("init_null"));
  contains(expect_refused(Errc::unsupported, plugin("unavailable")), "this CPU has no AMX");
}

TEST_CASE("Plugin: a needed library is missing") {
  const std::string what = expect_refused(Errc::plugin_load, plugin("missing_library"));
  contains(what, "tenon_absent");
  contains(what, plugin("missing_library").substr(plugin("").find_last_of('/') + 1));
}

TEST_CASE("Plugin: a function that none of its libraries has") {
  const std::string what = expect_refused(Errc::plugin_load, plugin("undefined"));
  contains(what, "undefined symbol: no_library_has_this: a plugin is linked with every library");
  CHECK(what.find("plugin_undefined.so") == what.rfind("plugin_undefined.so"));  // named once
}

TEST_CASE("Plugin: a name that is taken") {
  // By another plugin.
  load_plugin(TENON_NULL_PLUGIN);
  const std::string taken = expect_refused(Errc::duplicate_name, plugin("taken_name"));
  contains(taken, "'null'");
  contains(taken, "taken_name");  // whose file
  unload_plugin("null");
  CHECK(load_plugin(plugin("taken_name")) == "null");
  // By a backend that is linked in.
  expect_error(Errc::duplicate_name, [] { register_null_backend(); });
  expect_refused(Errc::duplicate_name, TENON_NULL_PLUGIN);
  unload_plugin("null");
}

TEST_CASE("Plugin: what it throws arrives as an error of this library") {
  load_plugin(plugin("none"));
  std::optional<Error> caught;
  {
    const BackendPtr backend = make_backend("faulty");
    expect_error(Errc::plugin_fault, [&] { backend->refuses(Step{}); });  // throws an int
    CHECK(expect_error(Errc::out_of_memory, [&] { backend->properties(); }) ==
          "OutOfMemory: faulty: not enough memory");
    try {
      backend->compile({}, {});
    } catch (const Error& error) {
      caught = error;
    }
  }
  unload_plugin("faulty");
  REQUIRE(caught);  // outlives the plugin
  CHECK(caught->code() == Errc::plugin_fault);
  CHECK(caught->where() == "faulty");
  CHECK(caught->message() == "no compiler here");
}

TEST_CASE("Plugin: refused and unloaded libraries are unmapped", "[unmapping]") {
  // Sanitizers and unique symbols may pin a library; where the good one goes, the bad ones must
  // too.
  load_plugin(TENON_NULL_PLUGIN);
  CHECK(is_mapped(TENON_NULL_PLUGIN));
  unload_plugin("null");
  if (is_mapped(TENON_NULL_PLUGIN)) {
    WARN("SKIPPED: this build never unmaps libraries");
    return;
  }
  for (const char* fault :
       {"no_entry", "null", "old_abi", "init_error", "init_foreign", "unavailable"}) {
    INFO(fault);
    CHECK_THROWS_AS(load_plugin(plugin(fault)), Error);
    CHECK_FALSE(is_mapped(plugin(fault)));
  }
}

TEST_CASE("Plugin: sixteen threads load, use and unload it") {
  constexpr int rounds = 60;
  std::atomic<int> wrong = 0;
  std::atomic<int> busy = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        try {
          if (load_plugin(TENON_NULL_PLUGIN) != "null") ++wrong;
          if ((t + i) % 4 == 0 && make_backend("null")->name() != "null") ++wrong;
        } catch (const Error&) {
          ++wrong;
        }
        // The last unload waits for other threads' backends.
        for (bool done = false; !done;) {
          try {
            unload_plugin("null");
            done = true;
          } catch (const Error& error) {
            if (error.code() != Errc::busy) {
              ++wrong;
              done = true;
            }
            ++busy;
            std::this_thread::yield();
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  INFO("busy " << busy);
  CHECK(wrong == 0);
  CHECK_FALSE(is_registered("null"));
  expect_error(Errc::bad_reference, [] { unload_plugin("null"); });
}

}  // namespace tenon
