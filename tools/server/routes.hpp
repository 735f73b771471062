// The addresses of a server, and what is the same for all of them.
#pragma once

#include "server/http.hpp"
#include "server/request_fields.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::tool {

/// Calls what an address has, checks the key, and answers errors as OpenAI's API does.
class Routes {
 public:
  using Action = std::function<HttpResponse(const HttpRequest& request)>;
  /// An action that takes a JSON object and gives one.
  using JsonAction = std::function<Json(const RequestFields& fields)>;

  /// `key`: requests must have it in "Authorization: Bearer ..."; empty: none is needed.
  explicit Routes(std::string key) : key_(std::move(key)) {}

  /// `is_open`: the key is not needed.
  void get(const std::string& path, std::function<Json()> action, bool is_open = false);
  void get_text(const std::string& path, const std::string& type,
                std::function<std::string()> action);
  void post(const std::string& path, Action action);
  void post_json(const std::string& path, JsonAction action);

  /// Answers what a browser asks before a page of another origin may send a request (OPTIONS), at all addresses so far.
  void answer_preflights();

  HttpResponse operator()(const HttpRequest& request) const;
  /// What a request is refused with that has no address here, or not the key; nothing for others.
  std::optional<HttpResponse> refused(const HttpRequest& head) const;

 private:
  struct Route {
    Action action;
    bool is_open = false;
  };
  /// Null: there is none.
  const Route* find(const HttpRequest& request) const;
  bool has_key(const std::string& authorization) const;

  std::string key_;
  std::map<std::string, std::map<std::string, Route>> routes_;  // by path and method
};

HttpResponse json_response(const Json& json, int status = 200);

}  // namespace tenon::tool
