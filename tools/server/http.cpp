#include "server/http.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

/// A request while it is received and answered.
struct Incoming {
  std::string body{};
  std::size_t received = 0;
  bool is_too_large = false;
  bool takes_interim = false;  ///< responses before the last one: of HTTP/1.1
  bool had_interim = false;
};

/// A response of pieces while it is sent.
struct Outgoing {
  std::function<std::string()> next;
  std::string piece{};
  std::size_t sent = 0;
};

ssize_t send_piece(void* state, std::uint64_t, char* to, std::size_t room) noexcept {
  auto& outgoing = *static_cast<Outgoing*>(state);
  try {
    if (outgoing.sent == outgoing.piece.size()) {
      outgoing.piece = outgoing.next();
      outgoing.sent = 0;
      if (outgoing.piece.empty()) return MHD_CONTENT_READER_END_OF_STREAM;
    }
  } catch (...) {
    return MHD_CONTENT_READER_END_WITH_ERROR;
  }
  const std::size_t count = std::min(room, outgoing.piece.size() - outgoing.sent);
  std::memcpy(to, outgoing.piece.data() + outgoing.sent, count);
  outgoing.sent += count;
  return static_cast<ssize_t>(count);
}

void drop_pieces(void* state) noexcept { delete static_cast<Outgoing*>(state); }

/// Whether the other end of a connection has not closed it. One that sends no more may still wait
/// for its answer: it gets an interim response (RFC 9110, 15.2), which is answered with a reset
/// where nobody has the connection any more.
bool is_open(MHD_Connection* connection, Incoming& incoming) {
  const MHD_ConnectionInfo* info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (info == nullptr) return false;
  pollfd watched{info->connect_fd, POLLRDHUP, 0};
  if (::poll(&watched, 1, 0) <= 0) return true;
  if ((watched.revents & (POLLHUP | POLLERR)) != 0 || !incoming.takes_interim) return false;
  if (std::exchange(incoming.had_interim, true)) return true;
  constexpr std::string_view interim = "HTTP/1.1 100 Continue\r\n\r\n";
  return ::send(info->connect_fd, interim.data(), interim.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         std::ssize(interim);
}

/// %00 stays as it is: unescaped, it would end a path.
std::size_t unescape(void*, MHD_Connection*, char* text) noexcept {
  return std::strstr(text, "%00") != nullptr ? std::strlen(text) : MHD_http_unescape(text);
}

/// A request's path without the address of the server, which proxies are sent (RFC 9112, 3.2.2).
std::string local(std::string_view path) {
  const std::size_t scheme = path.find("://");
  if (path.starts_with('/') || scheme == std::string_view::npos) return std::string(path);
  const std::size_t slash = path.find('/', scheme + 3);
  return slash == std::string_view::npos ? "/" : std::string(path.substr(slash));
}

struct Address {
  sockaddr_storage storage{};
  bool is_v6 = false;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address address_of(const HttpOptions& options) {
  Address address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  const std::string& host = options.host == "localhost" ? "127.0.0.1" : options.host;
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(options.port);
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(options.port);
    address.is_v6 = true;
  } else {
    throw Error(Errc::bad_argument, "--host",
                fmt::format("'{}' is no address, such as 127.0.0.1, 0.0.0.0 or ::1", options.host));
  }
  return address;
}

HttpResponse error(int status, std::string_view message, std::string_view code,
                   std::string_view type = "invalid_request_error") {
  return {
      .status = status,
      .body = fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":"{}"}}}})",
                          message, type, code)};
}

HttpResponse too_large() { return error(413, "the request is too large", "LimitExceeded"); }

/// What the headers of a request say of its body.
struct Framing {
  std::uint64_t length = 0;
  int lengths = 0;
  bool is_malformed = false, has_odd_coding = false, expects = false;

