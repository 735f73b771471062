// Classes as element types, and the memory of a buffer of an object: an element is the address of a
// box, which buffers own.
#pragma once

#include <tenon/buffer.hpp>
#include <tenon/dtype.hpp>
#include <tenon/memory.hpp>

#include <memory>
#include <span>
#include <utility>

namespace tenon::objects {

/// Of a class that this copy of the library has registered, or of one that another copy has, in the
/// program that loads this one.
const DTypeFacts& facts_of(DType dtype) noexcept;

/// An object. Steps of a run hand its address on; the run's inputs and constants keep
/// it alive meanwhile.
struct Box : std::enable_shared_from_this<Box> {
  explicit Box(std::shared_ptr<void> value) : object(std::move(value)) {}
  std::shared_ptr<void> object;
};

/// What a buffer's chunk wraps. A step of a run may write `box`, without owning it.
struct Slot {
  Box* box = nullptr;
  std::shared_ptr<Box> owner;
  std::shared_ptr<Box> next;  ///< of own()
};

/// Frees a slot; a chunk with this deleter holds an object.
struct FreeSlot {
  void operator()(const MemPtr& begin) const noexcept;
};

/// A chunk for an object, without one yet. Errc::unsupported_dtype in memory that the CPU does not
/// address.
MemChunk new_slot(DType dtype, MemRegion& region);

/// Makes buffers own the objects that a run left there, which were theirs, in whatever order, or are
/// kept alive otherwise. Buffers of other types are left alone.
void own(std::span<const Buffer> first, std::span<const Buffer> second = {}) noexcept;
/// A buffer that shares the object of an element, such as one that a step of a run has written.
Buffer share(const HostView& element);
/// Makes `to` hold the object of `from`; of a linear class, that `updated` says a run will change, a
/// copy of it. Errc::unsupported where it cannot be copied.
void assign(const Buffer& from, const Buffer& to, bool updated);

}  // namespace tenon::objects
