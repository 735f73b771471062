#include "call_grammar.hpp"

#include "json_pattern.hpp"
#include "json_schema.hpp"
#include "loose_value.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

using CallForm = CallSyntax::Form;

/// The rules of a grammar with a prefix before each name, so that several stand in one text.
std::string with_prefix(std::string_view gbnf, std::string_view prefix) {
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  };
  std::string out;
  char end = 0;  // of a literal, a set or a repetition
  bool in_name = false;
  for (std::size_t i = 0; i < gbnf.size(); ++i) {
    const char c = gbnf[i];
    if (end != 0) {
      if (c == '\\') out += gbnf[i++];
      if (c == end) end = 0;
      in_name = false;
    } else if (c == '"' || c == '[' || c == '{') {
      end = c == '"' ? '"' : c == '[' ? ']' : '}';
      in_name = false;
    } else {
      if (is_name(c) && !in_name) out += prefix;
      in_name = is_name(c);
    }
    out += gbnf[i];
  }
  return out;
}

class CallGrammar {
 public:
  CallGrammar(const CallSyntax& call, const CallGrammarOptions& options)
      : call_(call), options_(options) {}

  std::string of(const std::vector<ToolSchema>& tools) {
    std::string names;
    for (const ToolSchema& tool : tools) {
      if (!options_.tool.empty() && tool.name != options_.tool) continue;
      const std::string name = fmt::format("call-{}", calls_++);
      add(name, body(tool, name));
      names += (names.empty() ? "" : " | ") + name;
    }
    if (names.empty()) {
      throw Error(Errc::bad_argument, "AnswerFormat",
                  options_.tool.empty() ? "there are no tools to call"
                                        : fmt::format("there is no tool '{}'", options_.tool));
    }
    add("call", names);
    std::string opening = call_.opening;
    if (call_.form == CallForm::channels) opening.clear();
    opening.erase(0, opening.find_first_not_of(" \n\r\t"));
    if (opening.starts_with(options_.after)) {
      opening.erase(0, options_.after.size());
    } else if (!options_.after.empty()) {
      throw Error(Errc::bad_argument, "AnswerFormat",
                  fmt::format("'{}' is not what calls begin with, '{}'", options_.after, opening));
    }
    std::string root = pattern(opening) + " ";
    if (call_.is_list) {
      const bool is_python = call_.form == CallForm::python;
      root += grammar_literal(is_python ? "[" : call_.list_begin) + " call ";
      if (options_.several) {
        root += fmt::format("({} call)* ",
                            grammar_literal(is_python ? python_separator : call_.list_separator));
      }
      root += grammar_literal(is_python ? "]" : call_.list_end) + " ";
    } else {
      root += "call ";
      if (options_.several && call_.next) root += fmt::format("({} call)* ", pattern(*call_.next));
    }
    std::string closing = call_.closing;
    closing.erase(closing.find_last_not_of(" \n\r\t") + 1);
    add("root", root + pattern(closing));
    return rules_;
  }

 private:
  static constexpr std::string_view python_separator = ", ";
  static constexpr std::size_t max_schema_bytes = std::size_t{16} << 20;

  void add(std::string_view name, std::string_view body) {
    rules_ += fmt::format("{} ::= {}\n", name, body);
  }

  /// A pattern without a name and arguments, as parts of a rule.
  std::string pattern(std::string_view text, std::string_view tool = {},
                      std::string_view arguments = {}) const {
    std::string parts, plain;
    const auto put = [&](std::string_view part) {
      if (!plain.empty()) parts += grammar_literal(plain) + " ";
      plain.clear();
      (parts += part) += part.empty() ? "" : " ";
    };
    for (const char c : text) {
      if (c == slot::name) {
        plain += tool;
      } else if (c == slot::id) {
        put("[a-zA-Z0-9]{9}");
      } else if (c == slot::number) {
        put("[0-9]+");
      } else if (c == slot::arguments) {
        put(arguments);
      } else {
        plain += c;
      }
    }
    put({});
    return parts;
  }

  /// The values that a schema allows, as a rule of this name.
  void add_schema(const std::string& name, const SchemaValue& schema) {
    const std::string text = schema.kind == SchemaValue::Kind::null ? "{}" : schema.dump();
    schema_bytes_ += text.size();
    if (schema_bytes_ > max_schema_bytes) {
      throw Error(
          Errc::limit_exceeded, "AnswerFormat",
          fmt::format("schemas of tools of more than {} bytes, of which each argument's has "
                      "the tool's definitions",
                      max_schema_bytes));
    }
    const std::string rules = grammar_of_json_schema(text);
    rules_ += with_prefix(call_.form == CallForm::python ? with_words_of_python(rules) : rules,
                          name + "-");
  }
  /// The same for a property of a tool's parameters.
  void add_property(const std::string& name, const SchemaValue& property, const ToolSchema& tool) {
    if (property.dump().find("\"$ref\"") == std::string::npos) return add_schema(name, property);
    SchemaValue own = property;
    for (const char* const shared : {"$defs", "definitions"}) {
      if (const SchemaValue* const found = tool.parameters.find(shared))
        own.member(shared) = *found;
    }
    add_schema(name, own);
  }

