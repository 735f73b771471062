#include "base/mapping_guard.hpp"

#include "base/immortal.hpp"

#include <tenon/fork_locked_mutex.hpp>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <optional>

#include <sys/mman.h>
#include <unistd.h>

// The handler maps zeros in place of lost pages, as systemd does for its journal: the access
// continues, and the reader checks afterwards whether the data was valid. So only files whose
// reader does check are guarded. docs/architecture.md lists the alternatives.
namespace tenon::io {
namespace {

std::atomic<MappingGuard*> all_guards = nullptr;
std::size_t page_bytes = 0;
struct sigaction previous_action{};

struct Guards {
  ForkLockedMutex mutex;
  std::optional<bool> is_installed;  // the handler
  MappingGuard* first = nullptr;
};

Guards& guards_of_process() {
  return process_wide([] { return Guards(); });
}

/// The mapping that holds `address`, which stays one as long as the access to it lasts.
MappingGuard* find_guard(const std::byte* address) noexcept {
  for (MappingGuard* guard = all_guards.load(); guard != nullptr; guard = guard->next) {
    const std::byte* const begin = guard->begin.load();
    const std::size_t size = guard->size.load();
    // Another thread may have reused it in between.
    if (guard->begin.load() != begin || begin == nullptr) continue;
    const auto offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(begin);
    if (offset < size) return guard;
  }
  return nullptr;
}

/// Maps zeros from the page of `address` to the end of the mapping: a truncated file has lost all
/// of these pages, and one mapping costs the kernel less than one per page.
bool replace_pages(const MappingGuard& guard, const std::byte* address) noexcept {
  const std::byte* const begin = guard.begin.load();
  const auto skipped = static_cast<std::size_t>(address - begin) / page_bytes * page_bytes;
  void* const at = const_cast<std::byte*>(begin + skipped);
  return ::mmap(at, guard.size.load() - skipped, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                -1, 0) != MAP_FAILED;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int code = errno;
  const auto* const address = static_cast<const std::byte*>(info->si_addr);
  if (info->si_code == BUS_ADRERR) {
    MappingGuard* const guard = find_guard(address);
    // Said first: other threads see the zeros as soon as they are there.
    if (guard != nullptr) guard->is_lost.store(true, std::memory_order_release);
    if (guard != nullptr && replace_pages(*guard, address)) {
      errno = code;
      return;
    }
  }
  errno = code;
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    ::sigaction(SIGBUS, &previous_action, nullptr);  // the access is made again, and ends there
  } else {
    previous_action.sa_handler(signal);
  }
}

bool install() noexcept {
  page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (::sigaction(SIGBUS, nullptr, &previous_action) != 0) return false;
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  return ::sigaction(SIGBUS, &action, nullptr) == 0;
}

}  // namespace

MappingGuard& guard(std::span<const std::byte> bytes) {
  Guards& free = guards_of_process();
  const std::scoped_lock lock(free.mutex);
  if (free.first == nullptr) {
    free.first = &immortal<MappingGuard>();
    free.first->next = all_guards.load();
    all_guards.store(free.first);
  }
  MappingGuard& guard = *free.first;
  free.first = guard.next_free;
  guard.is_lost.store(false);
  guard.begin.store(bytes.data());
  guard.size.store(bytes.size());
  return guard;
}

void unguard(MappingGuard& guard) noexcept {
  guard.size.store(0);
  Guards& free = guards_of_process();
  const std::scoped_lock lock(free.mutex);
  guard.next_free = free.first;
  free.first = &guard;
}

bool can_guard() noexcept {
  Guards& guards = guards_of_process();
  const std::scoped_lock lock(guards.mutex);
  if (!guards.is_installed) guards.is_installed = install();
  return *guards.is_installed;
}

}  // namespace tenon::io
