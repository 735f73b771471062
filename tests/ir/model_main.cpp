// Prints the program of one step of the language model in a GGUF file: ir_model GGUF.
#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/program.hpp>

#include <cstdio>
#include <exception>

int main(int count, char** arguments) try {
  tenon::register_cpu_backend();
  tenon::register_reference_backend();
  tenon::models::LanguageModelOptions options;
  options.context = 64;
  options.lazy = true;
  const auto model = tenon::models::LanguageModel::load(count > 1 ? arguments[1] : "", options);
  std::fputs(print(model.program()).c_str(), stdout);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
