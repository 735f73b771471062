#pragma once

#include <cstdint>

namespace tenon {

/// How many fork() calls lie between the process that started and this one. Threads, connections
/// and held locks belong to the process that made them: who keeps one notes this number beside it
/// and finds after a fork() that it differs. Counts since the library was loaded. Thread-safe;
/// costs a load.
std::uint32_t process_number() noexcept;

}  // namespace tenon
