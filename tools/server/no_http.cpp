// In place of http.cpp where the build did not find libmicrohttpd.
#include "server/http.hpp"

#include <tenon/error.hpp>

namespace tenon::tool {

struct HttpServer::Impl {};

HttpServer::HttpServer(const HttpOptions&, Handler) {
  throw Error(Errc::unsupported, "serve",
              "this build has no HTTP server: libmicrohttpd was not found");
}
HttpServer::~HttpServer() = default;
std::uint16_t HttpServer::port() const { return 0; }

}  // namespace tenon::tool
