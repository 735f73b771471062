// Several host threads on one backend: each gets what it would get alone.
#include "core/runs.hpp"
#include "core/small_model.hpp"
#include "support/op_testing.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {

TEST_CASE("forks on threads of their own give every byte that one alone gives") {
  using namespace testing;
  register_cpu_backend();
  for (const int threads : {1, 2, 4}) {
    Session session(small_model(), {.backends = {make_backend("cpu", {.threads = threads})}});
    session.bind(std::make_shared<const WeightSet>(small_weights()));
    std::vector<Buffer> inputs;
    std::vector<std::vector<HostBuffer>> want;
    Random random(5);
    for (const std::int64_t rows : {1, 5}) {
      inputs.push_back(device(random.uniform(Shape({rows, small_model_width}, f32))));
      auto& results = want.emplace_back();
      for (const Buffer& output : session.forward({inputs.back()})) {
        results.push_back(output.to_host());
      }
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&, caller] {
        Session own = session.fork();
        for (int i = 0; i < 1000; ++i) {
          const auto which = static_cast<std::size_t>(caller + i) % inputs.size();
          const std::vector<Buffer> got = own.forward({inputs[which]});
          for (std::size_t o = 0; o < got.size(); ++o) {
            wrong += !same_bits(got[o].to_host(), want[which][o]);
          }
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    CAPTURE(threads);
    CHECK(wrong == 0);
  }
}

}  // namespace tenon