  static MHD_Result add(void* to, MHD_ValueKind, const char* name, const char* value) noexcept {
    auto& framing = *static_cast<Framing*>(to);
    const std::string_view spelled = name, given = value == nullptr ? "" : value;
    const auto is = [&](const char* header) { return ::strcasecmp(name, header) == 0; };
    // The library adds a line that begins with white space to the name before it.
    const auto has_more_than = [&](std::string_view header) {
      return spelled.size() > header.size() &&
             ::strncasecmp(name, header.data(), header.size()) == 0;
    };
    framing.is_malformed |= spelled.find_first_of(" \t") != std::string_view::npos ||
                            has_more_than(MHD_HTTP_HEADER_CONTENT_LENGTH) ||
                            has_more_than(MHD_HTTP_HEADER_TRANSFER_ENCODING);
    if (is(MHD_HTTP_HEADER_CONTENT_LENGTH)) {
      ++framing.lengths;
      std::from_chars(given.data(), given.data() + given.size(), framing.length);
    } else if (is(MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
      ++framing.lengths;
      framing.has_odd_coding |= value == nullptr || ::strcasecmp(value, "chunked") != 0;
    }
    framing.expects |= is(MHD_HTTP_HEADER_EXPECT);
    return MHD_YES;
  }

  explicit Framing(MHD_Connection* connection) {
    MHD_get_connection_values(connection, MHD_HEADER_KIND, &Framing::add, this);
  }

  /// Why the body is not to be received. Where it is not certain where the request ends, a proxy in
  /// front of this server may have taken another length, and would then take the rest for another
  /// client's request (RFC 9112, 5.1 and 6.3).
  std::optional<HttpResponse> refusal(std::size_t max_body) const {
    if (is_malformed) return error(400, "the request has a malformed header", "Syntax");
    if (lengths > 1) return error(400, "the request has more than one length", "Syntax");
    if (has_odd_coding) return error(501, "the transfer coding is not chunked", "Unsupported");
    // Others are read to their ends, as many clients look for no response before.
    if (length > max_body && (expects || length / 2 > max_body)) return too_large();
    return std::nullopt;
  }
};

}  // namespace

struct HttpServer::Impl {
  explicit Impl(const HttpOptions& of, Handler by) : options(of), handler(std::move(by)) {
    const Address address = address_of(options);
    // Errors reach us in other ways: the library would print them.
    const unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                           MHD_USE_POLL | MHD_USE_ITC |
                           (address.is_v6 ? unsigned{MHD_USE_IPv6} : 0U);
    errno = 0;
    daemon = MHD_start_daemon(flags, options.port, nullptr, nullptr, &Impl::receive, this,  //
                              MHD_OPTION_SOCK_ADDR, address.get(),                          //
                              MHD_OPTION_UNESCAPE_CALLBACK, &unescape, nullptr,             //
                              MHD_OPTION_CONNECTION_LIMIT, options.connections,             //
                              MHD_OPTION_CONNECTION_TIMEOUT, options.idle_s,                //
                              MHD_OPTION_NOTIFY_COMPLETED, &Impl::complete, this,           //
                              MHD_OPTION_END);
    if (daemon == nullptr) {
      throw Error(Errc::io_error, fmt::format("{}:{}", options.host, options.port),
                  fmt::format("cannot listen there: {}",
                              errno == 0 ? "no reason is known" : std::strerror(errno)));
    }
  }
  ~Impl() {
    const int listening = MHD_quiesce_daemon(daemon);
    {
      std::unique_lock lock(mutex);
      constexpr std::chrono::seconds patience{2};
      has_answered.wait_for(lock, patience, [&] { return under_way == 0; });
    }
    MHD_stop_daemon(daemon);
    if (listening >= 0) ::close(listening);
  }

  static MHD_Result receive(void* self, MHD_Connection* connection, const char* path,
                            const char* method, const char* version, const char* data,
                            std::size_t* size, void** state) noexcept {
    try {
      auto& impl = *static_cast<Impl*>(self);
      if (*state == nullptr) {
        const bool is_new = std::string_view(version) == MHD_HTTP_VERSION_1_1;
        *state = new Incoming{.takes_interim = is_new};
        const std::scoped_lock lock(impl.mutex);
        ++impl.under_way;
        return impl.begin(connection, local(path), method);
      }
      return impl.receive(connection, local(path), method, {data, *size}, *size,
                          *static_cast<Incoming*>(*state));
    } catch (...) {
      return MHD_NO;
    }
  }

