#pragma once

#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace tenon {

/// A JSON value that is destroyed without allocating memory. nlohmann's destructor collects the
/// items of a container in a vector first, and terminates the process where there is no memory for
/// that.
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

/// Parses untrusted JSON (RFC 8259, one value, no comments).
///
/// `where` names the text in errors, usually its file.
/// Errors: syntax (with line:column, also for invalid UTF-8 and numbers out of range),
/// duplicate_name (a key twice in one object), depth_limit (nesting beyond 512).
JsonDocument parse_strict_json(std::string_view text, std::string_view where);

}  // namespace tenon
