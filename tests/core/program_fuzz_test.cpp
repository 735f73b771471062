// Properties of every program's text, checked for random programs and for randomly damaged texts.

#include "support/random_program.hpp"

#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <clocale>
#include <random>
#include <set>
#include <string>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

Program random_program(std::uint64_t seed) {
  RandomProgram random(seed);
  return random.make({.instructions = 16, .callees = static_cast<int>(random.integer(0, 2))});
}

/// A few of: a byte lost, doubled or replaced; a piece lost, doubled or moved; a word of the
/// language.
std::string damaged(std::string text, std::mt19937_64& engine) {
  static constexpr std::string_view pieces[] = {"(",
                                                ")",
                                                "[",
                                                "]",
                                                ",",
                                                "=",
                                                ":",
                                                "\"",
                                                "\\",
                                                "#",
                                                "\n",
                                                "\r",
                                                " ",
                                                "    ",
                                                "def ",
                                                "return ",
                                                "-",
                                                "0",
                                                "9223372036854775808",
                                                "1e999",
                                                "nan",
                                                "True",
                                                "const",
                                                "repeat",
                                                "pack",
                                                "item",
                                                "scope",
                                                "S",
                                                "_",
                                                "f32[",
                                                "q4_k[1]",
                                                "\xFF",
                                                "\xC3",
                                                "first=",
                                                "forward",
                                                "1.5"};
  const auto below = [&](std::size_t n) {
    return n == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, n - 1)(engine);
  };
  for (std::size_t n = 1 + below(4); n > 0; --n) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(text.size() - at, 40) + 1);
    switch (below(6)) {
      case 0:
        text.erase(at, 1 + below(3));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, pieces[below(std::size(pieces))]);
        break;
      case 3:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      default:
        text.replace(at, length, pieces[below(std::size(pieces))]);
        break;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("text: parse undoes print, and printing what was parsed changes nothing") {
  const std::uint64_t first = fuzz_seed(1);
  std::set<std::string_view> ops;
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(fuzz_rounds(300));
       ++seed) {
    const Program program = random_program(seed);
    const std::string text = print(program);
    INFO("seed " << seed << "\n" << text);
    const Program again = parse(text);
    REQUIRE(same_program(again, program));
    REQUIRE(print(again) == text);
    for (const Function& function : program.functions) {
      for (const Instruction& instruction : function.body) {
        if (instruction.op.def() != nullptr) ops.insert(instruction.op.def()->name);
      }
    }
  }
  // The generator reaches most ops: a test of twenty would say little.
  CHECK(ops.size() > all_ops().size() / 2);
}

TEST_CASE("text: damaged texts give errors with a place, or programs that print and parse") {
  const std::uint64_t first = fuzz_seed(1000);
  std::mt19937_64 engine(first);
  int refused = 0;
  int accepted = 0;
  for (int round = 0; round < fuzz_rounds(60); ++round) {
    const std::string whole = print(random_program(first + static_cast<std::uint64_t>(round)));
    for (int i = 0; i < 40; ++i) {
      const std::string text = damaged(whole, engine);
      INFO("seed " << first << ", round " << round << "\n" << text);
      ParseResult result = parse_all(text, "damaged.tenon");
      if (result.errors.empty()) {
        ++accepted;
        const std::string canonical = print(result.program);
        const Program again = parse(canonical);
        REQUIRE(same_program(again, result.program));
        REQUIRE(print(again) == canonical);
        continue;
      }
      ++refused;
      for (const Diagnostic& error : result.errors) {
        REQUIRE(error.code != Errc::internal);
        REQUIRE(error.line.file == "damaged.tenon");
        REQUIRE(error.line.line >= 1);
        REQUIRE(error.line.column >= 1);
        REQUIRE(error.message.find('^') != std::string::npos);
      }
    }
  }
  CHECK(refused > accepted);
  CHECK(accepted > 0);
}

TEST_CASE("text: cut short at every byte") {
  const std::string text = print(random_program(fuzz_seed(7)));
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    INFO(size);
    const ParseResult result = parse_all(std::string_view(text).substr(0, size));
    // A last line that loses the names behind a comma is a shorter program.
    if (result.errors.empty()) {
      REQUIRE(size > text.rfind("return"));
    }
  }
}
