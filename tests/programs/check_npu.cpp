#include "random_forward.hpp"
#include "results.hpp"
#include "ways.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

/// Of 8 bits per value through a dozen ops, beside the largest magnitude of a result: a product of
/// a large value and the rounding of a small one alone can be a third of it.
constexpr double int8_error = 0.4;

/// The same numbers in another order; integers stay where they are.
Results another_sample(const Results& values, std::mt19937_64& engine) {
  Results sample;
  for (const HostBuffer& value : values) {
    sample.push_back(on_host(on_cpu(Results{value}))[0]);
    if (value.shape().dtype() != f32) continue;
    const auto numbers = sample.back().mutable_values<float>();
    std::shuffle(numbers.begin(), numbers.end(), engine);
  }
  return sample;
}

class NpuChecker {
 public:
  NpuChecker(const RandomModelPlan& plan, CheckCounts& counts)
      : model_(make_random_model(plan)),
        plan_(plan),
        engine_(plan.seed),
        counts_(counts),
        program_(model_.program),
        weights_(std::make_shared<const WeightSet>(on_cpu(model_.weights))),
        threads_(static_cast<int>(integer(1, 3))) {
    register_npu_sim();
    register_npu_backend();
    register_cpu_backend();
    register_reference_backend();
    optimize(program_);
  }

  void run() {
    const Results real = run_reference(model_.program, weights_, model_.inputs);
    std::vector<Results> samples{model_.inputs};
    for (int i = 0; i < 2; ++i) samples.push_back(another_sample(model_.inputs, engine_));
    for (const Results& sample : samples) {
      // Ranges that are not finite are refused, and need no device to be.
      if (!is_finite(run_reference(model_.program, weights_, sample))) return;
    }
    options_.calibration = std::make_shared<const npu::CalibrationTable>(
        npu::calibrate(program_, *weights_, samples, {.observer = {}, .per_channel = chance(0.5)}));
    options_.deadline = std::chrono::minutes(10);  // a busy machine is no broken device
    options_.fuse = chance(0.8);
    options_.per_channel = chance(0.8);
    options_.host_fallback = false;
    url_ = some_url();

    check_floating(real);
    wanted_ = run_on(npu_in(npu::Mode::exact));
    check_likeness(real);
    check_device();
    if (chance(0.4)) check_without_fallback();
    if (chance(0.4)) check_exe();
  }

