// Gradients of random programs over every op: against finite differences in f64, and optimised and
// on the CPU with any number of threads against the reference.
#include "support/op_testing.hpp"
#include "support/random_program.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/grad.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

/// The program with the sum of its first result of `dtype` with elements as its only result.
std::optional<Program> with_loss(Program program, DType dtype) {
  Function& main = *program.find(program.entry);
  for (const ValueId id : main.results) {
    const std::optional<Shape>& shape = main.values[id].shape;
    if (!shape || shape->dtype() != dtype || shape->elements() == 0) continue;
    Sum op;
    for (int i = 0; i < shape->rank(); ++i) op.axes.push_back(i);
    Instruction sum;
    sum.op = OpInstance(op);
    sum.operands = {id};
    sum.result = main.add_value({"loss_of_all", ValueKind::tensor, Shape({}, dtype)});
    main.body.push_back(sum);
    main.results = {sum.result};
    return program;
  }
  return std::nullopt;
}

struct Case {
  Program program;   ///< its loss
  Program gradient;  ///< loss, then a gradient of each parameter
  std::vector<std::size_t> parameters;
  std::vector<HostBuffer> inputs;
  std::shared_ptr<const WeightSet> weights;
};

std::optional<Case> make_case(RandomProgram& random, DType dtype) {
  auto program = with_loss(
      random.make({.instructions = 10, .dtype = dtype, .smooth = true, .callees = 1}), dtype);
  if (!program) return std::nullopt;
  Case made{*program, {}, {}, random.inputs(*program), nullptr};
  std::vector<std::string> names;
  const Function& main = program->main();
  for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
    const Value& value = main.values[i];
    if (!value.shape || value.shape->dtype() != dtype) continue;
    try {
      gradient(*program, std::vector{value.name});
    } catch (const Error& error) {
      // The loss does not depend on it, or through an op without a gradient, or a loop counts
      // beyond an array.
      if (error.code() == Errc::bad_argument || error.code() == Errc::unsupported ||
          error.code() == Errc::out_of_range) {
        continue;
      }
      throw;
    }
    names.push_back(value.name);
    made.parameters.push_back(i);
  }
  if (names.empty()) return std::nullopt;
  made.gradient = gradient(*program, names);
  std::vector<Shape> shapes;
  for (const HostBuffer& input : made.inputs) shapes.push_back(input.shape());
  std::map<std::string, Buffer> weights;
  try {
    for (const ConstantSlot& slot : lower(*program, shapes).constants) {
      weights.emplace(slot.name, random.value(slot.shape).to_device(cpu_device()));
    }
  } catch (const Error& error) {
    if (error.code() != Errc::out_of_range) throw;
    return std::nullopt;  // a loop counts beyond an array
  }
  made.weights = std::make_shared<WeightSet>(std::move(weights));
  return made;
}

/// Nothing where an index is out of range.
std::optional<std::vector<HostBuffer>> run(const Case& test, const Program& program,
                                           const std::vector<HostBuffer>& inputs,
                                           const std::vector<BackendPtr>& backends) {
  Session session(program, {.backends = backends});
  session.bind(test.weights);
  std::vector<Buffer> buffers;
  for (const HostBuffer& input : inputs) {
    buffers.push_back(input.contiguous().to_device(cpu_device()));
  }
  try {
    std::vector<HostBuffer> results;
    for (const Buffer& output : session.forward(std::move(buffers))) {
      results.push_back(output.to_host());
    }
    return results;
  } catch (const Error& error) {
    if (error.code() != Errc::out_of_range) throw;
    return std::nullopt;
  }
}

bool is_ordinary(const std::vector<HostBuffer>& arrays, double most) {
  return std::ranges::all_of(arrays, [&](const HostBuffer& array) {
    return std::ranges::all_of(elements(array), [&](double x) { return std::fabs(x) < most; });
  });
}

double loss_at(const Case& test, std::size_t parameter, const HostBuffer& direction, double step,
               const std::vector<BackendPtr>& backends) {
  std::vector<HostBuffer> inputs = test.inputs;
  HostBuffer moved = HostBuffer::uninitialized(inputs[parameter].shape());
  const std::vector<double> from = elements(inputs[parameter]), by = elements(direction);
  const auto to = moved.mutable_values<double>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] + step * by[i];
  inputs[parameter] = moved;
  const auto results = run(test, test.program, inputs, backends);
  return results ? elements(results->at(0)).at(0) : std::nan("");
}

double slope(const Case& test, std::size_t parameter, const HostBuffer& direction, double step,
             const std::vector<BackendPtr>& backends) {
  return (loss_at(test, parameter, direction, step, backends) -
          loss_at(test, parameter, direction, -step, backends)) /
         (2 * step);
}

