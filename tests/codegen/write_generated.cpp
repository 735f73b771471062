// Writes what the test compiles: write_generated FOLDER TEXT...
#include "selected_cases.hpp"

#include <tenon/codegen.hpp>
#include <tenon/nn/objects.hpp>
#include <tenon/program.hpp>
#include <tenon/text/objects.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The functions of `every_op` in a table, under one type.
std::string table_of(const std::vector<tenon::testing::OpCase>& cases) {
  std::string text =
      "#pragma once\n#include \"every_op.hpp\"\n#include <vector>\n"
      "using Call = tenon::EagerArray (*)(every_op::Model&, std::vector<tenon::EagerArray>&);\n"
      "inline const Call every_op_calls[] = {\n";
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::string arguments;
    for (std::size_t k = 0; k < cases[i].inputs.size(); ++k) {
      arguments += fmt::format("{}std::move(x[{}])", k == 0 ? "" : ", ", k);
    }
    const bool is_used = !cases[i].inputs.empty();
    text += fmt::format(
        "  [](every_op::Model& model, std::vector<tenon::EagerArray>&{}) {{ return model.op{}({}); "
        "}},\n",
        is_used ? " x" : "", i, arguments);
  }
  return text + "};\n";
}

}  // namespace

int main(int count, char** arguments) {
  tenon::nn::register_objects();
  tenon::text::register_objects();
  const std::filesystem::path folder = arguments[1];
  const auto cases = tenon::testing::selected_cases();
  std::ofstream(folder / "every_op.hpp") << codegen(tenon::testing::program_of(cases));
  std::ofstream(folder / "every_op_calls.hpp") << table_of(cases);
  for (int i = 2; i < count; ++i) {
    const std::filesystem::path text = arguments[i];
    const std::filesystem::path output = folder / text.stem().concat(".hpp");
    std::ofstream(output) << tenon::codegen(
        tenon::parse(read(text), text.string()),
        {.text_file = text.filename().string(), .output_file = output.filename().string()});
  }
}
