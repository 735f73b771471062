#pragma once

#include "wire.hpp"

#include <tenon/npu/isa/owner_process.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu::transport {

/// How long a client waits for an answer: a server that is there and does not answer is gone.
struct Patience {
  /// For registers and interrupts, which wait for nothing longer than max_wait_ns.
  std::chrono::milliseconds quick = std::chrono::seconds(30);
  /// For memory and resets: the server repeats a host DMA after a reset, each of which may take ten
  /// minutes on a simulated device. A greeting waits for the reset that follows the client before.
  std::chrono::milliseconds slow = std::chrono::minutes(30);
};

/// A client's connections to one server: as many as there are calls at the same time.
class Connections {
 public:
  explicit Connections(std::string path, const Patience& patience = {});

  /// One request and its answer. `payload` goes with the request; the answer's is put into
  /// `result`, which has to be of its size unless `text` takes one of any size. Errors of the
  /// server are thrown as they were there. Disconnected when the server is gone; then for ever.
  /// Errc::io_error and Errc::out_of_memory where this process or the server cannot have another
  /// connection now. Errc::forked_process in a child of the process that connected.
  std::uint64_t call(const Request& request, std::span<const std::byte> payload = {},
                     std::span<std::byte> result = {}, std::string* text = nullptr);

  bool is_lost() const noexcept { return lost_; }
  /// What the server said in its greeting.
  const std::string& description() const noexcept { return description_; }

 private:
  Socket take();
  Socket greet();
  void give_back(Socket socket);
  std::uint64_t exchange(const Socket& socket, Request request, std::span<const std::byte> payload,
                         std::span<std::byte> result, std::string* text);

  isa::OwnerProcess process_;
  std::string path_;
  Patience patience_;
  std::uint64_t token_;
  std::string description_;
  std::mutex mutex_;
  std::vector<Socket> idle_;
  std::atomic<bool> lost_ = false;
};

}  // namespace tenon::npu::transport
