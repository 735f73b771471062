#include "wire.hpp"

#include <tenon/backends/npu_remote.hpp>
#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/npu/isa/control.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon {
namespace {

using namespace npu::transport;
using npu::isa::DeviceControl;

/// Of a reset that a client asks for; the device knows which levels there are.
constexpr std::uint64_t highest_level = 99;
/// How long to wait for the request of a client that will be refused; other clients wait meanwhile.
constexpr std::chrono::milliseconds patience{100};
/// How long a connection may say nothing before it has greeted: its thread is kept meanwhile.
constexpr std::chrono::seconds greeting_patience{10};
constexpr std::chrono::seconds for_ever{0};
/// Until another connection is tried where the process had no descriptors or memory for one.
constexpr std::chrono::milliseconds accept_again{50};
constexpr std::string_view no_room = "the server has no memory or threads for another connection";
constexpr std::string_view no_memory = "the server has not enough memory";

DeviceControl& control_of(const DevicePtr& device, const std::string& path) {
  auto* const control = dynamic_cast<DeviceControl*>(device.get());
  if (control == nullptr) throw Error(Errc::bad_argument, path, "the device is no NPU");
  return *control;
}

}  // namespace

/// A thread accepts; each connection has a thread of its own, so that one that waits for an
/// interrupt keeps nobody else waiting.
struct NpuServer::Impl {
  Impl(DevicePtr served, std::string where)
      : device(std::move(served)),
        control(control_of(device, where)),
        path(std::move(where)),
        listener(Socket::listen(path)) {
    try {
      acceptor = std::thread([this] { accept_all(); });
    } catch (...) {
      ::unlink(path.c_str());
      throw;
    }
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mutex);
      closing = true;
      for (const Connection& connection : connections) connection.socket.shut_down();
    }
    listener.shut_down();
    acceptor.join();
    for (Connection& connection : connections) connection.thread.join();
    ::unlink(path.c_str());
  }

  struct Connection {
    Socket socket;
    std::thread thread;
    bool greeted = false;  // of a client that holds the device
    bool done = false;
  };

  void accept_all() {
    for (;;) {
      Socket socket = listener.accept();
      const bool is_there = socket.is_open();
      bool has_room = false;
      {
        const std::scoped_lock lock(mutex);
        if (closing) return;
        for (auto old = connections.begin(); old != connections.end();) {
          if (!old->done) {
            ++old;
            continue;
          }
          old->thread.join();
          old = connections.erase(old);
        }
        has_room = is_there && add(socket);
      }
      if (!is_there) {
        std::this_thread::sleep_for(accept_again);
      } else if (!has_room) {
        refuse(socket);
      }
    }
  }

  /// False, and the socket is as it was, where no thread can be started for it.
  bool add(Socket& socket) {
    std::list<Connection> fresh;
    try {
      Connection& connection = fresh.emplace_back();
      connection.thread = std::thread([this, &connection] { serve(connection); });
      connection.socket = std::move(socket);
    } catch (const std::bad_alloc&) {
      return false;
    } catch (const std::system_error&) {
      return false;
    }
    connections.splice(connections.end(), fresh);
    return true;
  }

  static void refuse(const Socket& socket) noexcept {
    try {
      socket.set_patience(patience);
      Request request;
      socket.receive(&request, sizeof request);
      send_error(socket, Errc::out_of_memory, no_room);
    } catch (const Disconnected&) {
    }
  }

  void serve(Connection& connection) {
    {
      const std::scoped_lock lock(mutex);
    }  // the connection is complete
    bool& greeted = connection.greeted;
    try {
      connection.socket.set_patience(greeting_patience);
      for (;;) {
        Request request;
        connection.socket.receive(&request, sizeof request);
        if (request.payload > max_payload) throw Disconnected{};
        if (!greeted && request.verb != Verb::hello) throw Disconnected{};
        std::vector<std::byte> payload;
        if (!make_room(payload, request.payload)) {
          connection.socket.skip(request.payload);
          send_error(connection.socket, Errc::out_of_memory, no_memory);
          continue;
        }
        connection.socket.receive(payload.data(), payload.size());
        answer(connection.socket, request, payload, greeted);
        if (greeted) connection.socket.set_patience(for_ever);
      }
    } catch (const Disconnected&) {
    }
    const std::scoped_lock lock(mutex);
    if (greeted && --clients == 0) {
      clear_device();
      device_is_free.notify_all();
    }
    greeted = false;
    connection.socket.shut_down();  // closed once another client comes
    connection.done = true;
  }

  static bool make_room(std::vector<std::byte>& bytes, std::uint64_t size) {
    try {
      bytes.resize(size);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  static void send_error(const Socket& socket, Errc code, std::string_view text) {
    Answer result;
    result.failed = 1;
    result.code = static_cast<std::uint32_t>(code);
    result.payload = text.size();
    socket.send(&result, sizeof result);
    socket.send(text.data(), text.size());
  }

  void answer(const Socket& socket, const Request& request, const std::vector<std::byte>& payload,
              bool& greeted) {
    Answer result;
    std::vector<std::byte> bytes;
    try {
      result.value = act(request, payload, bytes, greeted);
    } catch (const Error& error) {
      return send_error(socket, error.code(), error.message());
    } catch (const std::bad_alloc&) {
      return send_error(socket, Errc::out_of_memory, no_memory);
    }
    result.payload = bytes.size();
    socket.send(&result, sizeof result);
    socket.send(bytes.data(), bytes.size());
  }

  std::uint64_t act(const Request& request, const std::vector<std::byte>& payload,
                    std::vector<std::byte>& bytes, bool& greeted) {
    switch (request.verb) {
      case Verb::hello:
        put_text(describe(), bytes);
        greet(request, greeted);  // last: a client that is refused holds nothing
        return 0;
      case Verb::read_reg:
        return bank(request).read(request.a, request.b != 0);
      case Verb::write_reg:
        bank(request).write(request.a, request.c, request.b != 0);
        return 0;
      case Verb::read_mem:
        if (request.b > max_payload) throw Error(Errc::bad_argument, path, "a read that long");
        bytes.resize(request.b);
        region(request).read(bytes.data(), MemPtr(request.a), request.b);
        return 0;
      case Verb::write_mem:
        region(request).write(MemPtr(request.a), payload.data(), payload.size());
        return 0;
      case Verb::copy_mem:
        region(request).copy(MemPtr(request.a), MemPtr(request.b), request.c);
        return 0;
      case Verb::sync:
        control.sync(MemPtr(request.a), request.b,
                     request.c == 0 ? DeviceControl::Direction::to_device
                                    : DeviceControl::Direction::from_device);
        return 0;
      case Verb::wait_irq:
        return control.wait_irq(static_cast<std::uint32_t>(request.a),
                                std::chrono::nanoseconds(std::min(request.b, max_wait_ns)));
      case Verb::reset:
        device->reset(static_cast<int>(std::min(request.a, highest_level)));
        return 0;
      case Verb::parameters: {
        std::string text;
        for (const auto& [key, value] : device->params()) text += key + "=" + value + "\n";
        put_text(text, bytes);
        return 0;
      }
    }
    throw Error(Errc::bad_argument, path, "no such request");
  }

  /// Whether no client that holds the device is there any more; under the mutex.
  bool everybody_hung_up() const {
    return std::ranges::all_of(connections, [](const Connection& connection) {
      return !connection.greeted || connection.socket.has_hung_up();
    });
  }

  void greet(const Request& request, bool& greeted) {
    if (request.a != protocol_version) {
      throw Error(Errc::unsupported_version, path,
                  fmt::format("protocol {}, this server speaks {}", request.a, protocol_version));
    }
    std::unique_lock lock(mutex);
    while (clients > 0 && request.b != client) {
      if (!everybody_hung_up() || closing) {
        throw Error(Errc::busy, path, "the device is in use by another process");
      }
      device_is_free.wait_for(lock, patience);  // until their threads have seen it
    }
    client = request.b;
    if (!greeted) ++clients;
    greeted = true;
  }

  /// "mem NAME CAPACITY USED_BEGIN USED_SIZE" and "reg NAME" lines, in the order of the device's
  /// regions. Clients keep off what is used here, such as the staging memory of a host DMA.
  std::string describe() const {
    std::string text;
    for (const auto& region : device->mem_regions()) {
      const auto [begin, size] = used_range(*region);
      text += fmt::format("mem {} {} {} {}\n", region->name(), region->usage().capacity_bytes,
                          begin, size);
    }
    for (const auto& bank : device->reg_regions()) text += fmt::format("reg {}\n", bank->name());
    return text;
  }

  /// Where the chunks of a region lie, with room for their redzones; size 0 where it has none.
  static std::pair<std::uint64_t, std::uint64_t> used_range(const MemRegion& region) {
    constexpr std::uint64_t page = 4096;
    const std::vector<MemChunk> chunks = region.all_chunks();
    if (chunks.empty()) return {0, 0};
    const MemChunk& last = chunks.back();
    const std::uint64_t begin = chunks.front().begin().addr() / page * page;
    const std::uint64_t end = last.begin().addr() + last.size_bytes();
    return {begin, (end / page + 1) * page - begin};
  }

  static void put_text(const std::string& text, std::vector<std::byte>& bytes) {
    const auto view = std::as_bytes(std::span(text));
    bytes.assign(view.begin(), view.end());
  }

  MemRegion& region(const Request& request) const {
    if (request.where >= device->mem_regions().size()) {
      throw Error(Errc::bad_reference, path, fmt::format("no memory region {}", request.where));
    }
    return *device->mem_regions()[request.where];
  }
  RegRegion& bank(const Request& request) const {
    if (request.where >= device->reg_regions().size()) {
      throw Error(Errc::bad_reference, path, fmt::format("no register bank {}", request.where));
    }
    return *device->reg_regions()[request.where];
  }

  void clear_device() noexcept {
    try {
      device->reset(2);
    } catch (const Error&) {  // gone: the next client will find out
    } catch (const std::bad_alloc&) {
    }
  }

  DevicePtr device;
  DeviceControl& control;
  std::string path;
  Socket listener;
  std::mutex mutex;
  std::condition_variable device_is_free;
  std::list<Connection> connections;
  std::uint64_t client = 0;  // token of the process that has the device
  std::size_t clients = 0;   // its connections
  bool closing = false;
  std::thread acceptor;
};

NpuServer::NpuServer(DevicePtr device, std::string path)
    : impl_(with_memory_errors("NpuServer", [&] {
        return std::make_unique<Impl>(std::move(device), std::move(path));
      })) {}
NpuServer::~NpuServer() = default;
const std::string& NpuServer::path() const noexcept { return impl_->path; }

}  // namespace tenon
