#pragma once

#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace tenon {

/// A JSON value that goes without asking for memory. nlohmann's destructor gathers the items of a
/// container in a vector first, and where there is no memory for that it ends the process.
class JsonDocument {
 public:
  JsonDocument() = default;
  explicit JsonDocument(nlohmann::json root) noexcept : root_(std::move(root)) {}
  ~JsonDocument();
  JsonDocument(JsonDocument&& other) noexcept : root_(std::move(other.root_)) {}
  JsonDocument& operator=(JsonDocument&&) = delete;

  const nlohmann::json& root() const noexcept { return root_; }
  nlohmann::json& root() noexcept { return root_; }

 private:
  nlohmann::json root_;
};

/// Parses JSON that a stranger wrote (RFC 8259, one value, no comments).
///
/// `where` names the text in errors, usually its file.
/// Errors: syntax (with line:column, also for invalid UTF-8 and numbers out of range),
/// duplicate_name (a key twice in one object), depth_limit (nesting beyond 512).
JsonDocument parse_strict_json(std::string_view text, std::string_view where);

}  // namespace tenon
