#include "npu/isa/tables.hpp"
#include "support/expect_error.hpp"

#include <fstream>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;

namespace {

std::string page() {
  std::ostringstream text;
  text << std::ifstream("docs/npu-isa.md").rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("isa page: its tables are those of isa.def") {
  const std::string text = page();
  REQUIRE(text.size() > 10000);
  CHECK(isa::fill_tables(text) == text);
}

TEST_CASE("isa page: every table that has lines stands in it") {
  const std::string text = page();
  for (const std::string& name : isa::table_names()) {
    INFO(name);
    const std::string table = isa::table(name);
    const auto lines = std::count(table.begin(), table.end(), '\n');
    if (lines <= 2 || name == "Flow") continue;  // no fields; Flow is told under "Time"
    CHECK(text.find("<!-- table: " + name + " -->") != std::string::npos);
  }
}

TEST_CASE("isa page: a changed cell is noticed, a broken mark refused") {
  const std::string made = isa::fill_tables("<!-- table: Fence -->\nold\n<!-- end -->");
  CHECK(made == "<!-- table: Fence -->\n" + isa::table("Fence") + "<!-- end -->");
  testing::expect_error(Errc::syntax, [] { isa::fill_tables("<!-- table: Fence -->\n"); });
  testing::expect_error(Errc::syntax, [] { isa::fill_tables("<!-- table: No -->\n<!-- end -->"); });
}
