// Tables that tasks share: computed once where their inputs do not change, again where they do.
// Compared with the reference, which has no tables.
#include "support/op_testing.hpp"
#include "support/program_text.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/session.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

void check(const std::string& functions) {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const HostBuffer x = random.uniform(Shape({2, 5, 3, 8}, f32));
  const HostBuffer positions = random.uniform(Shape({5}, i32), 0, 100);
  const auto run = [&](const std::vector<BackendPtr>& backends) {
    Session session(program_of(functions), {.backends = backends});
    session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
    return session.forward({x.to_device(cpu_device()), positions.to_device(cpu_device())})
        .at(0)
        .to_host();
  };
  const HostBuffer want = run({make_backend("reference")});
  for (const int threads : {1, 3}) {
    INFO(functions << "on " << threads << " threads");
    expect_close(run({make_backend("cpu", {.threads = threads})}), want, 1e-5, 1e-5);
  }
}

TEST_CASE("rotations with equal positions share one table") {
  check(
      "\ndef forward(x: f32[2, 5, 3, 8], p: i32[5]):\n"
      "    a = rope(x, p)\n"
      "    b = rope(a, p)\n"
      "    c = rope(b, p, theta=500.0)\n"
      "    d = rope(c, p, dims=4)\n"
      "    e = rope(d, p, interleaved=True)\n"
      "    return e\n");
}

TEST_CASE("rotations of other types have tables of their own") {
  check(
      "\ndef forward(x: f32[2, 5, 3, 8], p: i32[5]):\n"
      "    a = rope(x, p)\n"
      "    b = cast(x, dtype=\"f64\")\n"
      "    c = rope(b, p)\n"
      "    d = cast(c, dtype=\"f32\")\n"
      "    e = rope(d, p)\n"
      "    y = add(a, e)\n"
      "    return y\n");
}

TEST_CASE("a table is filled before a loop whose positions do not change") {
  check(
      "\ndef turn(x: f32[2, 5, 3, 8], i: i64, s: Scope, p: i32[5]):\n"
      "    y = rope(x, p)\n"
      "    return y\n"
      "\ndef forward(x: f32[2, 5, 3, 8], p: i32[5]):\n"
      "    q = add(p, p)\n"
      "    s0 = scope(\"layers\")\n"
      "    c0 = pack(x)\n"
      "    c1 = repeat(turn, 4, c0, s0, q)\n"
      "    y: f32[2, 5, 3, 8] = item(c1, 0)\n"
      "    z = rope(y, q)\n"
      "    return z\n");
}

TEST_CASE("a table is filled again where a loop changes the positions") {
  check(
      "\ndef turn(x: f32[2, 5, 3, 8], p: i32[5], i: i64, s: Scope):\n"
      "    y = rope(x, p)\n"
      "    z = rope(y, p)\n"
      "    q = add(p, p)\n"
      "    return z, q\n"
      "\ndef forward(x: f32[2, 5, 3, 8], p: i32[5]):\n"
      "    w = rope(x, p)\n"
      "    s0 = scope(\"layers\")\n"
      "    c0 = pack(w, p)\n"
      "    c1 = repeat(turn, 4, c0, s0)\n"
      "    y: f32[2, 5, 3, 8] = item(c1, 0)\n"
      "    q: i32[5] = item(c1, 1)\n"
      "    z = rope(y, q)\n"
      "    return z\n");
}

}  // namespace
}  // namespace tenon::testing
