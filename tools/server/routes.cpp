#include "server/routes.hpp"

#include "server/completion.hpp"

#include <exception>
#include <utility>

#include <fmt/format.h>
#include <strings.h>

namespace tenon::tool {
namespace {

HttpResponse refusal(int status, std::string_view code, const std::string& message) {
  return json_response({{"error",
                         {{"message", message},
                          {"type", "invalid_request_error"},
                          {"param", nullptr},
                          {"code", code}}}},
                       status);
}

/// Whether two texts are the same, in a time that does not tell where they differ.
bool is_same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

HttpResponse json_response(const Json& json, int status) {
  return {.status = status,
          .body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

void Routes::get(const std::string& path, std::function<Json()> action, bool is_open) {
  routes_[path]["GET"] = {
      [action = std::move(action)](const HttpRequest&) { return json_response(action()); },
      is_open};
}

void Routes::get_text(const std::string& path, const std::string& type,
                      std::function<std::string()> action) {
  routes_[path]["GET"] = {[type, action = std::move(action)](const HttpRequest&) {
    return HttpResponse{.type = type, .body = action()};
  }};
}

void Routes::post(const std::string& path, Action action) {
  routes_[path]["POST"] = {std::move(action)};
}

void Routes::post_json(const std::string& path, JsonAction action) {
  post(path, [action = std::move(action)](const HttpRequest& request) {
    const Json body = parse_request(request.body);
    return json_response(action(RequestFields(body)));
  });
}

void Routes::answer_preflights() {
  const Action action = [](const HttpRequest&) {
    return HttpResponse{.status = 204,
                        .headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                                    {"Access-Control-Allow-Headers", "Authorization, *"},
                                    {"Access-Control-Max-Age", "86400"}}};
  };
  for (auto& [path, methods] : routes_) methods["OPTIONS"] = {action, true};
}

bool Routes::has_key(const std::string& authorization) const {
  constexpr std::string_view scheme = "bearer ";
  if (key_.empty()) return true;
  return ::strncasecmp(authorization.c_str(), scheme.data(), scheme.size()) == 0 &&
         is_same(std::string_view(authorization).substr(scheme.size()), key_);
}

const Routes::Route* Routes::find(const HttpRequest& request) const {
  const auto path = routes_.find(request.path);
  if (path == routes_.end()) return nullptr;
  const auto route = path->second.find(request.method == "HEAD" ? "GET" : request.method);
  return route == path->second.end() ? nullptr : &route->second;
}

std::optional<HttpResponse> Routes::refused(const HttpRequest& head) const {
  const auto path = routes_.find(head.path);
  if (path == routes_.end()) {
    return refusal(404, "not_found", fmt::format("there is nothing at {}", head.path));
  }
  const Route* route = find(head);
  if (route == nullptr) {
    const std::string taken = path->second.contains("GET") ? "GET" : "POST";
    HttpResponse response =
        refusal(405, "method_not_allowed", fmt::format("{} takes {}", head.path, taken));
    response.headers.emplace_back("Allow", taken == "GET" ? "GET, HEAD" : taken);
    return response;
  }
  if (route->is_open || has_key(head.authorization)) return std::nullopt;
  HttpResponse response = refusal(401, "invalid_api_key", "the API key is missing or wrong");
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse Routes::operator()(const HttpRequest& request) const {
  try {
    if (auto refusal = refused(request)) return *std::move(refusal);
    return find(request)->action(request);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    return json_response(described(error), http_status(error));
  }
}

}  // namespace tenon::tool
