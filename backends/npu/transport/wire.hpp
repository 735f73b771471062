#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// What client and server say to each other: a request of a fixed size with an optional payload, and
// an answer likewise. Both ends are of one build and one machine, which hello() checks.

namespace tenon::npu::transport {

inline constexpr std::uint32_t protocol_version = 2;
inline constexpr std::uint64_t max_payload = 8 << 20;  ///< longer reads and writes go in pieces

enum class Verb : std::uint32_t {
  hello,       ///< a: protocol version, b: the client's token -> text, see Description
  read_reg,    ///< where: bank, a: address, b: relative -> value
  write_reg,   ///< where: bank, a: address, b: relative, c: value
  read_mem,    ///< where: region, a: address, b: bytes -> payload
  write_mem,   ///< where: region, a: address, payload
  copy_mem,    ///< where: region, a: to, b: from, c: bytes
  sync,        ///< a: address, b: bytes, c: 0 to the device, 1 from it
  wait_irq,    ///< a: mask, b: nanoseconds, at most max_wait -> value
  reset,       ///< a: level
  parameters,  ///< -> text, "key=value" lines
};
inline constexpr std::uint64_t max_wait_ns = 200'000'000;

struct Request {
  Verb verb = Verb::hello;
  std::uint32_t where = 0;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
  std::uint64_t payload = 0;  ///< bytes that follow
};

struct Answer {
  std::uint32_t failed = 0;  ///< the payload is an error's message, `code` its Errc
  std::uint32_t code = 0;
  std::uint64_t value = 0;
  std::uint64_t payload = 0;
};

static_assert(std::is_trivially_copyable_v<Request> && sizeof(Request) == 40);
static_assert(std::is_trivially_copyable_v<Answer> && sizeof(Answer) == 24);

/// The other end is gone, or does not follow the protocol.
struct Disconnected {};

/// A connected or listening socket. Sends never raise a signal.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  /// Errc::io_error with the system's reason; Errc::device_unavailable where nobody listens, or
  /// takes no connection within `patience`, which is the socket's from then on.
  static Socket listen(const std::string& path);
  static Socket connect(const std::string& path, std::chrono::microseconds patience);

  bool is_open() const noexcept { return descriptor_ >= 0; }
  /// The next connection; not open where there is none, as after shut_down(), or while the process
  /// has no descriptors or memory for one.
  Socket accept() const;
  /// Throw Disconnected.
  void send(const void* bytes, std::size_t size) const;
  void receive(void* bytes, std::size_t size) const;
  /// Receives so many bytes and forgets them.
  void skip(std::uint64_t size) const;
  /// How long send() and receive() wait from now on before they are Disconnected; for ever unless
  /// told.
  void set_patience(std::chrono::microseconds patience) const noexcept;
  /// Whether the other end is closed; what it has sent may still be there to receive.
  bool has_hung_up() const noexcept;
  /// Wakes whoever waits in the calls above.
  void shut_down() const noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace tenon::npu::transport
