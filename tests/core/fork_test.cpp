// Processes that come out of fork() while the parent has backends, sessions and running threads.
#include "backends/cpu/thread_pool.hpp"
#include "base/work_queue.hpp"
#include "core/forked_child.hpp"
#include "core/layered_model.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace testing;

template <class Call>
bool is_refused(Errc code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == code;
  }
  return false;
}

class Rig {
 public:
  explicit Rig(int threads)
      : options_{.backends = testing::backends("cpu", threads)}, session_(fresh()) {
    want_ = run(session_);
  }

  Session fresh() const {
    Session made(layered_model(), options_);
    made.bind(weights_);
    return made;
  }
  Session& session() { return session_; }
  std::vector<float> run(Session& session) const { return values(session.forward({input_})[0]); }
  Buffer submit(Session& session) const { return session.submit({input_})[0]; }
  bool is_right(Session& session) const { return run(session) == want_; }
  const std::vector<float>& want() const { return want_; }

 private:
  SessionOptions options_;
  Buffer input_ = device(Random(3).uniform(Shape({300, 4}, f32)));
  std::shared_ptr<const WeightSet> weights_ = layered_weight_set();
  Session session_;
  std::vector<float> want_;
};

/// Another thread that is inside a region of a pool.
class Busy {
 public:
  explicit Busy(cpu::ThreadPool& pool)
      : thread_([this, &pool] {
          pool.run([this](cpu::Worker&) {
            ++inside_;
            while (!done_) std::this_thread::yield();
          });
        }) {
    while (inside_ == 0) std::this_thread::yield();
  }
  ~Busy() {
    done_ = true;
    thread_.join();
  }

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("fork: a pool has threads of its own in a child") {
  for (const bool is_busy : {false, true}) {
    auto pool = std::make_unique<cpu::ThreadPool>(3);
    const auto works = [&] {
      std::atomic<int> ran{0};
      pool->run([&](cpu::Worker& w) {
        ran += w.threads == 3;
        static_cast<void>(w.sync());
      });
      return ran == 3;
    };
    CHECK(works());
    {
      std::unique_ptr<Busy> busy;
      if (is_busy) busy = std::make_unique<Busy>(*pool);
      CHECK(holds_in_child([&] {
        const bool right = works() && works();
        pool.reset();
        return right;
      }));
      CHECK(holds_in_child([&] {
        pool.reset();  // without a region in the child
        return true;
      }));
      CHECK(holds_in_child([&] { return holds_in_child(works) && works(); }));
    }
    CHECK(works());
  }
}

TEST_CASE("fork: a child runs its parent's sessions and makes more") {
  for (const int threads : {1, 2, 3}) {
    Rig rig(threads);
    CHECK(holds_in_child([&] {
      Session fork = rig.session().fork(), fresh = rig.fresh();
      return rig.is_right(rig.session()) && rig.is_right(fork) && rig.is_right(fresh);
    }));
    CHECK(rig.is_right(rig.session()));
  }
}

TEST_CASE("fork: a session that ran on another thread is lost to the child, its forks are not") {
  Rig rig(2);
  Session session = rig.fresh();
  std::atomic<bool> inside{false}, done{false};
  session.set_pre_callback([&](const StepEvent&) {
    inside = true;
    while (!done) std::this_thread::yield();
  });
  std::thread runner([&] { rig.run(session); });
  while (!inside) std::this_thread::yield();
  CHECK(holds_in_child([&] {
    done = true;
    Session fork = session.fork();
    return is_refused(Errc::forked_process, [&] { rig.run(session); }) && rig.is_right(fork);
  }));
  expect_error(Errc::busy, [&] { rig.run(session); });
  done = true;
  runner.join();
  CHECK(rig.is_right(session));
}

TEST_CASE("fork: an array that threads of the parent were reading is there in a child") {
  const Buffer array = device(Random(7).uniform(Shape({4}, f32)));
  const std::vector<float> want = values(array);
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      while (!done) array.wait();
    });
  }
  for (int i = 0; i < 50; ++i) CHECK(holds_in_child([&] { return values(array) == want; }));
  done = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_CASE("fork: a queue of whose last job the end is known has a thread of its own in a child") {
  std::atomic<bool> told{false}, done{false};
  EventSource ended;
  WorkQueue queue("queue");
  ended.event().then([&] {
    told = true;
    while (!done) std::this_thread::yield();
  });
  queue.push([] {}, std::move(ended));
  while (!told) std::this_thread::yield();
  CHECK(holds_in_child([&] {
    EventSource next;
    const Event event = next.event();
    queue.push([] {}, std::move(next));
    event.wait();
    return true;
  }));
  done = true;
}

TEST_CASE("fork: a child submits runs of its own, and does not get those of its parent") {
  Rig rig(2);
  const auto submits = [&](Session& session) { return values(rig.submit(session)) == rig.want(); };
  Session ended = rig.fresh();
  CHECK(submits(ended));
  Session held = rig.fresh();
  std::atomic<bool> done{false};
  held.set_pre_callback([&](const StepEvent&) {
    while (!done) std::this_thread::yield();
  });
  const Buffer pending = rig.submit(held);
  CHECK(holds_in_child([&] {
    done = true;
    Session fork = held.fork();
    return submits(ended) && submits(fork) && rig.is_right(ended) &&
           is_refused(Errc::forked_process, [&] { pending.wait(); }) &&
           is_refused(Errc::forked_process, [&] { rig.run(held); }) &&
           is_refused(Errc::forked_process, [&] { rig.submit(held); });
  }));
  done = true;
  CHECK(values(pending) == rig.want());
  CHECK(submits(held));
}

}  // namespace tenon
