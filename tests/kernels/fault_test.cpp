// What data is at fault for in a partition of several steps.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/program_text.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {

TEST_CASE("faults: an error of merged steps names the value that was being computed") {
  const Program program = program_of(R"(def forward(table: f32[5, 2], ids: i32[3], more: i32[3]):
    first = embedding(ids, table)
    second = embedding(more, table)
    a = exp(first)
    b = exp(second)
    y = add(a, b)
    return y
)");
  const Buffer rows = device(floats({5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const Buffer good = device(ints({3}, {0, 4, 2})), bad = device(ints({3}, {0, 7, 2}));
  register_cpu_backend();
  for (const int threads : {1, 3}) {
    Session run(program, {.backends = {make_backend("cpu", {.threads = threads})}});
    REQUIRE(run.report(std::vector{rows.shape(), good.shape(), good.shape()}).parts.size() == 1);
    for (const bool is_first : {true, false}) {
      const std::string message = expect_error(Errc::out_of_range, [&] {
        run.forward({rows, is_first ? bad : good, is_first ? good : bad});
      });
      CHECK(message.find("7 outside [0, 5)") != std::string::npos);
      CHECK(message.find(is_first ? "'first'" : "'second'") != std::string::npos);
    }
    CHECK(run.forward({rows, good, good}).size() == 1);
  }
}

TEST_CASE("faults: of steps that read what the first one did not write, the first is named") {
  const Program program =
      program_of(R"(def forward(first: i32[50], ids: i32[4096], second: i32[50]):
    a = gather(first, ids, axis=0)
    b = gather(second, a, axis=0)
    return b
)");
  register_cpu_backend();
  Session run(program, {.backends = {make_backend("cpu", {.threads = 4})}});
  HostBuffer table = HostBuffer::zeros(Shape({50}, i32)),
             ids = HostBuffer::zeros(Shape({4096}, i32));
  std::ranges::fill(table.mutable_values<std::int32_t>(), 77);  // outside of the second table
  ids.mutable_values<std::int32_t>()[4000] = 99;
  for (int i = 0; i < 50; ++i) {
    const std::string message = expect_error(Errc::out_of_range, [&] {
      run.forward({device(table), device(ids), device(HostBuffer::zeros(Shape({50}, i32)))});
    });
    CHECK(message.find("99 outside [0, 50)") != std::string::npos);
  }
}

}  // namespace tenon::testing
