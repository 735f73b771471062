#pragma once

#include "kernels/address.hpp"
#include "kernels/entries.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::cuda {

struct DeviceFacts {
  std::string name;
  std::string protocol;  ///< "cuda", or "cuda-emulation"
  std::map<std::string, std::string> version, params;
  std::uint64_t memory_bytes = 0;
  bool is_emulated = false;
};

struct Grid {
  unsigned blocks = 0;
  unsigned threads = 0;  ///< of a block
};

/// Work of one stream happens in order, of several in any. 0 is none.
enum class StreamId : std::uint64_t {};
enum class EventId : std::uint64_t {};

/// One device with its memory, its streams and the kernels of entries.def: the CUDA driver, or the
/// emulation. Thread-safe. Work is asynchronous: CPU memory that a copy names must stay until the
/// stream was synchronised.
///
/// Errors  out_of_device_memory  allocate() finds no room; nothing else changes
///         device_error          a launch, or work submitted earlier, failed. It stays: every later
///                               call throws it again, but those that free things
class Driver {
 public:
  virtual ~Driver() = default;
  virtual const DeviceFacts& facts() const noexcept = 0;

  virtual Address allocate(std::uint64_t bytes) = 0;  ///< aligned to 256 bytes
  virtual void free(Address address) noexcept = 0;
  virtual std::uint64_t free_bytes() const = 0;

  virtual StreamId create_stream() = 0;
  virtual void destroy(StreamId stream) noexcept = 0;
  virtual EventId create_event() = 0;
  virtual void destroy(EventId event) noexcept = 0;

  virtual void write(StreamId stream, Address to, const void* from, std::uint64_t bytes) = 0;
  virtual void read(StreamId stream, void* to, Address from, std::uint64_t bytes) = 0;
  virtual void copy(StreamId stream, Address to, Address from, std::uint64_t bytes) = 0;
  virtual void fill(StreamId stream, Address to, std::uint8_t value, std::uint64_t bytes) = 0;
  /// `args`: the kernel's argument struct, copied before the call returns.
  virtual void launch(StreamId stream, Kernel kernel, const Grid& grid, const void* args) = 0;

  virtual void record(EventId event, StreamId stream) = 0;
  virtual void wait(StreamId stream, EventId event) = 0;  ///< later work of the stream waits
  virtual bool has_happened(EventId event) = 0;
  virtual void synchronize(StreamId stream) = 0;
};

using DriverPtr = std::shared_ptr<Driver>;

/// Device `index` of this machine's CUDA driver, which is loaded when it is first asked for.
/// Errc::device_unavailable in plain words: no driver, no such device, a driver older than this
/// library needs, or a library that was built without the CUDA toolkit.
DriverPtr open_cuda_driver(int index);

/// For tests: what the n-th call from now on does. 0: nothing.
struct EmulatedFaults {
  int failing_allocation = 0;
  int failing_launch = 0;
};

struct EmulationOptions {
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  EmulatedFaults faults{};
};

/// Kernels on the CPU, in memory that only they and copies can read. Errc::unsupported where this
/// library was built without Boost.Context.
DriverPtr open_emulated_driver(const EmulationOptions& options);

}  // namespace tenon::cuda
