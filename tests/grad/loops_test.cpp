// Gradients through loops: those of the same steps written one after another, by a loop.
#include "grad/run_session.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/control.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/optimize.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

using Tensors = std::vector<Tensor>;
using Carry = std::pair<Tensor, Tensor>;

/// carry = body(index, carry), `count` times: as a loop, or one after another.
template <class State, class Body>
State take_steps(bool as_loop, std::int64_t count, State carry, Body&& body) {
  if (as_loop) return tenon::repeat(count, carry, body);
  for (std::int64_t i = 0; i < count; ++i) {
    carry = body(tenon::full(static_cast<double>(i), Shape({}, i64)), carry);
  }
  return carry;
}

/// Records a loss from inputs, with its loops as loops or written out.
using LoopLoss = std::function<Tensor(const Tensors& inputs, bool as_loop)>;

struct RecordedLoop {
  Program program;
  std::size_t instructions = 0;  ///< of all functions
};

RecordedLoop record_gradients(const std::vector<Shape>& shapes, const LoopLoss& make_loss,
                              bool as_loop) {
  Graph graph;
  const Graph::Recording recording(graph);
  Tensors inputs, parameters;
  for (const Shape& shape : shapes) {
    inputs.push_back(graph.input("", shape));
    if (is_floating(shape.dtype())) parameters.push_back(inputs.back());
  }
  const Tensor loss = make_loss(inputs, as_loop);
  Tensors results{loss};
  for (const Tensor& gradient : grad(loss, parameters)) results.push_back(gradient);
  RecordedLoop made{graph.program(results), 0};
  for (const Function& function : made.program.functions) {
    made.instructions += function.body.size();
  }
  return made;
}

/// LoopLoss and gradients by every input, of the loop on the reference and on the CPU, optimised or
/// not, are those of the steps written out.
void expect_same_gradients(const std::vector<Shape>& shapes, const LoopLoss& make_loss,
                           const std::vector<HostBuffer>& values, double tolerance = 1e-5) {
  register_cpu_backend();
  register_reference_backend();
  const Program expected_of = record_gradients(shapes, make_loss, false).program;
  Session written_out(expected_of, {.backends = {make_backend("reference", {})}});
  const std::vector<HostBuffer> expected = run_session(written_out, values);
  Program made = record_gradients(shapes, make_loss, true).program;
  INFO(print(made));
  for (const bool is_optimised : {false, true}) {
    if (is_optimised) optimize(made);
    for (const char* const backend : {"reference", "cpu"}) {
      Session session(made, {.backends = {make_backend(backend, {.threads = 2})}});
      const std::vector<HostBuffer> got = run_session(session, values);
      for (std::size_t i = 0; i < got.size(); ++i) {
        INFO(backend << ", result " << i << (is_optimised ? ", optimised" : ""));
        expect_close(got[i], expected[i], tolerance, tolerance);
      }
    }
  }
}

std::vector<HostBuffer> loop_inputs(const std::vector<Shape>& shapes, std::uint32_t seed = 1) {
  Random random(seed);
  std::vector<HostBuffer> values;
  for (const Shape& shape : shapes) values.push_back(random.uniform(shape));
  return values;
}

void expect_same_gradients(const std::vector<Shape>& shapes, const LoopLoss& make_loss) {
  expect_same_gradients(shapes, make_loss, loop_inputs(shapes));
}

}  // namespace

TEST_CASE("grad: through a loop, of what it carries and of outer values") {
  expect_same_gradients({Shape({2, 3}, f32), Shape({3, 3}, f32), Shape({3}, f32)},
                        [](const Tensors& in, bool as_loop) {
                          const Tensor y = take_steps(
                              as_loop, 5, in[0], [&](const Tensor& index, const Tensor& x) {
                                const Tensor step = cast(index, f32) * 0.1F;
                                return tanh(matmul(x, in[1]) + in[2] * step) + sin(x) * in[2];
                              });
                          return sum(y * y);
                        });
}

