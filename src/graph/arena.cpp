#include <tenon/arena.hpp>
#include <tenon/error.hpp>

#include <bit>
#include <cstdint>
#include <new>

#include <fmt/format.h>

namespace tenon {

namespace {
constexpr std::size_t max_arena_alignment = 4096;
constexpr std::size_t max_budget = std::size_t{1} << 40;  // more than any machine has
}  // namespace

Arena::Arena(std::size_t budget_bytes)
    : block_(budget_bytes <= max_budget ? new(std::nothrow) std::byte[budget_bytes] : nullptr),
      budget_(budget_bytes) {
  if (!block_) {
    throw Error(Errc::out_of_memory, "Arena", fmt::format("a budget of {} bytes", budget_bytes));
  }
}

void* Arena::allocate(std::size_t size, std::size_t alignment) {
  if (!std::has_single_bit(alignment) || alignment > max_arena_alignment) {
    throw Error(
        Errc::bad_argument, "Arena",
        fmt::format("alignment {} is no power of two up to {}", alignment, max_arena_alignment));
  }
  const auto base = reinterpret_cast<std::uintptr_t>(block_.get());
  const std::size_t begin = ((base + used_ + alignment - 1) & ~(alignment - 1)) - base;
  if (begin > budget_ || size > budget_ - begin) {
    throw Error(Errc::out_of_arena, "Arena",
                fmt::format("need {} bytes, have {} of {}", size, budget_ - used_, budget_));
  }
  used_ = begin + size;
  return block_.get() + begin;
}

}  // namespace tenon
