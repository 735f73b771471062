#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

/// `is_one_of_several`: that the file cannot be read is then one of its errors, and the others are
/// checked all the same.
std::vector<Diagnostic> errors_of(const std::string& path, bool is_one_of_several) {
  std::string text;
  try {
    text = read_text(path);
  } catch (const Error& error) {
    if (!is_one_of_several) throw;
    return {{error.code(), {path, 0, 0}, error.message()}};
  }
  ParseResult parsed = parse_all(text, path);
  if (!parsed.errors.empty()) return std::move(parsed.errors);
  return check_program(parsed.program);
}

void run(Tool& tool, const std::vector<std::string>& paths) {
  Json files = Json::array();
  for (const std::string& path : paths) {
    const std::vector<Diagnostic> errors = errors_of(path, paths.size() > 1);
    Json found = Json::array();
    for (const Diagnostic& error : errors) {
      if (tool.status == 0) tool.status = exit_status(error.code);
      const std::string_view first =
          std::string_view(error.message).substr(0, error.message.find('\n'));
      found.push_back({{"code", std::string(spelling(error.code))},
                       {"line", error.line.line},
                       {"column", error.line.column},
                       {"message", std::string(first)}});
      if (!tool.json && error.line.line == 0) {
        fmt::print("{}: {}: {}\n", spelling(error.code), path, error.message);
      } else if (!tool.json) {
        fmt::print("{}: {}:{}:{}: {}\n", spelling(error.code), path, error.line.line,
                   error.line.column, error.message);
      }
    }
    if (!tool.json && errors.empty()) fmt::print("{}: right\n", path);
    files.push_back({{"file", path}, {"errors", found}});
  }
  if (tool.json) tool.print({{"files", files}});
}

}  // namespace

void add_check(CLI::App& app, Tool& tool) {
  Command command(app, tool, "check",
                  "Every error of programs' texts: grammar, names, types, loops, state");
  auto paths = std::make_shared<std::vector<std::string>>();
  command.option("FILE", *paths, "Texts of programs; - is standard input").required();
  add_json(command);
  command.runs([&tool, paths] { run(tool, *paths); });
}

}  // namespace tenon::tool
