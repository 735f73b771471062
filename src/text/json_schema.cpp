#include "json_schema.hpp"

#include "base/utf8.hpp"
#include "digit_ranges.hpp"
#include "grammar_automaton.hpp"
#include "grammar_program.hpp"
#include "grammar_syntax.hpp"
#include "json_pattern.hpp"
#include "schema_value.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::text {
namespace {

using Json = SchemaValue;

constexpr std::size_t max_schema_bytes = 1 << 20;
constexpr int max_schema_depth = 200;  // with what $ref refers to
// Merged schemas are expanded at each place that refers to them: their number may double at each level.
constexpr std::size_t max_merged_bytes = 16 * max_schema_bytes;
constexpr std::size_t max_rule_bytes = 64 * max_schema_bytes;
constexpr std::size_t max_string_instructions = 1'000'000;  // as many as one grammar may have

// Rules that the others use. A number has at most 16 digits before and behind its point, so that it is read as
// it was written; \u spells no half of a surrogate pair.
struct CommonRule {
  std::string_view name, body;
};
constexpr CommonRule common_rules[] = {
    {"ws", R"([ ]? | "\n" [ \t]{0,20})"},
    {"char",
     R"([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" (hex-but-d hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2})))"},
    {"hex", "[0-9a-fA-F]"},
    {"hex-but-d", "[0-9a-ce-fA-CE-F]"},
    {"string", R"("\"" char* "\"")"},
    {"whole", "[0] | [1-9] [0-9]{0,15}"},
    {"fraction", R"("." [0-9]{1,16})"},
    {"integer", R"("-"? whole)"},
    {"number", R"("-"? whole fraction? ([eE] [-+]? [0-9]{1,2})?)"},
    {"boolean", R"("true" | "false")"},
    {"null", R"("null")"},
    {"object", R"("{" ws (member ("," ws member)*)? "}")"},
    {"member", R"(string ws ":" ws value ws)"},
    {"array", R"("[" ws (value ws ("," ws value ws)*)? "]")"},
    {"value", "object | array | string | number | boolean | null"},
};

// By their keyword's name: what restricts texts and is not implemented.
constexpr std::string_view unsupported_keywords[] = {"not",
                                                     "if",
                                                     "then",
                                                     "else",
                                                     "patternProperties",
                                                     "contains",
                                                     "minContains",
                                                     "maxContains",
                                                     "uniqueItems",
                                                     "propertyNames",
                                                     "multipleOf",
                                                     "dependencies",
                                                     "$dynamicRef",
                                                     "$recursiveRef",
                                                     "dependentRequired",
                                                     "dependentSchemas",
                                                     "unevaluatedItems",
                                                     "unevaluatedProperties"};
// What says nothing about the texts.
constexpr std::string_view annotations[] = {"title",
                                            "description",
                                            "default",
                                            "examples",
                                            "$comment",
                                            "$schema",
                                            "$id",
                                            "readOnly",
                                            "writeOnly",
                                            "deprecated",
                                            "$defs",
                                            "definitions",
                                            "$anchor",
                                            "id",
                                            "discriminator",
                                            "contentEncoding",
                                            "contentMediaType",
                                            "$vocabulary",
                                            "example"};

struct Format {
  std::string_view name, body;  // without the quotes
};
constexpr Format formats[] = {
    {"date", R"([0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01]))"},
    {"time",
     R"(([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [+-] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]))"},
    {"date-time", R"(format-date "T" format-time)"},
    {"uuid", "hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12}"},
    {"ipv4", R"(format-byte "." format-byte "." format-byte "." format-byte)"},
    {"email",
     R"([a-zA-Z0-9_%+-]+ ("." [a-zA-Z0-9_%+-]+)* "@" ([a-zA-Z0-9] [a-zA-Z0-9-]* ".")+ [a-zA-Z]{2,})"},
};
constexpr std::string_view format_byte =
    R"("25" [0-5] | "2" [0-4] [0-9] | "1" [0-9] [0-9] | [1-9]? [0-9])";

