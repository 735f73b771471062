// One op on a device, against the reference.
#pragma once

#include "cases.hpp"
#include "emulated.hpp"
#include "run_case.hpp"
#include "support/op_testing.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {

/// With operands that lie in every order, twice, with the same bits.
inline void check_op(const OpInstance& op, const std::vector<HostBuffer>& inputs, double allowed,
                     const BackendOptions& options = {}) {
  const OpCase one{.name = std::string(op.def()->name),
                   .op = op,
                   .inputs = inputs,
                   .output = run_reference(op, inputs)};
  const double scale = std::max(1.0, largest(one.output));
  const std::vector<BackendPtr> backends = device_backends(test_device(), options);
  for (const Order order : {Order::dense, Order::permuted, Order::reversed}) {
    INFO(one.name << ", order " << static_cast<int>(order) << ", " << to_string(inputs[0].shape()));
    const HostBuffer got = run_case(one, backends, order);
    expect_close(got, one.output, allowed * scale, allowed);
    const HostBuffer again = run_case(one, backends, order);
    CHECK(std::memcmp(got.bytes(), again.bytes(), static_cast<std::size_t>(got.shape().bytes())) ==
          0);
  }
}

template <OpStruct Op>
void check_on_device(const Op& op, const std::vector<HostBuffer>& inputs, double allowed = 1e-4) {
  check_op(OpInstance(op), inputs, allowed);
}

}  // namespace tenon::testing
