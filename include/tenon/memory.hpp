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

/// An address in some memory: one the CPU can dereference (cptr), one only a device understands
/// (addr), or both. Null if and only if it is a cptr with value nullptr.
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

  // Arithmetic in bytes. Differences and orderings need two pointers of one kind; two of kind both
  // must differ equally in both addresses. Null takes no offset but 0, and no address wraps around.
  // Errc::bad_argument otherwise.
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

/// Called with the begin of a chunk when its memory is given back. What it throws reaches the
/// caller of free(); from the last handle's destructor it goes to the log.
using ChunkDeleter = std::function<void(const MemPtr& begin)>;

/// A contiguous piece of a region: a shared handle, made only by MemRegion. The memory goes back
/// with the last handle when `auto_free`, through the deleter where one was given; without
/// `auto_free` it stays until free(), and MemRegion::chunk() finds it again. Handles keep the
/// device alive. What is asked of "no chunk" throws Errc::call_order.
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
  /// The number of this allocation in its region, from 1 on and never given twice: tells a chunk
  /// from a later one at the same address.
  std::uint64_t generation() const;
  /// Whether malloc_at made it: the memory is not the region's own, and others may look at it.
  bool is_placed() const;
  /// What gives the memory back; empty when the region does. Valid as long as this chunk.
  const ChunkDeleter& deleter() const;
  /// Handles that share this chunk, this one included.
  long use_count() const noexcept { return node_.use_count(); }

  /// Bytes [offset, offset + size) to or from CPU memory. Errc::out_of_range outside the chunk,
  /// Errc::stale_handle after free().
  void read(void* to, std::uint64_t offset, std::uint64_t size) const;
  void write(const void* from, std::uint64_t offset, std::uint64_t size) const;
  /// Copies the whole of `source`, which may lie in another region, to the begin of this chunk;
  /// errors as for write().
  void copy_from(const MemChunk& source) const;
  /// Gives the memory back now; Errc::call_order when that was done before, Errc::device_error when
  /// somebody wrote past the ends of the chunk (the memory is given back all the same).
  void free();

  friend bool operator==(const MemChunk& a, const MemChunk& b) noexcept {
    return a.node_ == b.node_;
  }

 private:
  friend class MemRegion;
  struct Node;
  explicit MemChunk(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  std::shared_ptr<Node> node_;
};

/// One independent memory of a device. The public calls check and keep account; a device implements
/// the protected ones. Calls may come from any thread.
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
  /// From another region; the default goes through CPU memory in bounded pieces.
  virtual void copy(const MemPtr& to, const MemRegion& source, const MemPtr& from,
                    std::uint64_t size);

  /// A fresh chunk. Size 0 or an alignment that is no power of two: Errc::bad_argument. No room:
  /// Errc::out_of_memory on CPU regions, Errc::out_of_device_memory on others.
  MemChunk malloc(std::uint64_t size, bool auto_free = true, std::uint64_t alignment = 64);
  /// A chunk at a given place. Reserves the range (Errc::overlap with a chunk of the region; null
  /// or size 0: Errc::bad_argument) and calls `deleter`, where there is one, before it gives the
  /// range back. In CPU memory a chunk with a deleter is somebody else's memory and may overlap
  /// others.
  MemChunk malloc_at(const MemPtr& begin, std::uint64_t size, ChunkDeleter deleter = {},
                     bool auto_free = true);

  /// Frees the chunk that begins here, as MemChunk::free() does for all its handles.
  /// Errc::call_order when nothing is allocated here (as after an earlier free), Errc::bad_argument
  /// for the inside of a chunk, and where several chunks wrap memory of others from here on.
  void free(const MemPtr& begin);

  /// Whether one chunk of the region's own holds all of [begin, begin + size) now: for devices that
  /// check what commands touch. Memory that others own does not count.
  bool is_allocated(const MemPtr& begin, std::uint64_t size) const;
  /// Errc::device_error, naming the chunk, when a byte that the region keeps free beside a chunk
  /// was written to. free() checks too; the end of the device logs what it finds, and what was
  /// never freed.
  void check_redzones() const;

  /// The chunks that are allocated now, ordered by address, and the one of exactly this range.
  std::vector<MemChunk> all_chunks() const;
  std::optional<MemChunk> chunk(const MemPtr& begin, std::uint64_t size) const;

  /// Memory that others own and this region only wraps (CPU chunks with a deleter) does not count.
  struct Usage {
    std::uint64_t used_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t capacity_bytes = 0;      ///< 0: not bounded by the region
    std::uint64_t largest_hole_bytes = 0;  ///< 0: none, or not known to the region

    /// The share of the free bytes that lies outside the largest hole, from 0 to 1: 0 when all free
    /// bytes are one hole, when none are free, and for regions without a capacity.
    double fragmentation() const noexcept;
  };
  virtual Usage usage() const;

 protected:
  /// Fresh memory, and its return. `size` is positive and at most 2^63 - 1, `alignment` a power of
  /// two.
  virtual MemPtr allocate(std::uint64_t size, std::uint64_t alignment) = 0;
  virtual void release(const MemPtr& begin, std::uint64_t size) = 0;

  /// A range that a chunk is placed on, and its return: a region with an allocator of its own keeps
  /// off it meanwhile (Errc::overlap, Errc::out_of_range); others have nothing to do.
  virtual void reserve(const MemPtr& begin, std::uint64_t size);
  virtual void unreserve(const MemPtr& begin, std::uint64_t size) noexcept;

  /// How many bytes allocate() keeps free on both sides of what it gives out. Where that is not 0,
  /// they are filled with a pattern, and checked when the chunk is freed.
  virtual std::uint64_t redzone_bytes() const noexcept { return 0; }

  /// "No room for `size` bytes", with the code that suits this region.
  [[noreturn]] void throw_no_room(std::uint64_t size, std::uint64_t alignment) const;

 private:
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
  std::shared_ptr<Ledger> ledger_;  // chunks hold it too, and learn from it that the region is gone
};

/// One bank of device registers, 64 bits wide at the interface. A device implements read and write.
class RegRegion {
 public:
  /// Addresses [base, base + size); size 0: the region itself knows which exist. Errc::bad_argument
  /// when they go beyond 2^64 - 1.
  explicit RegRegion(std::string name, std::uint64_t base = 0, std::uint64_t size_bytes = 0);
  virtual ~RegRegion() = default;
  RegRegion(const RegRegion&) = delete;
  RegRegion& operator=(const RegRegion&) = delete;

  const std::string& name() const noexcept { return name_; }
  std::uint64_t base() const noexcept { return base_; }
  std::uint64_t size_bytes() const noexcept { return size_; }
  virtual void init() {}
  virtual void deinit() {}
  /// `relative` addresses count from the bank's base. Errc::out_of_range for no register.
  virtual std::uint64_t read(std::uint64_t address, bool relative = false) const = 0;
  virtual void write(std::uint64_t address, std::uint64_t value, bool relative = false) = 0;

 protected:
  /// An address of either kind as a distance from the base; Errc::out_of_range outside the bank.
  std::uint64_t offset_of(std::uint64_t address, bool relative) const;

 private:
  std::string name_;
  std::uint64_t base_;
  std::uint64_t size_;
};

}  // namespace tenon
