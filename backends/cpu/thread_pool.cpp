#include "thread_pool.hpp"

#include "integer_math.hpp"
#include "worker_accounts.hpp"

#include <tenon/process_number.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace tenon::cpu {
namespace {

// True inside a region of any pool: a nested region runs on its own thread.
thread_local bool inside_region = false;

class InsideRegion {
 public:
  InsideRegion() noexcept : outer_(std::exchange(inside_region, true)) {}
  ~InsideRegion() { inside_region = outer_; }
  InsideRegion(const InsideRegion&) = delete;
  InsideRegion& operator=(const InsideRegion&) = delete;

 private:
  bool outer_;
};

}  // namespace

bool Worker::sync() noexcept {
  if (threads == 1) return true;
  int late = barrier_.wait(thread, accounts_);
  if (late == threads) late = -1;  // one that has left already
  if (const int left = barrier_.left(); left >= 0) {
    --threads;
    if (left == thread) {
      barrier_.leave(threads);
      return false;
    }
    // The last thread takes over the number of the one that left.
    if (thread == threads) thread = left;
    if (late == left) {
      late = -1;
    } else if (late == threads) {
      late = left;
    }
    if (accounts_ != nullptr) accounts_->remove(left);
  }
  if (late >= 0) barrier_.take_out(late);
  return true;
}

bool Worker::take(int owner, std::int64_t items, std::int64_t grain, Range& range) noexcept {
  const Range all = split(items, owner, threads);
  std::atomic<std::uint64_t>& taken = shares_[owner].of_call;
  std::uint64_t seen = taken.load(std::memory_order_relaxed);
  while (true) {
    // If the owner is at a later call, nothing was left here; if it is at an earlier one, it has
    // taken nothing.
    const auto ahead = static_cast<std::int32_t>(static_cast<std::uint32_t>(seen >> 32) - calls_);
    if (ahead > 0) return false;
    const std::int64_t before = ahead < 0 ? 0 : static_cast<std::int64_t>(seen & 0xFFFFFFFFu);
    range.begin = all.begin + before;
    if (range.begin >= all.end) return false;
    const std::int64_t left = all.end - range.begin;
    // Nobody steals from a lone thread. Who may be interrupted takes little at a time.
    const std::int64_t part = threads == 1 ? left : left / 2;
    const std::int64_t most = interrupt == nullptr ? items : ceil_div(items, looks_per_call);
    range.end = range.begin + std::min(left, std::max(grain, std::min(part, most)));
    const auto after = static_cast<std::uint64_t>(range.end - all.begin);
    // The items' own data is ordered by barriers.
    if (taken.compare_exchange_weak(seen, std::uint64_t{calls_} << 32 | after,
                                    std::memory_order_relaxed)) {
      return true;
    }
  }
}

struct ThreadPool::State {
  // Memory of a region, owned by the slot of its first worker: threads access it until they are
  // back in `work`.
  struct Region {
    Trampoline call = nullptr;
    void* function = nullptr;
    int threads = 1;
    std::optional<Barrier> barrier;
    std::vector<TakenShare> shares;
    std::vector<SeenCpu> cpus;
    alignas(64) std::atomic<std::int32_t> unfinished{0};
    std::atomic<WorkerAccount*> last{nullptr};  // of the worker that finished last
  };
  // A worker sleeps on its own word, so a region of few threads wakes only those.
  struct alignas(64) Slot {
    std::atomic<std::int32_t> generation{0};
    std::atomic<bool> taken{true};  // by a caller, until the thread has been started by none
    Region* region = nullptr;
    int number = 0;  // of the worker in its region
    WorkerAccount account;
    std::exception_ptr error;
    std::thread thread;
    Region own_region;
  };

  std::uint32_t process = process_number();
  std::vector<Slot> slots;  // one per worker
  bool spins;
  std::atomic<bool> stopping{false};
  std::unique_ptr<State> of_parent;  // a process: its threads do not exist in this one
  alignas(64) std::atomic<int> callers{0};

  explicit State(int threads);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int workers() const noexcept;
  void work(Slot& slot) noexcept;
  static void wake(Slot& slot) noexcept;
  static void run_body(Region& region, int number, WorkerAccounts* accounts);
};

ThreadPool::State::State(int threads)
    : slots(static_cast<std::size_t>(threads - 1)), spins(threads <= available_cpus()) {
  try {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      Slot& slot = slots[i];
      slot.own_region.shares = std::vector<TakenShare>(1 + slots.size() - i);
      slot.own_region.cpus = std::vector<SeenCpu>(1 + slots.size() - i);
      for (SeenCpu& seen : slot.own_region.cpus) seen.store(-1, std::memory_order_relaxed);
      slot.thread = std::thread([this, &slot] { work(slot); });
#if defined(__linux__)
      ::pthread_getcpuclockid(slot.thread.native_handle(), &slot.account.cpu_clock);
#endif
      slot.taken.store(false, std::memory_order_release);
    }
  } catch (const std::system_error&) {
    // Fewer threads than asked for.
  } catch (const std::bad_alloc&) {
    // The same.
  }
}

ThreadPool::State::~State() {
  const bool has_threads = process == process_number();
  stopping.store(true, std::memory_order_relaxed);
  for (Slot& slot : slots) {
    if (!slot.thread.joinable()) continue;
    if (has_threads) {
      wake(slot);
      slot.thread.join();
    } else {
      ::new (&slot.thread) std::thread();  // its destructor would end the process
    }
  }
}

int ThreadPool::State::workers() const noexcept {
  return static_cast<int>(
      std::ranges::count_if(slots, [](const Slot& slot) { return slot.thread.joinable(); }));
}