TEST_CASE("grad: through a loop, of slices that its iterations read") {
  expect_same_gradients(
      {Shape({4, 2, 3}, f32), Shape({2, 3}, f32), Shape({4, 3}, f32), Shape({5, 3}, f32)},
      [](const Tensors& in, bool as_loop) {
        const Tensor y = take_steps(as_loop, 4, in[1], [&](const Tensor& index, const Tensor& x) {
          // A slice alone, one beside the whole, and two of the same value.
          const Tensor next = add(index, full(1, Shape({}, i64)));
          return tanh(x * select(in[0], index) + select(in[2], index) + sum(in[2], 0) +
                      select(in[3], index) * select(in[3], next));
        });
        return sum(exp(y));
      });
}

TEST_CASE("grad: through a scan, of its inputs, its state and what its steps share") {
  const std::vector<Shape> shapes{Shape({6, 2, 3}, f32), Shape({2, 4}, f32), Shape({2, 4}, f32),
                                  Shape({16, 3}, f32), Shape({16, 4}, f32)};
  expect_same_gradients(shapes, [](const Tensors& in, bool as_loop) {
    const auto cell = [&](const Carry& state, const Tensor& x) {
      const Tensor gates = linear(x, in[3]) + linear(state.first, in[4]);
      const Tensors part = split(gates, {4, 4, 4, 4}, -1);
      const Tensor c = sigmoid(part[1]) * state.second + sigmoid(part[0]) * tanh(part[2]);
      const Tensor h = sigmoid(part[3]) * tanh(c);
      return std::pair<Carry, Tensor>({h, c}, h);
    };
    if (as_loop) {
      const auto [last, outputs] = scan(Carry{in[1], in[2]}, in[0], cell);
      return sum(outputs * outputs) + sum(last.second);
    }
    Carry state{in[1], in[2]};
    Tensor loss;
    for (int i = 0; i < 6; ++i) {
      const Tensor x = squeeze(slice(in[0], 0, i, i + 1), 0);
      const auto [next, output] = cell(state, x);
      state = next;
      loss = loss.is_empty() ? sum(output * output) : loss + sum(output * output);
    }
    return loss + sum(state.second);
  });
}

TEST_CASE("grad: the backward pass of a loop does not grow with its iterations") {
  const auto made = [](std::int64_t count, bool as_loop) {
    return record_gradients(
               {Shape({2, 3}, f32), Shape({3, 3}, f32)},
               [&](const Tensors& in, bool loop) {
                 return sum(take_steps(loop, count, in[0], [&](const Tensor&, const Tensor& x) {
                   return tanh(matmul(x, in[1]));
                 }));
               },
               as_loop)
        .instructions;
  };
  CHECK(made(1000, true) == made(3, true));
  CHECK(made(40, false) > made(3, false));
}

TEST_CASE("grad: weights that the steps of a loop share get one product of all steps") {
  const LoopLoss loss = [](const Tensors& in, bool as_loop) {
    const Tensor y = take_steps(as_loop, 7, in[0], [&](const Tensor&, const Tensor& x) {
      return tanh(linear(x, in[1], in[2]) + matmul(x, in[3]));
    });
    return sum(y * y);
  };
  // Rows [2, 5] of x by weights [6, 6]; rows that are too many to be stacked.
  for (const std::int64_t rows : {1, 5, 40}) {
    const std::vector<Shape> shapes{Shape({2, rows, 6}, f32), Shape({6, 6}, f32), Shape({6}, f32),
                                    Shape({6, 6}, f32)};
    expect_same_gradients(shapes, loss, loop_inputs(shapes), 1e-4);
    const Program program = record_gradients(shapes, loss, true).program;
    int products = 0, inside = 0;
    for (const Function& function : program.functions) {
      for (const Instruction& instruction : function.body) {
        if (instruction.op.as<Matmul>() == nullptr) continue;
        const std::optional<Shape>& shape = function.values[instruction.result].shape;
        if (!shape || shape->rank() != 2 || (*shape)[0] != 6) continue;
        ++products;
        inside += &function == program.find("forward") ? 0 : 1;
      }
    }
    CHECK(products == 2);
    CHECK(inside == (rows > 32 ? 2 : 0));
  }
}

