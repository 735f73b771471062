// What the library says of programs, for the tests of tenon.ir.
//
//   check                       reads texts, each after a line with its size in bytes, and prints a
//                               line of JSON for each: {"text": canonical text, "typed":
//                               the same with the types that follow} or
//                               {"errors": [[line, column, code], ..]}
//   run PROGRAM VALUES RESULTS  runs a program on the reference backend. VALUES, a safetensors file,
//                               has the inputs and constants by name; results are "0", "1", ..
#include "base/json_writer.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/save.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

std::string verdict(const std::string& text) {
  ParseResult result = parse_all(text, "text");
  JsonWriter json;
  json.begin_object();
  if (result.errors.empty()) {
    json.member("text", print(result.program));
    verify(result.program);
    json.member("typed", print(result.program));
  } else {
    json.key("errors").begin_array();
    for (const Diagnostic& error : result.errors) {
      json.begin_array().value(error.line.line).value(error.line.column);
      json.value(spelling(error.code)).end_array();
    }
    json.end_array();
  }
  json.end_object();
  return json.take();
}

void check() {
  for (std::string size; std::getline(std::cin, size);) {
    std::string text(std::stoull(size), '\0');
    if (!std::cin.read(text.data(), static_cast<std::streamsize>(text.size()))) {
      throw Error(Errc::truncated, "check", "a text is shorter than its size");
    }
    std::puts(verdict(text).c_str());
  }
}

void run(const std::string& program_path, const std::string& values_path,
         const std::string& results_path) {
  std::ifstream file(program_path, std::ios::binary);
  Program program = parse(std::string(std::istreambuf_iterator<char>(file), {}), program_path);
  const io::File values = io::open(values_path);
  std::vector<std::string> names;
  for (const auto& tensor : values.tensors()) names.emplace_back(tensor.name);
  std::map<std::string, Buffer> buffers = io::load_buffers(values, names, cpu_device());
  std::vector<Buffer> inputs;
  const Function& main = program.main();
  for (std::uint32_t k = 0; k < main.parameter_count; ++k) {
    inputs.push_back(buffers.at(main.values[k].name));
  }
  Session session(std::move(program), {.backends = {make_backend("reference")}});
  session.bind(std::make_shared<const WeightSet>(std::move(buffers)));
  std::vector<io::NamedTensor> results;
  for (const Buffer& result : session.forward(inputs)) {
    results.push_back({fmt::format("{}", results.size()), result.to_host()});
  }
  io::save_safetensors(results_path, results);
}

}  // namespace
}  // namespace tenon

int main(int count, char** arguments) try {
  tenon::register_reference_backend();
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (given.size() == 1 && given[0] == "check") {
    tenon::check();
  } else if (given.size() == 4 && given[0] == "run") {
    tenon::run(given[1], given[2], given[3]);
  } else {
    std::fputs("usage: ir_programs check | run PROGRAM VALUES RESULTS\n", stderr);
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
