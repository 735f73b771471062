// An HTTP/1.1 server, by GNU libmicrohttpd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::tool {

struct HttpRequest {
  std::string method;         ///< "GET", "HEAD", "POST"; to HEAD no body is sent
  std::string path;           ///< without a query
  std::string authorization;  ///< the header, or empty
  std::string body;
  std::function<bool()> is_client_there;  ///< valid while the handler runs
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  ///< further ones: name and value
  /// In place of `body`: waits for the next piece and returns it, an empty one at the end. It is destroyed when the
  /// client has all of it, or has gone. What it throws cuts the connection.
  std::function<std::string()> next{};
};

struct HttpOptions {
  std::string host = "127.0.0.1";  ///< an address of this machine, IPv4 or IPv6
  std::uint16_t port = 8080;       ///< 0: any that is free
  unsigned connections = 256;      ///< at the same time; further ones are closed
  std::size_t max_body = std::size_t{64} << 20;
  /// Connections that send nothing for so long are closed, and those that do not take what is sent.
  unsigned idle_s = 60;
  /// Sent with each response: name and value.
  std::vector<std::pair<std::string, std::string>> headers{};
  /// What a request without its body is refused with, before that is received; null: none is.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check{};
};

/// Answers requests on a thread for each connection, from its construction to its destruction.
class HttpServer {
 public:
  /// Called on several threads at a time; may wait. An exception is answered with status 500.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  /// Errors: bad_argument (no such address), io_error (the port is in use or not allowed).
  HttpServer(const HttpOptions& options, Handler handler);
  /// Accepts no more connections, waits for handlers and for `next` of responses, and closes the connections; those
  /// that do not take a response within two seconds lose it.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::tool
