#include "backends/cpu/thread_pool.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include <catch2/catch.hpp>

using tenon::cpu::Barrier;
using tenon::cpu::ThreadPool;
using tenon::cpu::Worker;

namespace {

/// Has the calling thread run on one CPU, where the machine has it.
void stay_on([[maybe_unused]] int cpu) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
#endif
}

}  // namespace

TEST_CASE("thread pool: every thread of a region runs once") {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    REQUIRE(pool.threads() == threads);
    std::vector<int> calls(static_cast<std::size_t>(threads), 0);
    std::atomic<int> wrong{0};
    for (int round = 0; round < 100; ++round) {
      pool.run([&](Worker& w) {
        wrong += w.threads != threads;
        ++calls[static_cast<std::size_t>(w.thread)];
      });
    }
    CHECK(wrong == 0);
    for (const int count : calls) CHECK(count == 100);
  }
}

TEST_CASE("thread pool: sizes out of range are clamped") {
  CHECK(ThreadPool(0).threads() == ThreadPool::available_cpus());
  CHECK(ThreadPool(-5).threads() == ThreadPool::available_cpus());
  ThreadPool many(1000);
  CHECK(many.threads() <= ThreadPool::max_threads);
  std::atomic<int> ran{0};
  many.run([&](Worker&) { ++ran; });
  CHECK(ran == many.threads());
  std::atomic<int> wrong{0};
  many.run([&](Worker& w) { wrong += w.threads != 2; }, 2);
  many.run([&](Worker& w) { wrong += w.threads != 1; }, -3);
  CHECK(wrong == 0);
}

