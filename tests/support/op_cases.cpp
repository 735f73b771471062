#include "support/op_cases.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace tenon::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

/// A safetensors file, read whole.
class ArrayFile {
 public:
  explicit ArrayFile(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    std::uint64_t length = 0;
    if (bytes_.size() < sizeof length) throw std::runtime_error("no op cases in " + path.string());
    std::memcpy(&length, bytes_.data(), sizeof length);
    if (length > bytes_.size() - sizeof length) throw std::runtime_error("short " + path.string());
    data_ = sizeof length + length;
    header_ = Json::parse(bytes_.begin() + sizeof length,
                          bytes_.begin() + static_cast<std::ptrdiff_t>(data_));
  }

  Json cases() const {
    return Json::parse(header_.at("__metadata__").at("cases").get<std::string>());
  }

  /// The array that a case calls {"array": name, "dtype": type, "shape": sizes}.
  HostBuffer array(const Json& entry) const {
    const auto dtype = find_dtype(entry.at("dtype").get<std::string>());
    if (!dtype) throw std::runtime_error("unknown dtype in " + entry.dump());
    const auto dims = entry.at("shape").get<std::vector<std::int64_t>>();
    HostBuffer array = HostBuffer::uninitialized(Shape(dims, *dtype));
    const auto offsets = header_.at(entry.at("array").get<std::string>()).at("data_offsets");
    const auto begin = offsets.at(0).get<std::size_t>();
    const auto size = offsets.at(1).get<std::size_t>() - begin;
    if (static_cast<std::int64_t>(size) != array.shape().bytes() ||
        data_ + begin + size > bytes_.size()) {
      throw std::runtime_error("wrong size of " + entry.dump());
    }
    std::memcpy(array.view().data, bytes_.data() + data_ + begin, size);
    return array;
  }

 private:
  std::vector<char> bytes_;
  std::size_t data_ = 0;
  Json header_;
};

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

std::vector<fs::path> files_like(const fs::path& folder, std::string_view start,
                                 std::string_view end) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(start) && name.ends_with(end)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

std::vector<OpCase> read_op_cases(const fs::path& file) {
  const ArrayFile arrays(file);
  std::vector<OpCase> cases;
  for (const Json& entry : arrays.cases()) {
    OpCase op_case;
    op_case.name = entry.at("name").get<std::string>();
    op_case.op = read_op(entry);
    for (const Json& input : entry.at("inputs")) op_case.inputs.push_back(arrays.array(input));
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

std::vector<fs::path> generated_op_cases() {
  const char* python = std::getenv("TENON_ORACLE_PYTHON");
  if (python == nullptr || *python == '\0') return {};
  const char* wanted = std::getenv("TENON_TEST_SEED");
  const std::string seed =
      wanted != nullptr ? wanted : std::to_string(std::random_device{}() % 1000000);
  std::cout << "op cases: TENON_TEST_SEED=" << seed << '\n';
  std::vector<fs::path> made;
  for (const fs::path& script : files_like("python/tests", "op_cases_", ".py")) {
    const fs::path output =
        fs::temp_directory_path() / (script.stem().string() + "_" + seed + ".safetensors");
    const std::string command =
        std::string(python) + " " + script.string() + " " + output.string() + " --seed " + seed;
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
    made.push_back(output);
  }
  return made;
}

}  // namespace tenon::testing