 private:
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }

  std::string some_url() {
    const auto one_of = [&](std::initializer_list<const char*> words) {
      return *(words.begin() + integer(0, std::ssize(words) - 1));
    };
    return fmt::format("npu://sim?strict=1&mac={}&ocm={}&acc={}&wbuf={}&queue={}&sched={}&seed={}",
                       one_of({"32x32", "16x8", "8x16", "5x7"}),
                       one_of({"48KiB", "128KiB", "2MiB"}), one_of({"16KiB", "64KiB", "256KiB"}),
                       integer(1, 2), one_of({"1", "4", "64"}), one_of({"time", "random"}),
                       integer(0, 1 << 30));
  }

  npu::Options options_in(npu::Mode mode) const {
    npu::Options options = options_;
    options.mode = mode;
    return options;
  }
  /// On the CPU, with the limits of the device.
  BackendPtr npu_in(npu::Mode mode) const {
    return npu::backend(Device::open(url_), options_in(mode));
  }

  /// What changes nothing but time.
  npu::Options some_options() {
    npu::Options options = options_in(npu::Mode::device);
    options.merge = chance(0.8);
    options.placement = static_cast<npu::Placement>(integer(0, 4));
    options.precheck = chance(0.2);
    options.profile_layers = chance(0.2);
    return options;
  }

  std::vector<BackendPtr> with_cpu(BackendPtr npu, bool exact = false) const {
    std::vector<BackendPtr> backends{std::move(npu)};
    for (const BackendPtr& backend : cpu_backends(threads_, exact)) backends.push_back(backend);
    return backends;
  }

  /// Everything that can be refused is refused before this returns.
  Session prepared(const std::vector<BackendPtr>& backends,
                   const std::shared_ptr<const WeightSet>& weights) const {
    Session session(program_, {.backends = backends});
    session.bind(weights);
    session.prepare(shapes_of(model_.inputs));
    return session;
  }

  Results forward(Session& session) {
    ++counts_.runs;
    return on_host(session.forward(on_cpu(model_.inputs)));
  }

  Results run_on(BackendPtr npu) {
    Session session = prepared(with_cpu(std::move(npu)), weights_);
    return forward(session);
  }

  /// In f32, layer by layer as they were compiled: what is wrong here is no rounding.
  void check_floating(const Results& real) {
    Session session = prepared(with_cpu(npu_in(npu::Mode::floating), true), weights_);
    count_taken(session);
    const double allowed = model_.has_halves ? 0.03 : 5e-4;
    counts_.worst_exact =
        std::max(counts_.worst_exact, largest_error("npu in f32", forward(session), real, allowed));
  }

  /// Beside a CPU that is exact: what differs is due to the 8 bits.
  void check_likeness(const Results& real) {
    // A step of what is much larger than the results is larger than these. Where an op bounds its
    // result by 1, a step of its argument must be small beside 1: two roundings, of a term and of
    // the sum, are up to a step apart from the real sum, and a running mix (0.5 carry + tanh(x))
    // doubles that. Of sin and cos it must be small beside a period, at any slope.
    const std::string text = print(program_);
    const auto has_one_of = [&](std::initializer_list<std::string_view> ops) {
      return std::ranges::any_of(ops, [&](auto op) { return text.find(op) != std::string::npos; });
    };
    const bool is_bounded =
        has_one_of({" tanh(", " sigmoid(", " erf(", " hardsigmoid(", " clamp("});
    const float limit = has_one_of({" sin(", " cos("}) ? 10.0F
                        : is_bounded                   ? 127 * static_cast<float>(int8_error) / 2
                                                       : 100.0F;
    const auto is_large = [&](const auto& entry) { return entry.second.tensor.threshold > limit; };
    if (std::ranges::any_of(options_.calibration->values, is_large)) return;
    // Divided by the spread of a row of nearly equal numbers, their rounding is all that is left.
    if (text.find("_norm(") != std::string::npos) return;
    Session session = prepared(with_cpu(npu_in(npu::Mode::exact), true), weights_);
    counts_.worst_int8 = std::max(counts_.worst_int8,
                                  largest_error("npu in int8", forward(session), real, int8_error));
  }

  void count_taken(Session& session) {
    const auto report = session.report(shapes_of(model_.inputs));
    for (const PlanReport::Part& part : report.parts) {
      const auto values = std::ssize(part.values);
      counts_.npu_values += values;
      if (part.backend == "npu") counts_.npu_taken += values;
    }
  }

  void check_device() {
    const DevicePtr device = Device::open(url_);
    const npu::Options options = some_options();
    Session session = prepared(with_cpu(npu::backend(device, options)), weights_);
    compare_bits("on the device", forward(session), wanted_);
    compare_bits("on the device, again", forward(session), wanted_);
    if (chance(0.3)) check_apart(session);
    if (chance(0.4)) check_neighbours(device, session);
    if (chance(0.3)) check_forks(session);
    if (chance(0.3)) check_snapshot(session, options);
    compare_bits("on the device, in the end", forward(session), wanted_);
  }

  /// Step by step, what the CPU computes is rounded otherwise: here as there.
  void check_apart(const Session& session) {
    Results results[2];
    std::size_t next = 0;
    for (const auto& backends : {with_cpu(npu_in(npu::Mode::exact)), session.backends()}) {
      Session apart(program_, {.backends = backends});
      apart.bind(weights_);
      apart.set_merge(false);
      results[next++] = forward(apart);
    }
    compare_bits("step by step", results[1], results[0]);
  }

  /// Others on the same device between this one's runs: with the same weights, and with others.
  void check_neighbours(const DevicePtr& device, Session& session) {
    std::map<std::string, HostBuffer> changed;
    for (const auto& [name, value] : model_.weights) {
      changed[name] = another_sample({value}, engine_)[0];
    }
    const auto weights = std::make_shared<const WeightSet>(on_cpu(changed));
    Session same = prepared(with_cpu(npu::backend(device, some_options())), weights_);
    Session other = prepared(with_cpu(npu::backend(device, some_options())), weights);
    Session exact = prepared(with_cpu(npu_in(npu::Mode::exact)), weights);
    const Results wanted = forward(exact);
    for (int round = 0; round < 2; ++round) {
      compare_bits("between neighbours", forward(session), wanted_);
      compare_bits("a neighbour of other weights", forward(other), wanted);
      compare_bits("a neighbour", forward(same), wanted_);
    }
    check_together({&session, &other, &same}, {&wanted_, &wanted, &wanted_});
  }

  /// Runs of several sessions in the device's ring, of which one may be interrupted anywhere.
  void check_together(const std::vector<Session*>& sessions,
                      const std::vector<const Results*>& wanted) {
    const std::int64_t interrupted = integer(0, 2 * std::ssize(sessions));  // often nobody
    const std::chrono::microseconds time(integer(0, 1000));
    const auto all = at_once(sessions.size(), [&](std::size_t i) {
      const auto run = [&] { return on_host(sessions[i]->forward(on_cpu(model_.inputs))); };
      if (static_cast<std::int64_t>(i) == interrupted) {
        sessions[i]->set_interrupt({.deadline = std::chrono::steady_clock::now() + time});
        try {
          compare_bits("in time", run(), *wanted[i]);
        } catch (const Error& error) {
          if (error.code() != Errc::timeout) throw;
        }
        sessions[i]->set_interrupt({});
      } else {
        compare_bits("beside others", run(), *wanted[i]);
      }
      return run();
    });
    counts_.runs += 2 * std::ssize(all);
    for (std::size_t i = 0; i < all.size(); ++i) compare_bits("together", all[i], *wanted[i]);
  }

  void check_forks(Session& session) {
    std::vector<Session> forks{session.fork(), session.fork()};
    const auto all = at_once(forks.size(), [&](std::size_t i) {
      on_host(forks[i].forward(on_cpu(model_.inputs)));
      return on_host(forks[i].forward(on_cpu(model_.inputs)));
    });
    for (const Results& results : all) compare_bits("forks at once", results, wanted_);
  }

  void check_snapshot(const Session& session, const npu::Options& options) {
    Session loaded = reloaded(session, with_cpu(npu::backend(Device::open(url_), options)));
    compare_bits("through a snapshot", forward(loaded), wanted_);
    npu::Options uncalibrated = options;
    uncalibrated.calibration = nullptr;
    Session deployed = reloaded(session, with_cpu(npu::backend(Device::open(url_), uncalibrated)),
                                {.weights = SavedWeights::needed});
    compare_bits("deployed", forward(deployed), wanted_);
  }

  /// A program that the NPU does not take whole is refused before it runs.
  void check_without_fallback() {
    std::optional<Session> session;
    try {
      session = prepared({npu::backend(Device::open(url_), some_options())}, weights_);
    } catch (const Error& error) {
      if (error.code() == Errc::unsupported) return;
      throw;
    }
    compare_bits("on the NPU alone", forward(*session), wanted_);
  }

  void check_exe() {
    constexpr auto forward = &RandomForward<>::forward;
    CompileOptions options;
    options.backend.threads = threads_;
    options.backend.device = options_in(npu::Mode::device);
    options.arguments = {"in"};
    const auto model = random_forward(plan_, model_.weights);
    const std::vector<Shape> shapes = shapes_of(model_.inputs);
    for (const bool cpu_fallback : {true, false}) {
      options.cpu_fallback = cpu_fallback;
      std::optional<Exe<forward>> exe;
      try {
        exe = compile<forward>(model, {shapes}, Device::open(url_), options);
      } catch (const Error& error) {
        if (!cpu_fallback && error.code() == Errc::unsupported) return;
        throw;
      }
      auto run = exe->bind(bufferized(weights_->all()));
      ++counts_.runs;
      compare_bits("compiled for the device", on_host(run(on_cpu(model_.inputs))), wanted_);
      auto fork = run.fork();
      compare_bits("a fork of it", on_host(fork(on_cpu(model_.inputs))), wanted_);
    }
  }

  const RandomModel model_;
  const RandomModelPlan plan_;
  std::mt19937_64 engine_;
  CheckCounts& counts_;
  Program program_;
  std::shared_ptr<const WeightSet> weights_;
  int threads_;
  npu::Options options_;
  std::string url_;
  Results wanted_;  // the bits of Mode::exact
};

}  // namespace

void check_npu(const RandomModelPlan& plan, CheckCounts& counts) { NpuChecker(plan, counts).run(); }

}  // namespace tenon::testing
