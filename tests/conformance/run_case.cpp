#include "run_case.hpp"

#include "support/op_testing.hpp"
#include "support/small_graph.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

bool is_weight(const OpCase& op_case, std::size_t input) {
  const std::string_view op = op_case.op.def()->name;
  return (op == "linear" || op == "conv2d" || op == "conv2d_integer") && input == 1;
}

/// The same bits, but that a NaN is any NaN: which of two NaNs a sum keeps depends on the order in
/// which the compiler names its operands.
bool same_bits_or_nans(const HostBuffer& a, const HostBuffer& b) {
  const std::size_t bytes = a.shape().bytes();
  if (bytes == 0 || std::memcmp(a.bytes(), b.bytes(), bytes) == 0) return true;
  if (!is_floating(a.shape().dtype())) return false;
  const std::vector<double> x = elements(a), y = elements(b);
  return std::ranges::equal(x, y, [](double one, double other) {
    return std::bit_cast<std::uint64_t>(one) == std::bit_cast<std::uint64_t>(other) ||
           (std::isnan(one) && std::isnan(other));
  });
}

}  // namespace

HostBuffer run_case(const OpCase& op_case, const std::vector<BackendPtr>& backends, Order order,
                    std::vector<PlanReport::Part>* parts) {
  Graph graph(small_graph_bytes);
  const Graph::Recording recording(graph);
  std::vector<Tensor> operands;
  std::vector<Buffer> inputs;
  std::map<std::string, Buffer> weights;
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    const HostBuffer& value = op_case.inputs[i];
    std::string name = std::to_string(i);
    name.insert(name.begin(), 'v');
    if (is_weight(op_case, i)) {
      operands.push_back(graph.constant(name, value.shape()));
      weights[name] = value.contiguous().to_device(cpu_device());
      continue;
    }
    const int rank = value.shape().rank();
    const bool turn = order != Order::dense && !is_block(value.shape().dtype()) &&
                      op_case.op.def()->traits.updates_input != static_cast<int>(i);
    if (turn && order == Order::reversed && rank > 0) {
      HostBuffer turned = HostBuffer::uninitialized(value.shape());
      HostView backwards = turned.view();
      for (int axis = 0; axis < rank; ++axis) {
        auto& step = backwards.strides[static_cast<std::size_t>(axis)];
        if (value.shape().elements() > 0) backwards.data += (value.shape()[axis] - 1) * step;
        step = -step;
      }
      if (value.shape().elements() > 0) copy_elements(value.view(), backwards);
      operands.push_back(flip(graph.input(name, turned.shape())));
      inputs.push_back(turned.to_device(cpu_device()));
      continue;
    }
    if (!turn || rank < 2) {
      operands.push_back(graph.input(name, value.shape()));
      inputs.push_back(value.contiguous().to_device(cpu_device()));
      continue;
    }
    // The input holds the axes in reverse; a permute turns them back.
    std::vector<int> axes;
    std::vector<AxisRef> back;
    for (int axis = rank - 1; axis >= 0; --axis) {
      axes.push_back(axis);
      back.emplace_back(axis);
    }
    const HostBuffer turned = value.permute(axes).contiguous();
    operands.push_back(permute(graph.input(name, turned.shape()), std::span<const AxisRef>(back)));
    inputs.push_back(turned.to_device(cpu_device()));
  }
  const Tensor result =
      record(*op_case.op.def(), op_case.op.attributes(), operands, std::source_location::current());
  Session session(graph.program({&result, 1}), {.backends = backends});
  session.bind(std::make_shared<const WeightSet>(std::move(weights)));
  std::vector<Shape> shapes;
  for (const Buffer& input : inputs) shapes.push_back(input.shape());
  if (parts != nullptr) *parts = session.report(shapes).parts;
  return session.forward(std::move(inputs)).at(0).to_host();
}

void check_on_threads(
    const OpInstance& op, const std::vector<HostBuffer>& inputs,
    const std::function<void(const HostBuffer& got, const HostBuffer& want)>& compare) {
  OpCase op_case;
  op_case.op = op;
  op_case.inputs = inputs;
  for (const Order order : {Order::dense, Order::permuted, Order::reversed}) {
    const HostBuffer want = run_case(op_case, {make_backend("reference")}, order);
    std::optional<HostBuffer> first;
    for (const int threads : {1, 2, 7}) {
      INFO(to_string(op) << " of " << to_string(inputs[0].shape()) << ", order "
                         << static_cast<int>(order) << ", " << threads << " threads");
      const HostBuffer got = run_case(op_case, {make_backend("cpu", {.threads = threads})}, order);
      REQUIRE(got.shape() == want.shape());
      if (!first) first = got;
      CHECK(same_bits_or_nans(got, *first));
      compare(got, want);
    }
  }
}

double relative_difference(const HostBuffer& got, const HostBuffer& want) {
  const HostBuffer a = got.to(f64), b = want.to(f64);
  double largest = 1e-30, apart = 0;
  for (std::size_t i = 0; i < b.values<double>().size(); ++i) {
    const double difference = std::fabs(a.values<double>()[i] - b.values<double>()[i]);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, std::fabs(b.values<double>()[i]));
    apart = std::max(apart, difference);
  }
  return apart / largest;
}

}  // namespace tenon::testing
