#include "memory_errors.hpp"
#include "names.hpp"
#include "network_json.hpp"
#include "program/findings.hpp"
#include "program/limits.hpp"
#include "strict_json.hpp"

#include <tenon/error.hpp>
#include <tenon/io/network.hpp>
#include <tenon/log.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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

/// An offset or size: anything but an integer from 0 to 2^63 - 1 is Errc::bad_offset.
std::uint64_t read_place(const JsonValue& value) {
  const nlohmann::json& json = value.json();
  const bool fits = json.is_number_unsigned() &&
                    json.get<std::uint64_t>() <=
                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!fits) {
    value.fail(Errc::bad_offset,
               fmt::format("expected a number of bytes, found {:.40}", json.dump()));
  }
  return json.get<std::uint64_t>();
}

struct Constant {
  std::string name;
  Shape shape;
  std::uint64_t offset;
  std::uint64_t size_bytes;
  std::uint64_t xxh3;
  bool folded;
};

std::uint64_t read_checksum(const JsonValue& value) {
  const std::string& text = value.text();
  std::uint64_t number = 0;
  const bool is_hex = text.size() == 16 && std::ranges::all_of(text, [&](char c) {
                        const bool digit = c >= '0' && c <= '9';
                        if (!digit && (c < 'a' || c > 'f')) return false;
                        number =
                            number << 4 | static_cast<unsigned>(digit ? c - '0' : c - 'a' + 10);
                        return true;
                      });
  if (!is_hex) value.fail(Errc::syntax, "expected 16 hexadecimal digits");
  return number;
}

Constant read_constant(const JsonValue& json, std::uint64_t raw_bytes, WordBudget& words) {
  json.check_keys({"name", "type", "offset", "size_bytes", "xxh3", "folded"});
  constexpr std::uint64_t max_name_bytes = 65535;
  Constant constant;
  constant.name = json["name"].text();
  json.locate([&] { check_name(constant.name, "constant", max_name_bytes, ""); });
  constant.shape = read_type(json["type"], words);
  constant.offset = read_place(json["offset"]);
  constant.size_bytes = read_place(json["size_bytes"]);
  constant.xxh3 = read_checksum(json["xxh3"]);
  constant.folded = json.has("folded") && json["folded"].boolean();

  if (!constant.shape.is_static()) {
    json.fail(Errc::bad_shape, fmt::format("{} has open sizes", to_string(constant.shape)));
  }
  if (static_cast<std::uint64_t>(constant.shape.bytes()) != constant.size_bytes) {
    json.fail(Errc::bad_shape,
              fmt::format("{} {} needs {} bytes, the table says {}", quote_name(constant.name),
                          to_string(constant.shape), constant.shape.bytes(), constant.size_bytes));
  }
  if (constant.offset % network::raw_alignment != 0) {
    json.fail(Errc::bad_alignment, fmt::format("offset {} is no multiple of {}", constant.offset,
                                               network::raw_alignment));
  }
  if (constant.offset > raw_bytes || constant.size_bytes > raw_bytes - constant.offset) {
    json.fail(Errc::bad_offset, fmt::format("{} bytes at {} of a RAW file of {}",
                                            constant.size_bytes, constant.offset, raw_bytes));
  }
  return constant;
}

class RawReader {
 public:
  RawReader(std::shared_ptr<const InputFile> file, bool verify)
      : file_(std::move(file)), verify_(verify) {}

  std::uint64_t size() const { return file_->size(); }

  /// At most a few bytes between constants.
  void check_zeros(std::uint64_t begin, std::uint64_t end) const {
    std::vector<std::byte> gap(end - begin);
    file_->read(begin, gap);
    if (std::ranges::all_of(gap, [](std::byte b) { return b == std::byte{0}; })) return;
    throw Error(Errc::corrupt, fmt::format("{}:{}", file_->name(), begin),
                "a byte between constants is not zero");
  }

  HostBuffer read(const Constant& constant) const {
    HostBuffer array;
    if (file_->is_mapped() && constant.size_bytes > 0) {
      array = HostBuffer::mapped(file_->mapped().data() + constant.offset, constant.shape, file_);
    } else {
      array = HostBuffer::uninitialized(constant.shape);
      file_->read(constant.offset,
                  {array.view().data, static_cast<std::size_t>(constant.size_bytes)});
    }
    if (verify_ && XXH3_64bits(array.bytes(), constant.size_bytes) != constant.xxh3) {
      throw Error(
          Errc::corrupt, fmt::format("{}:{}", file_->name(), constant.offset),
          fmt::format("the checksum of constant {} does not match", quote_name(constant.name)));
    }
    return array;
  }

 private:
  std::shared_ptr<const InputFile> file_;
  bool verify_;
};

