// What holds for every op of ops.def.
#include "support/op_cases.hpp"
#include "support/op_testing.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

namespace tenon::testing {
namespace {

TEST_CASE("registry: names are words of the text form, each once") {
  std::set<std::string_view> names;
  for (const OpDef* def : all_ops()) {
    INFO(def->name);
    CHECK(names.insert(def->name).second);
    CHECK(find_op(def->name) == def);
    CHECK(std::ranges::all_of(def->name, [](char c) {
      return std::islower(static_cast<unsigned char>(c)) ||
             std::isdigit(static_cast<unsigned char>(c)) || c == '_';
    }));
  }
  CHECK(find_op("no_such_op") == nullptr);
}

TEST_CASE("registry: every op has a meaning, and sensible traits") {
  for (const OpDef* def : all_ops()) {
    INFO(def->name);
    CHECK(def->infer != nullptr);
    CHECK(def->reference != nullptr);
    CHECK(def->min_inputs <= def->max_inputs);
    CHECK(def->traits.view == (def->view != nullptr));
    CHECK(def->traits.updates_input < def->max_inputs);
    CHECK((def->max_inputs >= 32 || def->traits.in_place_inputs >> def->max_inputs == 0));
    CHECK((!def->traits.commutative || def->min_inputs >= 2));
  }
}

TEST_CASE("registry: every attribute reads back what was stored") {
  for (const OpDef* def : all_ops()) {
    OpInstance op(*def);
    for (const AttributeField& field : def->fields) {
      INFO(def->name << "." << field.name);
      const AttributeValue value = field.get(op.attributes());
      CHECK(field.set(op.attributes(), value));
      CHECK(field.get(op.attributes()) == value);
    }
    CHECK(op == OpInstance(*def));
  }
}

TEST_CASE("registry: every op has a committed case from an independent source") {
  std::set<std::string_view> covered;
  for (const auto& file : committed_op_cases()) {
    for (const OpCase& op_case : read_op_cases(file)) covered.insert(op_case.op.def()->name);
  }
  for (const OpDef* def : all_ops()) {
    if (def->name == "quantize")
      continue;  // tests/core/quant_test.cpp holds it to the GGUF reference
    INFO(def->name);
    CHECK(covered.count(def->name) == 1);
  }
}

}  // namespace
}  // namespace tenon::testing
