// Builder cases: what python/tests/builder_cases_FAMILY.py computed for builders that may record
// several ops. The format is that of op cases, with a builder's name as "op" and any JSON object as
// "attributes"; {"constants": [1]} there makes input 1 a constant, as weights of a model are.
//
// Each tests/builders/FAMILY_test.cpp has a table from names to functions, and two test cases:
//
//   const BuilderTable table = {
//       {"roll", [](Operands x, const Json& a) { return roll(x[0], a.at("shift"), 0); }},
//   };
//   TEST_CASE("builders: index") { check_builders("index", table); }
//   TEST_CASE("builders: index, fresh", "[oracle]") { check_fresh_builders("index", table); }
#pragma once

#include <tenon/attributes.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tenon::testing {

using Json = nlohmann::json;
using Operands = std::span<const Tensor>;
using BuilderTable = std::map<std::string, std::function<Tensor(Operands, const Json&)>>;

/// Runs the committed cases, tests/builders/data/cases_FAMILY.safetensors, by the reference and by
/// the CPU backend (exact and fast), as recorded and optimised. Every builder of the table must
/// have a case, and every case a builder.
void check_builders(std::string_view family, const BuilderTable& table);

/// The same for cases that python/tests/builder_cases_FAMILY.py makes now (see generated_cases).
void check_fresh_builders(std::string_view family, const BuilderTable& table);

/// The committed cases of these builders with symbols in the place of the first operand's sizes, one for
/// each size.
void check_open_builders(std::string_view family, const BuilderTable& table,
                         std::span<const std::string_view> builders);

/// A list of integers in the attributes.
IntList int_list(const Json& value);
/// A list of axes in the attributes.
std::vector<AxisRef> axis_list(const Json& value);

/// Attributes that builders of several families have.
inline int axis_in(const Json& a) { return a.at("axis").get<int>(); }
inline std::int64_t number(const Json& a, const char* name) {
  return a.at(name).get<std::int64_t>();
}

}  // namespace tenon::testing
