#pragma once

#include <tenon/error.hpp>
#include <tenon/memory.hpp>

#include <cstdint>

#include <fmt/format.h>

namespace tenon {

/// MemRegion::malloc(); where there is no room, the error says what `purpose()` calls it.
template <class Purpose>
MemChunk malloc_for(MemRegion& region, std::uint64_t size, std::uint64_t alignment,
                    const Purpose& purpose) {
  try {
    return region.malloc(size, true, alignment);
  } catch (const Error& error) {
    const bool is_full =
        error.code() == Errc::out_of_memory || error.code() == Errc::out_of_device_memory;
    if (!is_full) throw;
    throw Error(error.code(), error.where(), fmt::format("{}, for {}", error.message(), purpose()));
  }
}

}  // namespace tenon
