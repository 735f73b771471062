#include "atomic_file.hpp"
#include "memory_errors.hpp"
#include "names.hpp"
#include "network_json.hpp"
#include "program/same.hpp"

#include <tenon/error.hpp>
#include <tenon/io/network.hpp>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::io {
namespace network {
namespace {

using Kind = Instruction::Kind;

OrderedJson names_json(const Function& function, const std::vector<ValueId>& ids) {
  OrderedJson names = OrderedJson::array();
  for (const ValueId id : ids) names.push_back(function.values[id].name);
  return names;
}

OrderedJson parameter_json(const Value& parameter) {
  OrderedJson json{{"name", parameter.name}};
  if (parameter.kind == ValueKind::scope) json["kind"] = "scope";
  if (parameter.shape) json["type"] = type_json(*parameter.shape);
  return json;
}

OrderedJson node_json(const Function& function, const Instruction& instruction) {
  const Value& result = function.values[instruction.result];
  OrderedJson json{{"name", result.name}};
  const auto word = [&](const char* op) { json["op"] = op; };
  OrderedJson attributes = OrderedJson::object();
  switch (instruction.kind) {
    case Kind::op: {
      const OpInstance& op = instruction.op;
      json["op"] = op.def()->name;
      for (const AttributeField& field : op.def()->fields) {
        const AttributeValue held = field.get(op.attributes());
        if (same_attribute(held, field.get(op.def()->defaults))) continue;
        attributes[std::string(field.name)] = attribute_json(held);
      }
      break;
    }
    case Kind::constant:
      word("const");
      json["constant"] = instruction.text;
      break;
    case Kind::scope:
      word("scope");
      json["prefix"] = instruction.text;
      break;
    case Kind::pack:
      word("pack");
      break;
    case Kind::item:
      word("item");
      json["index"] = instruction.index;
      break;
    case Kind::repeat:
      word("repeat");
      json["function"] = instruction.function;
      json["count"] = instruction.count;
      if (instruction.first != 0) json["first"] = instruction.first;
      break;
    case Kind::call:
      word("call");
      json["function"] = instruction.function;
      break;
  }
  if (!instruction.operands.empty()) json["inputs"] = names_json(function, instruction.operands);
  if (!attributes.empty()) json["attributes"] = std::move(attributes);
  if (result.shape) json["type"] = type_json(*result.shape);
  return json;
}

/// An array with one item a line.
template <class Items, class ToJson>
void append_list(std::string& text, std::string_view indent, const Items& items, ToJson&& to_json) {
  text += '[';
  bool first = true;
  for (const auto& item : items) {
    text += fmt::format("{}\n{}  {}", first ? "" : ",", indent, to_json(item).dump());
    first = false;
  }
  text += first ? "]" : fmt::format("\n{}]", indent);
}

}  // namespace

std::string function_text(const Function& function) {
  std::string text = fmt::format("    {{\n      \"name\": {},\n      \"parameters\": ",
                                 OrderedJson(function.name).dump());
  const std::span parameters(function.values.data(), function.parameter_count);
  append_list(text, "      ", parameters, parameter_json);
  text += ",\n      \"nodes\": ";
  append_list(text, "      ", function.body,
              [&](const Instruction& node) { return node_json(function, node); });
  text += fmt::format(",\n      \"results\": {}\n    }}",
                      names_json(function, function.results).dump());
  return text;
}

}  // namespace network

namespace {

using network::OrderedJson;

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

/// Writes one constant and returns its line of the table.
OrderedJson write_constant(AtomicFile& raw, const Constant& constant) {
  raw.write_zeros((network::raw_alignment - raw.size() % network::raw_alignment) %
                  network::raw_alignment);
  const HostBuffer dense =
      constant.data.is_contiguous() ? constant.data : constant.data.contiguous();
  const std::span bytes(dense.bytes(), static_cast<std::size_t>(dense.shape().bytes()));
  OrderedJson json{{"name", constant.name},
                   {"type", network::type_json(dense.shape())},
                   {"offset", raw.size()},
                   {"size_bytes", bytes.size()},
                   {"xxh3", fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()))}};
  if (constant.folded) json["folded"] = true;
  raw.write(bytes);
  return json;
}

/// How the JSON names RAW: by its way from the JSON's folder where it lies in there, else by its
/// last name alone.
std::string raw_name(const std::filesystem::path& json_path,
                     const std::filesystem::path& raw_path) {
  const auto folder = std::filesystem::absolute(json_path).lexically_normal().parent_path();
  const auto way =
      std::filesystem::absolute(raw_path).lexically_normal().lexically_relative(folder);
  const bool inside = !way.empty() && *way.begin() != "..";
  return (inside ? way : raw_path.filename()).generic_string();
}

void save(const Network& net, const std::filesystem::path& json_path,
          const std::filesystem::path& raw_path) {
  const std::string where = json_path.filename().string();
  if (std::filesystem::absolute(json_path).lexically_normal() ==
      std::filesystem::absolute(raw_path).lexically_normal()) {
    throw Error(Errc::bad_argument, where, "the JSON and the RAW file are one file");
  }
  const Program& program = net.program;
  Program checked = program;
  verify(checked);  // what is written can be read
  const std::vector<Constant> constants = constants_of(net, where);
  try {
    AtomicFile raw(raw_path);
    std::vector<OrderedJson> table;
    for (const Constant& constant : constants) table.push_back(write_constant(raw, constant));

    const auto quoted = [](const std::string& word) { return OrderedJson(word).dump(); };
    std::string text = fmt::format(
        "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"name\": {},\n  \"opset\": {},\n"
        "  \"entry\": {},\n",
        network::format_name, network::version, quoted(program.name), program.opset,
        quoted(program.entry));
    if (!program.weights_file.empty() || !program.weights_sha256.empty()) {
      const OrderedJson companion{{"file", program.weights_file},
                                  {"sha256", program.weights_sha256}};
      text += fmt::format("  \"weights\": {},\n", companion.dump());
    }
    const OrderedJson raw_json{{"file", raw_name(json_path, raw_path)}, {"size_bytes", raw.size()}};
    text += fmt::format("  \"raw\": {},\n  \"constants\": ", raw_json.dump());
    network::append_list(text, "  ", table, [](const OrderedJson& line) { return line; });
    text += ",\n  \"functions\": [";
    for (std::size_t i = 0; i < program.functions.size(); ++i) {
      text += (i == 0 ? "\n" : ",\n") + network::function_text(program.functions[i]);
    }
    text += "\n  ]\n}\n";

    AtomicFile json(json_path);
    json.write(text);
    raw.commit();
    json.commit();
  } catch (const nlohmann::json::exception&) {
    throw Error(Errc::bad_encoding, where, "a name of the network is not UTF-8");
  }
}

}  // namespace

void save_network(const Network& net, const std::filesystem::path& json_path,
                  const std::filesystem::path& raw_path) {
  with_memory_errors(json_path.native(), [&] { save(net, json_path, raw_path); });
}

}  // namespace tenon::io
