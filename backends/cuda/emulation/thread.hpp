// CUDA's grid, blocks, warps, shared memory and atomics for kernels that the host's compiler
// compiles. Threads of a block are fibres of one thread of the CPU, or where a kernel has no barrier
// a plain loop.
#pragma once

#include "kernels/address.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#define TENON_DEVICE inline
#define TENON_CONSTANT inline constexpr
#define TENON_CALLED inline
#define TENON_UNROLL
#define TENON_SHARED(thread, T, name, size)             \
  static constexpr char name##_site = 0;                \
  const ::tenon::cuda::emulation::SharedArray<T> name = \
      (thread).template shared<T>(&name##_site, #name, size)

namespace tenon::cuda {

namespace emulation {

class BlockRunner;

/// Addresses of device memory are those of the CPU, moved to where it cannot read: code outside of
/// kernels that uses one as a pointer ends with a fault.
inline constexpr Address address_offset = Address{1} << 60;

[[noreturn]] void throw_outside_shared(const char* array, std::size_t index, std::size_t size);

[[noreturn]] void throw_misaligned(std::uint64_t address, std::size_t alignment);
inline void require_aligned(std::uint64_t address, std::size_t alignment) {
  if (address % alignment != 0) throw_misaligned(address, alignment);
}

/// An array in shared memory that checks every access.
template <class T>
class SharedArray {
 public:
  SharedArray(T* data, const char* name, std::size_t size)
      : data_(data), name_(name), size_(size) {}
  T& operator[](std::size_t i) const {
    if (i >= size_) throw_outside_shared(name_, i, size_);
    return data_[i];
  }

 private:
  T* data_;
  const char* name_;
  std::size_t size_;
};

}  // namespace emulation

class Thread {
 public:
  /// `runner`: null in a kernel without barriers.
  Thread(unsigned index, unsigned count, unsigned block, unsigned blocks,
         emulation::BlockRunner* runner)
      : index_(index), count_(count), block_(block), blocks_(blocks), runner_(runner) {}

  unsigned index() const { return index_; }
  unsigned count() const { return count_; }
  unsigned block() const { return block_; }
  unsigned blocks() const { return blocks_; }

  void sync() const;
  void sync_warp() const;
  template <class T>
  T shuffle_xor(T value, unsigned mask) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = exchange(bits, index_ % 32 ^ mask);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  std::uint32_t shuffle(std::uint32_t value, unsigned from_lane) const {
    return static_cast<std::uint32_t>(exchange(value, from_lane));
  }
  std::uint32_t highest(std::uint32_t value) const {
    for (unsigned mask = 16; mask > 0; mask /= 2) {
      const std::uint32_t other = shuffle_xor(value, mask);
      if (other > value) value = other;
    }
    return value;
  }
  std::uint32_t ballot(bool value) const;

  template <class T>
  emulation::SharedArray<T> shared(const char* site, const char* name, std::size_t size) const {
    return {static_cast<T*>(shared_bytes(site, size * sizeof(T))), name, size};
  }

 private:
  std::uint64_t exchange(std::uint64_t bits, unsigned from_lane) const;
  void* shared_bytes(const char* site, std::size_t bytes) const;

  unsigned index_, count_, block_, blocks_;
  emulation::BlockRunner* runner_;
};

/// Addresses that are not aligned end the process, as others that no kernel may use do.
template <class T>
T* global(Address address) {
  if constexpr (!std::is_void_v<T>) {
    if (address % alignof(T) != 0) __builtin_trap();
  }
  return reinterpret_cast<T*>(address - emulation::address_offset);
}

inline Words4 load_words(Address at) { return *global<const Words4>(at); }

/// One CPU thread runs a launch: nothing else writes there meanwhile.
inline std::int32_t compare_and_swap(std::int32_t* at, std::int32_t expected, std::int32_t value) {
  const std::int32_t found = *at;
  if (found == expected) *at = value;
  return found;
}

// A launch begins when the one before it has ended.
inline void wait_for_earlier() {}
inline void let_next_begin() {}

inline void prefetch(Address /*address*/) {}

inline std::uint32_t kept(std::uint32_t value) { return value; }

/// An array of Words4 in shared memory, by the addresses of its bytes.
template <class Shared>
class SharedWords {
 public:
  explicit SharedWords(const Shared& array) : array_(array) {}
  std::uint32_t at(std::uint32_t i) const { return 16 * i; }
  std::uint32_t word(std::uint32_t at) const {
    emulation::require_aligned(at, 4);
    return array_[at / 16].at[at / 4 % 4];
  }
  Words2 two(std::uint32_t at) const {
    emulation::require_aligned(at, 8);
    return {{word(at), word(at + 4)}};
  }
  Words4 words(std::uint32_t at) const {
    emulation::require_aligned(at, 16);
    return array_[at / 16];
  }
  const std::uint8_t* bytes(std::uint32_t at) const {
    return reinterpret_cast<const std::uint8_t*>(&array_[at / 16]) + at % 16;
  }
  /// Done at once: that is as early as a copy may be done.
  void copy_async(std::uint32_t at, const void* from, std::uint32_t bytes = 16) const {
    emulation::require_aligned(at, 16);
    emulation::require_aligned(reinterpret_cast<std::uintptr_t>(from), 16);
    array_[at / 16] = {};
    std::memcpy(&array_[at / 16], from, bytes);
  }

 private:
  Shared array_;
};

/// At once: a wait that is missing is not found.
template <class T>
void copy_async(const emulation::SharedArray<T>& shared, std::uint32_t index, Address from,
                bool is_there = true) {
  static_assert(sizeof(T) == 16);
  if (is_there) {
    std::memcpy(&shared[index], global<const T>(from), sizeof(T));
  } else {
    std::memset(&shared[index], 0, sizeof(T));
  }
}
inline void commit_copies() {}
template <int groups>
void wait_copies() {}

inline std::uint32_t masked_xor(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
  return (word & mask) ^ bits;
}
inline std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint64_t byte = bytes >> (8 * (selector >> (4 * i) & 7u)) & 255u;
    result |= static_cast<std::uint32_t>(byte) << (8 * i);
  }
  return result;
}
inline std::uint32_t funnel_shift(std::uint32_t low, std::uint32_t high, unsigned shift) {
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> shift);
}

// Blocks run one after the other.
inline void publish() {}
inline bool is_last_of(std::uint32_t* ticket, std::uint32_t count) {
  *ticket = *ticket == count - 1 ? 0 : *ticket + 1;
  return *ticket == 0;
}
inline Words4 load_published(Address at) { return load_words(at); }

/// Rounded twice: without instructions for it the CPU takes long to round once.
inline float multiply_add(float a, float b, float c) { return a * b + c; }

inline std::int32_t round_to_integer(float value) {
  return static_cast<std::int32_t>(std::nearbyint(value));
}

inline float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t float_to_bits(float value) { return std::bit_cast<std::uint32_t>(value); }

}  // namespace tenon::cuda
