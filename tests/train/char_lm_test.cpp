// The character model of examples/train_lm.cpp follows PyTorch's loss, step by step.
#include "../../examples/char_lm.hpp"

#include <tenon/tenon.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <tuple>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr std::int64_t batch = 4, context = 32, vocabulary = 96;

/// The same characters as batch() in python/tests/train_lm_reference.py.
HostBuffer ids_of(std::int64_t step) {
  HostBuffer ids = HostBuffer::uninitialized(Shape({batch, context + 1}, i32));
  const auto values = ids.mutable_values<std::int32_t>();
  std::size_t next = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t <= context; ++t) {
      const std::int64_t mixed = (17 * (step % 3) + 31 * b + t) * (t + 3 * b + 1) + t * t / 3;
      values[next++] = static_cast<std::int32_t>(mixed % vocabulary);
    }
  }
  return ids;
}

TEST_CASE("train: a character model follows PyTorch's loss for 20 steps") {
  const char_lm::Sizes sizes{
      .vocabulary = vocabulary, .context = context, .width = 32, .layers = 2, .heads = 4};
  const DevicePtr device = cpu_device();
  auto net = train::initialize(char_lm::shapes(sizes), 5, device, char_lm::initial);
  if (const char* path = std::getenv("TENON_CHAR_LM_WEIGHTS")) train::save(path, net);
  const char_lm::Training training;
  auto state = training.optimizer.start(net, device);
  const Buffer rate = train::scalar(3e-3, f32, device);
  auto step = compile<&char_lm::Training::step>(training,
                                                {char_lm::shapes(sizes), train::shapes_of(state),
                                                 ids_of(0).shape(), rate.shape()},
                                                device)
                  .bind(training);
  std::ifstream losses("tests/train/data/char_lm_losses.txt");
  REQUIRE(losses);
  for (std::int64_t i = 0; i < 20; ++i) {
    double want = 0;
    REQUIRE(losses >> want);
    Buffer loss;
    std::tie(net, state, loss) =
        step(std::move(net), std::move(state), ids_of(i).to_device(device), rate);
    INFO("step " << i);
    const auto got = static_cast<double>(loss.to_host().values<float>()[0]);
    CHECK(std::fabs(got - want) < 1e-4);
  }
}

}  // namespace
}  // namespace tenon::testing
