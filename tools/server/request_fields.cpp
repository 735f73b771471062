#include "server/request_fields.hpp"

#include <tenon/error.hpp>

#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

constexpr int max_depth = 100;
// What a request has at most. An object in the order of its members compares each key with all before it: as many comparisons
// as an object of max_members takes are allowed in all.
constexpr std::size_t max_members = std::size_t{1} << 14, max_values = std::size_t{1} << 21;
constexpr std::size_t max_comparisons = max_members * (max_members - 1) / 2;

/// A value in a message: its beginning.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::size_t most = 60;
  if (text.size() <= most) return text;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u;
  };
  while (most > 0 && continues(most)) --most;  // not within a character
  return text.substr(0, most) + "...";
}

}  // namespace

Json parse_request(std::string_view text) {
  // To nlohmann it is the end of the text, whatever follows.
  if (text.find('\0') != std::string_view::npos) {
    throw Error(Errc::syntax, "request", "has a zero byte");
  }
  std::size_t comparisons = 0, values = 0;
  std::vector<std::size_t> members;  // of the objects that are open
  const auto limit = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > max_depth) {
      throw Error(Errc::depth_limit, "request", fmt::format("nesting beyond {}", max_depth));
    }
    if (event == Json::parse_event_t::object_start) members.push_back(0);
    if (event == Json::parse_event_t::object_end) members.pop_back();
    if (event == Json::parse_event_t::key) comparisons += members.back()++;
    if (++values > max_values || comparisons > max_comparisons) {
      throw Error(
          Errc::limit_exceeded, "request",
          fmt::format("more than {} members of an object, or {} values", max_members, max_values));
    }
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
    throw Error(Errc::syntax, "request", std::string(what));
  }
}

RequestFields::RequestFields(const Json& object, std::string name)
    : object_(&object), name_(std::move(name)) {
  if (object.is_object()) return;
  const std::string what = fmt::format("is {}, not an object", shown(object));
  if (name_.empty()) throw Error(Errc::bad_type, "request", what);
  throw MemberError(Errc::bad_type, name_, what);
}

std::string RequestFields::path(std::string_view member) const {
  return name_.empty() ? std::string(member) : fmt::format("{}.{}", name_, member);
}

void RequestFields::refuse_type(std::string_view member, const Json& value,
                                std::string_view wanted) const {
  throw MemberError(Errc::bad_type, path(member),
                    fmt::format("is {}, not {}", shown(value), wanted));
}

const Json* RequestFields::find(std::string_view member) const {
  const auto found = object_->find(member);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json& RequestFields::at(std::string_view member) const {
  if (const Json* value = find(member)) return *value;
  throw MemberError(Errc::bad_key, path(member), "is missing");
}

const Json* RequestFields::object(std::string_view member) const {
  const Json* value = find(member);
  if (value != nullptr && !value->is_object()) refuse_type(member, *value, "an object");
  return value;
}

const Json* RequestFields::array(std::string_view member) const {
  const Json* value = find(member);
  if (value != nullptr && !value->is_array()) refuse_type(member, *value, "an array");
  return value;
}

std::optional<double> RequestFields::number(std::string_view member) const {
  const Json* value = find(member);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse_type(member, *value, "a number");
  return value->get<double>();
}

std::optional<std::int64_t> RequestFields::integer(std::string_view member, std::int64_t least,
                                                   std::int64_t most) const {
  const Json* given = find(member);
  if (given == nullptr) return std::nullopt;
  if (!given->is_number()) refuse_type(member, *given, "a number");
  if (given->is_number_float()) {
    // Bounds of int64 are not exact in f64: what is to be cast must be clearly inside.
    constexpr double bound = 9.2e18;
    const auto value = given->get<double>();
    const bool is_integer = value > -bound && value < bound &&
                            static_cast<double>(static_cast<std::int64_t>(value)) == value;
    if (!is_integer) refuse_type(member, *given, "an integer");
  }
  constexpr auto largest = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (given->is_number_unsigned() && given->get<std::uint64_t>() > largest) {
    throw MemberError(Errc::out_of_range, path(member),
                      fmt::format("is {}, and can be at most {}", shown(*given), largest));
  }
  const auto integer = given->get<std::int64_t>();
  if (integer < least || integer > most) {
    throw MemberError(Errc::out_of_range, path(member),
                      most == std::numeric_limits<std::int64_t>::max()
                          ? fmt::format("is {}, and must be at least {}", integer, least)
                          : fmt::format("is {}, and must be from {} to {}", integer, least, most));
  }
  return integer;
}

std::optional<bool> RequestFields::flag(std::string_view member) const {
  const Json* value = find(member);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse_type(member, *value, "true or false");
  return value->get<bool>();
}

std::optional<std::string> RequestFields::text(std::string_view member) const {
  const Json* value = find(member);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_type(member, *value, "a text");
  return value->get<std::string>();
}

std::vector<std::string> RequestFields::texts(std::string_view member) const {
  const Json* value = find(member);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) refuse_type(member, *value, "a text or an array of texts");
  std::vector<std::string> texts;
  for (const Json& item : *value) {
    if (!item.is_string()) refuse_type(member, *value, "an array of texts");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

void RequestFields::refuse_other_than(std::string_view member, const Json& value) const {
  const Json* given = find(member);
  if (given == nullptr || *given == value) return;
  throw MemberError(Errc::unsupported, path(member),
                    fmt::format("is {}; this server knows {} alone", shown(*given), shown(value)));
}

}  // namespace tenon::tool