  /// Literals that are JSON's words alone, with Python's spelling beside them.
  static std::string with_words_of_python(std::string rules) {
    for (const auto& [word, both] : {std::pair(R"("true")", R"(("true" | "True"))"),
                                     std::pair(R"("false")", R"(("false" | "False"))"),
                                     std::pair(R"("null")", R"(("null" | "None"))")}) {
      const std::string_view from = word, to = both;
      for (std::size_t at = rules.find(from); at != std::string::npos;
           at = rules.find(from, at + to.size())) {
        rules.replace(at, from.size(), to);
      }
    }
    return rules;
  }

  static bool is_required(const ToolSchema& tool, std::string_view key) {
    const SchemaValue* const required = tool.parameters.find("required");
    return required != nullptr &&
           std::ranges::any_of(required->items,
                               [key](const SchemaValue& one) { return one.text == key; });
  }

  /// Errc::unsupported for a name that calls of Python cannot have.
  static void require_word(const std::string& name) {
    if (!name.empty() && name.find_first_of(" \n\r\t<>{}()[]\"'=,") == std::string::npos) return;
    throw Error(Errc::unsupported, "AnswerFormat",
                fmt::format("a call in Python's form with the name '{}'", name));
  }

  /// name(key=value, ...), in the order of the schema. Rule `a-i`: arguments from number i on, none of which has been
  /// written before; `b-i`: behind others.
  std::string named_arguments(const ToolSchema& tool, const std::string& name) {
    const SchemaValue* const properties = tool.parameters.find("properties");
    std::size_t count = 0;
    require_word(tool.name);
    if (properties != nullptr) {
      for (const auto& [key, schema] : properties->members) {
        require_word(key);
        const std::string value = fmt::format("{}-{}", name, count);
        add_property(value, schema, tool);
        const std::string argument = fmt::format("{} {}-root", grammar_literal(key + "="), value);
        const std::string a = name + "-a-", b = name + "-b-";
        const std::string first = fmt::format("{} {}{}", argument, b, count + 1);
        const std::string next = fmt::format("{} {}", grammar_literal(python_separator), argument);
        const bool needed = is_required(tool, key);
        add(fmt::format("{}{}", a, count),
            needed ? first : fmt::format("{} | {}{}", first, a, count + 1));
        add(fmt::format("{}{}", b, count),
            fmt::format(fmt::runtime(needed ? "{} {}{}" : "({})? {}{}"), next, b, count + 1));
        ++count;
      }
    }
    for (const char* const end : {"-a-", "-b-"})
      add(fmt::format("{}{}{}", name, end, count), R"("")");
    return fmt::format("{} {}-a-0 {}", grammar_literal(tool.name + "("), name,
                       grammar_literal(")"));
  }

  std::string body(const ToolSchema& tool, const std::string& name) {
    if (call_.form == CallForm::python) return named_arguments(tool, name);
    if (call_.form == CallForm::parameters)
      return pattern(std::string(1, slot::name) + call_.between, tool.name) +
             parameters(tool, name);
    SchemaValue schema = tool.parameters;
    if (!schema.is_object()) {  // a tool without parameters takes no arguments, as OpenAI has it
      schema = {.kind = SchemaValue::Kind::object};
      schema.member("additionalProperties") = {.kind = SchemaValue::Kind::boolean};
    }
    if (!schema.contains("type")) {
      schema.member("type") = {.kind = SchemaValue::Kind::string, .text = "object"};
    }
    add_schema(name, schema);
    return pattern(call_.body, tool.name, name + "-root");
  }

