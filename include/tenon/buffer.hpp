#pragma once

#include <tenon/device.hpp>
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

/// What the elements of a Buffer stand for, beyond what its Shape says. The shape names the layout
/// of the memory, and its sizes are those of the memory: i8[1, 2, 7, 7, 32] in "NCHWc32" may hold
/// 40 channels.
struct BufferFormat {
  std::int64_t extent = 0;             ///< length of the axis in blocks; 0: all lanes are values
  std::optional<Layout> software{};    ///< what people read; unset: the memory's without the blocks
  std::optional<QuantParams> quant{};  ///< of integers that stand for real numbers
};

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

  /// Attaches what the elements stand for; copies made later, and to(), carry it along. Errors name
  /// what does not fit the shape: those of relayout() for the layouts, Errc::bad_argument for
  /// parameters of elements that are no integers or for channels that the layout has not.
  Buffer& set_format(BufferFormat format);
  const BufferFormat& format() const noexcept;

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
  /// The same bytes under another shape of equal size in bytes (Errc::shape_mismatch), without the
  /// format.
  Buffer with_shape(const Shape& shape) const;

  /// Sets element i, in the order of memory, to value(i). Waits first. Errc::bad_type when T is
  /// another dtype, Errc::call_order without data.
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
  /// The ways back are closed: H of an array without blocks, and Q of one of real numbers, are
  /// Errc::bad_argument, as is any other format. Errc::io_error when the stream fails.
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
