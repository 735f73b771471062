// Prints random programs for check_program_text.py: print_programs [COUNT].

#include "support/random_program.hpp"

#include <cstdio>
#include <cstdlib>

int main(int count, char** arguments) {
  using namespace tenon::testing;
  const std::uint64_t first = fuzz_seed(1);
  const std::uint64_t programs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 200;
  for (std::uint64_t seed = first; seed < first + programs; ++seed) {
    RandomProgram random(seed);
    const tenon::Program program =
        random.make({.instructions = 16, .callees = static_cast<int>(random.integer(0, 2))});
    std::fputs(print(program).c_str(), stdout);
    std::fputs("----\n", stdout);
  }
}
