#include "builder_cases.hpp"

#include <tenon/ops/loss.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

const BuilderTable loss_table = {
    {"cross_entropy",
     [](Operands x, const Json& a) {
       return cross_entropy(x[0], x[1], {.label_smoothing = a.at("label_smoothing").get<double>()});
     }},
    {"mse_loss", [](Operands x, const Json&) { return mse_loss(x[0], x[1]); }},
    {"l1_loss", [](Operands x, const Json&) { return l1_loss(x[0], x[1]); }},
    {"huber_loss",
     [](Operands x, const Json& a) { return huber_loss(x[0], x[1], a.at("delta").get<double>()); }},
    {"binary_cross_entropy",
     [](Operands x, const Json&) { return binary_cross_entropy(x[0], x[1]); }},
    {"kl_divergence", [](Operands x, const Json&) { return kl_divergence(x[0], x[1]); }},
};

TEST_CASE("builders: losses") { check_builders("loss", loss_table); }
TEST_CASE("builders: losses, fresh random cases", "[oracle]") {
  check_fresh_builders("loss", loss_table);
}

}  // namespace
}  // namespace tenon::testing
