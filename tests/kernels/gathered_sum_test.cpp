// Gathers that become one step with the sum of their slices, and what that computes.
#include "backends/cpu/gathered_sum.hpp"

#include "core/runs.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::cpu::gathered_sum_test {
namespace {

using Make = std::function<std::vector<Tensor>(const Tensor& x, const Tensor& index)>;

Program program_of(const Shape& x, const Shape& index, const Make& make) {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor table = graph.input("x", x), places = graph.input("index", index);
  return graph.program(make(table, places));
}

bool is_merged(const Make& make, const Shape& x = Shape({9, 4}, f32),
               const Shape& index = Shape({3, 5}, i32)) {
  const std::vector<Shape> shapes{x, index};
  const Lowered lowered = lower(program_of(x, index, make), shapes);
  std::vector<Step> own = lowered.steps;
  merge_gathered_sums(lowered, lowered.steps, own);
  return std::ranges::any_of(own,
                             [](const Step& step) { return step.op.as<GatheredSum>() != nullptr; });
}

TEST_CASE("merge_gathered_sums: which gathers are merged") {
  CHECK(is_merged([](auto& x, auto& index) { return std::vector{sum(gather(x, index), {1})}; }));
  CHECK(is_merged(
      [](auto& x, auto& index) { return std::vector{mean(gather(x, index), {1}, true)}; }));
  CHECK(is_merged([](auto& x, auto& index) { return std::vector{sum(gather(x, index), {1})}; },
                  Shape({9, 4, 3}, f64), Shape({2, 3, 5}, i64)) == false);
  CHECK(is_merged([](auto& x, auto& index) { return std::vector{sum(gather(x, index), {2})}; },
                  Shape({9, 4, 3}, f64), Shape({2, 3, 5}, i64)));
  for (const std::int64_t axis : {0, 2}) {  // over the bags, or within rows
    CHECK_FALSE(is_merged(
        [axis](auto& x, auto& index) { return std::vector{sum(gather(x, index), {axis})}; }));
  }
  CHECK_FALSE(is_merged([](auto& x, auto& index) {
    const Tensor rows = gather(x, index);
    return std::vector{sum(rows, {1}), rows};
  }));
  CHECK_FALSE(
      is_merged([](auto& x, auto& index) { return std::vector{sum(gather(x, index, 1), {2})}; },
                Shape({4, 9}, f32)));
  CHECK_FALSE(
      is_merged([](auto& x, auto& index) { return std::vector{sum(gather(x, index), {1})}; },
                Shape({9, 4}, f16)));
}

/// Whole numbers, whose sums are exact in any order.
HostBuffer numbers(const Shape& shape) {
  HostBuffer x = HostBuffer::zeros(shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    store_double(shape.dtype(), x.view().data + i * block_bytes(shape.dtype()),
                 static_cast<double>(i * 7919 % 1013 - 500));
  }
  return x;
}
HostBuffer picks(const Shape& shape, std::int64_t limit) {
  HostBuffer x = HostBuffer::zeros(shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    store_int64(shape.dtype(), x.view().data + i * block_bytes(shape.dtype()), i * 104729 % limit);
  }
  return x;
}

TEST_CASE("gathered sums have the reference's bits, on every number of threads") {
  register_cpu_backend();
  register_reference_backend();
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t columns : {1, 5, 32, 77, 1100}) {
      for (const std::int64_t length : {0, 1, 9, 1100}) {
        const Shape x({23, columns}, dtype), index({11, length}, length == 9 ? i32 : i64);
        const Program program = program_of(x, index, [](auto& table, auto& places) {
          const Tensor turned = permute(places, {1, 0});  // places that are apart
          return std::vector{sum(gather(table, places), {1}), mean(gather(table, places), {1}),
                             sum(gather(table, turned), {1})};
        });
        const std::vector<Buffer> given{testing::device(numbers(x)),
                                        testing::device(picks(index, 23))};
        Session expected(program, {.backends = {make_backend("reference")}});
        const std::vector<Buffer> want = expected.forward(given);
        for (const int threads : {1, 3}) {
          Session session(program, {.backends = {make_backend("cpu", {.threads = threads})}});
          const std::vector<Buffer> got = session.forward(given);
          for (std::size_t i = 0; i < want.size(); ++i) {
            INFO(name(dtype) << ", " << columns << " columns, " << length << " slices, result " << i
                             << ", " << threads << " threads");
            const HostBuffer one = got[i].to_host(), other = want[i].to_host();
            if (length == 0 && i == 1) continue;  // NaN
            CHECK(testing::same_bits(one, other));
          }
        }
      }
    }
  }
}

TEST_CASE("gathered sums: an index out of range is the gather's error") {
  register_cpu_backend();
  const Shape x({23, 8}, f32), index({3, 4}, i64);
  const Program program = program_of(x, index, [](auto& table, auto& places) {
    return std::vector{sum(gather(table, places), {1})};
  });
  Session session(program, {.backends = {make_backend("cpu", {.threads = 1})}});
  testing::expect_error(Errc::out_of_range, [&] {
    session.forward({testing::device(numbers(x)), testing::device(picks(index, 24))});
  });
}

}  // namespace
}  // namespace tenon::cpu::gathered_sum_test