template <class List>
bool contains(const List& names, std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

std::string joined(const std::vector<std::string>& choices) {
  return fmt::format("{}", fmt::join(choices, " | "));
}
std::string group(const std::vector<std::string>& choices) {
  return choices.size() == 1 ? choices.front() : "(" + joined(choices) + ")";
}

/// What a copy of a schema takes, about: its text, and room for its values.
std::size_t copy_bytes(const Json& schema) {
  std::size_t bytes = 16 + schema.text.size();
  for (const Json& item : schema.items) bytes += copy_bytes(item);
  for (const auto& [name, value] : schema.members) bytes += name.size() + copy_bytes(value);
  return bytes;
}

/// Writes rules for schemas, from the outermost on. `path` of a schema is the JSON pointer that errors name.
class SchemaWriter {
 public:
  explicit SchemaWriter(const Json& root) : root_(root) {}

  std::string write() {
    const std::string body = expression(root_, "#", 0);
    add_rule("root", body);
    std::string text;
    for (const auto& [name, rule] : rules_) text += fmt::format("{} ::= {}\n", name, rule);
    return text;
  }

 private:
  [[noreturn]] static void fail(Errc code, std::string_view path, const std::string& what) {
    throw Error(code, "JSON schema", fmt::format("{}: {}", path, what));
  }

  /// Counts what is copied where schemas are merged.
  void spend_copy(const Json& schema, const std::string& path) {
    merged_bytes_ += copy_bytes(schema);
    if (merged_bytes_ <= max_merged_bytes) return;
    fail(Errc::limit_exceeded, path,
         fmt::format(
             "more than {} bytes of schemas are merged: each place with allOf, or with $ref, "
             "anyOf or oneOf beside other keywords, copies what it refers to",
             max_merged_bytes));
  }
  std::string spend_text(std::string text, const std::string& path) {
    rule_bytes_ += text.size();
    if (rule_bytes_ <= max_rule_bytes) return text;
    fail(Errc::limit_exceeded, path, fmt::format("more than {} bytes of rules", max_rule_bytes));
  }

  void add_rule(const std::string& name, std::string body) {
    rules_.emplace_back(name, std::move(body));
  }
  /// A name that no rule has, after a schema's path.
  std::string new_name(std::string_view path) {
    std::string name = "s";
    for (const char c : path.substr(1, 60)) {
      const bool is_letter =
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      name += is_letter ? c : '-';
    }
    return fmt::format("{}-{}", name, count_++);
  }
  /// The path of a member.
  static std::string inside(std::string_view path, std::string_view name) {
    return fmt::format("{}/{}", path, beginning(name, 100));
  }
  /// So many bytes of a text, or less for the last character's sake, and "..." for the rest.
  static std::string beginning(std::string_view text, std::size_t bytes) {
    if (text.size() <= bytes) return std::string(text);
    while (bytes > 0 && continues_character(text[bytes])) --bytes;
    return fmt::format("{}...", text.substr(0, bytes));
  }

  /// A common rule, with those that it uses.
  std::string common(std::string_view name) {
    if (!has_common_) {
      has_common_ = true;
      for (const auto& [rule, body] : common_rules) add_rule(std::string(rule), std::string(body));
    }
    return std::string(name);
  }
  std::string ws() { return common("ws"); }

  std::string expression(const Json& schema, const std::string& path, int depth) {
    return spend_text(expanded(schema, path, depth), path);
  }
  std::string expanded(const Json& schema, const std::string& path, int depth) {
    if (depth > max_schema_depth) fail(Errc::depth_limit, path, "schemas nested too deep");
    if (schema.is_boolean()) {
      if (schema.is_true()) return common("value");
      fail(Errc::unsupported, path, "a schema that allows nothing");
    }
    if (!schema.is_object()) fail(Errc::bad_type, path, "a schema is an object, true or false");
    for (const auto& [name, value] : schema.members) {
      if (!contains(unsupported_keywords, name)) continue;
      if (name == "uniqueItems" && value.is_false()) continue;
      fail(Errc::unsupported, path, fmt::format("the keyword \"{}\"", name));
    }
    if (const Json* const reference = find(schema, "$ref")) {
      return referred(schema, *reference, path, depth);
    }
    if (schema.contains("allOf")) return all_of(schema, path, depth);
    for (const char* const name : {"anyOf", "oneOf"}) {
      if (schema.contains(name)) return one_of(schema, name, path, depth);
    }
    if (schema.contains("const") || schema.contains("enum")) return enumeration(schema, path);
    return typed(schema, path, depth);
  }

  static const Json* find(const Json& schema, std::string_view name) { return schema.find(name); }

  // References and combinations

  bool has_others(const Json& schema, std::string_view keyword) const {
    for (const auto& [name, value] : schema.members) {
      if (name != keyword && !contains(annotations, name)) return true;
    }
    return false;
  }

  /// A URI's text with its escaped bytes (RFC 3986, section 2.1); a % without two digits stays.
  static std::string without_percents(std::string_view uri) {
    std::string text;
    for (std::size_t i = 0; i < uri.size(); ++i) {
      unsigned byte = 0;
      const std::string_view digits = uri.substr(i + 1, 2);
      const char* const end = digits.data() + digits.size();
      const bool is_escape = uri[i] == '%' && digits.size() == 2 &&
                             std::from_chars(digits.data(), end, byte, 16).ptr == end;
      text += is_escape ? static_cast<char>(byte) : uri[i];
      if (is_escape) i += 2;
    }
    return text;
  }

  const Json& target_of(const Json& reference, const std::string& path) const {
    if (!reference.is_string()) fail(Errc::bad_type, path, "$ref is not a string");
    const std::string pointer = without_percents(reference.text);
    if (pointer != "#" && !pointer.starts_with("#/")) {
      fail(Errc::unsupported, path,
           fmt::format("$ref \"{}\": only #/... is followed", reference.text));
    }
    if (const Json* const target = root_.at_pointer(std::string_view(pointer).substr(1)))
      return *target;
    fail(Errc::bad_reference, path, fmt::format("$ref \"{}\" refers to nothing", reference.text));
  }

  std::string referred(const Json& schema, const Json& reference, const std::string& path,
                       int depth) {
    const Json& target = target_of(reference, path);
    const auto& text = reference.text;
    if (has_others(schema, "$ref")) {
      spend_copy(schema, path);
      Json rest = schema;
      rest.erase("$ref");
      return expression(merged(std::move(rest), target, path, depth), path, depth + 1);
    }
    const auto [known, is_new] = referred_.try_emplace(text);
    if (is_new) {
      const std::string name = new_name(text);
      known->second = name;
      std::string body = expression(target, beginning(text, 1000), depth + 1);
      add_rule(name, std::move(body));
      return name;
    }
    return known->second;
  }

  /// A schema that both restrict. Errc::unsupported where that needs more than a keyword of each name.
  Json merged(Json one, const Json& other, const std::string& path, int depth) {
    if (depth > max_schema_depth) fail(Errc::depth_limit, path, "schemas nested too deep");
    spend_copy(other, path);
    if (one.is_false() || other.is_true()) return one;
    if (other.is_false() || one.is_true()) return other;
    if (!one.is_object() || !other.is_object())
      fail(Errc::bad_type, path, "a schema that others are merged with is no object");
    merge_properties(one, other, path, depth);
    for (const auto& [name, value] : other.members) {
      if (name == "properties" || name == "additionalProperties") continue;
      if (name == "$ref") {
        one = merged(std::move(one), target_of(value, path), path, depth + 1);
      } else if (contains(annotations, name)) {
        continue;
      } else if (name == "allOf" && value.is_array()) {
        for (const Json& each : value.items) one = merged(std::move(one), each, path, depth + 1);
      } else if (!one.contains(name)) {
        one.member(name) = value;
      } else if (*one.find(name) != value) {
        merge_keyword(one, name, value, path);
      }
    }
    return one;
  }

  /// What each schema says of a property, by its name or of all that it does not name, applies.
  void merge_properties(Json& one, const Json& other, const std::string& path, int depth) {
    const auto object_of = [&](const Json& schema) {
      const Json* const properties = find(schema, "properties");
      if (properties && !properties->is_object())
        fail(Errc::bad_type, path, "\"properties\" is no object");
      return properties;
    };
    const auto both = [&](Json& held, const Json& more, std::string_view name) {
      spend_copy(held, path);
      if (held != more) held = merged(std::move(held), more, inside(path, name), depth + 1);
    };
    const Json* const theirs = object_of(other);
    const Json* const their_rest = find(other, "additionalProperties");
    const Json* const our_rest = find(one, "additionalProperties");
    if (object_of(one) && their_rest && !their_rest->is_true()) {
      for (auto& [name, schema] : one.member("properties").members) {
        if (!theirs || !theirs->contains(name)) both(schema, *their_rest, name);
      }
    }
    if (theirs) {
      if (our_rest) spend_copy(*our_rest, path);
      const std::optional<Json> rest = our_rest ? std::optional(*our_rest) : std::nullopt;
      Json& ours = one.member("properties");
      ours.kind = Json::Kind::object;
      for (const auto& [name, schema] : theirs->members) {
        const bool is_named = ours.contains(name);
        Json& held = ours.member(name);
        if (!is_named) held = rest ? *rest : schema;
        if (is_named || rest) both(held, schema, name);
      }
    }
    if (!their_rest) return;
    const bool has_rest = one.contains("additionalProperties");
    Json& held = one.member("additionalProperties");
    if (has_rest) {
      both(held, *their_rest, "additionalProperties");
    } else {
      held = *their_rest;
    }
  }

  void merge_keyword(Json& one, const std::string& name, const Json& value,
                     const std::string& path) {
    Json& held = one.member(name);
    if (name == "required" && held.is_array() && value.is_array()) {
      held.items.insert(held.items.end(), value.items.begin(), value.items.end());
    } else if (name.starts_with("min") && held.is_number() && value.is_number()) {
      if (compare_numbers(value, held) > 0) held = value;
    } else if (name.starts_with("max") && held.is_number() && value.is_number()) {
      if (compare_numbers(value, held) < 0) held = value;
    } else {
      fail(Errc::unsupported, path, fmt::format("two different \"{}\" that both apply", name));
    }
  }
  static bool contains(const Json& array, const Json& value) {
    return std::ranges::find(array.items, value) != array.items.end();
  }
  template <class List>
  static bool contains(const List& names, const std::string& name) {
    return text::contains(names, name);
  }

  const Json& schemas_of(const Json& schema, const char* name, const std::string& path) const {
    const Json& list = *find(schema, name);
    if (!list.is_array()) fail(Errc::bad_type, path, fmt::format("\"{}\" is not an array", name));
    if (list.items.empty()) fail(Errc::bad_argument, path, fmt::format("\"{}\" is empty", name));
    return list;
  }

  std::string all_of(const Json& schema, const std::string& path, int depth) {
    spend_copy(schema, path);
    Json all = schema;
    all.erase("allOf");
    for (const Json& each : schemas_of(schema, "allOf", path).items) {
      all = merged(std::move(all), each, path, depth + 1);
    }
    return expression(all, path, depth + 1);
  }

  std::string one_of(const Json& schema, const char* name, const std::string& path, int depth) {
    const Json& list = schemas_of(schema, name, path);
    const bool has_rest = has_others(schema, name);
    Json rest;
    if (has_rest) {
      spend_copy(schema, path);
      rest = schema;
      rest.erase(name);
    }
    std::vector<std::string> choices;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const std::string at = fmt::format("{}/{}/{}", path, name, i);
      if (has_rest) spend_copy(rest, at);
      choices.push_back(has_rest
                            ? expression(merged(rest, list.items[i], at, depth + 1), at, depth + 1)
                            : expression(list.items[i], at, depth + 1));
    }
    return group(choices);
  }

  // Values

  /// As a repetition.
  struct Counts {
    std::uint32_t least = 0;
    std::optional<std::uint32_t> most{};
    std::string text() const {
      if (least == 0 && !most) return "*";
      return fmt::format("{{{},{}}}", least, most ? std::to_string(*most) : std::string());
    }
  };

  /// What a schema asks of strings, but for "enum" and "const".
  struct StringRules {
    Counts length{};
    GrammarAutomaton* automaton = nullptr;  // none where there is no pattern and no format

    bool allow(const Json& value) const {
      const auto characters = value.text.size() - static_cast<std::size_t>(std::ranges::count_if(
                                                      value.text, continues_character));
      if (characters < length.least || (length.most && characters > *length.most)) return false;
      if (automaton == nullptr) return true;
      GrammarAutomaton::State state = automaton->start();
      for (const char c : value.dump()) {
        state = automaton->next(state, static_cast<unsigned char>(c));
        if (state == GrammarAutomaton::none) return false;
        automaton->trim({&state});  // states of other values, too, were too many
      }
      return automaton->may_end(state);
    }
  };

  static std::string literal(const Json& value) { return grammar_literal(value.dump()); }

  /// Of "enum" and "const", those values that the keywords beside it allow.
  std::string enumeration(const Json& schema, const std::string& path) {
    const Json* const only = find(schema, "const");
    const Json* const values = find(schema, "enum");
    if (values != nullptr && !values->is_array())
      fail(Errc::bad_type, path, "\"enum\" is not an array");
    std::vector<std::string> choices;
    const auto is_string = [](const Json& value) { return value.is_string(); };
    const bool has_strings =
        only != nullptr ? only->is_string() : std::ranges::any_of(values->items, is_string);
    const std::vector<std::string> types = types_of(schema, path);
    const StringRules strings = has_strings ? string_rules(schema, path) : StringRules();
    const auto add = [&](const Json& value) {
      const bool is_of_type = types.empty() || contains(types, std::string(type_of(value))) ||
                              (value.is_number() && contains(types, std::string("number")));
      if (is_of_type && is_allowed(value, schema, strings, path)) choices.push_back(literal(value));
    };
    if (only == nullptr) {
      std::ranges::for_each(values->items, add);
    } else if (values == nullptr || contains(*values, *only)) {
      add(*only);
    }
    if (choices.empty()) {
      fail(Errc::bad_argument, path,
           fmt::format("\"{}\" allows no value", only != nullptr ? "const" : "enum"));
    }
    return group(choices);
  }

  static bool is_allowed(const Json& value, const Json& schema, const StringRules& strings,
                         const std::string& path) {
    if (value.is_number()) return is_within(value, schema, path);
    if (value.is_string()) return strings.allow(value);
    const auto refuse = [&](std::initializer_list<const char*> keywords) {
      for (const char* const keyword : keywords) {
        if (!schema.contains(keyword)) continue;
        fail(Errc::unsupported, path,
             fmt::format("\"{}\" beside \"enum\" or \"const\" with such a value", keyword));
      }
    };
    if (value.is_object()) {
      refuse({"properties", "required", "additionalProperties", "minProperties", "maxProperties"});
    } else if (value.is_array()) {
      refuse({"items", "prefixItems", "additionalItems", "minItems", "maxItems"});
    }
    return true;
  }

  static bool is_within(const Json& number, const Json& schema, const std::string& path) {
    const auto holds = [&](const char* keyword, const auto& relation) {
      const Json* const bound = find(schema, keyword);
      if (bound == nullptr) return true;
      if (!bound->is_number())
        fail(Errc::bad_type, path, fmt::format("\"{}\" is not a number", keyword));
      return relation(compare_numbers(number, *bound));
    };
    return holds("minimum", std::is_gteq) && holds("maximum", std::is_lteq) &&
           holds("exclusiveMinimum", std::is_gt) && holds("exclusiveMaximum", std::is_lt);
  }

  /// The automata of equal patterns and formats are one.
  StringRules string_rules(const Json& schema, const std::string& path) {
    StringRules rules{.length = counts(schema, "minLength", "maxLength", path)};
    Json rest{.kind = Json::Kind::object};
    for (const char* const keyword : {"pattern", "format"}) {
      if (const Json* const given = find(schema, keyword)) rest.member(keyword) = *given;
    }
    if (rest.members.empty()) return rules;
    rest.member("type") = {.kind = Json::Kind::string, .text = "string"};
    const std::string text = rest.dump();
    auto known = string_automata_.find(text);
    if (known == string_automata_.end()) {
      auto program = std::make_shared<const GrammarProgram>(
          compile_grammar(parse_grammar(grammar_of_json_schema(text), "root")));
      string_instructions_ += program->code.size();
      if (string_instructions_ > max_string_instructions) {
        fail(Errc::limit_exceeded, path,
             fmt::format("the patterns beside \"enum\" and \"const\" are programs of more than {} "
                         "instructions",
                         max_string_instructions));
      }
      known = string_automata_.emplace(text, GrammarAutomaton(std::move(program))).first;
    }
    rules.automaton = &known->second;
    return rules;
  }

  static std::string_view type_of(const Json& value) {
    if (value.is_object()) return "object";
    if (value.is_array()) return "array";
    if (value.is_string()) return "string";
    if (value.is_boolean()) return "boolean";
    if (value.kind == Json::Kind::null) return "null";
    return value.number == std::floor(value.number) ? "integer" : "number";
  }

  /// As "type" has them; none without it.
  static std::vector<std::string> types_of(const Json& schema, const std::string& path) {
    std::vector<std::string> types;
    const auto add = [&](const std::string& name) {
      constexpr std::string_view known[] = {"object", "array",   "string", "integer",
                                            "number", "boolean", "null"};
      if (!text::contains(known, name))
        fail(Errc::bad_argument, path, fmt::format("\"type\" is \"{}\"", name));
      if (!contains(types, name)) types.push_back(name);
    };
    const Json* const type = find(schema, "type");
    if (type == nullptr) return types;
    if (type->is_string()) {
      add(type->text);
    } else if (type->is_array() && !type->items.empty()) {
      for (const Json& each : type->items) {
        if (!each.is_string()) fail(Errc::bad_type, path, "\"type\" lists what is no string");
        add(each.text);
      }
    } else {
      fail(Errc::bad_type, path, "\"type\" is neither a string nor a list of some");
    }
    return types;
  }

  std::string typed(const Json& schema, const std::string& path, int depth) {
    std::vector<std::string> types = types_of(schema, path);
    if (types.empty()) types = implied_types(schema);
    if (types.empty()) return common("value");
    std::vector<std::string> choices;
    for (const std::string& type : types) choices.push_back(of_type(type, schema, path, depth));
    return group(choices);
  }

  /// Without "type", keywords for values of one type are taken to mean that type.
  static std::vector<std::string> implied_types(const Json& schema) {
    struct Keywords {
      const char* type;
      std::initializer_list<const char*> names;
    };
    static constexpr auto has = [](const Json& in, const auto& names) {
      return std::ranges::any_of(names, [&](const char* name) { return in.contains(name); });
    };
    const Keywords of_types[] = {
        {"object",
         {"properties", "required", "additionalProperties", "minProperties", "maxProperties"}},
        {"array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems"}},
        {"string", {"pattern", "minLength", "maxLength", "format"}},
        {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}}};
    std::vector<std::string> types;
    for (const auto& [type, names] : of_types) {
      if (has(schema, names)) types.emplace_back(type);
    }
    return types;
  }

  std::string of_type(const std::string& type, const Json& schema, const std::string& path,
                      int depth) {
    if (type == "object") return object(schema, path, depth);
    if (type == "array") return array(schema, path, depth);
    if (type == "string") return string(schema, path);
    if (type == "integer" || type == "number") return number(schema, type == "integer", path);
    return common(type);  // boolean, null
  }

  /// A count in [0, 65536].
  std::optional<std::uint32_t> count(const Json& schema, const char* name,
                                     const std::string& path) const {
    const Json* const value = find(schema, name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) fail(Errc::bad_type, path, fmt::format("\"{}\" is no number", name));
    const double number = value->number;
    if (!(number >= 0) || number != std::floor(number)) {
      fail(Errc::bad_argument, path, fmt::format("\"{}\" is {}", name, value->dump()));
    }
    if (number > 65536) {
      fail(Errc::limit_exceeded, path, fmt::format("\"{}\" is {}", name, value->dump()));
    }
    return static_cast<std::uint32_t>(number);
  }
  Counts counts(const Json& schema, const char* least, const char* most,
                const std::string& path) const {
    const Counts found{count(schema, least, path).value_or(0), count(schema, most, path)};
    if (found.most && *found.most < found.least) {
      fail(Errc::bad_argument, path, fmt::format("\"{}\" is less than \"{}\"", most, least));
    }
    return found;
  }

  std::string string(const Json& schema, const std::string& path) {
    const Counts length = counts(schema, "minLength", "maxLength", path);
    const bool has_length = length.least > 0 || length.most;
    const std::string quote = "\"\\\"\"";
    if (const Json* const pattern = find(schema, "pattern")) {
      if (!pattern->is_string()) fail(Errc::bad_type, path, "\"pattern\" is no string");
      if (has_length) fail(Errc::unsupported, path, "\"pattern\" together with a length");
      common("char");
      return fmt::format("{} {} {}", quote, grammar_of_pattern(pattern->text), quote);
    }
    if (const Json* const format = find(schema, "format")) {
      if (!format->is_string()) fail(Errc::bad_type, path, "\"format\" is no string");
      const auto found = std::ranges::find(formats, format->text, &Format::name);
      if (found != std::end(formats)) {
        if (has_length) fail(Errc::unsupported, path, "\"format\" together with a length");
        return fmt::format("{} {} {}", quote, format_rule(found->name), quote);
      }
    }
    if (!has_length) return common("string");
    return fmt::format("{} {}{} {}", quote, common("char"), length.text(), quote);
  }

  std::string format_rule(std::string_view name) {
    common("hex");
    if (!has_formats_) {
      has_formats_ = true;
      for (const auto& [format, body] : formats)
        add_rule(fmt::format("format-{}", format), std::string(body));
      add_rule("format-byte", std::string(format_byte));
    }
    return fmt::format("format-{}", name);
  }

  // Numbers

  /// A bound of a number, and whether the number may be the bound.
  struct Bound {
    std::int64_t value = 0;
    bool is_included = true;
  };
  static constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max() - 1;

  /// Of bounds that no number of 64 bits is outside of, the last of these.
  std::optional<Bound> bound(const Json& schema, bool is_low, bool is_integer,
                             const std::string& path) const {
    const char* const inclusive = is_low ? "minimum" : "maximum";
    const char* const exclusive = is_low ? "exclusiveMinimum" : "exclusiveMaximum";
    const Json* const weak = find(schema, inclusive);
    const Json* const strong = find(schema, exclusive);
    for (const Json* const one : {weak, strong}) {
      // Draft 4 has a boolean there.
      if (one && !one->is_number())
        fail(Errc::bad_type, path,
             fmt::format("\"{}\" is no number", one == weak ? inclusive : exclusive));
    }
    if (weak && strong) {
      fail(Errc::unsupported, path,
           fmt::format("\"{}\" together with \"{}\"", inclusive, exclusive));
    }
    const Json* const given = weak ? weak : strong;
    if (given == nullptr) return std::nullopt;
    if (const auto exact = given->integer(); exact && *exact >= -largest && *exact <= largest) {
      return Bound{*exact, weak != nullptr};
    }
    const double next = is_low ? std::ceil(given->number) : std::floor(given->number);
    if (next == given->number) {  // of 64 bits or more
      if (is_low == (next < 0)) return Bound{is_low ? -largest : largest};
      fail(Errc::unsupported, path,
           fmt::format("\"{}\" is {}", weak ? inclusive : exclusive, given->text));
    }
    if (!is_integer) {
      fail(Errc::unsupported, path,
           fmt::format("a bound of a number that is no integer, {}", given->number));
    }
    return Bound{static_cast<std::int64_t>(next)};
  }

  std::string number(const Json& schema, bool is_integer, const std::string& path) {
    const auto low = bound(schema, true, is_integer, path);
    const auto high = bound(schema, false, is_integer, path);
    if (!low && !high) return common(is_integer ? "integer" : "number");
    if (!is_integer) {
      common("fraction");
      return reals(low, high, path);
    }
    const std::int64_t least = low ? low->value + (low->is_included ? 0 : 1) : -largest;
    const std::int64_t most = high ? high->value - (high->is_included ? 0 : 1) : largest;
    if (most < least) fail(Errc::bad_argument, path, "no integer lies within its bounds");
    return "(" + integers_between(least, most) + ")";
  }

  /// Numbers within bounds, written without an exponent.
  std::string reals(std::optional<Bound> low, std::optional<Bound> high, const std::string& path) {
    const auto negated = [](const std::optional<Bound>& one) {
      return one ? std::optional(Bound{-one->value, one->is_included}) : std::nullopt;
    };
    std::vector<std::string> choices;
    add_magnitudes("", low, high, choices);
    add_magnitudes("\"-\" ", negated(high), negated(low), choices);
    if (choices.empty()) fail(Errc::bad_argument, path, "no number lies within its bounds");
    return group(choices);
  }

  /// Those of the numbers between the bounds that are not negative, behind their sign.
  static void add_magnitudes(const std::string& sign, std::optional<Bound> low,
                             std::optional<Bound> high, std::vector<std::string>& choices) {
    const std::string zeros = R"x(("." [0]{1,16})?)x", more = R"x("." [0-9]{0,15} [1-9])x";
    if (high && high->value < 0) return;
    if (high && low &&
        (low->value > high->value ||
         (low->value == high->value && !(low->is_included && high->is_included))))
      return;
    if (high && high->value == 0 && !high->is_included) return;
    const std::int64_t first = low ? std::max<std::int64_t>(low->value, 0) : 0;
    const bool has_first = !low || low->value < 0 || low->is_included;
    const std::int64_t last = high ? high->value : largest;
    if (last == 0 && !sign.empty()) return;  // -0
    if (first == last) {
      if (has_first) choices.push_back(fmt::format("{}\"{}\" {}", sign, first, zeros));
      return;
    }
    // The first, what lies behind it below the next integer, the integers between with any fraction, the last.
    choices.push_back(fmt::format("{}\"{}\" {}", sign, first, has_first ? "fraction?" : more));
    if (first + 1 <= last - 1) {
      choices.push_back(
          fmt::format("{}({}) fraction?", sign, integers_between(first + 1, last - 1)));
    }
    if (!high || high->is_included)
      choices.push_back(fmt::format("{}\"{}\" {}", sign, last, zeros));
  }

  // Arrays

  std::string array(const Json& schema, const std::string& path, int depth) {
    const Counts length = counts(schema, "minItems", "maxItems", path);
    const Json* items = find(schema, "items");
    const Json* first = find(schema, "prefixItems");
    if (items && items->is_array()) {  // up to draft 2019-09
      first = items;
      items = find(schema, "additionalItems");
    }
    const std::string item_path = path + "/items";
    const bool is_closed = items && items->is_false();
    std::string more;  // an item behind the first ones
    if (!is_closed) more = items ? rule_of(*items, item_path, depth) : common("value");
    ws();
    if (first == nullptr) {
      if (is_closed && length.least > 0) fail(Errc::bad_argument, path, "no items are allowed");
      if (is_closed || (length.most && *length.most == 0)) return R"("[" ws "]")";
      const Counts rest{length.least > 0 ? length.least - 1 : 0,
                        length.most ? std::optional(*length.most - 1) : std::nullopt};
      const std::string list = fmt::format(R"({0} ws ("," ws {0} ws){1})", more, rest.text());
      return length.least > 0 ? fmt::format(R"("[" ws {} "]")", list)
                              : fmt::format(R"("[" ws ({})? "]")", list);
    }
    return tuple(*first, more, length, path, depth);
  }

  /// The items of `first` one by one, which all stand there unless maxItems is less, then more of `more`.
  std::string tuple(const Json& first, const std::string& more, const Counts& length,
                    const std::string& path, int depth) {
    if (!first.is_array()) fail(Errc::bad_type, path, "\"prefixItems\" is not an array");
    const std::size_t most = length.most.value_or(std::numeric_limits<std::uint32_t>::max());
    const std::size_t named = std::min(first.items.size(), most);
    std::string list;
    for (std::size_t i = 0; i < named; ++i) {
      const std::string at = fmt::format("{}/prefixItems/{}", path, i);
      list +=
          fmt::format("{}{} ws ", i == 0 ? "" : R"("," ws )", rule_of(first.items[i], at, depth));
    }
    const std::size_t missing = length.least > named ? length.least - named : 0;
    if (more.empty() && missing > 0)
      fail(Errc::bad_argument, path, "\"minItems\" is more than the items allowed");
    if (!more.empty() && most > named && named > 0) {
      const Counts rest{
          static_cast<std::uint32_t>(missing),
          length.most ? std::optional(static_cast<std::uint32_t>(most - named)) : std::nullopt};
      list += fmt::format(R"(("," ws {} ws){} )", more, rest.text());
    }
    return fmt::format(R"("[" ws {}"]")", list);
  }

  /// A schema as a rule, where its expression would stand there twice.
  std::string rule_of(const Json& schema, const std::string& path, int depth) {
    std::string body = expression(schema, path, depth + 1);
    if (body.find(' ') == std::string::npos) return body;
    const std::string name = new_name(path);
    add_rule(name, std::move(body));
    return name;
  }

  // Objects

  struct Property {
    std::string member;  // an expression: the name, a colon and the value
    bool is_required = false;
  };

  std::string object(const Json& schema, const std::string& path, int depth) {
    const Json* const properties = find(schema, "properties");
    const Json* const additional = find(schema, "additionalProperties");
    const std::set<std::string> required = required_names(schema, path);
    if (properties && !properties->is_object())
      fail(Errc::bad_type, path, "\"properties\" is no object");
    const Counts members = counts(schema, "minProperties", "maxProperties", path);
    const bool names_members = properties != nullptr || find(schema, "required") != nullptr;
    const bool is_closed = additional ? additional->is_false() : names_members;
    std::vector<Property> list;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, const Json& value) {
      const std::string at = inside(path + "/properties", name);
      const bool is_required = required.contains(name);
      names.push_back(name);
      if (value.is_false() && !is_required) return;
      list.push_back({fmt::format(R"({} ws ":" ws {} ws)", grammar_literal(json_string(name)),
                                  rule_of(value, at, depth)),
                      is_required});
    };
    ws();
    if (properties) {
      for (const auto& [name, value] : properties->members) add(name, value);
    }
    const Json anything{.kind = Json::Kind::boolean, .flag = true};
    for (const std::string& name : required) {
      if (properties && properties->contains(name)) continue;
      if (additional && is_closed) {
        fail(Errc::bad_argument, path, fmt::format("\"{}\" is required and not allowed", name));
      }
      add(name, additional ? *additional : anything);
    }
    std::string other;  // a member of another name
    if (!is_closed) {
      const std::string value = additional
                                    ? rule_of(*additional, path + "/additionalProperties", depth)
                                    : common("value");
      other = fmt::format(R"({} ws ":" ws {} ws)", name_but(names, path), value);
    }
    if (list.empty()) return members_only(other, members, path);
    const auto fixed =
        static_cast<std::size_t>(std::ranges::count(list, true, &Property::is_required));
    if (members.least > fixed ||
        (members.most && (*members.most < list.size() || !other.empty()))) {
      fail(Errc::unsupported, path, "\"minProperties\" or \"maxProperties\" beside properties");
    }
    return fmt::format(R"("{{" ws {} "}}")", member_list(list, other, path));
  }

  std::set<std::string> required_names(const Json& schema, const std::string& path) const {
    std::set<std::string> names;
    const Json* const required = find(schema, "required");
    if (required == nullptr) return names;
    if (!required->is_array()) fail(Errc::bad_type, path, "\"required\" is not an array");
    for (const Json& name : required->items) {
      if (!name.is_string()) fail(Errc::bad_type, path, "\"required\" lists what is no string");
      names.insert(name.text);
    }
    return names;
  }

  static std::string members_only(const std::string& other, const Counts& members,
                                  const std::string& path) {
    if (other.empty() && members.least > 0)
      fail(Errc::bad_argument, path, "no members are allowed");
    if (other.empty() || (members.most && *members.most == 0)) return R"("{" ws "}")";
    const Counts rest{members.least > 0 ? members.least - 1 : 0,
                      members.most ? std::optional(*members.most - 1) : std::nullopt};
    const std::string list = fmt::format(R"({0} ("," ws {0}){1})", other, rest.text());
    return members.least > 0 ? fmt::format(R"("{{" ws {} "}}")", list)
                             : fmt::format(R"("{{" ws ({})? "}}")", list);
  }

  /// Members in their order, those that are not required or not, then others. Two rules for each place in the
  /// list: with and without a member before, which decides about the comma.
  std::string member_list(const std::vector<Property>& list, const std::string& other,
                          const std::string& path) {
    std::string behind, first;  // what may follow with a member before, and without
    if (!other.empty()) {
      behind = fmt::format(R"(("," ws {})*)", other);
      first = fmt::format(R"(({0} ("," ws {0})*)?)", other);
    }
    const auto required = std::ranges::find(list, true, &Property::is_required) - list.begin();
    for (std::size_t i = list.size(); i-- > 0;) {
      const Property& property = list[i];
      if (!behind.empty() && behind.find(' ') != std::string::npos) {
        const std::string name = new_name(path);
        add_rule(name, std::exchange(behind, name));
      }
      if (static_cast<std::ptrdiff_t>(i) <= required) {
        const std::string with = fmt::format("{} {}", property.member, behind);
        if (property.is_required) {
          first = with;
        } else {
          const std::string name = new_name(path);
          add_rule(name, first.empty() ? fmt::format("({})?", with)
                                       : fmt::format("{} | {}", with, first));
          first = name;
        }
      }
      behind = fmt::format(R"({} {})",
                           property.is_required ? fmt::format(R"("," ws {})", property.member)
                                                : fmt::format(R"(("," ws {})?)", property.member),
                           behind);
    }
    return first;
  }

  /// A string that is none of these. Up to where it differs from all of them it has no escapes.
  std::string name_but(const std::vector<std::string>& names, const std::string& path) {
    if (names.empty()) return common("string");
    std::set<std::string> spellings;
    for (const std::string& name : names) {
      const std::string spelled = json_string(name);
      spellings.insert(spelled.substr(1, spelled.size() - 2));
    }
    common("char");
    const std::string start = new_name(path);
    add_other_ends(start, {spellings.begin(), spellings.end()}, path);
    return fmt::format("\"\\\"\" {}", start);
  }

  /// Spellings of names, next to each other in their order, that begin alike.
  struct Spellings {
    std::string rule;           // of what may follow that beginning
    std::size_t first, behind;  // which ones
    std::size_t length;         // of what they have in common
  };

  /// Adds rules, from `start` on, of the ends of strings, with the quote, that are none of these ordered names.
  void add_other_ends(const std::string& start, const std::vector<std::string>& names,
                      const std::string& path) {
    std::vector<Spellings> open{{start, 0, names.size(), 0}};
    while (!open.empty()) {
      const Spellings alike = std::move(open.back());
      open.pop_back();
      std::vector<std::string> choices;
      std::string set;
      bool has_empty = false;
      for (std::size_t i = alike.first; i < alike.behind;) {
        const std::string_view rest = std::string_view(names[i]).substr(alike.length);
        if (rest.empty()) {
          has_empty = true;
          ++i;
          continue;
        }
        const std::string character(rest.substr(0, character_length(rest)));
        const std::size_t first = i;
        while (i < alike.behind &&
               std::string_view(names[i]).substr(alike.length).starts_with(character))
          ++i;
        if (character == "\\") continue;  // an escape, which is left out altogether
        set += character == "]" || character == "[" ? "\\" + character
               : character == "^" || character == "-"
                   ? fmt::format("\\x{:02X}", static_cast<unsigned>(character[0]))
                   : character;
        open.push_back({new_name(path), first, i, alike.length + character.size()});
        choices.push_back(fmt::format("{} {}", grammar_literal(character), open.back().rule));
      }
      choices.push_back(fmt::format(R"([^"\\\x00-\x1F\x7F{}] char* "\"")", set));
      if (!has_empty) choices.emplace_back(R"("\"")");
      add_rule(alike.rule, spend_text(joined(choices), path));
    }
  }
  static std::size_t character_length(std::string_view text) {
    std::size_t length = 1;
    while (length < text.size() && continues_character(text[length])) ++length;
    return length;
  }

  const Json& root_;
  std::vector<std::pair<std::string, std::string>> rules_;
  std::map<std::string, std::string> referred_;  // rules by the text of $ref
  std::size_t count_ = 0;
  std::size_t merged_bytes_ = 0, rule_bytes_ = 0, string_instructions_ = 0;
  std::map<std::string, GrammarAutomaton> string_automata_;  // by the keywords that they are of
  bool has_common_ = false;
  bool has_formats_ = false;
};

}  // namespace

std::string grammar_of_json_schema(std::string_view schema) {
  if (schema.size() > max_schema_bytes) {
    throw Error(Errc::limit_exceeded, "JSON schema",
                fmt::format("{} bytes; at most {} are read", schema.size(), max_schema_bytes));
  }
  const SchemaValue root = parse_schema(schema);
  return SchemaWriter(root).write();
}

}  // namespace tenon::text
