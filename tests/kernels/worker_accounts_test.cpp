#include "backends/cpu/worker_accounts.hpp"

#include <array>
#include <chrono>
#include <ctime>
#include <thread>

#include <catch2/catch.hpp>
#include <pthread.h>

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using tenon::cpu::WorkerAccount;
using tenon::cpu::WorkerAccounts;
using Clock = WorkerAccount::Clock;

namespace {

nanoseconds own_cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

void work_for(nanoseconds time) {
  const nanoseconds begin = own_cpu_time();
  while (own_cpu_time() - begin < time) {
  }
}

/// An account of the thread that runs the test, which stands for the worker that is waited for.
WorkerAccount own_account() {
  WorkerAccount account;
  ::pthread_getcpuclockid(::pthread_self(), &account.cpu_clock);
  return account;
}

}  // namespace

TEST_CASE("worker accounts: a worker that does not run is left out for 20 times what it lost") {
  WorkerAccount account = own_account();
  std::array<WorkerAccount*, 1> workers{&account};
  WorkerAccounts accounts(workers);
  const auto begin = Clock::now();
  accounts.begin_wait();
  std::this_thread::sleep_for(5ms);
  const bool is_left_out = accounts.end_wait(account);
  if (Clock::now() - begin > 8ms) {
    WARN("not checked: on this busy machine 5 ms of sleep took longer");
    return;
  }
  CHECK_FALSE(is_left_out);  // several time slices are tolerated
  accounts.begin_wait();
  std::this_thread::sleep_for(25ms);
  CHECK(accounts.end_wait(account));
  const nanoseconds lost = -account.balance;
  CHECK(lost > 9ms);
  const auto before = Clock::now();
  accounts.close();
  CHECK(account.balance == 0ns);
  CHECK(account.left_out_until >= before + 20 * (lost - 1ms));
  CHECK(account.left_out_until <= Clock::now() + 20 * lost);
}

TEST_CASE("worker accounts: waiting for a worker that runs costs it nothing") {
  WorkerAccount account = own_account();
  std::array<WorkerAccount*, 1> workers{&account};
  WorkerAccounts accounts(workers);
  const auto begin = Clock::now();
  const nanoseconds cpu_begin = own_cpu_time();
  accounts.begin_wait();
  work_for(60ms);
  accounts.end_wait(account);
  const nanoseconds off_cpu = Clock::now() - begin - (own_cpu_time() - cpu_begin);
  CHECK(account.balance >= WorkerAccount::max_balance - off_cpu - 1ms);
}

TEST_CASE("worker accounts: what a worker saves makes up for what it loses") {
  WorkerAccount first = own_account(), second = own_account();
  first.balance = second.balance = 0ns;
  std::array<WorkerAccount*, 2> workers{&first, &second};
  WorkerAccounts accounts(workers);
  work_for(40ms);  // each of two workers saves half of that, of which half is credited
  const auto begin = Clock::now();
  accounts.begin_wait();
  std::this_thread::sleep_for(2ms);
  const bool is_left_out = accounts.end_wait(second);
  if (Clock::now() - begin > 5ms) {
    WARN("not checked: on this busy machine 2 ms of sleep took longer");
    return;
  }
  CHECK_FALSE(is_left_out);
  CHECK(first.balance >= 10ms);
  CHECK(first.balance < 12ms);
  CHECK(second.balance < first.balance - 1ms);
  accounts.remove(1);  // the second takes the number of the first
  CHECK(&accounts.of(1) == &second);
  accounts.close();
  CHECK(second.left_out_until == Clock::time_point());
}

TEST_CASE("worker accounts: nobody saves anything while the caller does not run") {
  WorkerAccount account = own_account();
  account.balance = 0ns;
  std::array<WorkerAccount*, 1> workers{&account};
  WorkerAccounts accounts(workers);
  std::this_thread::sleep_for(20ms);  // as if other programs had its core
  accounts.close();
  CHECK(account.balance < 1ms);
}
