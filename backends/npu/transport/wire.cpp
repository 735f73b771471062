#include "wire.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

namespace tenon::npu::transport {
namespace {

constexpr int waiting_connections = 16;
constexpr std::chrono::milliseconds probe_patience{100};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(Errc::io_error, path, what + ": " + std::strerror(errno));
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw Error(Errc::bad_argument, "npu://unix:" + path,
                "a socket's path has 1 to " + std::to_string(sizeof address.sun_path - 1) +
                    " characters, this one " + std::to_string(path.size()));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

Socket make(const std::string& path) {
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) fail(path, "no socket");
  return Socket(descriptor);
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket Socket::listen(const std::string& path) {
  const sockaddr_un address = address_of(path);
  Socket socket = make(path);
  if (::bind(socket.descriptor_, generic(address), sizeof address) != 0) {
    // A socket that a dead server left behind is removed; any other file stays.
    struct stat found{};
    const int why = errno;
    const Socket probe = make(path);
    probe.set_patience(probe_patience);  // a server that is there may accept nothing now
    errno = why;
    const bool left_behind = errno == EADDRINUSE && ::lstat(path.c_str(), &found) == 0 &&
                             S_ISSOCK(found.st_mode) &&
                             ::connect(probe.descriptor_, generic(address), sizeof address) != 0 &&
                             errno == ECONNREFUSED;
    if (!left_behind || ::unlink(path.c_str()) != 0 ||
        ::bind(socket.descriptor_, generic(address), sizeof address) != 0) {
      fail(path, "cannot listen here");
    }
  }
  if (::listen(socket.descriptor_, waiting_connections) != 0) fail(path, "cannot listen here");
  return socket;
}

Socket Socket::connect(const std::string& path, std::chrono::microseconds patience) {
  const sockaddr_un address = address_of(path);
  Socket socket = make(path);
  socket.set_patience(patience);
  if (::connect(socket.descriptor_, generic(address), sizeof address) != 0) {
    throw Error(Errc::device_unavailable, path,
                std::string("nobody serves a device here: ") + std::strerror(errno));
  }
  return socket;
}

Socket Socket::accept() const {
  for (;;) {
    const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor >= 0) return Socket(descriptor);
    if (errno != EINTR && errno != ECONNABORTED) return {};
  }
}

void Socket::send(const void* bytes, std::size_t size) const {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = ::send(descriptor_, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw Disconnected{};
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void Socket::receive(void* bytes, std::size_t size) const {
  auto* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t got = ::recv(descriptor_, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Disconnected{};
    at += got;
    size -= static_cast<std::size_t>(got);
  }
}

void Socket::skip(std::uint64_t size) const {
  std::array<std::byte, 4096> piece;
  for (std::uint64_t left = size; left > 0;) {
    const std::size_t bytes = std::min<std::uint64_t>(left, piece.size());
    receive(piece.data(), bytes);
    left -= bytes;
  }
}

void Socket::set_patience(std::chrono::microseconds patience) const noexcept {
  timeval time{};
  time.tv_sec = patience.count() / 1'000'000;
  time.tv_usec = patience.count() % 1'000'000;
  ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

bool Socket::has_hung_up() const noexcept {
  pollfd state{descriptor_, 0, 0};  // POLLHUP is told unasked
  return ::poll(&state, 1, 0) > 0;
}

void Socket::shut_down() const noexcept {
  if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_RDWR);
}

}  // namespace tenon::npu::transport
