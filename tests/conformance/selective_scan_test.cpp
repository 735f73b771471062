// Recurrences of one step and of many, over any number of channels: as the reference, and with the
// same bits for any number of threads.
#include "support/op_testing.hpp"
#include "support/rounds.hpp"
#include "support/small_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon::testing {
namespace {

/// x, dt, a, in, out, state, and maybe lengths.
struct Recurrence {
  std::vector<HostBuffer> operands;
  bool is_constant = false;       ///< a, as models have it
  bool has_turned_state = false;  ///< [B, J, P, N] behind a permutation
};

HostBuffer run(const Recurrence& recurrence, const BackendPtr& backend) {
  Graph graph(small_graph_bytes);
  const Graph::Recording recording(graph);
  std::vector<Tensor> in;
  std::vector<Buffer> values;
  std::map<std::string, Buffer> weights;
  for (std::size_t i = 0; i < recurrence.operands.size(); ++i) {
    const HostBuffer& operand = recurrence.operands[i];
    const std::string name = fmt::format("x{}", i);
    if (i == 2 && recurrence.is_constant) {
      in.push_back(graph.constant(name, operand.shape()));
      weights.emplace(name, operand.to_device(cpu_device()));
      continue;
    }
    in.push_back(graph.input(name, operand.shape()));
    values.push_back(operand.to_device(cpu_device()));
  }
  if (recurrence.has_turned_state) in[5] = permute(in[5], {0, 3, 1, 2});
  const auto [y, state] =
      selective_scan(in[0], in[1], in[2], in[3], in[4], in[5], in.size() > 6 ? in[6] : Tensor());
  const std::vector<Tensor> outputs{concat(std::vector<Tensor>{y, state}, 1)};
  Session session(graph.program(outputs), {.backends = {backend}});
  std::vector<Shape> shapes;
  for (const Buffer& value : values) shapes.push_back(value.shape());
  CHECK(session.report(shapes).fallbacks.empty());
  session.bind(std::make_shared<const WeightSet>(std::move(weights)));
  return session.forward(std::move(values)).at(0).to_host();
}

Recurrence random_recurrence(Random& random, DType dtype) {
  const std::int64_t some_steps[] = {0, 1, 1, 2, 63, 64, 65, 130};
  const std::int64_t b = random.integer(0, 5) == 0 ? random.integer(0, 3) : 1;
  const std::int64_t s = some_steps[random.integer(0, 7)], g = random.integer(1, 3);
  const bool are_channels_heads = random.integer(0, 1) == 0;
  const std::int64_t p = are_channels_heads ? 1 : random.integer(1, 40);
  const std::int64_t j = g * random.integer(1, are_channels_heads ? 90 : 3);
  const std::int64_t n = random.integer(1, 37);
  const auto uniform = [&](std::initializer_list<std::int64_t> sizes, double low, double high) {
    return random.uniform(Shape(sizes, f32), static_cast<float>(low), static_cast<float>(high))
        .to(dtype);
  };
  Recurrence result;
  result.is_constant = random.integer(0, 1) == 0;
  result.has_turned_state = random.integer(0, 3) == 0;
  result.operands = {
      uniform({b, s, j, p}, -1, 1),
      uniform({b, s, j}, 0, 1),
      uniform({j, random.integer(0, 1) == 0 ? n : 1}, -2, 0),
      uniform({b, s, g, n}, -1, 1),
      uniform({b, s, g, n}, -1, 1),
      result.has_turned_state ? uniform({b, j, p, n}, -1, 1) : uniform({b, n, j, p}, -1, 1)};
  if (random.integer(0, 3) > 0) return result;
  std::vector<std::int32_t> lengths;
  for (std::int64_t row = 0; row < b; ++row) {
    lengths.push_back(static_cast<std::int32_t>(random.integer(0, s)));
  }
  result.operands.push_back(HostBuffer::of<std::int32_t>(Shape({b}, i32), lengths));
  return result;
}

TEST_CASE("selective scan: any sizes, as the reference and with the same bits by any threads") {
  register_cpu_backend();
  Random random;
  register_reference_backend();
  const BackendPtr reference = make_backend("reference", {});
  for (int round = 0; round < rounds(150); ++round) {
    const Recurrence recurrence = random_recurrence(random, round % 4 == 3 ? f64 : f32);
    INFO("round " << round);
    const HostBuffer y = run(recurrence, make_backend("cpu", {.threads = 1}));
    expect_close(y, run(recurrence, reference), 1e-5, 1e-5);
    for (const int threads : {2, 7}) {
      const HostBuffer other = run(recurrence, make_backend("cpu", {.threads = threads}));
      CHECK(std::memcmp(other.bytes(), y.bytes(), static_cast<std::size_t>(y.shape().bytes())) ==
            0);
    }
  }
}

}  // namespace
}  // namespace tenon::testing
