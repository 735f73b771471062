#include "jinja_functions.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tenon::text::jinja {

void refuse_undefined(const Value& value) {
  refuse(fmt::format("{} is undefined", value.as<Undefined>()->name));
}

const Value* argument(const Arguments& arguments, std::size_t index, std::string_view name) {
  if (index < arguments.values.size()) return &arguments.values[index];
  const auto found =
      std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
  return found == arguments.named.end() ? nullptr : &found->second;
}

Text text_argument(const Arguments& arguments, std::size_t index, std::string_view name) {
  const Value* const value = argument(arguments, index, name);
  if (value == nullptr || value->text() == nullptr) {
    refuse(fmt::format("'{}' is no text, but {}", name,
                       value == nullptr ? "missing" : value->type_name()));
  }
  return *value->text();
}

std::optional<Text> optional_text(const Arguments& arguments, std::size_t index,
                                  std::string_view name) {
  const Value* const value = argument(arguments, index, name);
  if (value == nullptr || value->is_none()) return std::nullopt;
  return text_argument(arguments, index, name);
}

std::int64_t integer_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                              std::int64_t otherwise) {
  const Value* const value = argument(arguments, index, name);
  if (value == nullptr || value->is_none()) return otherwise;
  if (!value->is_integer())
    refuse(fmt::format("'{}' is no integer, but {}", name, value->type_name()));
  return value->integer();
}

std::int64_t width_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                            std::int64_t otherwise) {
  const std::int64_t width = integer_argument(arguments, index, name, otherwise);
  if (width < 0 || width > max_width) refuse(fmt::format("'{}' is {}", name, width));
  return width;
}

bool flag_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                   bool otherwise) {
  const Value* const value = argument(arguments, index, name);
  return value == nullptr ? otherwise : value->is_true();
}

}  // namespace tenon::text::jinja
