#include "builder_cases.hpp"

#include <tenon/ops.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

int axis_in(const Json& a) { return a.at("axis").get<int>(); }

Name word(const Json& a, const char* name) { return {a.at(name).get<std::string>()}; }

const BuilderTable table = {
    {"put_along",
     [](Operands x, const Json& a) { return put_along(x[0], x[1], x[2], axis_in(a)); }},
    {"index_add",
     [](Operands x, const Json& a) { return index_add(x[0], x[1], x[2], axis_in(a)); }},
    {"index_max",
     [](Operands x, const Json& a) { return index_put(x[0], x[1], x[2], axis_in(a), "max"); }},
    {"gather_nd",
     [](Operands x, const Json& a) {
       return gather_nd(x[0], x[1], a.at("batch_axes").get<int>());
     }},
    {"scatter_nd",
     [](Operands x, const Json& a) { return scatter_nd(x[0], x[1], x[2], word(a, "mode")); }},
};

TEST_CASE("builders: index") { check_builders("index", table); }
TEST_CASE("builders: index, fresh random cases", "[oracle]") {
  check_fresh_builders("index", table);
}

}  // namespace
}  // namespace tenon::testing
