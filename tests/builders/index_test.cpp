#include "builder_cases.hpp"

#include <tenon/ops.hpp>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

Name word(const Json& a, const char* name) { return {a.at(name).get<std::string>()}; }

AxisList axes_in(const Json& a) {
  const std::vector<AxisRef> axes = axis_list(a.at("axes"));
  return AxisList(std::span<const AxisRef>(axes));
}
bool keeps(const Json& a) { return a.at("keep_dims").get<bool>(); }
const BuilderTable index_table = {
    {"logsumexp", [](Operands x, const Json& a) { return logsumexp(x[0], axes_in(a), keeps(a)); }},
    {"variance",
     [](Operands x, const Json& a) {
       return variance(x[0], axes_in(a), a.at("correction").get<double>(), keeps(a));
     }},
    {"standard_deviation",
     [](Operands x, const Json& a) {
       return standard_deviation(x[0], axes_in(a), a.at("correction").get<double>(), keeps(a));
     }},
    {"norm",
     [](Operands x, const Json& a) {
       return norm(x[0], std::stod(a.at("p").get<std::string>()), axes_in(a), keeps(a));
     }},
    {"count_nonzero",
     [](Operands x, const Json& a) { return count_nonzero(x[0], axes_in(a), keeps(a)); }},
    {"last_argmax", [](Operands x, const Json& a) { return argmax(x[0], axis_in(a), Ties::last); }},
    {"last_argmin", [](Operands x, const Json& a) { return argmin(x[0], axis_in(a), Ties::last); }},
    {"bincount",
     [](Operands x, const Json& a) {
       return bincount(x[0], number(a, "size"), x.size() > 1 ? x[1] : Tensor());
     }},
    {"one_hot",
     [](Operands x, const Json& a) {
       return one_hot(x[0], number(a, "classes"), a.at("on").get<double>(),
                      a.at("off").get<double>());
     }},
    {"tril", [](Operands x, const Json& a) { return tril(x[0], number(a, "k")); }},
    {"triu", [](Operands x, const Json& a) { return triu(x[0], number(a, "k")); }},
    {"diagonal_matrix",
     [](Operands x, const Json& a) { return diagonal_matrix(x[0], number(a, "k")); }},
    {"eye",
     [](Operands, const Json& a) {
       return eye(number(a, "rows"), number(a, "columns"), number(a, "k"));
     }},
    {"masked_fill",
     [](Operands x, const Json& a) {
       return masked_fill(x[0], x[1], a.at("value").get<double>());
     }},
    {"masked_select",
     [](Operands x, const Json& a) {
       return masked_select(x[0], x[1], number(a, "capacity"), 0.5).values;
     }},
    {"nonzero",
     [](Operands x, const Json& a) { return nonzero(x[0], number(a, "capacity")).indices; }},
    {"number_of_nonzero",
     [](Operands x, const Json& a) { return nonzero(x[0], number(a, "capacity")).count; }},
    {"unique",
     [](Operands x, const Json& a) { return unique(x[0], number(a, "capacity"), 9).values; }},
    {"unique_inverse",
     [](Operands x, const Json& a) { return unique(x[0], number(a, "capacity")).inverse; }},
    {"unique_counts",
     [](Operands x, const Json& a) { return unique(x[0], number(a, "capacity")).counts; }},
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

TEST_CASE("builders: index") { check_builders("index", index_table); }
TEST_CASE("builders: index, with symbolic sizes") {
  constexpr std::array<std::string_view, 7> builders{
      "gather_nd", "nonzero",       "number_of_nonzero", "scatter_nd",
      "unique",    "unique_counts", "unique_inverse"};
  check_open_builders("index", index_table, builders);
}
TEST_CASE("builders: index, fresh random cases", "[oracle]") {
  check_fresh_builders("index", index_table);
}

}  // namespace
}  // namespace tenon::testing