  /// Called for each piece of a request's body, and its end.
  MHD_Result receive(MHD_Connection* connection, const std::string& path, const char* method,
                     std::string_view piece, std::size_t& size, Incoming& incoming) const {
    if (size == 0) return respond(connection, path, method, incoming);
    incoming.received += piece.size();
    incoming.is_too_large |= incoming.received > options.max_body;
    if (incoming.received / 2 > options.max_body) return MHD_NO;  // it need not end
    if (incoming.is_too_large) {
      std::string().swap(incoming.body);
    } else {
      incoming.body += piece;
    }
    size = 0;
    return MHD_YES;
  }

  /// The head of a request was received.
  MHD_Result begin(MHD_Connection* connection, const std::string& path, const char* method) const {
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != nullptr) {
      const unsigned milliseconds = options.idle_s * 1000;
      ::setsockopt(info->connect_fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds,
                   sizeof milliseconds);
    }
    auto refusal = Framing(connection).refusal(options.max_body);
    if (refusal) return send(connection, *std::move(refusal));
    if (!options.check) return MHD_YES;
    refusal = options.check({.method = method,
                             .path = path,
                             .authorization = authorization(connection),
                             .body = {},
                             .is_client_there = {}});
    return refusal ? send(connection, *std::move(refusal)) : MHD_YES;
  }

  static std::string authorization(MHD_Connection* connection) {
    const char* header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    return header == nullptr ? "" : header;
  }

  MHD_Result respond(MHD_Connection* connection, const std::string& path, const char* method,
                     Incoming& incoming) const {
    // How long an answer takes is not known, and the library counts it as idle.
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
    HttpResponse response;
    if (incoming.is_too_large) {
      response = too_large();
    } else {
      try {
        response = handler({.method = method,
                            .path = path,
                            .authorization = authorization(connection),
                            .body = std::move(incoming.body),
                            .is_client_there = [&] { return is_open(connection, incoming); }});
      } catch (...) {
        response = error(500, "the server failed", "Internal", "server_error");
      }
    }
    return send(connection, std::move(response));
  }

  MHD_Result send(MHD_Connection* connection, HttpResponse response) const {
    MHD_Response* made = nullptr;
    const bool is_stream = response.next != nullptr;
    if (is_stream) {
      auto outgoing = std::make_unique<Outgoing>(std::move(response.next));
      made = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, std::size_t{16} << 10, &send_piece,
                                               outgoing.get(), &drop_pieces);
      if (made != nullptr) static_cast<void>(outgoing.release());
    } else {
      made = MHD_create_response_from_buffer(response.body.size(), response.body.data(),
                                             MHD_RESPMEM_MUST_COPY);
    }
    if (made == nullptr) return MHD_NO;
    MHD_add_response_header(made, MHD_HTTP_HEADER_CONTENT_TYPE, response.type.c_str());
    if (is_stream) MHD_add_response_header(made, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    const auto add = [made](const auto& headers) {
      for (const auto& [name, value] : headers) {
        MHD_add_response_header(made, name.c_str(), value.c_str());
      }
    };
    add(options.headers);
    add(response.headers);
    const MHD_Result result =
        MHD_queue_response(connection, static_cast<unsigned>(response.status), made);
    MHD_destroy_response(made);
    return result;
  }

  static void complete(void* self, MHD_Connection* connection, void** state,
                       MHD_RequestTerminationCode) noexcept {
    if (*state == nullptr) return;
    delete static_cast<Incoming*>(*state);
    *state = nullptr;
    auto& impl = *static_cast<Impl*>(self);
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, impl.options.idle_s);
    const std::scoped_lock lock(impl.mutex);
    if (--impl.under_way == 0) impl.has_answered.notify_all();
  }

  HttpOptions options;
  Handler handler;
  MHD_Daemon* daemon = nullptr;
  std::mutex mutex;
  std::condition_variable has_answered;
  std::int64_t under_way = 0;  // requests that were received and not answered
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : impl_(std::make_unique<Impl>(options, std::move(handler))) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const {
  const MHD_DaemonInfo* info = MHD_get_daemon_info(impl_->daemon, MHD_DAEMON_INFO_BIND_PORT);
  return info == nullptr ? impl_->options.port : info->port;
}

}  // namespace tenon::tool
