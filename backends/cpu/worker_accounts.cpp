#include "worker_accounts.hpp"

#include <algorithm>
#include <utility>

namespace tenon::cpu {
namespace {

using std::chrono::nanoseconds;

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

WorkerAccounts::WorkerAccounts(std::span<WorkerAccount* const> workers,
                               Clock::time_point now) noexcept
    : workers_(static_cast<int>(workers.size())), threads_(workers_ + 1), booked_(now) {
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
  const auto now = Clock::now();
  const nanoseconds ran = cpu_time(last.cpu_clock) - last.cpu_time_before;
  const nanoseconds lost = std::max(now - wait_begin_ - ran, nanoseconds(0));
  book_savings(now, lost);
  last.balance -= lost;
  return last.balance < nanoseconds(0);
}

void WorkerAccounts::close() noexcept {
  const auto now = Clock::now();
  book_savings(now, nanoseconds(0));
  for (int i = 1; i <= workers_; ++i) of(i).close(now);
}

void WorkerAccounts::book_savings(Clock::time_point now, nanoseconds lost) noexcept {
  // With even shares on n threads, each worker saves 1 / (n - 1) of the region's time. Half of that
  // is credited, since threads share memory bandwidth and wait at barriers.
  const nanoseconds saved =
      (now - booked_ - lost) / (2 * static_cast<std::int64_t>(std::max(threads_ - 1, 1)));
  for (int i = 1; i < threads_; ++i) {
    of(i).balance = std::min(of(i).balance + saved, WorkerAccount::max_balance);
  }
  booked_ = now;
}

}  // namespace tenon::cpu
