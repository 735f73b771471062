#include "connections.hpp"

#include <tenon/error.hpp>

#include <random>
#include <utility>

namespace tenon::npu::transport {
namespace {

std::uint64_t fresh_token() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

constexpr std::size_t max_text = 1 << 20;

constexpr std::uint32_t error_codes = 0
#define TENON_ERRC(id, spelling, number, kind) +1
#include <tenon/error_codes.def>
#undef TENON_ERRC
    ;

bool is_quick(Verb verb) {
  switch (verb) {
    case Verb::read_reg:
    case Verb::write_reg:
    case Verb::sync:
    case Verb::wait_irq:
    case Verb::parameters:
      return true;
    case Verb::hello:
    case Verb::read_mem:
    case Verb::write_mem:
    case Verb::copy_mem:
    case Verb::reset:
      return false;
  }
  return false;
}

}  // namespace

Connections::Connections(std::string path, const Patience& patience)
    : path_(std::move(path)), patience_(patience), token_(fresh_token()) {
  try {
    idle_.push_back(greet());
  } catch (const Disconnected&) {
    throw Error(Errc::device_unavailable, path_, "who listens here serves no device");
  }
}

Socket Connections::greet() {
  Socket socket = Socket::connect(path_, patience_.quick);
  Request hello;
  hello.a = protocol_version;
  hello.b = token_;
  std::string text;
  exchange(socket, hello, {}, {}, &text);
  const std::scoped_lock lock(mutex_);
  if (description_.empty()) description_ = text;
  return socket;
}

Socket Connections::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      Socket socket = std::move(idle_.back());
      idle_.pop_back();
      return socket;
    }
  }
  try {
    return greet();
  } catch (const Error& error) {
    // For now: the server's, and this process's when it has no descriptors.
    if (error.code() == Errc::out_of_memory || error.code() == Errc::io_error) throw;
    throw Disconnected{};  // nobody there any more
  }
}

void Connections::give_back(Socket socket) {
  const std::scoped_lock lock(mutex_);
  if (!lost_) idle_.push_back(std::move(socket));
}

std::uint64_t Connections::call(const Request& request, std::span<const std::byte> payload,
                                std::span<std::byte> result, std::string* text) {
  process_.check(path_);
  if (lost_) throw Disconnected{};
  try {
    Socket socket = take();
    try {
      const std::uint64_t value = exchange(socket, request, payload, result, text);
      give_back(std::move(socket));
      return value;
    } catch (const Error&) {  // an answer like any other
      give_back(std::move(socket));
      throw;
    }
  } catch (const Disconnected&) {
    const std::scoped_lock lock(mutex_);
    lost_ = true;
    idle_.clear();  // so that the server, if it is there, has the device for another client
    throw;
  }
}

std::uint64_t Connections::exchange(const Socket& socket, Request request,
                                    std::span<const std::byte> payload, std::span<std::byte> result,
                                    std::string* text) {
  request.payload = payload.size();
  socket.set_patience(is_quick(request.verb) ? patience_.quick : patience_.slow);
  socket.send(&request, sizeof request);
  socket.send(payload.data(), payload.size());
  Answer answer;
  socket.receive(&answer, sizeof answer);
  if (answer.failed != 0 || text != nullptr) {
    if (answer.payload > max_text) throw Disconnected{};
    std::string words(answer.payload, '\0');
    socket.receive(words.data(), words.size());
    if (answer.failed != 0) {
      if (answer.code >= error_codes) throw Disconnected{};
      throw Error(static_cast<Errc>(answer.code), path_, words);
    }
    *text = std::move(words);
    return answer.value;
  }
  if (answer.payload != result.size()) throw Disconnected{};
  socket.receive(result.data(), result.size());
  return answer.value;
}

}  // namespace tenon::npu::transport
