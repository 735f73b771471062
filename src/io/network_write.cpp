#include "base/atomic_file.hpp"
#include "base/json_writer.hpp"
#include "base/utf8.hpp"
#include "names.hpp"
#include "network_json.hpp"
#include "program/registered.hpp"
#include "program/same.hpp"
#include "raw_file.hpp"

#include <tenon/error.hpp>
#include <tenon/io/network.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::io {
namespace network {
namespace {

using Kind = Instruction::Kind;

void write_names(JsonWriter& json, const Function& function, const std::vector<ValueId>& ids) {
  json.begin_array();
  for (const ValueId id : ids) json.value(function.values[id].name);
  json.end_array();
}

void write_parameter(JsonWriter& json, const Value& parameter) {
  json.begin_object().member("name", parameter.name);
  if (parameter.kind == ValueKind::scope) json.member("kind", "scope");
  if (parameter.shape) write_type(json.key("type"), *parameter.shape);
  json.end_object();
}

/// What follows the name: the op and what selects it.
void write_word(JsonWriter& json, const Instruction& instruction) {
  json.key("op");
  switch (instruction.kind) {
    case Kind::op:
      json.value(instruction.op.def()->name);
      break;
    case Kind::constant:
      json.value("const").member("constant", instruction.text);
      break;
    case Kind::scope:
      json.value("scope").member("prefix", instruction.text);
      break;
    case Kind::pack:
      json.value("pack");
      break;
    case Kind::item:
      json.value("item").member("index", instruction.index);
      break;
    case Kind::repeat:
      json.value("repeat").member("function", instruction.function);
      json.member("count", instruction.count);
      if (instruction.first != 0) json.member("first", instruction.first);
      if (instruction.condition >= 0) json.member("condition", instruction.condition);
      break;
    case Kind::call:
      json.value("call").member("function", instruction.function);
      break;
  }
}

/// The attributes that differ from the op's defaults, if there are any.
void write_attributes(JsonWriter& json, const OpInstance& op) {
  bool any = false;
  for (const AttributeField& field : op.def()->fields) {
    const AttributeValue held = field.get(op.attributes());
    if (same_attribute(held, field.get(op.def()->defaults))) continue;
    if (!any) json.key("attributes").begin_object();
    any = true;
    write_attribute(json.key(field.name), held);
  }
  if (any) json.end_object();
}

void write_node(JsonWriter& json, const Function& function, const Instruction& instruction) {
  const Value& result = function.values[instruction.result];
  json.begin_object().member("name", result.name);
  write_word(json, instruction);
  if (!instruction.operands.empty()) {
    write_names(json.key("inputs"), function, instruction.operands);
  }
  if (instruction.kind == Kind::op) write_attributes(json, instruction.op);
  if (result.shape) write_type(json.key("type"), *result.shape);
  json.end_object();
}

/// An array with one item a line; `write` puts an item into a JsonWriter.
template <class Items, class Write>
void append_list(std::string& text, std::string_view indent, const Items& items, Write&& write) {
  text += '[';
  bool first = true;
  for (const auto& item : items) {
    JsonWriter json;
    write(json, item);
    text += fmt::format("{}\n{}  {}", first ? "" : ",", indent, json.text());
    first = false;
  }
  text += first ? "]" : fmt::format("\n{}]", indent);
}

}  // namespace

std::string function_text(const Function& function) {
  std::string text = fmt::format("    {{\n      \"name\": {},\n      \"parameters\": ",
                                 json_string(function.name));
  const std::span parameters(function.values.data(), function.parameter_count);
  append_list(text, "      ", parameters, write_parameter);
  text += ",\n      \"nodes\": ";
  append_list(text, "      ", function.body,
              [&](JsonWriter& json, const Instruction& node) { write_node(json, function, node); });
  JsonWriter results;
  write_names(results, function, function.results);
  text += fmt::format(",\n      \"results\": {}\n    }}", results.text());
  return text;
}

}  // namespace network

