// Any text as a program: findings, or a program that prints to a text which reads back as itself,
// whose plan stays inside the memory of its constants, inputs and outputs, and that runs alike on
// the reference and the CPU backend.
#include "fuzz/memory_file.hpp"
#include "fuzz/run_program.hpp"
#include "fuzz/targets.hpp"
#include "support/plan_bounds.hpp"

#include <tenon/lowered.hpp>
#include <tenon/program.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::testing {
namespace {

/// The parameters' types with a size for each that is open; none for a parameter without a type.
std::vector<Shape> example_inputs(const Function& main) {
  std::vector<Shape> inputs;
  for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
    if (!main.values[i].shape) return {};
    Shape shape = *main.values[i].shape;
    for (int d = 0; d < shape.rank(); ++d) {
      if (!is_static(shape[d])) shape = shape.with_dim(d, 32);
    }
    inputs.push_back(shape);
  }
  return inputs;
}

}  // namespace

void fuzz_program(Bytes bytes) {
  try {
    Program program = parse(as_text(bytes), "fuzz");
    const std::string text = print(program);
    if (print(parse(text, "again")) != text) fail("printing and reading disagree");
    verify(program);
    const Lowered lowered = lower(program, example_inputs(program.main()));
    if (const std::string trouble = out_of_bounds(lowered); !trouble.empty()) fail(trouble.c_str());
    run_program(program);
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
  }
}

}  // namespace tenon::testing
