#include "support/op_cases.hpp"

#include "support/case_file.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace tenon::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

AttributeValue attribute_value(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return Name(value.get<std::string>());
  return IntList(std::span<const std::int64_t>(value.get<std::vector<std::int64_t>>()));
}

OpInstance read_op(const Json& entry) {
  const OpDef* def = find_op(entry.at("op").get<std::string>());
  if (def == nullptr) throw std::runtime_error("unknown op in " + entry.at("name").dump());
  OpInstance op(*def);
  for (const auto& [name, value] : entry.at("attributes").items()) {
    const auto field = std::ranges::find(def->fields, name, &AttributeField::name);
    if (field == def->fields.end() || !field->set(op.attributes(), attribute_value(value))) {
      throw std::runtime_error("attribute " + name + " of " + entry.at("name").dump());
    }
  }
  return op;
}

}  // namespace

std::vector<OpCase> read_op_cases(const fs::path& file) {
  const CaseFile arrays(file);
  std::vector<OpCase> cases;
  for (const Json& entry : arrays.cases()) {
    OpCase op_case;
    op_case.name = entry.at("name").get<std::string>();
    op_case.op = read_op(entry);
    op_case.inputs = arrays.arrays(entry.at("inputs"));
    op_case.output = arrays.array(entry.at("output"));
    op_case.absolute = entry.at("absolute").get<double>();
    op_case.relative = entry.at("relative").get<double>();
    cases.push_back(std::move(op_case));
  }
  return cases;
}

std::vector<fs::path> committed_op_cases() {
  return files_like("tests/ops/data", "cases_", ".safetensors");
}

std::vector<fs::path> generated_op_cases() { return generated_cases("op_cases_"); }

}  // namespace tenon::testing
