#pragma once

#include "driver/kernel_compiler.hpp"
#include "driver/routines.hpp"
#include "kernels/address.hpp"
#include "kernels/entries.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
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
enum class GraphId : std::uint64_t {};

/// A kernel, the routine that `routine` names, or what `generated` is. `args`: its argument struct, copied before a call
/// returns.
struct Work {
  Kernel kernel{};
  Grid grid;
  const void* args = nullptr;
  Routine routine = Routine::none;
  const GeneratedKernel* generated = nullptr;
};
const char* name_of(const Work& work) noexcept;
std::size_t args_bytes(const Work& work) noexcept;

/// One device with its memory, its streams and the kernels of entries.def: the CUDA driver, or the
/// emulation. Thread-safe. Work is asynchronous: CPU memory that a copy names must stay until the
/// stream was synchronised.
///
/// Errors  out_of_device_memory  no room for an allocation, a stream, an event, a graph, or what a
///                               copy or launch needs; nothing else changes
///         out_of_memory         the same of pinned memory
///         device_error          a launch, or work submitted earlier, failed. It stays: every later
///                               call throws it again, but those that free things. Of a library
///                               that fails on a device that works, the call's alone
///         forked_process        a child of fork() uses a device that its parent opened
class Driver {
 public:
  virtual ~Driver() = default;
  virtual const DeviceFacts& facts() const noexcept = 0;

  virtual Address allocate(std::uint64_t bytes) = 0;  ///< aligned to 256 bytes
  virtual void free(Address address) noexcept = 0;
  virtual std::uint64_t free_bytes() const = 0;
  /// Memory of the CPU that copies reach without the CPU's help. Errc::out_of_memory.
  virtual void* allocate_pinned(std::uint64_t bytes) = 0;
  virtual void free_pinned(void* memory) noexcept = 0;

  virtual StreamId create_stream() = 0;
  virtual void destroy(StreamId stream) noexcept = 0;
  virtual EventId create_event() = 0;
  virtual void destroy(EventId event) noexcept = 0;

  virtual void write(StreamId stream, Address to, const void* from, std::uint64_t bytes) = 0;
  virtual void read(StreamId stream, void* to, Address from, std::uint64_t bytes) = 0;
  virtual void copy(StreamId stream, Address to, Address from, std::uint64_t bytes) = 0;
  virtual void fill(StreamId stream, Address to, std::uint8_t value, std::uint64_t bytes) = 0;
  /// From memory of another device, on which all work that fills it has ended.
  virtual void copy_from_peer(StreamId stream, Address to, Driver& peer, Address from,
                              std::uint64_t bytes) = 0;
  /// Whether copy_from_peer() takes it.
  virtual bool is_peer(const Driver& other) const noexcept = 0;

  /// The library behind a routine, or why there is none. Loads it.
  virtual std::string about(Routine routine) = 0;
  /// Why no library takes such a call, or nothing. Addresses are not read.
  virtual std::optional<std::string> refuses(const GemmCall& call) = 0;
  virtual std::optional<std::string> refuses(const ConvolutionCall& call) = 0;
  virtual std::uint64_t workspace_bytes() const noexcept = 0;  ///< that routines should be given

  /// What compiles generated kernels for this device. Loads it.
  virtual const FoundCompiler& kernel_compiler() = 0;
  /// Its image, which has a function `tenon_fused`. The kernel may not outlive the driver.
  /// Errc::corrupt: no image for this device.
  virtual std::shared_ptr<const GeneratedKernel> load(std::span<const std::byte> image,
                                                      std::size_t args_bytes) = 0;

  virtual void launch(StreamId stream, const Work& work) = 0;
  /// Work in order, which is launched as one. A graph is used by one thread at a time; of several
  /// launches, one runs after the other. `overlaps`: a kernel may be scheduled while the one before it
  /// ends, on devices that can (programmatic dependent launch, capability 9.0).
  virtual GraphId create_graph(std::span<const Work> work, bool overlaps) = 0;
  /// Gives a node of the same kernel or routine other arguments, from the next launch on.
  virtual void update(GraphId graph, std::size_t node, const Work& work) = 0;
  virtual void launch(StreamId stream, GraphId graph) = 0;
  /// After all its launches have ended.
  virtual void destroy(GraphId graph) noexcept = 0;

  virtual void record(EventId event, StreamId stream) = 0;
  virtual void wait(StreamId stream, EventId event) = 0;  ///< later work of the stream waits
  virtual bool has_happened(EventId event) = 0;
  virtual void synchronize(EventId event) = 0;
  virtual void synchronize(StreamId stream) = 0;
  /// Waits for all streams, those of other libraries included.
  virtual void synchronize() = 0;
};

using DriverPtr = std::shared_ptr<Driver>;

/// Device `index` of this machine's CUDA driver, which is loaded when it is first asked for.
/// Errc::device_unavailable in plain words: no driver, no such device, a driver older than this
/// library needs, or a library that was built without the CUDA toolkit. Errc::out_of_device_memory.
DriverPtr open_cuda_driver(int index);

/// For tests: what the n-th call from now on does. 0: nothing.
struct EmulatedFaults {
  int failing_allocation = 0;  ///< of those that may throw Errc::out_of_device_memory
  int failing_launch = 0;
};

struct EmulationOptions {
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  EmulatedFaults faults{};
  FoundCompiler compiler{nullptr, "the emulation has no compiler"};
};

/// Kernels on the CPU, in memory that only they and copies can read. Errc::unsupported where this
/// library was built without Boost.Context.
DriverPtr open_emulated_driver(EmulationOptions options);

}  // namespace tenon::cuda
