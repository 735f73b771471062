// Prints the program of one step of the language model in a GGUF file, and writes the constants that
// folding made to a safetensors file: ir_model GGUF FOLDED.
#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/io/save.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/program.hpp>

#include <cstdio>
#include <exception>
#include <vector>

int main(int count, char** arguments) try {
  if (count != 3) {
    std::fputs("usage: ir_model GGUF FOLDED\n", stderr);
    return 2;
  }
  tenon::register_cpu_backend();
  tenon::register_reference_backend();
  tenon::models::LanguageModelOptions options;
  options.context = 64;
  options.cache = tenon::f32;
  options.lazy = true;
  const auto model = tenon::models::LanguageModel::load(arguments[1], options);
  std::vector<tenon::io::NamedTensor> folded;
  for (const auto& [name, value] : model.program().folded) folded.push_back({name, value});
  tenon::io::save_safetensors(arguments[2], folded);
  std::fputs(print(model.program()).c_str(), stdout);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