TEST_CASE("grad: weights of a loop that its values end, whose other steps add nothing") {
  register_cpu_backend();
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({2, 3}, f32)), w = graph.input("w", Shape({3, 3}, f32));
  const auto body = [&](const Tensor& now) { return matmul(now, w); };
  const auto goes_on = [](const Tensor& now) { return lt(sum(now), scalar_like(sum(now), 20)); };
  const Tensor y = while_loop(x, goes_on, body, 9);
  const Tensor twice = body(body(x));
  Tensors results = grad(sum(y * y), Tensors{x, w});
  for (const Tensor& g : grad(sum(twice * twice), Tensors{x, w})) results.push_back(g);
  Session session(graph.program(results), {.backends = default_backends()});
  // The sum of 6 ones, doubled until it passes 20.
  const HostBuffer ones = HostBuffer::of(Shape({2, 3}, f32), {1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F});
  const HostBuffer factors =
      HostBuffer::of(Shape({3, 3}, f32), {1.0F, 1.0F, 0.0F, 0.0F, 1.0F, 1.0F, 1.0F, 0.0F, 1.0F});
  for (int run = 0; run < 2; ++run) {
    const std::vector<HostBuffer> got = run_session(session, {ones, factors});
    for (std::size_t i = 0; i < 2; ++i) expect_close(got[i], got[i + 2], 1e-6, 1e-6);
  }
  const std::vector<HostBuffer> none = run_session(
      session, {HostBuffer::of(Shape({2, 3}, f32), {9.0F, 9.0F, 9.0F, 9.0F, 9.0F, 9.0F}), factors});
  CHECK(elements(none[1]) == std::vector<double>(9, 0.0));
}

TEST_CASE("grad: through a loop that never runs, and of one that runs once") {
  for (const std::int64_t count : {0, 1}) {
    expect_same_gradients(
        {Shape({2, 3}, f32), Shape({2, 3}, f32)}, [&](const Tensors& in, bool as_loop) {
          const Tensor y = take_steps(as_loop, count, in[0], [&](const Tensor&, const Tensor& x) {
            return exp(x) * in[1];
          });
          return sum(y * in[1]);
        });
  }
}

TEST_CASE("grad: through loops inside loops") {
  const std::vector<Shape> shapes{Shape({3}, f32), Shape({3, 3}, f32), Shape({4, 3}, f32)};
  expect_same_gradients(shapes, [](const Tensors& in, bool as_loop) {
    const Tensor y = take_steps(as_loop, 3, in[0], [&](const Tensor& i, const Tensor& outer) {
      const Tensor inner = take_steps(as_loop, 4, outer, [&](const Tensor& j, const Tensor& x) {
        return tanh(linear(x, in[1]) + select(in[2], j) + outer);
      });
      return inner * cos(outer) + select(in[2], i) * inner;
    });
    return sum(y * y);
  });
}

TEST_CASE("grad: second gradients through loops") {
  const std::vector<Shape> shapes{Shape({3}, f32), Shape({3, 3}, f32), Shape({4, 3}, f32)};
  expect_same_gradients(
      shapes,
      [](const Tensors& in, bool as_loop) {
        const Tensor y = take_steps(as_loop, 4, in[0], [&](const Tensor& i, const Tensor& x) {
          return tanh(linear(x, in[1]) + select(in[2], i) * x);
        });
        const Tensors first = grad(sum(y * y), in);
        Tensor loss;
        for (const Tensor& g : first) {
          const Tensor part = sum(g * sin(g));
          loss = loss.is_empty() ? part : loss + part;
        }
        return loss;
      },
      loop_inputs(shapes), 1e-4);
}

TEST_CASE("grad: second gradients through loops by one of the values that they read") {
  const std::vector<Shape> shapes{Shape({3}, f32), Shape({3}, f32)};
  for (const bool by_values : {false, true}) {
    INFO((by_values ? "a loop that its values end" : "a loop of known length"));
    expect_same_gradients(
        shapes,
        [by_values](const Tensors& in, bool as_loop) {
          const auto step = [&](const Tensor& now) { return tanh(now * in[1]) + 0.5 * in[0]; };
          const Tensor limit = scalar_like(sum(in[0]), 2.5);
          Tensor y;
          if (by_values && as_loop) {
            y = while_loop(
                    Carry(sum(in[0]) * 0.0, in[0]),
                    [&](const Carry& now) { return lt(now.first, limit); },
                    [&](const Carry& now) { return Carry(now.first + 1.0, step(now.second)); }, 8)
                    .second;
          } else {
            y = take_steps(as_loop, 3, in[0],
                           [&](const Tensor&, const Tensor& now) { return step(now); });
          }
          const Tensor once = grad(sum(y * y), in[0]);
          return sum(once * once) + sum(in[0] * in[1]);
        },
        loop_inputs(shapes), 1e-4);
  }
}

