#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace tenon::io {

/// What the handler of SIGBUS knows of a guarded mapping. Read in a signal handler, so never
/// freed: the next mapping takes it over.
struct MappingGuard {
  std::atomic<const std::byte*> begin = nullptr;
  std::atomic<std::size_t> size = 0;  ///< 0: of no mapping
  std::atomic<bool> is_lost = false;
  MappingGuard* next = nullptr;       ///< in the list of all
  MappingGuard* next_free = nullptr;  ///< in the list of those without a mapping
};

/// Installs the handler, once; whether it is there. Any thread may call these.
bool can_guard() noexcept;
/// From now on lost pages of this mapping read as zeros.
MappingGuard& guard(std::span<const std::byte> bytes);
/// Before the mapping goes.
void unguard(MappingGuard& guard) noexcept;

}  // namespace tenon::io
