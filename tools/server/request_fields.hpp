// The members of a request's body.
#pragma once

#include <tenon/error.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::tool {

using Json = nlohmann::ordered_json;

/// An error of a member of the request, which where() names: "messages[2].content".
class MemberError : public Error {
  using Error::Error;
};

/// A prompt that has more tokens than the context.
class PromptTooLong : public MemberError {
  using MemberError::MemberError;
};

/// A JSON text of a stranger, with members in their order. Errors: syntax, depth_limit (nesting beyond 100),
/// limit_exceeded (more than 2^14 members or 2^21 values).
Json parse_request(std::string_view text);

/// Calls `use`, whose errors then name the member whose value it takes.
template <class Use>
auto with_member(const std::string& path, const Use& use) try {
  return use();
} catch (const Error& error) {
  throw MemberError(error.code(), path, fmt::format("{}: {}", error.where(), error.message()));
}

/// An object of a request, by members. A member that is null is one that is missing. Errors, which name the member:
/// bad_type; out_of_range for a number out of its bounds; bad_key for a member that is required and missing.
class RequestFields {
 public:
  /// `name`: what errors call the object; empty for the body itself. The object must live as long.
  explicit RequestFields(const Json& object, std::string name = {});

  const Json& all() const { return *object_; }
  const Json* find(std::string_view member) const;
  const Json& at(std::string_view member) const;
  /// An object or array, or nothing.
  const Json* object(std::string_view member) const;
  const Json* array(std::string_view member) const;

  std::optional<double> number(std::string_view member) const;
  std::optional<std::int64_t> integer(
      std::string_view member, std::int64_t least = std::numeric_limits<std::int64_t>::min(),
      std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  std::optional<bool> flag(std::string_view member) const;
  std::optional<std::string> text(std::string_view member) const;
  /// A text, or an array of them; empty where it is missing.
  std::vector<std::string> texts(std::string_view member) const;

  /// Errc::unsupported where this member is given and has another value than this.
  void refuse_other_than(std::string_view member, const Json& value) const;

  /// "messages[2].content".
  std::string path(std::string_view member) const;

 private:
  [[noreturn]] void refuse_type(std::string_view member, const Json& value,
                                std::string_view wanted) const;

  const Json* object_;
  std::string name_;
};

}  // namespace tenon::tool
