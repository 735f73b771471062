// A03: memory runs out at every allocation of writing and reading a network.
#include "support/failing_memory.hpp"
#include "support/program_text.hpp"
#include "temp_folder.hpp"

#include <tenon/io/network.hpp>

#include <array>
#include <string>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// Every kind of node, every kind of attribute, a folded constant and a weight that is not dense.
io::Network network() {
  io::Network net{program_of(R"(
def layer(x: f32[B, 4], i: i64, s: Scope):
    w: f32[4, 4] = const(s, "weight")
    y: f32[B, 4] = linear(x, w)
    return y

def twice(x: f32[B, 4]):
    y: f32[B, 4] = clamp(x, min=-0.1)
    return y

def forward(x: f32[B, 4]):
    s = scope("layers")
    c = pack(x)
    t = repeat(layer, 2, c, s)
    y: f32[B, 4] = item(t, 0)
    k: f32[4] = const("bias \"of\" the last layer, whose name is too long for a short string")
    z: f32[B, 4] = add(y, k)
    m: f32[B] = sum(z, axes=[1])
    h: f16[B] = cast(m, dtype="f16")
    n: f32[B, 4] = twice(z)
    return n, h
)"),
                  {}};
  const HostBuffer square = HostBuffer::zeros(Shape({4, 4}, f32));
  net.weights.emplace("layers.0.weight", square);
  net.weights.emplace("layers.1.weight", square.permute(std::array{1, 0}));
  net.weights.emplace("bias \"of\" the last layer, whose name is too long for a short string",
                      HostBuffer::zeros(Shape({4}, f32)));
  net.program.folded.emplace("table", HostBuffer::zeros(Shape({3}, f32)));
  return net;
}

}  // namespace

TEST_CASE("A03: memory runs out while a network is written") {
  const TempFolder folder;
  const auto json = folder / "net.json", raw = folder / "net.raw";
  const io::Network net = network();
  io::save_network(net, json, raw);
  const std::string want = read_bytes(json);
  fail_allocations(
      500, [&] { io::save_network(net, json, raw); },
      [&] {
        CHECK(folder.entries() == 2);
        CHECK(read_bytes(json) == want);
        CHECK(io::load_network(json).weights.size() == 3);
      });
}

TEST_CASE("A03: memory runs out while a network is read") {
  const TempFolder folder;
  const auto json = folder / "net.json", raw = folder / "net.raw";
  io::save_network(network(), json, raw);
  fail_allocations(
      500, [&] { static_cast<void>(io::load_network(json)); },
      [&] { CHECK(io::load_network(json).weights.size() == 3); });
}

}  // namespace tenon::testing
