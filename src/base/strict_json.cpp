#include "base/strict_json.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr std::size_t max_depth = 512;

/// Builds the document, and refuses what json::parse accepts: repeated keys and deep nesting.
template <class Json>
class StrictBuilder {
 public:
  StrictBuilder(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  BasicJsonDocument<Json> take() { return std::move(document_); }

  bool null() { return place(nullptr); }
  bool boolean(bool value) { return place(value); }
  bool number_integer(typename Json::number_integer_t value) { return place(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) { return place(value); }
  bool number_float(typename Json::number_float_t value, const std::string& /*spelling*/) {
    return place(value);
  }
  bool string(std::string& value) { return place(std::move(value)); }
  bool binary(typename Json::binary_t& value) { return place(std::move(value)); }

  bool start_object(std::size_t /*size*/) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(std::size_t /*size*/) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto& members = open_.back()->template get_ref<typename Json::object_t&>();
    if constexpr (is_ordered) {  // its members are a list
      if (!names_.back().insert(name).second) refuse_second(name);
      member_ = &members.emplace_back(std::move(name), nullptr).second;
    } else {
      const auto [member, is_new] = members.emplace(std::move(name), nullptr);
      if (!is_new) refuse_second(member->first);
      member_ = &member->second;
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::json::exception& /*error*/) {
    // nlohmann counts the bytes read, so the last of them is the offending one.
    const std::size_t offset = std::min(position == 0 ? 0 : position - 1, text_.size());
    const std::string_view before = text_.substr(0, offset);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    const std::string_view token = std::string_view(last_token).substr(0, 40);
    throw Error(Errc::syntax, fmt::format("{}:{}:{}", where_, line, offset - line_start + 1),
                offset >= text_.size() ? std::string("the JSON ends early")
                                       : fmt::format("not JSON from \"{}\" on", token));
  }

 private:
  static constexpr bool is_ordered = std::is_same_v<Json, nlohmann::ordered_json>;

  [[noreturn]] void refuse_second(const std::string& name) const {
    throw Error(Errc::duplicate_name, std::string(where_),
                fmt::format("key \"{}\" occurs twice in one object", name));
  }

  template <typename Value>
  bool place(Value&& value) {
    *slot() = std::forward<Value>(value);
    return true;
  }

  bool open(Json container) {
    if (open_.size() == max_depth) {
      throw Error(Errc::depth_limit, std::string(where_),
                  fmt::format("JSON nested deeper than {} levels", max_depth));
    }
    Json* const target = slot();
    *target = std::move(container);
    open_.push_back(target);
    if constexpr (is_ordered) names_.emplace_back();
    return true;
  }

  bool close() {
    open_.pop_back();
    if constexpr (is_ordered) names_.pop_back();
    return true;
  }

  /// Where the next value goes. Addresses stay valid: only the innermost array grows.
  Json* slot() {
    if (open_.empty()) return &document_.root();
    if (open_.back()->is_object()) return member_;
    return &open_.back()->template get_ref<typename Json::array_t&>().emplace_back();
  }

  std::string_view text_;
  std::string_view where_;
  BasicJsonDocument<Json> document_;
  Json* member_ = nullptr;
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>>
      names_;  // of the objects that are open, where Json does not look for them
};

/// Clears containers from the innermost on: empty ones are destroyed without allocation.
template <class Json>
void take_apart(Json& value) noexcept {
  if (auto* const items = value.template get_ptr<typename Json::array_t*>()) {
    for (; !items->empty(); items->pop_back()) take_apart(items->back());
  } else if (auto* const members = value.template get_ptr<typename Json::object_t*>()) {
    while (!members->empty()) {
      const auto last = std::prev(members->end());
      take_apart(last->second);
      members->erase(last);
    }
  }
}

template <class Json>
BasicJsonDocument<Json> parse(std::string_view text, std::string_view where) {
  StrictBuilder<Json> builder(text, where);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace

template <class Json>
BasicJsonDocument<Json>::~BasicJsonDocument() {
  take_apart(root_);
}
template class BasicJsonDocument<nlohmann::json>;
template class BasicJsonDocument<nlohmann::ordered_json>;

JsonDocument parse_strict_json(std::string_view text, std::string_view where) {
  return parse<nlohmann::json>(text, where);
}
OrderedJsonDocument parse_ordered_json(std::string_view text, std::string_view where) {
  return parse<nlohmann::ordered_json>(text, where);
}

}  // namespace tenon
