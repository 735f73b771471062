#include "base/suggestion.hpp"
#include "environment.hpp"
#include "tool.hpp"
#ifdef TENON_WITH_CUDA_EMULATION
#include "emulation/emulation.hpp"
#endif

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/cuda.hpp>
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_remote.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/nn/objects.hpp>
#include <tenon/text/objects.hpp>
#include <tenon/version.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace {

using tenon::Errc;
using tenon::Error;
using tenon::tool::Json;
using tenon::tool::Tool;

void warn(std::string_view message) {
  std::fputs(fmt::format("tenon: warning: {}\n", message).c_str(), stderr);
}

/// A message as one line: without indentation, and without the line that points at a column.
std::string joined(std::string_view message) {
  std::string line;
  while (!message.empty()) {
    const std::size_t end = std::min(message.find('\n'), message.size());
    std::string_view part = message.substr(0, end);
    part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    if (!part.empty() && part != "^") line += fmt::format("{}{}", line.empty() ? "" : " ", part);
    message.remove_prefix(std::min(end + 1, message.size()));
  }
  return line;
}

/// One line on stderr; with --json also an object on stdout.
int report(const Tool& tool, const Error& error) {
  std::fputs(fmt::format("tenon: {}\n", joined(error.what())).c_str(), stderr);
  if (tool.json) {
    try {
      tool.print({{"error",
                   {{"code", std::string(spelling(error.code()))},
                    {"message", error.message()},
                    {"where", error.where()}}}});
    } catch (const std::system_error&) {
      // Standard output is what failed: the line above has said so.
    }
  }
  return exit_status(error.code());
}

/// What this program can run on, and the classes of objects in programs.
void register_all() {
  tenon::nn::register_objects();
  tenon::text::register_objects();
  tenon::register_cpu_backend();
  tenon::register_reference_backend();
  tenon::register_npu_sim();
  tenon::register_npu_remote();
  tenon::register_npu_backend();
#ifdef TENON_WITH_CUDA
  tenon::register_cuda_backend();
#endif
#ifdef TENON_WITH_CUDA_EMULATION
  tenon::cuda::register_emulation();
#endif
}

/// On a full device, writing buffered output fails only here.
void flush_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw Error(Errc::io_error, "standard output", "cannot be written");
  }
}

bool asks_for_json(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    if (std::string_view(arguments[i]) == "--json") return true;
  }
  return false;
}

/// The first argument that is none of the command's options and begins as one; empty: none does.
std::string unknown_option(const CLI::App& app) {
  for (const std::string& argument : app.remaining()) {
    if (argument.starts_with("-") && argument.size() > 1) {
      return argument.substr(0, argument.find('='));
    }
  }
  return {};
}

/// "; did you mean ...?" for that argument.
std::string suggested_option(const CLI::App& app) {
  const std::string wrong = unknown_option(app);
  if (!wrong.starts_with("--")) return {};
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return tenon::suggestion(wrong, std::vector<std::string_view>(names.begin(), names.end()));
}

std::string suggested_command(const CLI::App& app, std::string_view wrong) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return tenon::suggestion(wrong, std::vector<std::string_view>(names.begin(), names.end()));
}

/// The message for a wrong command line, with the help to read.
std::string complaint(const CLI::App& app, const CLI::Error& error, int count, char** arguments) {
  const auto chosen = app.get_subcommands();
  if (!chosen.empty()) {
    std::string what = error.what();
    // CLI11 would list them in some order, or what is missing: where one is an option, that is what
    // is wrong.
    const bool is_of_names = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                             dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    if (const std::string option = unknown_option(*chosen.front());
        is_of_names && !option.empty()) {
      what = fmt::format("there is no option '{}'", option);
    }
    return fmt::format("{}{} (see `tenon {} --help`)", what, suggested_option(*chosen.front()),
                       chosen.front()->get_name());
  }
  if (count > 1 && arguments[1][0] != '-') {
    return fmt::format("there is no command '{}'{} (see `tenon --help`)", arguments[1],
                       suggested_command(app, arguments[1]));
  }
  return "a command is required (see `tenon --help`)";
}

}  // namespace

int main(int count, char** arguments) {
  Tool tool;
  CLI::App app(
      "Runs language models and sentence encoders on this machine.\n\n"
      "  tenon chat MODEL.gguf                      talk to an instruction-tuned model\n"
      "  tenon generate MODEL.gguf --prompt TEXT    continue a text\n"
      "  tenon embed MODEL TEXT TEXT                compare texts\n"
      "  tenon rerank MODEL -q QUERY TEXT TEXT      the texts that answer best\n"
      "  tenon info MODEL                           what a file holds",
      "tenon");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tenon " + std::string(tenon::version()),
                       "Print the version and exit");
  app.failure_message(
      [](const CLI::App*, const CLI::Error& error) { return std::string(error.what()); });
#define TENON_COMMAND(name) tenon::tool::add_##name(app, tool);
#include "commands.def"
#undef TENON_COMMAND
  app.footer(
      "`tenon COMMAND --help` describes a command. Exit status: 0, or 2 wrong usage, 3 malformed "
      "file,\n"
      "4 unsupported, 5 machine (memory, storage, device), 6 ended early, 1 internal error of "
      "tenon.");
  try {
    try {
      app.parse(count, arguments);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() != 0) throw;
      app.exit(error);  // prints the help or the version
      flush_output();
      return 0;
    }
    for (const std::string& sentence : tenon::tool::unread_variables()) warn(sentence);
    tenon::set_log_sink([](tenon::LogLevel level, std::string_view message) {
      if (level >= tenon::LogLevel::warning) warn(message);
    });
    register_all();
    tool.run();
    flush_output();
    return tool.status;
  } catch (const CLI::ParseError& error) {
    tool.json = asks_for_json(count, arguments);
    return report(
        tool, Error(Errc::bad_argument, "command line", complaint(app, error, count, arguments)));
  } catch (const Error& error) {
    return report(tool, error);
  } catch (const std::bad_alloc&) {
    return report(tool, Error(Errc::out_of_memory, "tenon", "this machine has not enough memory"));
  } catch (const std::system_error& error) {
    return report(tool,
                  Error(Errc::io_error, std::ferror(stdout) != 0 ? "standard output" : "tenon",
                        error.what()));
  } catch (const std::exception& error) {
    return report(tool, Error(Errc::internal, "tenon", error.what()));
  }
}
