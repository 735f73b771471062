#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

class Device;
class MemRegion;

/// A pointer into some memory: an address that the CPU can dereference (cptr), an address of a
/// device (addr), or both. Null if and only if it is a cptr of value nullptr.
class MemPtr {
 public:
  enum class Kind : std::uint8_t { cptr, addr, both };

  MemPtr() noexcept = default;        ///< null
  MemPtr(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor)
  explicit MemPtr(void* cptr) noexcept : cptr_(static_cast<std::byte*>(cptr)) {}
  explicit MemPtr(std::uint64_t addr) noexcept : addr_(addr), kind_(Kind::addr) {}
  MemPtr(void* cptr, std::uint64_t addr) noexcept
      : cptr_(static_cast<std::byte*>(cptr)), addr_(addr), kind_(Kind::both) {}

  Kind kind() const noexcept { return kind_; }
  bool is_null() const noexcept { return kind_ == Kind::cptr && cptr_ == nullptr; }
  bool has_cptr() const noexcept { return kind_ != Kind::addr; }
  bool has_addr() const noexcept { return kind_ != Kind::cptr; }

  /// Errc::bad_argument when this kind of pointer has no such address.
  std::byte* cptr() const;
  std::uint64_t addr() const;

  // Arithmetic in bytes. Errc::bad_argument for the difference or order of two pointers of
  // different kinds, or of kind both with different distances of their two addresses; for an offset
  // other than 0 on null; and where an address would wrap around.
  friend MemPtr operator+(MemPtr p, std::int64_t bytes);
  friend MemPtr operator+(std::int64_t bytes, MemPtr p) { return p + bytes; }
  friend MemPtr operator-(MemPtr p, std::int64_t bytes);
  friend std::int64_t operator-(MemPtr a, MemPtr b);
  friend bool operator==(const MemPtr& a, const MemPtr& b) noexcept = default;
  friend bool operator<(MemPtr a, MemPtr b) { return a - b < 0; }
  friend bool operator<=(MemPtr a, MemPtr b) { return a - b <= 0; }
  friend bool operator>(MemPtr a, MemPtr b) { return a - b > 0; }
  friend bool operator>=(MemPtr a, MemPtr b) { return a - b >= 0; }

 private:
  std::byte* cptr_ = nullptr;
  std::uint64_t addr_ = 0;
  Kind kind_ = Kind::cptr;
};

/// "cptr 0x7f..", "addr 0x100000000", "both 0x7f.. / 0x80000000".
std::string to_string(const MemPtr& pointer);

/// Called with the begin of a chunk when it is freed. An exception is passed on to the caller of
/// free(); in the destructor of the last handle it is logged.
using ChunkDeleter = std::function<void(const MemPtr& begin)>;

/// A contiguous allocation of a region: a shared handle, made by MemRegion. With `auto_free` the
/// last handle frees the memory, by the deleter where one was given; without it the memory stays
/// allocated until free(), and MemRegion::chunk() finds it. Handles keep the device alive. Members
/// of an empty handle throw Errc::call_order.
class MemChunk {
 public:
  MemChunk() = default;  ///< no chunk

  explicit operator bool() const noexcept { return node_ != nullptr; }
  MemPtr begin() const;
  std::uint64_t size_bytes() const;
  MemRegion& region() const;
  bool is_on(const MemRegion& region) const noexcept;
  bool auto_free() const;
  bool is_freed() const;
  /// The number of this allocation in its region, counted from 1: distinguishes a chunk from a
  /// later one at the same address.
  std::uint64_t generation() const;
  /// Whether malloc_at() made it: the region did not allocate the memory, and others may access it.
  bool is_placed() const;
  /// The deleter that frees the memory; empty when the region does. Valid as long as this chunk.
  const ChunkDeleter& deleter() const;
  /// Handles that share this chunk, this one included.
  long use_count() const noexcept { return node_.use_count(); }
  /// Whether this is the only handle, but for those of submitted runs that are to fill the chunk.
  bool is_last_handle() const noexcept;

  /// Copies bytes [offset, offset + size) to or from CPU memory. Errc::out_of_range outside the
  /// chunk, Errc::stale_handle after free().
  void read(void* to, std::uint64_t offset, std::uint64_t size) const;
  void write(const void* from, std::uint64_t offset, std::uint64_t size) const;
  /// Copies all of `source`, which may be in another region, to the begin of this chunk. Errors as
  /// for write().
  void copy_from(const MemChunk& source) const;
  /// Frees the memory now. Errc::call_order when that was done before; Errc::device_error when
  /// bytes beside the chunk were overwritten (the memory is freed nevertheless).
  void free();

  friend bool operator==(const MemChunk& a, const MemChunk& b) noexcept {
    return a.node_ == b.node_;
  }

 private:
  friend class MemRegion;
  friend class SubmittedHandles;
  struct Node;
  explicit MemChunk(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  std::shared_ptr<Node> node_;
};

/// One memory of a device. A device implements the virtual members. Those that are not virtual check
/// their arguments and track allocations; read(), write() and copy() check what the device does:
/// CPU memory nothing, the regions of an NPU that a range lies within them (Errc::out_of_range).
/// MemChunk's check in every memory. Thread-safe.
class MemRegion {
 public:
  explicit MemRegion(std::string name);
  virtual ~MemRegion();
  MemRegion(const MemRegion&) = delete;
  MemRegion& operator=(const MemRegion&) = delete;

  const std::string& name() const noexcept { return name_; }
  Device& device() const;  ///< Errc::call_order before a device has adopted the region
  /// Whether every pointer of the region may be dereferenced by the CPU.
  virtual bool is_host() const noexcept = 0;

  virtual void init() {}
  virtual void deinit() {}

