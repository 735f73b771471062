#include "array/storage.hpp"

#include <tenon/buffer.hpp>
#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/io/input_file.hpp>

#include <cstring>
#include <new>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr std::size_t alignment = 64;

/// Beyond what a process can address; refused here because allocators differ on whether such a
/// request fails or ends the process.
constexpr std::int64_t max_buffer_bytes = std::int64_t{1} << 47;

[[noreturn]] void throw_no_memory(const Shape& shape) {
  throw Error(Errc::out_of_memory, "HostBuffer", fmt::format("no room for {}", to_string(shape)));
}

void refuse_objects(const Shape& shape) {
  if (!is_object(shape.dtype())) return;
  throw Error(Errc::unsupported_dtype, "HostBuffer",
              fmt::format("object_buffer() makes a {}, not memory", to_string(shape)));
}

void check_address(const void* bytes, const Shape& shape) {
  refuse_objects(shape);
  if (bytes == nullptr && shape.elements() > 0) {
    throw Error(Errc::bad_argument, "HostBuffer", fmt::format("null for {}", to_string(shape)));
  }
}

/// Checks that every element is within 2^63 bytes of the first, and that blocks are dense.
void check_strides(const Shape& shape, const Strides& strides) {
  if (shape.elements() == 0) return;
  if (is_block(shape.dtype()) &&
      strides[static_cast<std::size_t>(shape.rank() - 1)] != block_bytes(shape.dtype())) {
    throw Error(
        Errc::bad_argument, "HostBuffer",
        fmt::format("the blocks of {} must be dense in the innermost axis", to_string(shape)));
  }
  std::int64_t span = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const std::int64_t stride = strides[static_cast<std::size_t>(i)];
    std::int64_t extent = 0;
    // The negative half suffices: it holds the magnitude of every stride.
    if (__builtin_mul_overflow(stride < 0 ? stride : -stride, shape[i] - 1, &extent) ||
        __builtin_add_overflow(span, extent, &span)) {
      throw Error(Errc::out_of_range, "HostBuffer",
                  fmt::format("stride {} along axis {} of {} leaves the address space", stride, i,
                              to_string(shape)));
    }
  }
}

}  // namespace

HostBuffer::HostBuffer(std::shared_ptr<const Storage> storage, const HostView& view)
    : storage_(std::move(storage)), view_(view) {}

HostBuffer HostBuffer::allocate(const Shape& shape, bool zeroed) try {
  refuse_objects(shape);
  const std::int64_t bytes = shape.bytes();
  if (bytes > max_buffer_bytes) throw_no_memory(shape);
  // calloc over-allocates and aligns by hand: unlike aligned allocation followed by memset, it
  // leaves the pages of large arrays unmapped until they are written.
  const std::size_t room = static_cast<std::size_t>(bytes) + alignment;
  auto storage = std::make_shared<Storage>();
  storage->allocation.reset(zeroed ? std::calloc(room, 1) : std::malloc(room));
  if (!storage->allocation) throw_no_memory(shape);
  const auto address = reinterpret_cast<std::uintptr_t>(storage->allocation.get());
  const HostView view(
      static_cast<std::byte*>(storage->allocation.get()) + (alignment - address % alignment),
      shape);
  return {std::move(storage), view};
} catch (const std::bad_alloc&) {
  throw_no_memory(shape);
}

HostBuffer HostBuffer::zeros(const Shape& shape) { return allocate(shape, true); }
HostBuffer HostBuffer::uninitialized(const Shape& shape) { return allocate(shape, false); }

HostBuffer HostBuffer::borrow(void* bytes, const Shape& shape) {
  return borrow(bytes, shape, dense_strides(shape));
}

HostBuffer HostBuffer::borrow(void* bytes, const Shape& shape, const Strides& strides) {
  check_address(bytes, shape);
  check_strides(shape, strides);
  auto storage = std::make_shared<Storage>();
  storage->ownership = Ownership::borrowed;
  return {std::move(storage), HostView(bytes, shape, strides)};
}

HostBuffer HostBuffer::mapped(const void* bytes, const Shape& shape,
                              std::shared_ptr<const void> keeper) {
  check_address(bytes, shape);
  auto storage = std::make_shared<Storage>();
  storage->ownership = Ownership::mapped;
  storage->keeper = std::move(keeper);
  // Views are writable, for kernels; is_read_only() protects mapped arrays.
  return {std::move(storage), HostView(const_cast<void*>(bytes), shape)};
}

