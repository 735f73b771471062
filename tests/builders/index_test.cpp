#include "builder_cases.hpp"

#include <tenon/ops.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

int axis_in(const Json& a) { return a.at("axis").get<int>(); }

Name word(const Json& a, const char* name) { return {a.at(name).get<std::string>()}; }

const BuilderTable table = {
    {"flip",
     [](Operands x, const Json& a) {
       return flip(x[0], AxisList(std::span<const AxisRef>(axis_list(a.at("axes")))));
     }},
    {"roll",
     [](Operands x, const Json& a) {
       return roll(x[0], a.at("shift").get<std::int64_t>(), axis_in(a));
     }},
    {"flipped_sum",  // kernels that read arrays backwards
     [](Operands x, const Json& a) {
       const DType dtype = x[0].dtype() == f64 ? f64 : f32;
       const Tensor turned =
           cast(flip(x[0], AxisList(std::span<const AxisRef>(axis_list(a.at("axes"))))), dtype);
       return sum(turned, axis_in(a), true) * turned;
     }},
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
