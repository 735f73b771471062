#pragma once

#include <tenon/device.hpp>
#include <tenon/event.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/layout.hpp>
#include <tenon/memory.hpp>
#include <tenon/quant_params.hpp>
#include <tenon/shape.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>

namespace tenon {

class Trace;

/// How the elements of a Buffer are interpreted, beyond its Shape. The Shape has the sizes and the
/// layout of the memory: i8[1, 2, 7, 7, 32] in "NCHWc32" may hold 40 channels.
struct BufferFormat {
  std::int64_t extent = 0;  ///< elements along the blocked axis; 0: all lanes, without padding
  std::optional<Layout> software{};  ///< for reading; unset: the memory's layout without its block
  std::optional<QuantParams> quant{};  ///< of quantised integers; unset: elements are the values
};

/// An n-d array in a memory region of a device, dense and row-major. A handle: copies share the
/// chunk. The CPU may be unable to address it, and the work that fills it may still be running.
class Buffer {
 public:
  /// Returns whether the data is complete; throws the error of the work that produces it.
  using ReadyCheck = std::function<bool()>;

  Buffer() = default;  ///< nothing: has_data() is false
  // Out of line: a model's struct has dozens of buffers, and inline each is kilobytes of code.
  ~Buffer();
  Buffer(const Buffer& other);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(const Buffer& other);
  Buffer& operator=(Buffer&& other) noexcept;
  /// A shape without memory. With a `check`, not ready before that returns true.
  explicit Buffer(const Shape& shape, ReadyCheck check = {});
  /// An array at `offset_bytes` of a chunk. Errc::out_of_range when the chunk is too small.
  Buffer(const Shape& shape, MemChunk chunk, std::uint64_t offset_bytes = 0, ReadyCheck check = {});
  /// The same array, complete when `event` has happened, with its error. Waiting for it does not
  /// poll.
  Buffer ready_at(const Event& event) const;
  /// New memory in `region`, uninitialised.
  static Buffer allocate(const Shape& shape, MemRegion& region);

  const Shape& shape() const noexcept { return shape_; }
  bool has_data() const noexcept { return static_cast<bool>(chunk_); }
  /// Puts the array on memory; Errc::out_of_range when the chunk is too small.
  void set_data(MemChunk chunk, std::uint64_t offset_bytes = 0);
  Buffer& malloc_on(MemRegion& region);  ///< set_data() with new memory

  /// Attaches a format, which later copies and to() keep. Errors name what does not fit the shape:
  /// those of relayout() for the layouts; Errc::bad_argument for quantisation parameters of
  /// elements that are not integers, or of channels that the layout does not have.
  Buffer& set_format(BufferFormat format);
  const BufferFormat& format() const noexcept;

  const MemChunk& chunk() const noexcept { return chunk_; }
  std::uint64_t offset_bytes() const noexcept { return offset_; }
  /// Address of the array. Errc::call_order without data, Errc::stale_handle after free().
  MemPtr data() const;
  MemRegion& region() const;  ///< Errc::call_order without data
  bool is_on(const MemRegion& region) const noexcept;
  /// Whether a callee may overwrite the memory: this is the only handle but for those of submitted
  /// runs that fill the array, and the region allocated the memory itself.
  bool is_unique() const noexcept;

  /// Whether the work that fills the array has ended, successfully or not: wait() will not block.
  bool is_ready() const;
  /// Polls until ready or the time is up; returns whether it is ready. Throws the error of the
  /// work.
  bool wait_for(std::chrono::nanoseconds timeout,
                std::chrono::nanoseconds interval = std::chrono::microseconds(50)) const;
  /// As wait_for(), without a timeout.
  void wait() const;
  /// Marks the array as failed, for all its handles: every later wait or read throws the first such
  /// error.
  void poison(std::exception_ptr error);

  /// The array as a CPU view; waits first. Errc::bad_argument where the CPU cannot address it.
  HostView host_view() const;
  /// The values in CPU memory: shares the bytes where the CPU can address them, copies otherwise.
  HostBuffer to_host() const;
  /// The array in `region`: this buffer when it is there already, a copy otherwise.
  Buffer to(MemRegion& region) const;
  /// As to(), but returns at once: the copy is made when this array is ready, on a thread of its
  /// device, and has its error. `trace`, where given, gets the copy as an event.
  Buffer start_copy(MemRegion& region, std::shared_ptr<Trace> trace = nullptr) const;
  /// The same bytes under another shape of equal size in bytes (Errc::shape_mismatch), without the
  /// format.
  Buffer with_shape(const Shape& shape) const;

  /// Sets element i, in memory order, to value(i). Waits first. Errc::bad_type when dtype_of<T>()
  /// is not the array's dtype, Errc::call_order without data.
  template <class T, std::invocable<std::size_t> Value>
  Buffer& fill(Value&& value) {
    fill_pieces(dtype_of<T>(), [&](std::size_t first, std::size_t count, void* piece) {
      T* const elements = static_cast<T*>(piece);
      for (std::size_t i = 0; i < count; ++i) elements[i] = static_cast<T>(value(first + i));
    });
    return *this;
  }

  /// Writes the values to a stream, after waiting for them. `format` is empty for the bytes as they
  /// lie in memory, or three letters:
  ///
  ///     H the layout of the memory, with its blocks    S the software layout, without padding
  ///     Q the stored integers                          F real numbers: f32, of f64 arrays f64
  ///     B little-endian elements                       T text, one number per line
  ///
  /// Errc::bad_argument for H of an array without blocks, for Q of one of real numbers, and for any
  /// other format. Errc::io_error when the stream fails.
  void dump(std::ostream& out, std::string_view format = {}) const;

 private:
  struct Readiness;
  void fill_pieces(
      DType dtype,
      const std::function<void(std::size_t first, std::size_t count, void* piece)>& make);
  Shape shape_;
  MemChunk chunk_;
  std::uint64_t offset_ = 0;
  std::shared_ptr<Readiness> readiness_;
  std::shared_ptr<const BufferFormat> format_;
};

}  // namespace tenon
