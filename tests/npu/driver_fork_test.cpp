// A child of fork() that continues to use a device its parent opened.
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <functional>
#include <optional>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr const char* fork_url = "npu://sim?mac=16x16&ocm=64KiB&acc=32KiB&strict=1";
constexpr unsigned patience = 60;  ///< seconds that a child may take, however busy the machine

bool is_forked_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code() == Errc::forked_process;
  }
  return false;
}

/// Exit status of `child` in a process of its own; -1 when it did not end by itself.
int in_a_child(const std::function<int()>& child) {
  const pid_t id = ::fork();
  REQUIRE(id >= 0);
  if (id == 0) {
    ::alarm(patience);
    ::_exit(child());
  }
  int status = 0;
  ::waitpid(id, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("npu fork: a child is told at once, its parent goes on") {
  register_reference_backend();
  const Network network = make_network(
      {Shape({1, 8, 6, 6}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {relu(conv2d(in[0], graph.constant("a", Shape({40, 8, 1, 1}, f32))))};
      },
      1);
  const std::vector<HostBuffer> inputs = network.sample(5);
  const auto expected = run(network, backend(nullptr, options_for(network, Mode::exact)), inputs);
  DevicePtr device = open_npu(fork_url);
  std::shared_ptr<const Npu> npu = backend(device, options_for(network));
  std::optional<Session> session;
  session.emplace(network.program, SessionOptions{.backends = {npu, make_backend("reference")}});
  session->bind(network.weights);
  const auto forward = [&] {
    return session->forward({inputs[0].to_device(cpu_device())})[0].to_host();
  };
  const auto is_right = [&] { return same_bits({forward()}, expected); };
  REQUIRE(is_right());

  const int wrong = in_a_child([&] {
    const bool told = is_forked_error([&] { forward(); }) &&
                      is_forked_error([&] { static_cast<void>(npu->state()); }) &&
                      is_forked_error([&] { npu->precheck(); }) &&
                      is_forked_error([&] { backend(device, options_for(network)); }) &&
                      is_forked_error([&] { device->reset(); }) &&
                      is_forked_error([&] { device->default_reg_region().read(0, true); });
    if (!told) return 1;
    // What it inherited goes without waiting for threads that it has not.
    session.reset();
    npu.reset();
    device.reset();
    // On the CPU, in the device's integers, nothing is missing.
    return same_bits(run(network, backend(nullptr, options_for(network, Mode::exact)), inputs),
                     expected)
               ? 0
               : 2;
  });
  CHECK(wrong == 0);
  CHECK(is_right());
}

}  // namespace
}  // namespace tenon::npu
