#include <tenon/process_number.hpp>

#include <atomic>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace tenon {

std::uint32_t process_number() noexcept {
  static std::atomic<std::uint32_t> forks{0};
#if defined(__unix__) || defined(__APPLE__)
  [[maybe_unused]] static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
#endif
  return forks.load(std::memory_order_relaxed);
}

}  // namespace tenon
