// What a kernel sees of the machine: its place in the grid, shared memory, barriers, warps, device
// memory. With nvcc these are CUDA's own; for the host's compiler, emulation/thread.hpp.
#pragma once

#include "kernels/address.hpp"

#include <cstdint>

#if defined(__CUDACC__)

#define TENON_DEVICE __device__ inline
#define TENON_CONSTANT static __device__ const
/// Of a function that is called: where it is long, and called often.
#define TENON_CALLED __device__ __noinline__
/// Before a loop over an array that is to stay in registers.
#define TENON_UNROLL _Pragma("unroll")
/// Memory of `count` elements that the threads of a block share.
#define TENON_SHARED(thread, T, name, count) __shared__ T name[count]

namespace tenon::cuda {

struct Thread {
  __device__ unsigned index() const { return threadIdx.x; }
  __device__ unsigned count() const { return blockDim.x; }
  __device__ unsigned block() const { return blockIdx.x; }
  __device__ unsigned blocks() const { return gridDim.x; }
  /// Waits for all threads of the block.
  __device__ void sync() const { __syncthreads(); }
  /// Waits for all lanes of the warp. Lanes of whole warps only, as those below.
  __device__ void sync_warp() const { __syncwarp(); }
  __device__ float shuffle_xor(float value, unsigned mask) const {
    return __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<int>(mask));
  }
  __device__ std::int64_t shuffle_xor(std::int64_t value, unsigned mask) const {
    return __shfl_xor_sync(0xFFFFFFFFu, static_cast<long long>(value), static_cast<int>(mask));
  }
  __device__ std::uint32_t shuffle(std::uint32_t value, unsigned from_lane) const {
    return __shfl_sync(0xFFFFFFFFu, value, static_cast<int>(from_lane));
  }
  /// The highest of the lanes' values.
  __device__ std::uint32_t highest(std::uint32_t value) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xFFFFFFFFu, value);
#else
    for (unsigned mask = 16; mask > 0; mask /= 2) {
      const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<int>(mask));
      if (other > value) value = other;
    }
    return value;
#endif
  }
  __device__ std::uint32_t ballot(bool value) const { return __ballot_sync(0xFFFFFFFFu, value); }
};

template <class T>
__device__ inline T* global(Address address) {
  return reinterpret_cast<T*>(address);
}

/// Sixteen bytes at a multiple of 16; loads keep the order in which they are written.
__device__ inline Words4 load_words(Address at) {
  Words4 words;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
               : "l"(at));
  return words;
}

__device__ inline std::int32_t compare_and_swap(std::int32_t* at, std::int32_t expected,
                                                std::int32_t value) {
  return atomicCAS(at, expected, value);
}

/// The value, from a shuffle, which the compiler does not repeat: it keeps a lane's constants in
/// registers where it would compute others again in every loop. For whole warps.
__device__ inline std::uint32_t kept(std::uint32_t value) {
  return __shfl_sync(0xFFFFFFFFu, value, static_cast<int>(threadIdx.x % 32));
}

/// Copies `bytes` bytes, at most 16, and zeros up to 16, to an address in shared memory.
__device__ inline void copy_to_shared(std::uint32_t to, const void* from, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(from), "r"(bytes)
               : "memory");
#else
  uint4 words{};
  if (bytes == 16) {
    words = *static_cast<const uint4*>(from);
  } else {
    memcpy(&words, from, bytes);
  }
  *static_cast<uint4*>(__cvta_shared_to_generic(to)) = words;
#endif
}

/// An array of Words4 in shared memory, by the addresses of its bytes: of element i on, at(i).
template <class Shared>
class SharedWords {
 public:
  __device__ explicit SharedWords(Shared& array)
      : begin_(kept(static_cast<std::uint32_t>(__cvta_generic_to_shared(&array[0])))) {}
  __device__ std::uint32_t at(std::uint32_t i) const { return begin_ + 16 * i; }
  __device__ std::uint32_t word(std::uint32_t at) const {
    std::uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
    return word;
  }
  __device__ Words2 two(std::uint32_t at) const {
    Words2 two;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(two.at[0]), "=r"(two.at[1])
                 : "r"(at)
                 : "memory");
    return two;
  }
  __device__ Words4 words(std::uint32_t at) const {
    Words4 four;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.at[0]), "=r"(four.at[1]), "=r"(four.at[2]), "=r"(four.at[3])
                 : "r"(at)
                 : "memory");
    return four;
  }
  __device__ const std::uint8_t* bytes(std::uint32_t at) const {
    return static_cast<const std::uint8_t*>(__cvta_shared_to_generic(at));
  }
  /// `bytes` bytes, at most 16, and zeros up to 16; otherwise as the function.
  __device__ void copy_async(std::uint32_t at, const void* from, std::uint32_t bytes = 16) const {
    copy_to_shared(at, from, bytes);
  }

 private:
  std::uint32_t begin_;
};