TEST_CASE("grad: inside of a loop, which descends") {
  expect_same_gradients(
      {Shape({4}, f32), Shape({3, 4}, f32), Shape({3}, f32)}, [](const Tensors& in, bool as_loop) {
        const Tensor x = take_steps(as_loop, 5, in[0], [&](const Tensor&, const Tensor& now) {
          const Tensor miss = linear(now, in[1]) - in[2];
          return now - grad(sum(miss * miss), now) * 0.1F;
        });
        return sum(x * x);
      });
}

TEST_CASE("grad: of constants that a loop uses, with their own gradients outside") {
  register_cpu_backend();
  const auto gradients = [](bool as_loop, bool has_slope) {
    Graph graph;
    const Graph::Recording recording(graph);
    const Tensor x = graph.input("x", Shape({2, 3}, f32));
    const Tensor w = graph.constant("w", Shape({3, 3}, f32));
    const Tensor y = take_steps(as_loop, 3, x, [&](const Tensor&, const Tensor& now) {
      return tanh(matmul(now, has_slope ? w : floor(w * 2)));
    });
    return graph.program(grad(sum(matmul(y, w) * y), std::vector{w, x}));
  };
  Random random;
  const HostBuffer x = random.uniform(Shape({2, 3}, f32)), w = random.uniform(Shape({3, 3}, f32));
  for (const bool has_slope : {true, false}) {
    std::vector<std::vector<HostBuffer>> results;
    for (const bool as_loop : {false, true}) {
      Session session(gradients(as_loop, has_slope), {.backends = default_backends()});
      session.bind(std::make_shared<const WeightSet>(
          std::map<std::string, Buffer>{{"w", w.to_device(cpu_device())}}));
      results.push_back(run_session(session, {x}));
    }
    for (std::size_t i = 0; i < 2; ++i) expect_close(results[1][i], results[0][i], 1e-5, 1e-5);
  }
}

TEST_CASE("grad: through a loop that its values end") {
  register_cpu_backend();
  // x grows by a factor until its sum passes the limit: each start takes its own number of steps.
  const auto body = [](const Tensor& x, const Tensor& w) { return x * w + sin(x); };
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({3}, f32)), w = graph.input("w", Shape({3}, f32));
  const Tensor y = while_loop(
      x, [](const Tensor& now) { return lt(sum(now), scalar_like(sum(now), 20)); },
      [&](const Tensor& now) { return body(now, w); }, 50);
  Tensors results{sum(y * y)};
  for (const Tensor& g : grad(results[0], Tensors{x, w})) results.push_back(g);
  Session session(graph.program(results), {.backends = default_backends()});
  std::set<int> counts;
  for (const float start : {30.0F, 6.5F, 2.0F, 0.3F}) {
    const HostBuffer from = HostBuffer::of(Shape({3}, f32), {start, start, start});
    const HostBuffer factor = HostBuffer::of(Shape({3}, f32), {1.3F, 1.3F, 1.3F});
    double sum_now = 0;
    int count = 0;
    std::vector<double> now(3, start);
    for (sum_now = 3 * static_cast<double>(start); sum_now < 20; ++count) {
      sum_now = 0;
      for (double& v : now) sum_now += v = v * 1.3 + std::sin(v);
    }
    counts.insert(count);
    const std::vector<HostBuffer> got = run_session(session, {from, factor});
    // The same number of steps, one after another.
    const Program expected_of = record_gradients(
                                    {Shape({3}, f32), Shape({3}, f32)},
                                    [&](const Tensors& in, bool) {
                                      Tensor z = in[0];
                                      for (int i = 0; i < count; ++i) z = body(z, in[1]);
                                      return sum(z * z) + sum(in[1] * 0.0F);
                                    },
                                    false)
                                    .program;
    Session written_out(expected_of, {.backends = default_backends()});
    const std::vector<HostBuffer> expected = run_session(written_out, {from, factor});
    INFO(start << ": " << count << " steps");
    for (std::size_t i = 0; i < 3; ++i) expect_close(got[i], expected[i], 1e-4, 1e-4);
  }
  CHECK(counts.size() == 4);
  const Tensor endless = while_loop(
      x, [](const Tensor& now) { return lt(sum(now), scalar_like(sum(now), 20)); },
      [&](const Tensor& now) { return body(now, w); });
  expect_error(Errc::unsupported, [&] { grad(sum(endless), x); });
}