TEST_CASE("thread pool: the barrier orders what lies before and after it") {
  for (const int threads : {2, 4, 9}) {
    ThreadPool pool(threads);
    std::vector<std::int64_t> values(static_cast<std::size_t>(threads), 0);
    std::atomic<int> wrong{0};
    pool.run([&](Worker& w) {
      const auto self = static_cast<std::size_t>(w.thread);
      for (std::int64_t step = 1; step <= 300; ++step) {
        values[self] = step;
        if (!w.sync()) return;
        for (const std::int64_t v : values) wrong += v != step;
        if (!w.sync()) return;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("thread pool: shares hand out every item of every call once, to whoever is free") {
  ThreadPool pool(4);
  constexpr std::int64_t sizes[] = {1000, 3, 0, 1, 64, 777};
  std::vector<std::atomic<int>> taken(1000 * std::size(sizes));
  std::atomic<std::int64_t> helped = 0;
  for (int region = 0; region < 10; ++region) {
    pool.run([&](Worker& w) {
      for (std::size_t call = 0; call < std::size(sizes); ++call) {
        w.share(sizes[call], 2, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i)
            ++taken[1000 * call + static_cast<std::size_t>(i)];
          const tenon::cpu::Range own = tenon::cpu::split(sizes[call], w.thread, w.threads);
          if (begin < own.begin || begin >= own.end) ++helped;
          // One thread is slow, so that the others steal its work.
          if (w.thread == 2) std::this_thread::sleep_for(std::chrono::microseconds(200));
        });
      }
    });
  }
  for (std::size_t call = 0; call < std::size(sizes); ++call) {
    for (std::int64_t i = 0; i < 1000; ++i) {
      REQUIRE(taken[1000 * call + static_cast<std::size_t>(i)] == (i < sizes[call] ? 10 : 0));
    }
  }
  CHECK(helped > 0);
}

TEST_CASE("thread pool: the exception of the lowest thread reaches the caller") {
  ThreadPool pool(4);
  for (int round = 0; round < 20; ++round) {
    std::string message;
    try {
      pool.run([](Worker& w) {
        if (w.thread >= 1) throw std::runtime_error("thread " + std::to_string(w.thread));
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    REQUIRE(message == "thread 1");
  }
  int ran = 0;
  pool.run([&](Worker& w) {
    if (w.thread == 0) ++ran;
  });
  CHECK(ran == 1);
}

TEST_CASE("thread pool: a nested region runs on its caller alone") {
  ThreadPool pool(3);
  std::atomic<int> inner{0};
  pool.run([&](Worker&) { pool.run([&](Worker& w) { inner += w.threads == 1; }); });
  CHECK(inner == 3);
}

TEST_CASE("thread pool: regions of several callers run at once") {
  // Every region waits until all callers are inside theirs.
  for (const int threads : {1, 3, 8}) {
    ThreadPool pool(threads);
    constexpr int count = 4;
    std::atomic<int> inside{0}, wrong{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < count; ++i) {
      callers.emplace_back([&] {
        pool.run([&](Worker& w) {
          wrong += w.threads > std::max(threads, 1) || w.thread >= w.threads;
          if (w.thread != 0) return;
          ++inside;
          while (inside < count) std::this_thread::yield();
        });
      });
    }
    for (auto& caller : callers) caller.join();
    CHECK(inside == count);
    CHECK(wrong == 0);
  }
}

TEST_CASE("thread pool: regions of several callers do not disturb each other") {
  ThreadPool pool(4);
  std::atomic<int> wrong{0};
  std::atomic<std::int64_t> done{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      std::vector<std::atomic<int>> taken(100);
      for (int round = 1; round <= 250; ++round) {
        std::array<int, 4> phase{};
        pool.run([&](Worker& w) {
          phase[static_cast<std::size_t>(w.thread)] = round;
          if (!w.sync()) return;
          for (int t = 0; t < w.threads; ++t) wrong += phase[static_cast<std::size_t>(t)] != round;
          w.share(100, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t item = begin; item < end; ++item) {
              ++taken[static_cast<std::size_t>(item)];
              ++done;
            }
          });
        });
        for (const auto& times : taken) wrong += times != round;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(wrong == 0);
  CHECK(done == 4 * 250 * 100);
}

TEST_CASE("barrier: threads that share a CPU, or change it, cross together") {
  constexpr int threads = 3, crossings = 2000;
  std::array<tenon::cpu::SeenCpu, threads> cpus{};
  Barrier barrier(threads, true, cpus.data());
  std::array<std::atomic<int>, threads> arrived{};
  std::atomic<int> wrong{0};
  const auto body = [&](int index) {
    for (int i = 1; i <= crossings; ++i) {
      if (i % 500 == 1) stay_on(i % 1000 == 1 ? 0 : index % 2);
      arrived[static_cast<std::size_t>(index)] = i;
      barrier.wait(index);
      for (const auto& other : arrived) wrong += other < i;
      barrier.wait(index);
    }
  };
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back(body, i);
  for (std::thread& thread : all) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("thread pool: a worker that is taken out leaves its number to the last one") {
  for (const int leaving : {1, 2, 3}) {
    constexpr int threads = 4;
    tenon::cpu::Barrier barrier(threads, false);
    std::array<tenon::cpu::TakenShare, threads> shares;
    std::vector<std::atomic<int>> taken(300);
    std::array<std::atomic<int>, threads> numbers{};
    std::atomic<int> gone{-1}, wrong{0};
    const auto body = [&](int index) {
      Worker w(index, threads, barrier, shares.data());
      const auto take_all = [&](std::int64_t first) {
        w.share(100, 1, [&](std::int64_t begin, std::int64_t end) {
          for (auto i = begin; i < end; ++i) ++taken[static_cast<std::size_t>(first + i)];
        });
      };
      take_all(0);
      wrong += !w.sync();
      take_all(100);
      if (index == 0) barrier.take_out(leaving);
      if (!w.sync()) {
        gone = index;
        return;
      }
      take_all(200);
      wrong += !w.sync();
      wrong += w.threads != threads - 1 || w.id != index;
      ++numbers[static_cast<std::size_t>(w.thread)];
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(body, i);
    body(0);
    for (std::thread& other : others) other.join();
    CHECK(gone == leaving);
    CHECK(wrong == 0);
    for (const auto& times : taken) CHECK(times == 1);
    for (int i = 0; i < threads; ++i) {
      CHECK(numbers[static_cast<std::size_t>(i)] == (i < threads - 1 ? 1 : 0));
    }
  }
}

TEST_CASE("split: contiguous parts that cover everything") {
  for (const int threads : {1, 2, 7}) {
    for (const std::int64_t count : {0, 1, 5, 100}) {
      std::int64_t at = 0;
      for (int t = 0; t < threads; ++t) {
        const auto range = tenon::cpu::split(count, t, threads);
        CHECK(range.begin == at);
        CHECK(range.end - range.begin <= count / threads + 1);
        at = range.end;
      }
      CHECK(at == count);
    }
  }
}
