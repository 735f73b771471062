#include "worker_accounts.hpp"

#include <algorithm>
#include <utility>

namespace tenon::cpu {
namespace {

using std::chrono::nanoseconds;

#if defined(__linux__)
constexpr CpuClock own_clock = CLOCK_THREAD_CPUTIME_ID;
#else
constexpr CpuClock own_clock{};
#endif

/// The time for which a thread has been running on a CPU.
nanoseconds cpu_time([[maybe_unused]] CpuClock clock) noexcept {
#if defined(__linux__)
  timespec time{};
  if (::clock_gettime(clock, &time) == 0) {
    return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
  }
#endif
  return WorkerAccount::Clock::now().time_since_epoch();  // as if it never stopped
}

}  // namespace

void WorkerAccount::close(Clock::time_point now) noexcept {
  if (balance >= nanoseconds(0)) return;
  left_out_until = now - pause_factor * balance;
  balance = nanoseconds(0);
}

WorkerAccounts::WorkerAccounts(std::span<WorkerAccount* const> workers) noexcept
    : workers_(static_cast<int>(workers.size())),
      threads_(workers_ + 1),
      booked_(cpu_time(own_clock)) {
  std::ranges::copy(workers, accounts_.begin() + 1);
}

void WorkerAccounts::remove(int thread) noexcept {
  --threads_;
  std::swap(accounts_[static_cast<std::size_t>(thread)],
            accounts_[static_cast<std::size_t>(threads_)]);
}

void WorkerAccounts::begin_wait() noexcept {
  wait_begin_ = Clock::now();
  for (int i = 1; i <= workers_; ++i) of(i).cpu_time_before = cpu_time(of(i).cpu_clock);
}

bool WorkerAccounts::end_wait(WorkerAccount& last) noexcept {
  const nanoseconds ran = cpu_time(last.cpu_clock) - last.cpu_time_before;
  const nanoseconds lost = std::max(Clock::now() - wait_begin_ - ran, nanoseconds(0));
  book_savings();
  last.balance -= lost;
  return last.balance < nanoseconds(0);
}

void WorkerAccounts::close() noexcept {
  book_savings();
  const auto now = Clock::now();
  for (int i = 1; i <= workers_; ++i) of(i).close(now);
}

void WorkerAccounts::book_savings() noexcept {
  // With even shares on n threads, each worker saves 1 / (n - 1) of the time in which the caller
  // works. Half of that is credited, since threads share memory bandwidth and wait at barriers. The
  // caller's CPU time counts: while other programs have its core, nobody saves anything.
  const nanoseconds now = cpu_time(own_clock);
  const nanoseconds saved =
      (now - booked_) / (2 * static_cast<std::int64_t>(std::max(threads_ - 1, 1)));
  for (int i = 1; i < threads_; ++i) {
    of(i).balance = std::min(of(i).balance + saved, WorkerAccount::max_balance);
  }
  booked_ = now;
}

}  // namespace tenon::cpu
