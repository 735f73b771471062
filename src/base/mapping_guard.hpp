#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace tenon::io {

/// A guarded mapping, for the SIGBUS handler. Never freed, because the handler reads it, but reused
/// by the next mapping.
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
/// To be called before the mapping is removed.
void unguard(MappingGuard& guard) noexcept;

}  // namespace tenon::io
