// Prints the softmax of (0, 0), computed by the reference backend.
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/softmax.hpp>
#include <tenon/session.hpp>

#include <cstdio>
#include <vector>

int main() {
  using namespace tenon;
  register_reference_backend();
  Graph graph;
  const Program program = graph.program(std::vector{softmax(graph.input("x", Shape({2}, f32)))});
  Session session(program, {.backends = {make_backend("reference")}});
  const std::vector<Buffer> x = {HostBuffer::zeros(Shape({2}, f32)).to_device(cpu_device())};
  const HostBuffer y = session.forward(x).front().to_host();
  std::printf("%g %g\n", y.at({0}), y.at({1}));
}
