#include "builder_cases.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/einsum.hpp>
#include <tenon/ops/random.hpp>
#include <tenon/ops/real_binary.hpp>
#include <tenon/ops/signal.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

Shape shape_in(const Json& a) {
  return Shape(int_list(a.at("shape")).span(), *find_dtype(a.at("dtype").get<std::string>()));
}

const BuilderTable math_table = {
    {"selu", [](Operands x, const Json&) { return selu(x[0]); }},
    {"celu", [](Operands x, const Json& a) { return celu(x[0], a.at("alpha")); }},
    {"prelu", [](Operands x, const Json&) { return prelu(x[0], x[1]); }},
    {"quick_gelu", [](Operands x, const Json&) { return quick_gelu(x[0]); }},
    {"thresholded_relu",
     [](Operands x, const Json& a) { return thresholded_relu(x[0], a.at("alpha")); }},
    {"softsign", [](Operands x, const Json&) { return softsign(x[0]); }},
    {"logsigmoid", [](Operands x, const Json&) { return logsigmoid(x[0]); }},
    {"tanhshrink", [](Operands x, const Json&) { return tanhshrink(x[0]); }},
    {"softshrink", [](Operands x, const Json& a) { return softshrink(x[0], a.at("alpha")); }},
    {"hardshrink", [](Operands x, const Json& a) { return hardshrink(x[0], a.at("alpha")); }},
    {"swiglu", [](Operands x, const Json& a) { return swiglu(x[0], a.at("axis").get<int>()); }},
    {"geglu", [](Operands x, const Json& a) { return geglu(x[0], a.at("axis").get<int>()); }},
    {"reglu", [](Operands x, const Json& a) { return reglu(x[0], a.at("axis").get<int>()); }},
    {"floor_div", [](Operands x, const Json&) { return floor_div(x[0], x[1]); }},
    {"xlogy", [](Operands x, const Json&) { return xlogy(x[0], x[1]); }},
    {"lerp", [](Operands x, const Json&) { return lerp(x[0], x[1], x[2]); }},
    {"isclose",
     [](Operands x, const Json& a) {
       return isclose(x[0], x[1], 1e-5, 1e-8, a.at("equal_nan").get<bool>());
     }},
    {"einsum",
     [](Operands x, const Json& a) { return einsum(a.at("equation").get<std::string>(), x); }},
    {"outer", [](Operands x, const Json&) { return outer(x[0], x[1]); }},
    {"inner", [](Operands x, const Json&) { return inner(x[0], x[1]); }},
    {"kron", [](Operands x, const Json&) { return kron(x[0], x[1]); }},
    {"tensordot", [](Operands x, const Json& a) { return tensordot(x[0], x[1], a.at("axes")); }},
    {"diagonal",
     [](Operands x, const Json& a) {
       const auto axes = axis_list(a.at("axes"));
       return diagonal(x[0], a.at("offset"), axes[0], axes[1]);
     }},
    {"trace",
     [](Operands x, const Json& a) {
       const auto axes = axis_list(a.at("axes"));
       return trace(x[0], a.at("offset"), axes[0], axes[1]);
     }},
    {"random_uniform", [](Operands x, const Json& a) { return random_uniform(x[0], shape_in(a)); }},
    {"random_normal", [](Operands x, const Json& a) { return random_normal(x[0], shape_in(a)); }},
    {"random_integers",
     [](Operands x, const Json& a) { return random_integers(x[0], shape_in(a), -3, 7); }},
    {"random_permutation",
     [](Operands x, const Json& a) { return random_permutation(x[0], a.at("size")); }},
    {"dropout", [](Operands x, const Json& a) { return dropout(x[0], x[1], a.at("rate")); }},
    {"hann_window",
     [](Operands, const Json& a) {
       return hann_window(a.at("size"), a.at("periodic").get<bool>(), f64);
     }},
    {"hamming_window",
     [](Operands, const Json& a) {
       return hamming_window(a.at("size"), a.at("periodic").get<bool>(), f64);
     }},
    {"stft",
     [](Operands x, const Json& a) {
       return stft(x[0], x[1], a.at("hop"), a.at("center").get<bool>());
     }},
    {"mel_filters",
     [](Operands, const Json& a) {
       const bool htk = a.at("scale").get<std::string>() == "htk";
       return mel_filters(5, 64, 8000, 50, 3500, htk ? MelScale::htk : MelScale::slaney);
     }},
    {"log_mel_spectrogram",
     [](Operands x, const Json& a) { return log_mel_spectrogram(x[0], a.at("mels")); }},
    {"nan_to_num", [](Operands x, const Json& a) { return nan_to_num(x[0], a.at("nan")); }},
};

TEST_CASE("builders: math") { check_builders("math", math_table); }
TEST_CASE("builders: math, fresh random cases", "[oracle]") {
  check_fresh_builders("math", math_table);
}

}  // namespace
}  // namespace tenon::testing
