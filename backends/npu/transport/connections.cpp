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

}  // namespace

Connections::Connections(std::string path) : path_(std::move(path)), token_(fresh_token()) {
  try {
    idle_.push_back(greet());
  } catch (const Disconnected&) {
    throw Error(Errc::device_unavailable, path_, "who listens here serves no device");
  }
}

Socket Connections::greet() {
  Socket socket = Socket::connect(path_);
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
    if (error.code() == Errc::out_of_memory) throw;  // the server's, for now
    throw Disconnected{};                            // nobody there any more
  }
}

std::uint64_t Connections::call(const Request& request, std::span<const std::byte> payload,
                                std::span<std::byte> result, std::string* text) {
  process_.check(path_);
  if (lost_) throw Disconnected{};
  try {
    Socket socket = take();
    const auto give_back = [&] {
      const std::scoped_lock lock(mutex_);
      idle_.push_back(std::move(socket));
    };
    try {
      const std::uint64_t value = exchange(socket, request, payload, result, text);
      give_back();
      return value;
    } catch (const Error&) {  // an answer like any other
      give_back();
      throw;
    }
  } catch (const Disconnected&) {
    lost_ = true;
    throw;
  }
}

std::uint64_t Connections::exchange(const Socket& socket, Request request,
                                    std::span<const std::byte> payload, std::span<std::byte> result,
                                    std::string* text) {
  request.payload = payload.size();
  socket.send(&request, sizeof request);
  socket.send(payload.data(), payload.size());
  Answer answer;
  socket.receive(&answer, sizeof answer);
  if (answer.failed != 0 || text != nullptr) {
    if (answer.payload > max_text) throw Disconnected{};
    std::string words(answer.payload, '\0');
    socket.receive(words.data(), words.size());
    if (answer.failed != 0) throw Error(static_cast<Errc>(answer.code), path_, words);
    *text = std::move(words);
    return answer.value;
  }
  if (answer.payload != result.size()) throw Disconnected{};
  socket.receive(result.data(), result.size());
  return answer.value;
}

}  // namespace tenon::npu::transport
