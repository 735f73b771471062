#include "base/folder.hpp"
#include "base/strict_json.hpp"
#include "names.hpp"
#include "network_json.hpp"
#include "program/findings.hpp"
#include "program/limits.hpp"
#include "raw_file.hpp"

#include <tenon/error.hpp>
#include <tenon/io/network.hpp>
#include <tenon/log.hpp>
#include <tenon/memory_errors.hpp>

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::io {
namespace {

using network::ReadFunction;
using network::WordBudget;

std::string read_text(const InputFile& file) {
  if (file.size() > network::max_json_bytes) {
    throw Error(Errc::limit_exceeded, file.name(),
                fmt::format("{} bytes, at most {} are allowed for a network's JSON", file.size(),
                            network::max_json_bytes));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void read_head(const JsonValue& json, Program& program) {
  const JsonValue format = json["format"];
  if (format.text() != network::format_name) {
    format.fail(Errc::bad_magic, fmt::format("expected \"{}\"", network::format_name));
  }
  const JsonValue version = json["version"];
  if (version.integer() != network::version) {
    version.fail(Errc::unsupported_version, fmt::format("version {}, this library reads {}",
                                                        version.integer(), network::version));
  }
  const JsonValue opset = json["opset"];
  if (opset.integer() != 1) {
    opset.fail(Errc::unsupported_version,
               fmt::format("opset {}, this library knows 1", opset.integer()));
  }
  json.check_keys(
      {"format", "version", "name", "opset", "entry", "weights", "raw", "constants", "functions"});
  program.name = json["name"].text();
  program.entry = json["entry"].text();
  if (json.has("weights")) {
    const JsonValue weights = json["weights"];
    weights.check_keys({"file", "sha256"});
    program.weights_file = weights["file"].text();
    program.weights_sha256 = weights["sha256"].text();
  }
}

/// Functions, and for each of their instructions the node it was; the graph is then checked as a
/// program's text would be.
void read_functions(const JsonValue& json, Program& program, WordBudget& words) {
  const JsonValue list = json["functions"];
  std::vector<std::vector<std::size_t>> orders;
  std::int64_t nodes = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonValue item = list[i];
    ReadFunction read = network::read_function(item, words);
    nodes += std::ssize(read.order);
    if (nodes > program_limits::instructions) {
      item.fail(Errc::limit_exceeded,
                fmt::format("more than {} nodes", program_limits::instructions));
    }
    program.functions.push_back(std::move(read.function));
    orders.push_back(std::move(read.order));
  }
  std::unordered_map<std::string_view, std::size_t> results;
  for (const Function& function : program.functions) {
    results.emplace(function.name, function.results.size());
  }
  const auto node_place = [&](std::size_t function, std::size_t instruction) {
    return fmt::format("{}/{}/nodes/{}", list.where(), function, orders[function][instruction]);
  };
  for (std::size_t f = 0; f < program.functions.size(); ++f) {
    Function& function = program.functions[f];
    for (std::size_t i = 0; i < function.body.size(); ++i) {
      const Instruction& instruction = function.body[i];
      if (instruction.kind != Instruction::Kind::call) continue;
      const auto callee = results.find(instruction.function);
      if (callee == results.end()) {
        throw Error(Errc::unknown_op, node_place(f, i),
                    fmt::format("'{}' calls {}, which is no function",
                                function.values[instruction.result].name,
                                quote_name(instruction.function)));
      }
      if (callee->second != 1) function.values[instruction.result].kind = ValueKind::tuple;
    }
  }
  const std::vector<checking::Finding> findings = checking::check(program, false);
  if (findings.empty()) return;
  const checking::Finding& finding = findings.front();
  const checking::Spot& spot = finding.spot;
  if (spot.function < 0) throw Error(finding.code, list.where(), finding.message);
  const auto f = static_cast<std::size_t>(spot.function);
  if (spot.instruction < 0) {
    throw Error(finding.code, fmt::format("{}/{}", list.where(), f), finding.message);
  }
  const auto i = static_cast<std::size_t>(spot.instruction);
  const Instruction& instruction = program.functions[f].body[i];
  throw Error(finding.code, node_place(f, i),
              fmt::format("{} '{}': {}", checking::spelling(instruction),
                          program.functions[f].values[instruction.result].name, finding.message));
}

/// RAW under its id, as left by a save that was killed after it had replaced the JSON. Null where
/// there is none.
template <class Open>
std::shared_ptr<const InputFile> open_unsettled(const Open& open, const JsonValue& id) {
  if (!is_raw_id(id.text())) id.fail(Errc::syntax, "expected 16 hexadecimal digits");
  try {
    return open(fmt::format(".{}", id.text()));
  } catch (const Error& error) {
    if (error.code() == Errc::not_found) return nullptr;
    throw;
  }
}

std::shared_ptr<const InputFile> open_raw(const JsonValue& json,
                                          const std::filesystem::path& json_path,
                                          const std::filesystem::path& raw_path,
                                          const NetworkOptions& options) {
  const JsonValue raw = json["raw"];
  raw.check_keys({"file", "size_bytes", "id"});
  const JsonValue name = raw["file"];
  const JsonValue size_json = raw["size_bytes"];
  const std::uint64_t expected = network::read_bytes(size_json);
  if (raw_path.empty()) check_file_name(name.text(), "RAW file", name.where());
  const auto open = [&](const std::string& suffix) {
    if (!raw_path.empty()) {
      std::filesystem::path path = raw_path;
      return InputFile::open(path += suffix, options.access);
    }
    // An untrusted name must stay in the folder, whatever links are there.
    return Folder(json_path.parent_path())
        .open(std::string(name.text()) + suffix, Links::beneath, options.access);
  };
  auto file = raw.has("id") ? open_unsettled(open, raw["id"]) : nullptr;
  if (file == nullptr) file = open("");
  if (file->size() < expected) {
    throw Error(Errc::truncated, fmt::format("{}:{}", file->name(), file->size()),
                fmt::format("the file has {} bytes of {}", file->size(), expected));
  }
  if (file->size() > expected) {
    throw Error(Errc::trailing_data, fmt::format("{}:{}", file->name(), expected),
                fmt::format("{} bytes follow the last constant", file->size() - expected));
  }
  return file;
}

Network load(const std::filesystem::path& json_path, const std::filesystem::path& raw_path,
             const NetworkOptions& options) {
  const auto file = InputFile::open(json_path, Access::read);
  const JsonDocument document = parse_strict_json(read_text(*file), file->name());
  JsonFile origin{file->name(), options.strict, 0, {}};
  const JsonValue json(document.root(), origin);
  Network net;
  WordBudget words;
  read_head(json, net.program);
  read_functions(json, net.program, words);
  network::read_constants(json["constants"], open_raw(json, json_path, raw_path, options),
                          options.verify_constants, net, words);
  if (origin.unknown_keys > 0) {
    log(LogLevel::warning, fmt::format("{}: {} keys that the format does not know, the first at {}",
                                       origin.name, origin.unknown_keys, origin.first_unknown));
  }
  return net;
}

}  // namespace

Network load_network(const std::filesystem::path& json_path, const std::filesystem::path& raw_path,
                     const NetworkOptions& options) {
  return with_memory_errors(json_path.native(), [&] { return load(json_path, raw_path, options); });
}

}  // namespace tenon::io
