// Writes random programs as C++ that random_code.cpp includes: write_random_code FILE FIRST_SEED COUNT.
#include "random_model.hpp"

#include <tenon/codegen.hpp>
#include <tenon/program.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace {

using namespace tenon;
using namespace tenon::testing;

/// `results_of(model.forward(...))` of an entry function.
std::string call_of(const Function& entry, std::size_t inputs) {
  std::string arguments;
  for (std::size_t i = 0; i < inputs; ++i) {
    arguments += fmt::format("{}std::move(x[{}])", i == 0 ? "" : ", ", i);
  }
  const std::string call = fmt::format("model.{}({})", entry.name, arguments);
  return entry.results.empty() ? call + "; return {};"
                               : fmt::format("return results_of({});", call);
}

}  // namespace

int main(int, char** arguments) {
  const std::uint64_t first = std::stoull(arguments[2]), count = std::stoull(arguments[3]);
  std::string code, table;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    RandomModel made = make_random_model({.seed = seed});
    made.program.name = fmt::format("seed_{}", seed);
    code += codegen(made.program);
    table += fmt::format(
        "  {{{}, [](const Eager& eager, [[maybe_unused]] std::vector<EagerArray>& x) -> Arrays {{\n"
        "    {}::Model model(eager);\n    {}\n  }}}},\n",
        seed, made.program.name, call_of(made.program.main(), made.inputs.size()));
  }
  std::ofstream(arguments[1]) << code << "\nconst Compiled compiled[] = {\n" << table << "};\n";
}