TEST_CASE("grad: of a branch is that of the way that was taken") {
  register_cpu_backend();
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({2}, f32));
  const Tensor positive = gt(sum(x), scalar_like(sum(x), 0));
  const Tensor y = cond(positive, [&] { return sqrt(x) * 2.0F; }, [&] { return x * x; });
  Session session(graph.program(Tensors{grad(sum(y), x)}), {.backends = default_backends()});
  const auto gradient_at = [&](float a, float b) {
    return elements(run_session(session, {HostBuffer::of(Shape({2}, f32), {a, b})})[0]);
  };
  CHECK(gradient_at(4, 16) == std::vector<double>{0.5, 0.25});
  // The root's gradient is infinite at 0 and not a number below.
  CHECK(gradient_at(0, -3) == std::vector<double>{0, -6});
}

TEST_CASE("grad: by a sequence of no steps, which has no elements") {
  register_cpu_backend();
  Graph graph;
  const Tensor x = graph.input("x", Shape({0, 3}, f32)), h = graph.input("h", Shape({3}, f32));
  const auto scanned = scan(h, x, [](const Tensor& carry, const Tensor& slice) {
    return std::pair(carry * slice, carry);
  });
  const Tensor parameters[] = {x, h};
  const std::vector<Tensor> results = grad(sum(scanned.carry), parameters);
  CHECK(results[0].shape() == Shape({0, 3}, f32));
  Session session(graph.program(results), {.backends = {make_backend("cpu", {})}});
  const std::vector<HostBuffer> made = run_session(
      session, {HostBuffer::zeros(Shape({0, 3}, f32)), HostBuffer::zeros(Shape({3}, f32))});
  CHECK(made[0].shape() == Shape({0, 3}, f32));
}

TEST_CASE("grad: through a scan with symbolic sizes and a checkpointed step") {
  register_cpu_backend();
  Graph graph;
  const Graph::Recording recording(graph);
  const Axis batch = symbol("B");
  const Tensor x = graph.input("x", Shape({5, batch, 3}, f32));
  const Tensor h = graph.input("h", Shape({batch, 4}, f32));
  const Tensor w = graph.input("w", Shape({4, 3}, f32)), u = graph.input("u", Shape({4, 4}, f32));
  const auto cell = [&](const Tensor& state, const Tensor& in) {
    const Tensor next = checkpointed([&] { return tanh(linear(in, w) + linear(state, u)); });
    return std::pair(next, next * state);
  };
  const auto scanned = scan(h, x, cell);
  Tensor state = h, by_hand;
  for (int i = 0; i < 5; ++i) {
    const auto [next, output] = cell(state, squeeze(slice(x, 0, i, i + 1), 0));
    by_hand = by_hand.is_empty() ? sum(output) : by_hand + sum(output);
    state = next;
  }
  const Tensors parameters{x, h, w, u};
  Tensors results = grad(sum(scanned.outputs) + sum(scanned.carry * scanned.carry), parameters);
  for (const Tensor& g : grad(by_hand + sum(state * state), parameters)) results.push_back(g);
  Session session(graph.program(results), {.backends = default_backends()});
  for (const std::int64_t size : {1, 3, 0}) {
    Random random;
    std::vector<HostBuffer> values;
    for (const Shape& shape : {Shape({5, size, 3}, f32), Shape({size, 4}, f32), Shape({4, 3}, f32),
                               Shape({4, 4}, f32)}) {
      values.push_back(random.uniform(shape));
    }
    const std::vector<HostBuffer> got = run_session(session, values);
    for (std::size_t i = 0; i < 4; ++i) expect_close(got[i], got[i + 4], 1e-5, 1e-5);
  }
}

}  // namespace tenon::testing