/// Copies 16 bytes of device memory to `shared[index]`, both aligned to that, while the thread goes on;
/// zeros if they are not there. Its copies up to commit_copies() are a group; after wait_copies<n>()
/// all its groups but the last n have landed, for itself.
template <class T>
__device__ inline void copy_async(T& shared, std::uint32_t index, Address from,
                                  bool is_there = true) {
  copy_to_shared(static_cast<std::uint32_t>(__cvta_generic_to_shared(&shared[index])),
                 global<const void>(from), is_there ? 16 : 0);
}
__device__ inline void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
template <int groups>
__device__ inline void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory");
#endif
}

/// (word & mask) ^ bits in one instruction: the compiler makes two of it where both are constants.
__device__ inline std::uint32_t masked_xor(std::uint32_t word, std::uint32_t mask,
                                           std::uint32_t bits) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

/// Four bytes of eight, which nibbles of `selector` below 8 choose.
__device__ inline std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high,
                                             std::uint32_t selector) {
  return __byte_perm(low, high, selector);
}

/// The lower word of two that are shifted right as one, by less than 32 bits.
__device__ inline std::uint32_t funnel_shift(std::uint32_t low, std::uint32_t high,
                                             unsigned shift) {
  return __funnelshift_r(low, high, shift);
}

/// Has 128 bytes of device memory come near, which are read later.
__device__ inline void prefetch(Address address) {
  asm volatile("prefetch.global.L1 [%0];" : : "l"(address));
}

// Where launches overlap (Driver::create_graph), a kernel begins while those before it run. Nothing
// that those write may be read or written before wait_for_earlier().
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ inline void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ inline void wait_for_earlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ inline void let_next_begin() {}
__device__ inline void wait_for_earlier() {}
#endif

/// Before a block says that it is done: others will find what it has written.
__device__ inline void publish() { __threadfence(); }
/// Counts the blocks that come here, from 0 to `count`, which is 0 again; whether this is the last.
__device__ inline bool is_last_of(std::uint32_t* ticket, std::uint32_t count) {
  return atomicInc(ticket, count - 1) == count - 1;
}
/// The same of what other blocks of the launch have published.
__device__ inline Words4 load_published(Address at) {
  Words4 words;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
               : "l"(at));
  return words;
}

/// a b + c, rounded once, whatever the compiler makes of other sums.
__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }

/// The nearest integer, of two as near the even one.
__device__ inline std::int32_t round_to_integer(float value) { return __float2int_rn(value); }

__device__ inline float bits_to_float(std::uint32_t bits) { return __uint_as_float(bits); }
__device__ inline std::uint32_t float_to_bits(float value) { return __float_as_uint(value); }

}  // namespace tenon::cuda

#else

#include "emulation/thread.hpp"

#endif

namespace tenon::cuda {

inline constexpr unsigned warp_size = 32;

TENON_DEVICE unsigned lane_of(const Thread& thread) { return thread.index() % warp_size; }
TENON_DEVICE unsigned warp_of(const Thread& thread) { return thread.index() / warp_size; }
/// The thread's number in the grid, and how many there are: for loops over elements.
TENON_DEVICE std::uint32_t first_of(const Thread& thread) {
  return thread.block() * thread.count() + thread.index();
}
TENON_DEVICE std::uint32_t stride_of(const Thread& thread) {
  return thread.blocks() * thread.count();
}

/// Byte i, below 128, as (128 + byte) / 256.
TENON_DEVICE float fraction_of_byte(std::uint32_t word, unsigned i) {
  return bits_to_float(choose_bytes(word, 0x3F000000u, 0x7044u | i << 8));
}

}  // namespace tenon::cuda
