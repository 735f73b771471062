#pragma once

#include <cstdint>

namespace tenon {

/// Number of fork() calls between the process that loaded the library and this one. Threads,
/// connections and held locks belong to the process that made them: store this number with one, and
/// compare it later to detect a fork(). Thread-safe; costs one load.
std::uint32_t process_number() noexcept;

}  // namespace tenon