/// Constants lie side by side: nothing twice, and nothing that is no constant's but a few zeros.
void check_places(const JsonValue& list, const std::vector<Constant>& constants,
                  const RawReader& raw) {
  std::vector<const Constant*> by_offset;
  for (const Constant& constant : constants) {
    if (constant.size_bytes > 0) by_offset.push_back(&constant);
  }
  std::ranges::sort(by_offset, {}, &Constant::offset);
  std::uint64_t end = 0;
  const auto check_hole = [&](std::uint64_t begin) {
    if (begin - end < network::raw_alignment) return raw.check_zeros(end, begin);
    list.fail(Errc::hole,
              fmt::format("{} bytes of RAW from {} on are no constant's", begin - end, end));
  };
  for (const Constant* constant : by_offset) {
    if (constant->offset < end) {
      list.fail(Errc::overlap, fmt::format("{} begins at {}, inside the constant before it",
                                           quote_name(constant->name), constant->offset));
    }
    check_hole(constant->offset);
    end = constant->offset + constant->size_bytes;
  }
  check_hole(raw.size());
}

RawReader open_raw(const JsonValue& json, const std::filesystem::path& json_path,
                   const std::filesystem::path& raw_path, const NetworkOptions& options) {
  const JsonValue raw = json["raw"];
  raw.check_keys({"file", "size_bytes"});
  const JsonValue name = raw["file"];
  std::filesystem::path path = raw_path;
  if (path.empty()) {
    check_file_name(name.text(), "RAW file", name.where());
    path = json_path.parent_path() / name.text();
  }
  const JsonValue size_json = raw["size_bytes"];
  const std::uint64_t expected = read_place(size_json);
  auto file = InputFile::open(path, options.access);
  if (file->size() < expected) {
    throw Error(Errc::truncated, fmt::format("{}:{}", file->name(), file->size()),
                fmt::format("the file has {} bytes of {}", file->size(), expected));
  }
  if (file->size() > expected) {
    throw Error(Errc::trailing_data, fmt::format("{}:{}", file->name(), expected),
                fmt::format("{} bytes follow the last constant", file->size() - expected));
  }
  return {std::move(file), options.verify_constants};
}

/// Types that the graph states of constants that it names outright must be those of the table.
void check_stated_types(const JsonValue& json, const Network& net) {
  for (const Function& function : net.program.functions) {
    for (const Instruction& instruction : function.body) {
      const bool named =
          instruction.kind == Instruction::Kind::constant && instruction.operands.empty();
      const Value& value = function.values[instruction.result];
      if (!named || !value.shape || !value.shape->is_static()) continue;
      const auto weight = net.weights.find(instruction.text);
      const auto folded = net.program.folded.find(instruction.text);
      const HostBuffer* data = folded != net.program.folded.end() ? &folded->second
                               : weight != net.weights.end()      ? &weight->second
                                                                  : nullptr;
      if (data == nullptr || data->shape() == *value.shape) continue;
      json.fail(Errc::bad_shape,
                fmt::format("node '{}' of {} takes constant {} for {}, the table has {}",
                            value.name, function.name, quote_name(instruction.text),
                            to_string(*value.shape), to_string(data->shape())));
    }
  }
}

void read_constants(const JsonValue& json, const RawReader& raw, Network& net, WordBudget& words) {
  const JsonValue list = json["constants"];
  if (list.size() > static_cast<std::size_t>(program_limits::constants)) {
    list.fail(Errc::limit_exceeded,
              fmt::format("{} constants, at most {}", list.size(), program_limits::constants));
  }
  std::vector<Constant> constants;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonValue item = list[i];
    constants.push_back(read_constant(item, raw.size(), words));
    auto& to = constants.back().folded ? net.program.folded : net.weights;
    const std::string& name = constants.back().name;
    const bool known = net.program.folded.contains(name) || net.weights.contains(name);
    if (known) item.fail(Errc::duplicate_name, fmt::format("two constants {}", quote_name(name)));
    to.emplace(name, HostBuffer());
  }
  check_places(list, constants, raw);
  for (const Constant& constant : constants) {
    (constant.folded ? net.program.folded : net.weights).at(constant.name) = raw.read(constant);
  }
  check_stated_types(list, net);
}

Network load(const std::filesystem::path& json_path, const std::filesystem::path& raw_path,
             const NetworkOptions& options) {
  const auto file = InputFile::open(json_path, Access::read);
  const nlohmann::json document = parse_strict_json(read_text(*file), file->name());
  JsonFile origin{file->name(), options.strict, 0, {}};
  const JsonValue json(document, origin);
  Network net;
  WordBudget words;
  read_head(json, net.program);
  read_functions(json, net.program, words);
  read_constants(json, open_raw(json, json_path, raw_path, options), net, words);
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