  /// CPU memory <-> this region; may block.
  virtual void read(void* to, const MemPtr& from, std::uint64_t size) const = 0;
  virtual void write(const MemPtr& to, const void* from, std::uint64_t size) = 0;
  /// Within the region.
  virtual void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) = 0;
  /// From another region. The default copies through CPU memory in pieces of limited size.
  virtual void copy(const MemPtr& to, const MemRegion& source, const MemPtr& from,
                    std::uint64_t size);

  /// Allocates a chunk. Errc::bad_argument for size 0 or an alignment that is not a power of two.
  /// Without room: Errc::out_of_memory in CPU memory, Errc::out_of_device_memory elsewhere.
  MemChunk malloc(std::uint64_t size, bool auto_free = true, std::uint64_t alignment = 64);
  /// A chunk at a given address. Reserves the range, and calls `deleter`, where there is one,
  /// before it releases the range. In CPU memory a chunk with a deleter wraps memory of others and
  /// may overlap other chunks. Errc::overlap with a chunk of the region; Errc::bad_argument for
  /// null or size 0.
  MemChunk malloc_at(const MemPtr& begin, std::uint64_t size, ChunkDeleter deleter = {},
                     bool auto_free = true);

  /// Frees the chunk that begins here, as MemChunk::free() does, for all its handles.
  /// Errc::call_order when nothing is allocated here (as after an earlier free); Errc::bad_argument
  /// for an address inside a chunk, and where several chunks that wrap memory of others begin here.
  void free(const MemPtr& begin);

  /// Whether one chunk that the region allocated contains all of [begin, begin + size): for devices
  /// that check the memory accesses of commands. Memory of others does not count.
  bool is_allocated(const MemPtr& begin, std::uint64_t size) const;
  /// Throws Errc::device_error, naming the chunk, when a redzone beside a chunk was overwritten.
  /// free() checks too; the destruction of the device logs overwritten redzones and leaked chunks.
  void check_redzones() const;

  /// The allocated chunks, ordered by address, and the one of exactly this range.
  std::vector<MemChunk> all_chunks() const;
  std::optional<MemChunk> chunk(const MemPtr& begin, std::uint64_t size) const;

  /// Memory in use. Memory of others that the region only wraps (CPU chunks with a deleter) does
  /// not count.
  struct Usage {
    std::uint64_t used_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t capacity_bytes = 0;      ///< 0: unlimited
    std::uint64_t largest_hole_bytes = 0;  ///< 0: none, or unknown

    /// The share of the free bytes outside the largest hole, from 0 to 1: 0 when all free bytes are
    /// one hole, when none are free, and for regions without a capacity.
    double fragmentation() const noexcept;
  };
  virtual Usage usage() const;

 protected:
  /// Allocates and frees memory. `size` is positive and at most 2^63 - 1, `alignment` a power of
  /// two.
  virtual MemPtr allocate(std::uint64_t size, std::uint64_t alignment) = 0;
  virtual void release(const MemPtr& begin, std::uint64_t size) = 0;

  /// Reserves and releases the range of a chunk that is placed by malloc_at(): a region with its
  /// own allocator does not allocate there meanwhile (Errc::overlap, Errc::out_of_range). The
  /// default does nothing.
  virtual void reserve(const MemPtr& begin, std::uint64_t size);
  virtual void unreserve(const MemPtr& begin, std::uint64_t size) noexcept;

  /// Size of the redzones that allocate() leaves free on both sides of an allocation. They are
  /// filled with a pattern, which is checked when the chunk is freed. 0: none.
  virtual std::uint64_t redzone_bytes() const noexcept { return 0; }

  /// Throws "no room for `size` bytes", with the error code of this kind of region.
  [[noreturn]] void throw_no_room(std::uint64_t size, std::uint64_t alignment) const;

 private:
  friend class Buffer;
  friend class MemChunk;
  friend class Device;
  struct Ledger;
  MemChunk enter(const MemPtr& begin, std::uint64_t size, ChunkDeleter deleter, bool auto_free,
                 bool placed);
  void paint_redzones(const MemPtr& begin, std::uint64_t size);
  void check_redzones(const MemPtr& begin, std::uint64_t size) const;
  void report_remains() const noexcept;

  std::string name_;
  Device* device_ = nullptr;
  std::shared_ptr<Ledger> ledger_;  // shared with chunks: tells them when the region is destroyed
};

/// One bank of device registers, 64 bits wide at the interface. A device implements read and write.
class RegRegion {
 public:
  /// Addresses [base, base + size); size 0: read() and write() check which exist.
  /// Errc::bad_argument when they exceed 2^64 - 1.
  explicit RegRegion(std::string name, std::uint64_t base = 0, std::uint64_t size_bytes = 0);
  virtual ~RegRegion() = default;
  RegRegion(const RegRegion&) = delete;
  RegRegion& operator=(const RegRegion&) = delete;

  const std::string& name() const noexcept { return name_; }
  std::uint64_t base() const noexcept { return base_; }
  std::uint64_t size_bytes() const noexcept { return size_; }
  virtual void init() {}
  virtual void deinit() {}
  /// Reads a register; `relative` addresses count from the bank's base. Errc::out_of_range where
  /// there is no register.
  virtual std::uint64_t read(std::uint64_t address, bool relative = false) const = 0;
  virtual void write(std::uint64_t address, std::uint64_t value, bool relative = false) = 0;

 protected:
  /// The offset of an address from the base. Errc::out_of_range outside the bank.
  std::uint64_t offset_of(std::uint64_t address, bool relative) const;

 private:
  std::string name_;
  std::uint64_t base_;
  std::uint64_t size_;
};

}  // namespace tenon
