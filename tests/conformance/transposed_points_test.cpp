// Element-wise ops on large transposed operands, which are read some rows at a time.
#include "support/op_testing.hpp"
#include "support/rounds.hpp"
#include "support/small_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// An order of axes, in which an operand is stored and from which the graph turns it back.
struct AxisOrder {
  std::vector<int> axes;
  std::vector<AxisRef> back;

  AxisOrder(Random& random, int rank) : axes(static_cast<std::size_t>(rank)) {
    std::iota(axes.begin(), axes.end(), 0);
    std::ranges::shuffle(axes, random.engine());
    for (int axis = 0; axis < rank; ++axis) {
      back.emplace_back(static_cast<int>(std::ranges::find(axes, axis) - axes.begin()));
    }
  }
  HostBuffer of(const HostBuffer& x) const { return x.permute(axes).contiguous(); }
};

TEST_CASE("points: transposed operands of any size give the reference's bits") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const DType types[] = {f32, f16, f64, i32, u8};
  for (int round = 0; round < rounds(60); ++round) {
    // From less than a cache has to more than a panel has, with sizes that are no multiples of anything.
    std::vector<std::int64_t> dims;
    std::int64_t elements = 1;
    for (std::int64_t rank = random.integer(2, 5); rank > 0; --rank) {
      const std::int64_t most =
          std::clamp<std::int64_t>(200000 / elements, 1, rank == 1 ? 3000 : 90);
      dims.push_back(random.integer(1, most));
      elements *= dims.back();
    }
    const Shape shape(std::span<const std::int64_t>(dims), f32);
    const DType dtype = types[random.integer(0, 4)];
    const HostBuffer x = random.uniform(shape).to(dtype), y = random.uniform(shape).to(dtype);
    const AxisOrder a(random, shape.rank()), b(random, shape.rank());
    Graph graph(small_graph_bytes);
    const Graph::Recording recording(graph);
    const Tensor p = permute(graph.input("x", a.of(x).shape()), std::span<const AxisRef>(a.back));
    const Tensor q = permute(graph.input("y", b.of(y).shape()), std::span<const AxisRef>(b.back));
    const Tensor dense = graph.input("z", x.shape());
    const std::vector<Tensor> results{p + q, cast(p, f32) * cast(dense, f32) - cast(q, f32),
                                      where(lt(p, q), p, dense)};
    const Program program = graph.program(results);
    INFO(to_string(p.shape()) << ", stored as " << to_string(a.of(x).shape()) << " and "
                              << to_string(b.of(y).shape()) << ", round " << round);
    // Twice each: with other values where panels were read before.
    const auto run_twice = [&](const BackendPtr& backend) {
      Session session(program, {.backends = {backend}});
      std::vector<HostBuffer> values;
      for (const auto& [first, second] : {std::pair(x, y), std::pair(y, x)}) {
        for (const Buffer& result : session.forward({a.of(first).to_device(cpu_device()),
                                                     b.of(second).to_device(cpu_device()),
                                                     first.to_device(cpu_device())})) {
          values.push_back(result.to_host());
        }
      }
      return values;
    };
    const std::vector<HostBuffer> wanted = run_twice(make_backend("reference"));
    for (const int threads : {1, 2, 7}) {
      const std::vector<HostBuffer> got = run_twice(make_backend("cpu", {.threads = threads}));
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        INFO("result " << i << ", " << threads << " threads");
        const auto size = static_cast<std::size_t>(wanted[i].shape().bytes());
        CHECK(std::memcmp(got.at(i).bytes(), wanted[i].bytes(), size) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace tenon::testing
