#include "guarded_array.hpp"
#include "random_forward.hpp"
#include "results.hpp"
#include "ways.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/graph.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

constexpr auto forward = &RandomForward<>::forward;
using RandomExe = Exe<forward>;
using BoundRandomExe = BoundExe<forward>;

CompileOptions options_for(const std::vector<BackendPtr>& backends) {
  CompileOptions options;
  options.backends = backends;
  options.arguments = {"in"};
  return options;
}

/// Constants come in the order in which they were declared, or first used; names are numbered by
/// it.
std::multiset<std::string> lines_of(const Program& program) {
  static const std::regex number("([A-Za-z_])[0-9]+\\b");
  std::multiset<std::string> lines;
  std::istringstream text(print(program));
  for (std::string line; std::getline(text, line);) {
    lines.insert(std::regex_replace(line, number, "$1"));
  }
  return lines;
}

/// Moves `given` in. Returns the error's code; none when the call goes well.
std::optional<Errc> code_of_call(const std::string& way, BoundRandomExe& run,
                                 std::vector<Buffer>& given, const std::set<std::size_t>& states) {
  const Untouched before(given);
  try {
    static_cast<void>(run(std::move(given)));
    return std::nullopt;
  } catch (const Error& error) {
    before.check(way, given, states, error.code());
    return error.code();
  }
}

void must_be(const std::string& way, std::optional<Errc> got, Errc wanted) {
  if (got == wanted) return;
  throw Failure{
      fmt::format("{}: {}, not {}", way, got ? spelling(*got) : "no error", spelling(wanted))};
}

class ExeChecker {
 public:
  ExeChecker(const RandomModelPlan& plan, CheckCounts& counts)
      : model_(make_random_model(plan)), plan_(plan), engine_(plan.seed), counts_(counts) {}

  void run() {
    const auto weights = std::make_shared<const WeightSet>(on_cpu(model_.weights));
    const Results wanted = run_reference(model_.program, weights, model_.inputs);
    const int threads = std::uniform_int_distribution<int>(1, 4)(engine_);
    const std::vector<BackendPtr> backends = cpu_backends(threads, false);
    Program optimized = model_.program;
    optimize(optimized);
    Session session(optimized, {.backends = backends});
    session.bind(weights);
    results_ = on_host(session.forward(on_cpu(model_.inputs)));
    if (is_finite(wanted)) {
      counts_.worst_fast =
          std::max(counts_.worst_fast, largest_error("session", results_, wanted, 0.2));
    }

    RandomExe exe = compile<forward>(random_forward(plan_, model_.weights),
                                     {shapes_of(model_.inputs)}, options_for(backends));
    if (lines_of(exe.program()) != lines_of(optimized)) {
      throw Failure{fmt::format("the compiled program is\n{}not\n{}", print(exe.program()),
                                print(optimized))};
    }
    BoundRandomExe bound = exe.bind(bufferized(weights->all()));
    if (chance(0.3)) bound.prepare({shapes_of(model_.inputs)});
    check_calls(bound);
    check_refused_calls(bound);
    if (chance(0.3)) check_forks(bound);
    if (chance(0.3)) {
      BoundRandomExe other = exe.bind(bound.shared_weights());
      check_call("on shared weights", other);
    }
    if (chance(0.1)) check_device(threads);
    check_call("in the end", bound);
  }

 private:
  bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }

  void check_call(const std::string& way, BoundRandomExe& run) {
    ++counts_.runs;
    const bool gives_up = chance(0.5);
    std::vector<Buffer> given = gives_up
                                    ? to_give_up(model_.inputs, cpu_device()->default_mem_region())
                                    : on_cpu(model_.inputs);
    compare_bits(way, on_host(run(std::move(given))), results_);
  }

  void check_calls(BoundRandomExe& run) {
    check_call("called", run);
    GuardedArrays arrays;
    std::vector<Buffer> given;
    for (const HostBuffer& input : model_.inputs) given.push_back(arrays.copy(input));
    const Untouched before(given);
    compare_bits("called with copies", on_host(run(given)), results_);
    before.check("called with copies", given, {});
  }

  void check_refused_calls(BoundRandomExe& run) {
    std::vector<Buffer> given = on_cpu(model_.inputs);
    const auto any = std::uniform_int_distribution<std::size_t>(0, given.size() - 1)(engine_);
    given[any] = Buffer(given[any].shape());
    must_be("without data", code_of_call("without data", run, given, {}), Errc::bad_input);
    given = on_cpu(model_.inputs);
    given.push_back(given[any]);
    must_be("with one more", code_of_call("with one more", run, given, {}), Errc::bad_input);
    if (chance(0.5))
      given = to_give_up(model_.inputs, cpu_device()->default_mem_region());
    else
      given.pop_back();
    check_wrong_index(run, given);
  }

  /// A number that leads out of what it picks from is found while the call runs. What was moved in
  /// can be moved in again, but for what was given up and is poisoned.
  void check_wrong_index(BoundRandomExe& run, std::vector<Buffer>& given) {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const Shape& shape = given[i].shape();
      if ((shape.dtype() == i32 || shape.dtype() == i64) && shape.elements() > 0)
        indices.push_back(i);
    }
    if (indices.empty()) return;
    const std::size_t which =
        indices[std::uniform_int_distribution<std::size_t>(0, indices.size() - 1)(engine_)];
    given[which] = to_give_up({model_.inputs[which]}, cpu_device()->default_mem_region()).front();
    const DType dtype = given[which].shape().dtype();
    std::byte* const first = given[which].host_view().data;
    const std::int64_t right = load_as_int64(dtype, first);
    store_int64(dtype, first, 1 << 30);
    const bool has_failed = code_of_call("a wrong index", run, given, model_.states).has_value();
    if (!has_failed) return;
    store_int64(dtype, first, right);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (poison_of(given[i])) given[i] = on_cpu(Results{model_.inputs[i]})[0];
    }
    compare_bits("again after an error", on_host(run(std::move(given))), results_);
  }

  void check_forks(BoundRandomExe& run) {
    std::vector<BoundRandomExe> forks{run.fork(), run.fork()};
    const auto all = at_once(forks.size(), [&](std::size_t i) {
      on_host(forks[i](on_cpu(model_.inputs)));
      return on_host(forks[i](on_cpu(model_.inputs)));
    });
    for (const Results& results : all) compare_bits("forks at once", results, results_);
  }

  void check_device(int threads) {
    register_cpu_backend();
    register_reference_backend();
    CompileOptions options;
    options.backend.threads = threads;
    auto exe = compile<forward>(random_forward(plan_, model_.weights), {shapes_of(model_.inputs)},
                                cpu_device(), options);
    BoundRandomExe run = exe.bind(bufferized(on_cpu(model_.weights)));
    check_call("on the device", run);
  }

  const RandomModel model_;
  const RandomModelPlan plan_;
  std::mt19937_64 engine_;
  CheckCounts& counts_;
  Results results_;
};

