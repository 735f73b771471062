// What data is at fault for in a partition of several steps.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/program_text.hpp"

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

}  // namespace tenon::testing
