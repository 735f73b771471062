// Renders Jinja templates as Hugging Face's and llama.cpp's chat templates are meant: Jinja 3.1 with trim_blocks, lstrip_blocks
// and loop controls, in a sandbox that changes nothing.
#pragma once

#include "jinja_syntax.hpp"
#include "jinja_value.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::text::jinja {

/// A template, ready to be rendered on any thread.
class Template {
 public:
  /// Errors: those of parse().
  explicit Template(std::string_view source)
      : body_(std::make_shared<const std::vector<Statement>>(parse(source))) {}

  /// The text under these variables, beside range, namespace, dict and joiner. Errors: template_error, with the line, for
  /// what a template raises or what Python would; limit_exceeded for more work than a chat can need; depth_limit.
  Text render(std::vector<std::pair<std::string, Value>> variables) const;

 private:
  std::shared_ptr<const std::vector<Statement>> body_;
};

// Filters, tests and attributes; arguments beyond the value itself.

/// Null for a name that is none.
using Filter = Value (*)(const Value& value, const Arguments& arguments);
Filter find_filter(std::string_view name) noexcept;
using Test = bool (*)(const Value& value, const Arguments& arguments);
Test find_test(std::string_view name) noexcept;

/// The attribute of a value: a method, a member of a dictionary, or undefined.
Value attribute_of(const Value& value, std::string_view name);
Value item_of(const Value& value, const Value& key);
/// Python's text % value, of %s, %d and %%.
Text percent_format(const Text& text, const Value& value);
/// Of texts, lists and dictionaries. Errc::template_error for others.
std::vector<Value> items_of(const Value& value);
bool is_in(const Value& item, const Value& container);
std::int64_t length_of(const Value& value);

}  // namespace tenon::text::jinja