/// What forward's results look like for inputs of these types.
struct Recorded {
  Program program;
  std::vector<Shape> results;
};
Recorded record(const RandomForward<>& model, const std::vector<Shape>& shapes) {
  Graph graph;
  std::vector<Tensor> inputs;
  std::vector<std::string> names;
  for (const Tensor& weight : model.weights) names.emplace_back(weight.name());
  graph.admit_only(std::move(names));
  const Graph::Recording recording(graph);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    inputs.push_back(graph.input(fmt::format("in.{}", i), shapes[i]));
  }
  const std::vector<Tensor> outputs = model.forward(inputs);
  Recorded recorded{graph.program(outputs), {}};
  for (const Tensor& output : outputs) recorded.results.push_back(output.shape());
  return recorded;
}

constexpr std::int64_t refused_length = 13;
const Name tags[] = {"batch", "position", "channel"};

Shape tagged(const Shape& shape) {
  return shape.with_tags(std::span<const Name>(tags).first(static_cast<std::size_t>(shape.rank())));
}

/// The buffers under the tags that forward declares, under some of them, or under none.
void tag_some(std::vector<Buffer>& buffers, std::mt19937_64& engine) {
  for (Buffer& buffer : buffers) {
    const Shape full = tagged(buffer.shape());
    Shape shape = buffer.shape();
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (engine() % 2 == 0) shape = shape.with_tag(axis, full.tag(axis));
    }
    buffer = detail::with_tags(std::move(buffer), shape);
  }
}

}  // namespace

void check_exe(const RandomModelPlan& plan, CheckCounts& counts) { ExeChecker(plan, counts).run(); }

void check_exe_sizes(const RandomModelPlan& plan, CheckCounts& counts) {
  const SizedModel sized = make_sized_model(plan);
  std::mt19937_64 engine(plan.seed);
  const std::map<std::string, Buffer> buffers = on_cpu(sized.weights);
  const auto weights = std::make_shared<const WeightSet>(buffers);
  RandomForward<> model = random_forward(plan, sized.weights);
  model.refused_length = refused_length;
  const int threads = std::uniform_int_distribution<int>(1, 4)(engine);
  const std::vector<BackendPtr> backends = cpu_backends(threads, false);

  const std::int64_t b = symbol("B"), s = symbol("S");
  std::vector<Shape> open{Shape({b, s, SizedModel::width}, f32), Shape({b, s}, i32)};
  for (Shape& shape : open) shape = tagged(shape);
  RandomExe exe = compile<forward>(model, {open}, options_for(backends));
  BoundRandomExe run = exe.bind(bufferized(buffers));
  BoundRandomExe fork = run.fork();
  for (const auto& sizes : SizedModel::some_sizes()) {
    const std::string what = fmt::format(" for {} x {}", sizes.batch, sizes.length);
    const Results inputs = sized.inputs(sizes);
    std::vector<Shape> shapes;
    for (const HostBuffer& input : inputs) shapes.push_back(tagged(input.shape()));
    const Recorded recorded = record(model, shapes);
    const Results wanted = run_reference(sized.program, weights, inputs);
    Program optimized = recorded.program;
    optimize(optimized);
    Session session(optimized, {.backends = backends});
    session.bind(weights);
    const Results results = on_host(session.forward(on_cpu(inputs)));
    counts.worst_fast =
        std::max(counts.worst_fast, largest_error("session" + what, results, wanted, 0.2));

    std::vector<Buffer> given = on_cpu(inputs);
    tag_some(given, engine);
    const std::vector<Buffer> got = run(given);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::string type = to_string(got[i].shape()), right = to_string(recorded.results[i]);
      if (type != right)
        throw Failure{fmt::format("result {}{} is {}, not {}", i, what, type, right)};
    }
    compare_bits("called" + what, on_host(got), results);
    compare_bits("by a fork" + what, on_host(fork(std::move(given))), results);
    counts.runs += 2;

    given = on_cpu(inputs);
    given[0] = detail::with_tags(given[0], given[0].shape().with_tag(1, Name("channel_of_others")));
    must_be("other tags", code_of_call("other tags" + what, run, given, {}), Errc::bad_input);
    given = on_cpu(sized.inputs({1, refused_length}));
    must_be("a refused length", code_of_call("a refused length" + what, run, given, {}),
            Errc::limit_exceeded);
  }
}

}  // namespace tenon::testing
