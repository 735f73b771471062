#include "base/strict_json.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

using nlohmann::json;

constexpr std::size_t max_depth = 512;

/// Builds the document, and refuses what json::parse accepts: repeated keys and deep nesting.
class StrictBuilder {
 public:
  StrictBuilder(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  JsonDocument take() { return std::move(document_); }

  bool null() { return place(nullptr); }
  bool boolean(bool value) { return place(value); }
  bool number_integer(json::number_integer_t value) { return place(value); }
  bool number_unsigned(json::number_unsigned_t value) { return place(value); }
  bool number_float(json::number_float_t value, const std::string& /*spelling*/) {
    return place(value);
  }
  bool string(std::string& value) { return place(std::move(value)); }
  bool binary(json::binary_t& value) { return place(std::move(value)); }

  bool start_object(std::size_t /*size*/) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(std::size_t /*size*/) { return open(json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto& members = open_.back()->get_ref<json::object_t&>();
    const auto [member, is_new] = members.emplace(std::move(name), nullptr);
    if (!is_new) {
      throw Error(Errc::duplicate_name, std::string(where_),
                  fmt::format("key \"{}\" occurs twice in one object", member->first));
    }
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const json::exception& /*error*/) {
    // nlohmann counts the bytes read, so the last of them is the offending one.
    refuse_at(std::min(position == 0 ? 0 : position - 1, text_.size()), last_token);
  }

  /// To nlohmann a zero byte is the end of a text, whatever follows.
  void refuse_zero_byte() const {
    const std::size_t offset = text_.find('\0');
    if (offset != std::string_view::npos) refuse_at(offset, "<U+0000>");
  }

 private:
  [[noreturn]] void refuse_at(std::size_t offset, std::string_view last_token) const {
    const std::string_view before = text_.substr(0, offset);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    const std::string_view token = last_token.substr(0, 40);
    throw Error(Errc::syntax, fmt::format("{}:{}:{}", where_, line, offset - line_start + 1),
                offset >= text_.size() ? std::string("the JSON ends early")
                                       : fmt::format("not JSON from \"{}\" on", token));
  }

  template <typename Value>
  bool place(Value&& value) {
    *slot() = std::forward<Value>(value);
    return true;
  }

  bool open(json container) {
    if (open_.size() == max_depth) {
      throw Error(Errc::depth_limit, std::string(where_),
                  fmt::format("JSON nested deeper than {} levels", max_depth));
    }
    json* const target = slot();
    *target = std::move(container);
    open_.push_back(target);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  /// Where the next value goes. Addresses stay valid: only the innermost array grows.
  json* slot() {
    if (open_.empty()) return &document_.root();
    if (open_.back()->is_object()) return member_;
    return &open_.back()->get_ref<json::array_t&>().emplace_back();
  }

  std::string_view text_;
  std::string_view where_;
  JsonDocument document_;
  json* member_ = nullptr;
  std::vector<json*> open_;
};

/// Clears containers from the innermost on: empty ones are destroyed without allocation.
void take_apart(json& value) noexcept {
  if (auto* const items = value.get_ptr<json::array_t*>()) {
    for (; !items->empty(); items->pop_back()) take_apart(items->back());
  } else if (auto* const members = value.get_ptr<json::object_t*>()) {
    for (; !members->empty(); members->erase(members->begin()))
      take_apart(members->begin()->second);
  }
}

}  // namespace

JsonDocument::~JsonDocument() { take_apart(root_); }

JsonDocument parse_strict_json(std::string_view text, std::string_view where) {
  StrictBuilder builder(text, where);
  json::sax_parse(text.begin(), text.end(), &builder);
  builder.refuse_zero_byte();
  return builder.take();
}

}  // namespace tenon