namespace {

struct Constant {
  std::string name;
  HostBuffer data;
  bool folded;
};

std::vector<Constant> constants_of(const Network& net, const std::string& where) {
  std::vector<Constant> constants;
  for (const auto& [name, data] : net.program.folded) constants.push_back({name, data, true});
  for (const auto& [name, data] : net.weights) {
    if (net.program.folded.contains(name)) {
      throw Error(Errc::duplicate_name, where,
                  fmt::format("{} is both a weight and a folded constant", quote_name(name)));
    }
    constants.push_back({name, data, false});
  }
  for (Constant& constant : constants) {
    constexpr std::uint64_t max_name_bytes = 65535;
    check_name(constant.name, "constant", max_name_bytes, where);
    if (constant.data.is_empty()) {
      throw Error(Errc::bad_argument, where,
                  fmt::format("constant {} has no array", quote_name(constant.name)));
    }
  }
  return constants;
}

/// A constant's entry of the table.
struct Line {
  const Constant* constant;
  Shape shape;
  std::uint64_t offset, checksum;
};

Line write_constant(AtomicFile& raw, const Constant& constant) {
  raw.write_zeros((network::raw_alignment - raw.size() % network::raw_alignment) %
                  network::raw_alignment);
  const HostBuffer dense =
      constant.data.is_contiguous() ? constant.data : constant.data.contiguous();
  const std::span bytes(dense.bytes(), static_cast<std::size_t>(dense.shape().bytes()));
  Line line{&constant, dense.shape(), raw.size(), XXH3_64bits(bytes.data(), bytes.size())};
  raw.write(bytes);
  return line;
}

/// Of RAW with these constants: no two that differ have the same.
std::string id_of(std::span<const Line> table) {
  std::string facts;
  for (const Line& line : table) {
    facts += fmt::format("{} {} {:016x}\n", line.offset, line.shape.bytes(), line.checksum);
  }
  return fmt::format("{:016x}", XXH3_64bits(facts.data(), facts.size()));
}

void write_line(JsonWriter& json, const Line& line) {
  json.begin_object().member("name", line.constant->name);
  network::write_type(json.key("type"), line.shape);
  json.member("offset", line.offset).member("size_bytes", line.shape.bytes());
  json.member("xxh3", fmt::format("{:016x}", line.checksum));
  if (line.constant->folded) json.member("folded", true);
  json.end_object();
}

/// The name of RAW in the JSON: its path relative to the JSON's folder if it is in there, otherwise
/// its last component.
std::string raw_name(const std::filesystem::path& json_path,
                     const std::filesystem::path& raw_path) {
  const auto folder = std::filesystem::absolute(json_path).lexically_normal().parent_path();
  const auto way =
      std::filesystem::absolute(raw_path).lexically_normal().lexically_relative(folder);
  const bool inside = !way.empty() && *way.begin() != "..";
  return (inside ? way : raw_path.filename()).generic_string();
}

void save(const Network& net, const std::filesystem::path& json_path,
          const std::filesystem::path& raw_path, const std::function<void()>& check) {
  const std::string where = json_path.filename().string();
  if (std::filesystem::absolute(json_path).lexically_normal() ==
      std::filesystem::absolute(raw_path).lexically_normal()) {
    throw Error(Errc::bad_argument, where, "the JSON and the RAW file are one file");
  }
  const Program& program = net.program;
  Program checked = program;
  verify(checked);  // what is written can be read
  require_registered_ops(program);
  const std::vector<Constant> constants = constants_of(net, where);
  if (const auto conflict = network::stated_type_conflict(net)) {
    throw Error(Errc::bad_shape, where, *conflict);
  }
  const std::string raw_file = raw_name(json_path, raw_path);
  if (!is_utf8(raw_file)) {
    throw Error(Errc::bad_encoding, where,
                fmt::format("the name of RAW, {}, is not UTF-8", quote_name(raw_file)));
  }

  RawFile raw(raw_path);
  AtomicFile json(json_path);
  std::vector<Line> table;
  for (const Constant& constant : constants) table.push_back(write_constant(raw.file(), constant));
  const std::string id = id_of(table);

  std::string text = fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"name\": {},\n  \"opset\": {},\n"
      "  \"entry\": {},\n",
      network::format_name, network::version, json_string(program.name), program.opset,
      json_string(program.entry));
  if (!program.weights_file.empty() || !program.weights_sha256.empty()) {
    text += fmt::format("  \"weights\": {{\"file\":{},\"sha256\":{}}},\n",
                        json_string(program.weights_file), json_string(program.weights_sha256));
  }
  text +=
      fmt::format("  \"raw\": {{\"file\":{},\"size_bytes\":{},\"id\":\"{}\"}},\n  \"constants\": ",
                  json_string(raw_file), raw.file().size(), id);
  network::append_list(text, "  ", table, write_line);
  text += ",\n  \"functions\": [";
  for (std::size_t i = 0; i < program.functions.size(); ++i) {
    text += (i == 0 ? "\n" : ",\n") + network::function_text(program.functions[i]);
  }
  text += "\n  ]\n}\n";

  json.write(text);
  if (check) check();
  raw.commit(id);
  json.commit();
  raw.settle();
  remove_old_temporaries(json_path);
}

}  // namespace

void save_network(const Network& net, const std::filesystem::path& json_path,
                  const std::filesystem::path& raw_path, const std::function<void()>& check) {
  with_memory_errors(json_path.native(), [&] { save(net, json_path, raw_path, check); });
}

}  // namespace tenon::io
