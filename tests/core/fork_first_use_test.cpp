// fork() while another thread is inside the first call of something: processes that have just
// begun to use the library. Alone in its program, whose parent process calls nothing of it.
#include "core/forked_child.hpp"
#include "core/layered_model.hpp"
#include "support/rounds.hpp"

#include <tenon/log.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace testing;

bool works() {
  log(LogLevel::info, "nobody listens");
  Session session(layered_model(), {.backends = testing::backends("cpu", 2)});
  session.bind(layered_weight_set());
  return session.forward({device(HostBuffer::zeros(Shape({3, 4}, f32)))}).size() == 1;
}

}  // namespace

TEST_CASE("fork: in the first calls of a process") {
  Random random;
  for (int i = 0; i < rounds(150); ++i) {
    const auto pause = std::chrono::microseconds(random.integer(0, 3000));
    const std::string failure = failure_in_child([&](const SharedLine& now) {
      std::vector<std::thread> first;
      for (int thread = 0; thread < 2; ++thread) {
        first.emplace_back([] { static_cast<void>(works()); });
      }
      std::this_thread::sleep_for(pause);
      now.set("a child of the first calls");
      const std::string inner = failure_in_child([&](const SharedLine&) { return works(); });
      now.set(inner.c_str());
      for (std::thread& thread : first) thread.join();
      return inner.empty() && works();
    });
    INFO("process " << i << ", fork after " << pause.count() << " us");
    REQUIRE(failure == "");
  }
}

}  // namespace tenon
