// A child of fork() with a device of its own, beside the one that its parent opened.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* inherited_url = "npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&strict=1";
constexpr unsigned patience = 60;  ///< seconds that the child may take, however busy the machine

TEST_CASE("npu fork: a child may open a device of its own") {
  register_reference_backend();
  const Network network = make_network(
      {Shape({2, 32}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {linear(in[0], graph.constant("a", Shape({16, 32}, f32)))};
      },
      2);
  const std::vector<HostBuffer> inputs = network.sample(5);
  const auto expected = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
  const DevicePtr inherited = open_npu(inherited_url);
  const auto npu = backend(inherited, options_for(network));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(patience);
    const auto own = backend(open_npu(inherited_url), options_for(network));
    ::_exit(same_bits(run(network, own, inputs), expected) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const bool same = same_bits(run(network, npu, inputs), expected);
  CHECK(same);
}

}  // namespace
}  // namespace tenon::npu
