// Tenon's own backends as plugins of a program that links none of them.
#include "support/expect_error.hpp"
#include "support/random_program.hpp"

#include <tenon/backend.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/session.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <dlfcn.h>

namespace tenon {
namespace {

using namespace testing;

std::vector<HostBuffer> run(const Program& program, const std::vector<BackendPtr>& backends,
                            const std::map<std::string, Buffer>& weights,
                            const std::vector<HostBuffer>& inputs) {
  Session session(program, {.backends = backends});
  session.bind(std::make_shared<const WeightSet>(weights));
  std::vector<Buffer> given;
  for (const HostBuffer& input : inputs) given.push_back(input.to_device(cpu_device()));
  std::vector<HostBuffer> results;
  for (const Buffer& output : session.forward(std::move(given))) {
    results.push_back(output.to_host());
  }
  return results;
}

}  // namespace

TEST_CASE("Plugins: a session without any backend is refused") {
  REQUIRE(backend_names().empty());
  RandomProgram random(1);
  const Program program = random.make({.instructions = 2});
  const std::string what =
      expect_error(Errc::unavailable, [&] { Session session(program, SessionOptions()); });
  CHECK(what.find("register_cpu_backend()") != std::string::npos);
}

#ifdef TENON_OWN_COPY  // not where they share the libraries of this program
TEST_CASE("Plugins: libraries with a copy of Tenon each have backends and ops of their own") {
  const std::pair<const char*, float> libraries[] = {{TENON_OWN_COPY, 2}, {TENON_OTHER_COPY, 3}};
  for (const auto& [path, factor] : libraries) {
    INFO(path);
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    const auto count = reinterpret_cast<std::size_t (*)()>(dlsym(library, "backend_count"));
    REQUIRE(count != nullptr);
    CHECK(count() == 2);
    // Their ops' structs have one name, and are two ops.
    const auto scaled = reinterpret_cast<float (*)(float)>(dlsym(library, "scaled"));
    REQUIRE(scaled != nullptr);
    CHECK(scaled(1.5F) == factor * 1.5F);
  }
  CHECK(backend_names().empty());
}
#endif

TEST_CASE("Plugins: the CPU and the reference backend agree on random programs") {
  REQUIRE(backend_names().empty());
  REQUIRE(load_plugin(TENON_REFERENCE_PLUGIN) == "reference");
  REQUIRE(load_plugin(TENON_CPU_PLUGIN) == "cpu");
  REQUIRE(load_plugin(TENON_NULL_PLUGIN) == "null");
  {
    const BackendPtr reference = make_backend("reference");
    const BackendPtr cpu = make_backend("cpu", {.threads = 2, .exact = true});
    CHECK(cpu->properties().contains("isa"));
    const std::uint64_t seed = fuzz_seed(20261121);
    int on_cpu = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {
      RandomProgram random(seed + i);
      Program program = random.make({.instructions = 12, .smooth = true});
      verify(program);
      INFO(print(program));
      const std::vector<HostBuffer> inputs = random.inputs(program);
      std::vector<Shape> shapes;
      for (const HostBuffer& input : inputs) shapes.push_back(input.shape());
      std::map<std::string, Buffer> weights;
      for (const ConstantSlot& slot : lower(program, shapes).constants) {
        weights.emplace(slot.name, random.value(slot.shape).to_device(cpu_device()));
      }
      try {
        const auto want = run(program, {reference}, weights, inputs);
        const auto got = run(program, {cpu, reference}, weights, inputs);
        REQUIRE(got.size() == want.size());
        for (std::size_t r = 0; r < got.size(); ++r) {
          const HostBuffer a = got[r].to(DType::f64), b = want[r].to(DType::f64);
          for (std::size_t e = 0; e < a.values<double>().size(); ++e) {
            const double x = a.values<double>()[e], y = b.values<double>()[e];
            if (std::isnan(x) && std::isnan(y)) continue;
            if (!(x == y || std::abs(x - y) <= 1e-2 + 1e-2 * std::abs(y))) {
              FAIL_CHECK("result " << r << ", element " << e << ": " << x << " for " << y);
            }
          }
        }
        Session session(program, {.backends = {cpu, reference}});
        session.bind(std::make_shared<const WeightSet>(weights));
        for (const auto& part : session.report(shapes).parts) {
          if (part.backend == "cpu") ++on_cpu;
        }
      } catch (const Error& error) {
        CHECK(error.code() == Errc::out_of_range);  // an index of the data's choosing
      }
    }
    CHECK(on_cpu > 30);
  }
  // The others stay: what their copies of the core keep for the process (the CPU device, names)
  // would be lost with them.
  unload_plugin("null");
  CHECK(backend_names().size() == 2);
}

}  // namespace tenon
