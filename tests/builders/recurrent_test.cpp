#include "builder_cases.hpp"

#include <tenon/nn/recurrent.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// Operands x, h, c, weight_ih, weight_hh and one bias, of the state.
nn::RecurrentWeights<Tensor> weights(Operands x) { return {x[3], x[4], std::nullopt, x[5]}; }

auto lstm(Operands x) {
  return nn::Lstm<Tensor>{weights(x)}.forward(x[0], nn::LstmState<Tensor>{x[1], x[2]});
}

const BuilderTable recurrent_table = {
    {"lstm", [](Operands x, const Json&) { return lstm(x).outputs; }},
    {"lstm_cell", [](Operands x, const Json&) { return lstm(x).carry.c; }},
    {"gru", [](Operands x,
               const Json&) { return nn::Gru<Tensor>{weights(x)}.forward(x[0], x[1]).outputs; }},
    {"rnn", [](Operands x,
               const Json&) { return nn::Rnn<Tensor>{weights(x)}.forward(x[0], x[1]).outputs; }},
};

TEST_CASE("builders: recurrent layers") { check_builders("recurrent", recurrent_table); }
TEST_CASE("builders: recurrent layers, fresh random cases", "[oracle]") {
  check_fresh_builders("recurrent", recurrent_table);
}

}  // namespace
}  // namespace tenon::testing
