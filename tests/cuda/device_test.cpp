// The device "cuda:emulated", and what is said where there is none.
#include "emulation/emulation.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/cuda.hpp>
#include <tenon/buffer.hpp>
#include <tenon/device.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("cuda: without a device, opening one says why") {
  register_cuda_backend();
  expect_error(Errc::device_unavailable, [] { Device::open("cuda:99"); });
  expect_error(Errc::device_unavailable, [] { Device::open("cuda:first"); });
}

}  // namespace
}  // namespace tenon::testing
