#pragma once

#include <tenon/device.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/memory.hpp>
#include <tenon/shape.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>

namespace tenon {

/// An n-d array in a memory region of a device, dense and row-major. A handle: copies share the
/// chunk. The CPU may not be able to address it, and the work that fills it may still be running.
class Buffer {
 public:
  /// Says whether the data is there; may throw what went wrong with the work that makes it.
  using ReadyCheck = std::function<bool()>;

  Buffer() = default;  ///< nothing: has_data() is false
  /// A type without data yet; not ready until `check` says so, where one is given.
  explicit Buffer(const Shape& shape, ReadyCheck check = {});
  /// A type on memory. Errc::out_of_range when the chunk is too small.
  Buffer(const Shape& shape, MemChunk chunk, std::uint64_t offset_bytes = 0, ReadyCheck check = {});
  /// Fresh memory in `region`; the bytes hold anything.
  static Buffer allocate(const Shape& shape, MemRegion& region);

  const Shape& shape() const noexcept { return shape_; }
  bool has_data() const noexcept { return static_cast<bool>(chunk_); }
  /// Puts the array on memory; Errc::out_of_range when the chunk is too small.
  void set_data(MemChunk chunk, std::uint64_t offset_bytes = 0);
  Buffer& malloc_on(MemRegion& region);  ///< set_data() with fresh memory

  const MemChunk& chunk() const noexcept { return chunk_; }
  std::uint64_t offset_bytes() const noexcept { return offset_; }
  MemPtr data()
      const;  ///< begin of the array; Errc::call_order without data, stale_handle after free()
  MemRegion& region() const;  ///< Errc::call_order without data
  bool is_on(const MemRegion& region) const noexcept;
  /// Whether nobody else can see the memory, so that a callee may overwrite it: one handle, on
  /// memory that the region gave out and takes back by itself.
  bool is_unique() const noexcept;

  /// Whether the work that fills the array has ended, well or badly: wait() will not block.
  bool is_ready() const;
  /// Polls until ready or the time is up; returns whether it is ready. Throws the error of the
  /// work.
  bool wait_for(std::chrono::nanoseconds timeout,
                std::chrono::nanoseconds interval = std::chrono::microseconds(50)) const;
  /// As wait_for without an end.
  void wait() const;
  /// Marks the array as failed, for all its handles: every later wait or read throws the first such
  /// error.
  void poison(std::exception_ptr error);

  /// The array as a CPU view; waits first. Errc::bad_argument where the CPU cannot address it.
  HostView host_view() const;
  /// The values in CPU memory: shares the bytes where the CPU can address them, copies otherwise.
  HostBuffer to_host() const;
  /// On another region: this very buffer when it is there already, a copy otherwise.
  Buffer to(MemRegion& region) const;
  /// The same bytes under another shape of equal size in bytes (Errc::shape_mismatch).
  Buffer with_shape(const Shape& shape) const;

 private:
  struct Readiness;
  Shape shape_;
  MemChunk chunk_;
  std::uint64_t offset_ = 0;
  std::shared_ptr<Readiness> readiness_;
};

}  // namespace tenon
