// docs/npu.md says what the driver asks for.
#include <tenon/backends/npu.hpp>

#include <fstream>
#include <iterator>
#include <string>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

TEST_CASE("npu: the page of the driver lists every constraint, and no other") {
  std::ifstream file("docs/npu.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::string table = "| op | must hold |\n|---|---|\n";
  for (const ConstraintText& row : constraint_texts()) {
    table += "| ";
    table += row.op;
    table += " | ";
    table += row.clause;
    table += " |\n";
  }
  table += "\n";
  INFO(table);
  CHECK(page.find(table) != std::string::npos);
}

}  // namespace
}  // namespace tenon::npu