HostBuffer HostBuffer::mapped(std::shared_ptr<const io::InputFile> file, std::uint64_t offset,
                              const Shape& shape) {
  const std::span<const std::byte> all = file->mapped();
  const auto bytes = static_cast<std::uint64_t>(shape.bytes());
  if (offset > all.size() || bytes > all.size() - offset) {
    throw Error(Errc::out_of_range, file->name(),
                fmt::format("{} bytes from {} on of {} mapped ones", bytes, offset, all.size()));
  }
  refuse_objects(shape);
  auto storage = std::make_shared<Storage>();
  storage->ownership = Ownership::mapped;
  storage->file = std::move(file);
  return {std::move(storage), HostView(const_cast<std::byte*>(all.data() + offset), shape)};
}

void HostBuffer::release_pages() const noexcept {
  if (storage_ == nullptr || storage_->file == nullptr || !is_contiguous()) return;
  storage_->file->advise(static_cast<std::uint64_t>(view_.data - storage_->file->mapped().data()),
                         static_cast<std::uint64_t>(shape().bytes()),
                         io::InputFile::Advice::dont_need);
}

HostBuffer HostBuffer::copy_of(const Shape& shape, DType dtype, const void* values,
                               std::size_t count) {
  if (dtype != shape.dtype()) {
    throw Error(Errc::shape_mismatch, "HostBuffer",
                fmt::format("values of {} for {}", name(dtype), to_string(shape)));
  }
  if (std::cmp_not_equal(count, shape.elements())) {
    throw Error(Errc::shape_mismatch, "HostBuffer",
                fmt::format("{} values for {}", count, to_string(shape)));
  }
  HostBuffer result = uninitialized(shape);
  if (count > 0) std::memcpy(result.view_.data, values, static_cast<std::size_t>(shape.bytes()));
  return result;
}

void HostBuffer::require_array() const {
  if (is_empty()) throw Error(Errc::call_order, "HostBuffer", "there is no array");
}

HostBuffer::Ownership HostBuffer::ownership() const noexcept {
  return storage_ == nullptr ? Ownership::owned : storage_->ownership;
}

const void* HostBuffer::checked_values(DType dtype) const {
  require_array();
  if (dtype != shape().dtype()) {
    throw Error(Errc::bad_type, "HostBuffer",
                fmt::format("{} read as {}", to_string(shape()), name(dtype)));
  }
  if (!is_contiguous()) {
    throw Error(Errc::bad_argument, "HostBuffer",
                fmt::format("the strided array {} has no dense values", to_string(shape())));
  }
  return view_.data;
}

void* HostBuffer::checked_mutable_values(DType dtype) {
  if (is_read_only()) {
    throw Error(Errc::bad_argument, "HostBuffer",
                fmt::format("the mapped array {} is read-only", to_string(shape())));
  }
  return const_cast<void*>(checked_values(dtype));
}

double HostBuffer::at(std::initializer_list<std::int64_t> index) const {
  require_array();
  if (is_object(shape().dtype())) {
    throw Error(Errc::unsupported_dtype, "HostBuffer", "an object is no number: object_of()");
  }
  if (is_block(shape().dtype())) {
    throw Error(Errc::unsupported_dtype, "HostBuffer",
                fmt::format("one element of {}: dequantise it first", to_string(shape())));
  }
  bool inside = std::cmp_equal(index.size(), shape().rank());
  for (int axis = 0; inside && axis < shape().rank(); ++axis) {
    const std::int64_t i = index.begin()[axis];
    inside = i >= 0 && i < shape()[axis];
  }
  if (!inside) {
    throw Error(Errc::out_of_range, "HostBuffer",
                fmt::format("no element [{}] in {}", fmt::join(index, ", "), to_string(shape())));
  }
  return load_as_double(shape().dtype(), view_.at({index.begin(), index.size()}));
}

HostBuffer HostBuffer::contiguous() const {
  require_array();
  if (is_object(shape().dtype())) return *this;
  HostBuffer result = uninitialized(shape());
  copy_elements(view_, result.view_);
  return result;
}

Buffer HostBuffer::to_device(const DevicePtr& device) const {
  require_array();
  if (!device) throw Error(Errc::bad_argument, "HostBuffer", "a null device");
  MemRegion& region = device->default_mem_region();
  if (!is_contiguous()) return contiguous().to_device(device);
  const auto bytes = static_cast<std::uint64_t>(shape().bytes());
  if (region.is_host() && bytes > 0) {
    if (storage_->chunk.is_on(region)) {
      return {shape(), storage_->chunk,
              static_cast<std::uint64_t>(MemPtr(view_.data) - storage_->chunk.begin())};
    }
    return {shape(), region.malloc_at(MemPtr(view_.data), bytes, KeepStorage{storage_})};
  }
  Buffer result = Buffer::allocate(shape(), region);
  if (bytes > 0) result.chunk().write(view_.data, 0, bytes);
  return result;
}

}  // namespace tenon