TEST_CASE("grad: of random programs, as finite differences say") {
  register_reference_backend();
  const std::vector<BackendPtr> reference{make_backend("reference")};
  const std::uint64_t first = fuzz_seed(1);
  const int rounds = fuzz_rounds(150);
  int compared = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(round);
    INFO("TENON_TEST_SEED=" << seed);
    RandomProgram random(seed);
    const std::optional<Case> test = make_case(random, f64);
    if (!test || print(test->program).find("stop_gradient(") != std::string::npos) continue;
    const auto got = run(*test, test->gradient, test->inputs, reference);
    if (!got || !is_ordinary(*got, 1e6)) continue;
    Random directions(seed);
    for (std::size_t i = 0; i < test->parameters.size(); ++i) {
      const std::size_t parameter = test->parameters[i];
      const HostBuffer direction = directions.uniform(test->inputs[parameter].shape());
      const double want = slope(*test, parameter, direction, 1e-5, reference);
      const double nearer = slope(*test, parameter, direction, 3e-6, reference);
      // A corner of relu or max within the step, or too few digits left.
      if (!(want == Approx(nearer).epsilon(1e-5).margin(1e-4))) continue;
      const std::vector<double> g = elements((*got)[i + 1]), d = elements(direction);
      const double along = std::inner_product(g.begin(), g.end(), d.begin(), 0.0);
      INFO("parameter " << parameter << "\n" << print(test->program) << print(test->gradient));
      CHECK(along == Approx(want).epsilon(1e-4).margin(2e-4));
      ++compared;
    }
  }
  CHECK(compared > rounds / 4);
}

TEST_CASE("grad: of random programs, optimised, planned and on threads as by the reference") {
  register_reference_backend();
  register_cpu_backend();
  const BackendPtr reference = make_backend("reference");
  const std::uint64_t first = fuzz_seed(1);
  const int rounds = fuzz_rounds(150);
  int compared = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(round);
    INFO("TENON_TEST_SEED=" << seed);
    RandomProgram random(seed);
    const std::optional<Case> test = make_case(random, f32);
    if (!test) continue;
    const auto want = run(*test, test->gradient, test->inputs, {reference});
    if (!want || !is_ordinary(*want, 1e5)) continue;
    INFO(print(test->gradient));
    Program optimized = test->gradient;
    optimize(optimized);
    std::vector<std::vector<HostBuffer>> on_threads;
    for (const int threads : {1, 2, 7}) {
      on_threads.push_back(
          *run(*test, optimized, test->inputs,
               {make_backend("cpu", {.threads = threads, .exact = true}), reference}));
    }
    for (std::size_t i = 0; i < want->size(); ++i) {
      double largest = 1;
      for (const double x : elements((*want)[i])) largest = std::max(largest, std::fabs(x));
      expect_close(on_threads[0][i], (*want)[i], 1e-3 * largest, 1e-3);
      for (const auto& other : on_threads) {
        CHECK(std::memcmp(other[i].bytes(), on_threads[0][i].bytes(),
                          static_cast<std::size_t>(other[i].shape().bytes())) == 0);
      }
    }
    ++compared;
  }
  CHECK(compared > rounds / 5);
}

TEST_CASE("grad: of random programs whose values are all computed again, to the bit") {
  register_reference_backend();
  const std::vector<BackendPtr> reference{make_backend("reference")};
  const std::uint64_t first = fuzz_seed(1);
  const int rounds = fuzz_rounds(150);
  int compared = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(round);
    INFO("TENON_TEST_SEED=" << seed);
    RandomProgram random(seed);
    const std::optional<Case> test = make_case(random, f32);
    if (!test) continue;
    std::vector<std::string> names;
    for (const std::size_t i : test->parameters) {
      names.push_back(test->program.main().values[i].name);
    }
    Program again;
    try {
      again = checkpointed([&] { return gradient(test->program, names); });
    } catch (const Error& error) {
      // What updates a value; or a loop, of which each layer alone shows that it does not depend on
      // a parameter.
      if (error.code() != Errc::unsupported && error.code() != Errc::bad_argument) throw;
      continue;
    }
    const auto want = run(*test, test->gradient, test->inputs, reference);
    if (!want) continue;
    INFO(print(again));
    const auto got = run(*test, again, test->inputs, reference);
    REQUIRE(got);
    for (std::size_t i = 0; i < want->size(); ++i) {
      CHECK(std::memcmp((*got)[i].bytes(), (*want)[i].bytes(),
                        static_cast<std::size_t>((*want)[i].shape().bytes())) == 0);
    }
    if (print(again) != print(test->gradient)) ++compared;
  }
  CHECK(compared > rounds / 5);
}

}  // namespace
}  // namespace tenon::testing
