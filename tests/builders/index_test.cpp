#include "builder_cases.hpp"

#include <tenon/ops/slice.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

const BuilderTable table = {
    {"first_chunk",
     [](Operands x, const Json& a) {
       return chunk(x[0], a.at("parts").get<int>(), a.at("axis").get<int>()).at(0);
     }},
};

TEST_CASE("builders: index") { check_builders("index", table); }
TEST_CASE("builders: index, fresh random cases", "[oracle]") {
  check_fresh_builders("index", table);
}

}  // namespace
}  // namespace tenon::testing
