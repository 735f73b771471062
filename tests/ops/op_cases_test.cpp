// Every case that numpy computed, through the reference of its op.
#include "support/op_cases.hpp"

#include "support/op_testing.hpp"

#include <filesystem>

namespace tenon::testing {
namespace {

void check_cases(const std::filesystem::path& file) {
  const std::vector<OpCase> cases = read_op_cases(file);
  REQUIRE_FALSE(cases.empty());
  for (const OpCase& op_case : cases) {
    INFO(file.filename().string() << ": " << op_case.name);
    expect_close(apply_op(op_case.op, op_case.inputs), op_case.output, op_case.absolute,
                 op_case.relative);
  }
}

TEST_CASE("ops: the committed numpy cases") {
  const auto files = committed_op_cases();
  REQUIRE_FALSE(files.empty());
  for (const auto& file : files) check_cases(file);
}

TEST_CASE("ops: fresh random numpy cases", "[oracle]") {
  const auto files = generated_op_cases();
  if (files.empty())
    WARN("SKIPPED: TENON_ORACLE_PYTHON names no Python with numpy and safetensors");
  for (const auto& file : files) {
    check_cases(file);
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace tenon::testing
