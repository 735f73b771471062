#include <tenon/process_number.hpp>

#include <atomic>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace tenon {
namespace {

constinit std::atomic<std::uint32_t> forks{0};

#if defined(__unix__) || defined(__APPLE__)
// Not at the first use: that could be in one thread while another forks.
[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
#endif

}  // namespace

std::uint32_t process_number() noexcept { return forks.load(std::memory_order_relaxed); }

}  // namespace tenon
