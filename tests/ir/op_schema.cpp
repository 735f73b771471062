// Prints what tenon.ir knows of types and ops, python/tenon/ir/schema.json: from the registry. With
// the word lattices, those of the iq types, python/tenon/ir/lattices.json.
#include "base/json_writer.hpp"
#include "quant/grids.hpp"

#include <tenon/dtype.hpp>
#include <tenon/nn/objects.hpp>
#include <tenon/op.hpp>
#include <tenon/program.hpp>
#include <tenon/quant.hpp>
#include <tenon/text/objects.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tenon {
namespace {

std::string_view kind_of(DType dtype) {
  if (dtype == DType::boolean) return "boolean";
  if (is_integer(dtype)) return "integer";
  if (is_floating(dtype)) return "floating";
  if (is_object(dtype)) return is_linear_object(dtype) ? "linear object" : "object";
  return is_block(dtype) ? "block" : "stored";
}

std::string dtype_line(DType dtype) {
  JsonWriter json;
  json.begin_object();
  json.member("name", name(dtype));
  json.member("kind", kind_of(dtype));
  json.member("block", block_size(dtype));
  json.member("bytes", block_bytes(dtype));
  if (is_block(dtype) && !is_quantizable(dtype)) json.member("written", false);
  json.end_object();
  return json.text();
}

/// The name of the attribute's type, and its default. JSON has no infinities and no NaN.
void write_default(JsonWriter& json, const AttributeValue& value) {
  constexpr std::string_view types[] = {"int", "real", "bool", "word", "dtype", "ints"};
  json.member("type", types[value.index()]);
  json.key("default");
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    json.value(*integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    if (std::isfinite(*real)) {
      json.value(*real);
    } else {
      json.value(std::isnan(*real) ? "nan" : *real < 0 ? "-inf" : "inf");
    }
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    json.value(*flag);
  } else if (const auto* word = std::get_if<Name>(&value)) {
    json.value(word->text());
  } else if (const auto* dtype = std::get_if<DType>(&value)) {
    json.value(name(*dtype));
  } else {
    json.begin_array();
    for (const std::int64_t item : std::get<IntList>(value)) json.value(item);
    json.end_array();
  }
}

std::string op_line(const OpDef& def) {
  JsonWriter json;
  json.begin_object();
  json.member("name", def.name);
  json.member("min_inputs", def.min_inputs);
  json.member("max_inputs", def.max_inputs);
  json.key("attributes").begin_array();
  for (const AttributeField& field : def.fields) {
    json.begin_object();
    json.member("name", field.name);
    write_default(json, field.get(def.defaults));
    json.end_object();
  }
  json.end_array();
  const auto flag = [&](std::string_view key, bool set) {
    if (set) json.member(key, true);
  };
  flag("pointwise", def.traits.pointwise);
  flag("commutative", def.traits.commutative);
  flag("view", def.traits.view || def.view != nullptr);
  flag("selects", def.traits.selects);
  flag("takes_objects", def.traits.takes_objects);
  if (def.traits.updates_input >= 0) json.member("updates_input", def.traits.updates_input);
  json.end_object();
  return json.text();
}

template <class List, class Line>
void print_list(std::string_view key, const List& list, Line&& line) {
  std::printf(",\n\"%s\": [", std::string(key).c_str());
  bool first = true;
  for (const auto& item : list) {
    std::printf("%s\n  %s", first ? "" : ",", line(item).c_str());
    first = false;
  }
  std::printf("]");
}

void print_schema() {
  std::vector<DType> dtypes;
  for (int i = 0; i < dtype_count; ++i) dtypes.push_back(static_cast<DType>(i));
  for (const DType dtype : object_types()) dtypes.push_back(dtype);
  std::printf("{\"opset\": %d", Program().opset);
  print_list("dtypes", dtypes, [](DType dtype) { return dtype_line(dtype); });
  print_list("ops", all_ops(), [](const OpDef* def) { return op_line(*def); });
  std::printf("}\n");
}

template <class Grid>
void print_lattice(const char* name, const Grid& grid, const char* end) {
  std::printf("\"%s\": \"", name);
  for (const std::uint16_t entry : grid) std::printf("%04x", unsigned{entry});
  std::printf("\"%s\n", end);
}

/// Entries of 16 bits, in hexadecimal.
void print_lattices() {
  std::puts("{");
  print_lattice("iq1", quant::iq1_grid, ",");
  print_lattice("iq2_xxs", quant::iq2_xxs_grid, ",");
  print_lattice("iq2_xs", quant::iq2_xs_grid, ",");
  print_lattice("iq2_s", quant::iq2_s_grid, ",");
  print_lattice("iq3_xxs", quant::iq3_xxs_grid, ",");
  print_lattice("iq3_s", quant::iq3_s_grid, "");
  std::puts("}");
}

}  // namespace
}  // namespace tenon

int main(int count, char** arguments) try {
  tenon::nn::register_objects();
  tenon::text::register_objects();
  if (count > 1 && std::string_view(arguments[1]) == "lattices") {
    tenon::print_lattices();
  } else {
    tenon::print_schema();
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