  /// Marks around each argument, in the order of the schema.
  std::string parameters(const ToolSchema& tool, const std::string& name) {
    std::string parts;
    const SchemaValue* const properties = tool.parameters.find("properties");
    if (properties == nullptr) return parts;
    std::size_t count = 0;
    for (const auto& [key, schema] : properties->members) {
      const std::string value = fmt::format("{}-{}", name, count++);
      std::string ending;
      for (const char c : call_.value_end) ending += c == slot::key ? key : std::string(1, c);
      std::string rule = grammar_literal(call_.key_begin + key + call_.key_end) + " ";
      const SchemaValue* const type = schema.find("type");
      const std::vector<std::string> words = words_of(schema);
      if (!words.empty()) {
        std::string any;
        for (const std::string& word : words)
          any += (any.empty() ? "" : " | ") + grammar_literal(word);
        add(value, any);
        rule += value + " ";
      } else if (type != nullptr && type->is_string() && type->text == "string") {
        add_text_without(value, std::string(trimmed(ending)));
        rule += value + "-0 ";
      } else {
        add_property(value, schema, tool);
        rule += value + "-root ";
      }
      rule += grammar_literal(ending) + R"( [ \n\t]{0,16} )";
      parts += is_required(tool, key) ? rule : fmt::format("({})? ", rule);
    }
    return parts;
  }

  /// The texts that an argument may be, where its schema lists them.
  static std::vector<std::string> words_of(const SchemaValue& schema) {
    std::vector<std::string> words;
    const SchemaValue* const list = schema.find("enum");
    const SchemaValue* const one = schema.find("const");
    if (one != nullptr && one->is_string()) words.push_back(one->text);
    if (list == nullptr || !words.empty()) return words;
    for (const SchemaValue& word : list->items) {
      if (!word.is_string()) return {};
      words.push_back(word.text);
    }
    return words;
  }

  /// Texts in which `end` does not stand: state i has read the first i bytes of it (Knuth, Morris, Pratt).
  void add_text_without(const std::string& name, const std::string& end) {
    std::vector<std::size_t> back(
        end.size() + 1, 0);  // the longest beginning of `end` that ends behind its first i bytes
    for (std::size_t i = 1, k = 0; i < end.size(); ++i) {
      while (k > 0 && end[i] != end[k]) k = back[k];
      if (end[i] == end[k]) ++k;
      back[i + 1] = k;
    }
    const auto next = [&](std::size_t state, char c) {
      while (state > 0 && end[state] != c) state = back[state];
      return end[state] == c ? state + 1 : 0;
    };
    std::string letters;
    for (const char c : end) {
      if (static_cast<unsigned char>(c) >= 0x80) {
        throw Error(Errc::unsupported, "AnswerFormat",
                    "a grammar of texts that end with a mark beyond ASCII");
      }
      if (letters.find(c) == std::string::npos) letters += c;
    }
    const auto escaped = [](char c) {
      if (c == '\n') return std::string("\\n");
      if (c == ']' || c == '[' || c == '\\' || c == '-' || c == '^')
        return std::string("\\x") + fmt::format("{:02X}", static_cast<unsigned>(c));
      return std::string(1, c);
    };
    std::string others = "[^";
    for (const char c : letters) others += escaped(c);
    others += "]";
    for (std::size_t state = 0; state < end.size(); ++state) {
      std::string rule = fmt::format("({} {}-0", others, name);
      for (const char c : letters) {
        const std::size_t to = next(state, c);
        if (to < end.size())
          rule += fmt::format(" | {} {}-{}", grammar_literal(std::string(1, c)), name, to);
      }
      add(fmt::format("{}-{}", name, state), rule + ")?");
    }
  }

  const CallSyntax& call_;
  const CallGrammarOptions& options_;
  std::string rules_;
  std::size_t calls_ = 0, schema_bytes_ = 0;
};

}  // namespace

std::vector<ToolSchema> tools_of(const SchemaValue& values) {
  std::vector<ToolSchema> tools;
  const SchemaValue* const list = values.find("tools");
  if (list == nullptr || !list->is_array()) return tools;
  for (const SchemaValue& tool : list->items) {
    const SchemaValue* const inner = tool.find("function");
    const SchemaValue& function = inner == nullptr ? tool : *inner;
    const SchemaValue* const name = function.find("name");
    if (name == nullptr || !name->is_string()) continue;
    const SchemaValue* schema = function.find("parameters");
    if (schema == nullptr) schema = function.find("input_schema");
    tools.push_back({name->text, schema == nullptr ? SchemaValue() : *schema});
  }
  return tools;
}

std::string call_grammar(const CallSyntax& call, const std::vector<ToolSchema>& tools,
                         const CallGrammarOptions& options) {
  if (call.form == CallForm::none) {
    throw Error(Errc::unsupported, "AnswerFormat", "the template shows no calls of tools");
  }
  if (!call.quote.empty()) {
    throw Error(Errc::unsupported, "AnswerFormat",
                "a grammar of calls whose texts have quotes of their own");
  }
  if (!call.text_type.empty() || call.has_marks_between) {
    throw Error(Errc::unsupported, "AnswerFormat",
                "a grammar of calls whose marks give the types of arguments, or separate them");
  }
  return CallGrammar(call, options).of(tools);
}

}  // namespace tenon::text