void ThreadPool::State::work(Slot& slot) noexcept {
  for (std::int32_t seen = 0;; ++seen) {
    if (!spins || !spin_while_equal(slot.generation, seen)) {
      park_while_equal(slot.generation, seen);
    }
    if (stopping.load(std::memory_order_relaxed)) return;
    Region& region = *slot.region;
    try {
      run_body(region, slot.number, nullptr);
    } catch (...) {
      slot.error = std::current_exception();
    }
    region.last.store(&slot.account, std::memory_order_relaxed);
    if (region.unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      region.unfinished.notify_one();
    }
  }
}

void ThreadPool::State::wake(Slot& slot) noexcept {
  slot.generation.fetch_add(1, std::memory_order_release);
  slot.generation.notify_one();
}

void ThreadPool::State::run_body(Region& region, int number, WorkerAccounts* accounts) {
  const InsideRegion inside;
  Worker worker(number, region.threads, *region.barrier, region.shares.data(), accounts);
  region.call(region.function, worker);
}

/// Workers of a pool for one region; given back at the end.
class ThreadPool::Team {
 public:
  /// At most `limit` workers. Without `tries_all`, none that are left out at `now`.
  Team(State& state, int limit, bool tries_all, WorkerAccount::Clock::time_point now) noexcept {
    for (State::Slot& slot : state.slots) {
      if (size_ == limit) break;
      if (slot.taken.load(std::memory_order_relaxed) ||
          slot.taken.exchange(true, std::memory_order_acquire)) {
        continue;
      }
      if (!tries_all && slot.account.left_out_until > now) {
        slot.taken.store(false, std::memory_order_release);
      } else {
        slots_[static_cast<std::size_t>(size_)] = &slot;
        accounts_[static_cast<std::size_t>(size_++)] = &slot.account;
      }
    }
  }
  ~Team() {
    for (State::Slot* slot : slots()) slot->taken.store(false, std::memory_order_release);
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  std::span<State::Slot* const> slots() const noexcept { return {slots_.data(), size()}; }
  std::span<WorkerAccount* const> accounts() const noexcept { return {accounts_.data(), size()}; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }

 private:
  int size_ = 0;
  std::array<State::Slot*, max_threads> slots_;
  std::array<WorkerAccount*, max_threads> accounts_;
};

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = available_cpus();
  auto state = std::make_unique<State>(std::min(threads, max_threads));
  threads_ = 1 + state->workers();
  state_.store(state.release(), std::memory_order_relaxed);
}

ThreadPool::~ThreadPool() { delete state_.load(std::memory_order_relaxed); }

ThreadPool::State& ThreadPool::state() {
  State* current = state_.load(std::memory_order_acquire);
  if (current->process == process_number()) return *current;
  // No lock: whoever is first wins.
  auto fresh = std::make_unique<State>(threads_);
  if (!state_.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel)) {
    return *current;
  }
  fresh->of_parent.reset(current);  // until the end: another thread may be looking at it
  return *fresh.release();
}

void ThreadPool::run_alone(Trampoline call, void* function) {
  const InsideRegion inside;
  Barrier barrier(1, false);
  TakenShare share;
  Worker worker(0, 1, barrier, &share);
  call(function, worker);
}

void ThreadPool::run_erased(Trampoline call, void* function, int limit, bool elastic) {
  if (inside_region || std::min(threads_, limit) <= 1) return run_alone(call, function);
  State& s = state();
  elastic = elastic && s.spins;  // more threads than cores wait for each other as it is
  struct Caller {
    std::atomic<int>& callers;
    const int number = callers.fetch_add(1, std::memory_order_relaxed) + 1;
    ~Caller() { callers.fetch_sub(1, std::memory_order_relaxed); }
  } const caller{s.callers};
  const auto now = WorkerAccount::Clock::now();
  const Team team(s, std::min(threads_ / caller.number, limit) - 1, !elastic, now);
  if (team.size() == 0) return run_alone(call, function);

  State::Region& region = team.slots().front()->own_region;
  const int workers = static_cast<int>(team.size());
  region.call = call;
  region.function = function;
  region.threads = 1 + workers;
  region.barrier.emplace(region.threads, s.spins, region.cpus.data());
  for (TakenShare& share : std::span(region.shares).first(1 + team.size())) {
    share.of_call.store(0, std::memory_order_relaxed);
  }
  region.unfinished.store(workers, std::memory_order_relaxed);
  std::optional<WorkerAccounts> accounts;
  if (elastic) accounts.emplace(team.accounts());
  for (int number = 0; State::Slot* const slot : team.slots()) {
    slot->region = &region;
    slot->number = ++number;
    State::wake(*slot);
  }
  std::exception_ptr error;
  try {
    State::run_body(region, 0, accounts ? &*accounts : nullptr);
  } catch (...) {
    error = std::current_exception();
  }
  for (std::int32_t left; (left = region.unfinished.load(std::memory_order_acquire)) != 0;) {
    if (s.spins && spin_while_equal(region.unfinished, left)) continue;
    if (accounts) accounts->begin_wait();
    park_while_equal(region.unfinished, left);
    if (accounts) accounts->end_wait(*region.last.load(std::memory_order_relaxed));
  }
  if (accounts) accounts->close();
  for (State::Slot* const slot : team.slots()) {
    const std::exception_ptr of_worker = std::exchange(slot->error, nullptr);
    if (!error) error = of_worker;
  }
  if (error) std::rethrow_exception(error);
}

int ThreadPool::available_cpus() noexcept {
  // No static local of the answer: its lock would stay locked in the child of a fork() in the
  // middle.
  static constinit std::atomic<int> known{0};
  if (const int count = known.load(std::memory_order_relaxed)) return count;
  const int count = [] {
#if defined(__linux__)
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }();
  known.store(count, std::memory_order_relaxed);
  return count;
}

}  // namespace tenon::cpu
