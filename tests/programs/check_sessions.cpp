#include "guarded_array.hpp"
#include "results.hpp"
#include "support/remote_backend.hpp"
#include "ways.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

class Checker {
 public:
  Checker(const RandomModel& model, std::uint64_t seed, CheckCounts& counts)
      : model_(model), seed_(seed), engine_(seed), counts_(counts) {
    std::map<std::string, Buffer> weights;
    for (const auto& [name, value] : model.weights) weights[name] = arrays_.copy(value);
    weights_ = std::make_shared<const WeightSet>(std::move(weights));
  }

  void run() {
    Program plain = model_.program;
    Session reference(plain, {.backends = {make_reference_backend({})}});
    const Results wanted = forward(reference);
    tame_ = is_finite(wanted);

    Program optimized = model_.program;
    optimize(optimized);
    const double tight = model_.has_halves ? 0.03 : 2e-4;
    {
      Session session(optimized, {.backends = {make_reference_backend({})}});
      compare("optimised, on the reference", forward(session), wanted, tight);
    }
    const int threads = std::uniform_int_distribution<int>(2, 4)(engine_);
    for (const bool exact : {true, false}) {
      const double allowed = exact ? tight : 0.2;
      double& worst = exact ? counts_.worst_exact : counts_.worst_fast;
      const std::string name = exact ? "cpu exact" : "cpu fast";
      Session one(plain, {.backends = cpu_backends(1, exact)});
      const Results first = forward(one);
      worst = std::max(worst, compare(name + ", as recorded", first, wanted, allowed));
      compare_bits(name + ", run again", forward(one), first);
      Session many(plain, {.backends = cpu_backends(threads, exact)});
      compare_bits(fmt::format("{}, {} threads", name, threads), forward(many), first);

      Session best(optimized, {.backends = cpu_backends(threads, exact)});
      const Results results = forward(best);
      worst = std::max(worst, compare(name + ", optimised", results, wanted, allowed));
      if (!exact) {
        look_at_fallbacks(best);
        check_ways(optimized, best, results, threads);
      }
      compare_bits(name + ", optimised, run again", forward(best), results);
    }
  }

 private:
  bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }

  std::vector<Buffer> inputs(GuardedArrays& arrays) const {
    std::vector<Buffer> result;
    for (const HostBuffer& value : model_.inputs) result.push_back(arrays.copy(value));
    return result;
  }

  Results forward(Session& session) {
    session.bind(weights_);
    return run_bound(session);
  }

  /// Inputs and results end at guard pages; now and then the session makes the results.
  Results run_bound(Session& session) {
    ++counts_.runs;
    GuardedArrays arrays;
    std::vector<Buffer> given = inputs(arrays);
    std::vector<Buffer> outputs;
    if (chance(0.3) || shapes_.empty()) {
      // Handles of our own would make the session copy what it updates, and keep it from reusing
      // memory.
      std::vector<Buffer> own = to_give_up(model_.inputs, cpu_device()->default_mem_region());
      for (std::size_t i = 0; i < given.size(); ++i) {
        if (chance(0.5)) given[i] = std::move(own[i]);
      }
      outputs = chance(0.5) ? session.submit(std::move(given)) : session.forward(std::move(given));
      shapes_.clear();
      for (const Buffer& output : outputs) shapes_.push_back(output.shape());
    } else {
      for (const Shape& shape : shapes_) outputs.push_back(arrays.room(shape));
      session.forward(std::move(given), outputs);
    }
    return on_host(outputs);
  }

  /// A program in 16 bits that subtracts what is almost equal, as second gradients do, magnifies its roundings:
  /// it may be off by as much as roundings of what it is given move it.
  double compare(const std::string& way, const Results& got, const Results& wanted,
                 double allowed) const {
    if (!tame_) return 0;
    try {
      return largest_error(way, got, wanted, allowed);
    } catch (const Failure&) {
      if (!model_.has_halves) throw;
      const double moves =
          sensitivity(model_.program, model_.weights, model_.inputs, wanted, seed_);
      return largest_error(way, got, wanted, std::max(allowed, 4 * moves));
    }
  }

  void look_at_fallbacks(Session& session) {
    if (model_.has_rare_types) return;
    ++counts_.plain;
    const PlanReport report = session.report(shapes_of(model_.inputs));
    if (report.fallbacks.empty()) return;
    ++counts_.plain_fallbacks;
    for (const auto& fallback : report.fallbacks) {
      fmt::print("  seed {}: {} falls back to {}: {}\n", seed_, fallback.op, fallback.backend,
                 fallback.why);
    }
  }

  /// Runs that are late end at any moment, with the error that it is for their caller; what they
  /// were given is untouched, and the next run is whole.
  void check_deadlines(Session& session, MemRegion& region, const Results& results) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto forward = [&](std::vector<Buffer> given) {
      ++counts_.runs;
      const std::vector<Buffer> keeps = chance(0.5) ? given : std::vector<Buffer>();
      const Untouched before(given);
      try {
        compare_bits("with a deadline", on_host(session.forward(std::move(given))), results);
      } catch (const Error& error) {
        if (error.code() != Errc::timeout) throw;
        const bool is_ours = !keeps.empty();
        before.check("a late run", given, is_ours ? std::set<std::size_t>() : model_.states,
                     is_ours ? std::nullopt : std::optional(Errc::timeout));
      }
    };
    for (int round = 0; round < 4; ++round) {
      const std::chrono::microseconds late(std::uniform_int_distribution<int>(0, 200)(engine_));
      std::vector<Buffer> given = to_give_up(model_.inputs, region);
      session.set_interrupt({.deadline = now() + late});
      forward(std::move(given));
    }
    session.set_interrupt({.deadline = now() + std::chrono::hours(1)});
    forward(to_give_up(model_.inputs, region));
    session.set_interrupt({});
  }

  /// Other ways to the same bits: text, snapshot, forks, and no merging up to rounding.
  void check_ways(const Program& optimized, Session& best, const Results& results, int threads) {
    const std::vector<BackendPtr> backends = cpu_backends(threads, false);
    if (chance(0.3)) check_deadlines(best, cpu_device()->default_mem_region(), results);
    if (chance(0.3)) {
      Program parsed = parse(print(optimized));
      parsed.folded = optimized.folded;
      Session session(std::move(parsed), {.backends = backends});
      compare_bits("through text", forward(session), results);
    }
    if (chance(0.2)) {
      Session session = reloaded(best, backends);
      compare_bits("through a snapshot", run_bound(session), results);
      Session deployed = reloaded(best, backends, {.weights = SavedWeights::needed});
      compare_bits("deployed", run_bound(deployed), results);
    }
    if (chance(0.2)) {
      std::vector<Session> forks{best.fork(), best.fork()};
      const auto both = at_once(forks.size(), [&](std::size_t i) {
        Results copies;
        for (int round = 0; round < 3; ++round) {
          GuardedArrays arrays;
          copies = on_host(forks[i].forward(inputs(arrays)));
        }
        return copies;
      });
      for (const Results& copies : both) compare_bits("forks at once", copies, results);
    }
    if (chance(0.2)) {
      Session session(optimized, {.backends = backends});
      session.set_merge(false);
      compare("not merged", forward(session), results, 0.2);
    }
    if (chance(0.3)) check_profile(optimized, backends, results);
    if (chance(0.2)) check_device_memory(optimized);
  }

  /// Some ops on a device whose memory the CPU cannot address, results there, inputs there, here or
  /// on a device that the session does not use.
  void check_device_memory(const Program& program) {
    const double share = std::uniform_real_distribution<double>(0.3, 1.2)(engine_);
    const auto device = std::make_shared<FakeDevice>(nullptr, "fake:", std::uint64_t{64} << 20);
    const auto other = std::make_shared<FakeDevice>(nullptr, "fake:", std::uint64_t{64} << 20);
    const auto remote = std::make_shared<RemoteBackend>(
        device, [share](const Step& step) -> std::optional<std::string> {
          const double place = static_cast<double>(std::hash<std::string>()(step.value) % 1000);
          if (place < share * 1000) return std::nullopt;
          return "chance";
        });
    const BackendPtr reference = make_reference_backend({});
    const Results wanted = run_reference(program, weights_, model_.inputs);
    Session session(program, {.backends = {remote, reference}, .results_on_device = true});
    session.bind(weights_);
    for (int round = 0; round < 3; ++round) {
      std::vector<Buffer> given = to_give_up(model_.inputs, device->dram());
      for (std::size_t i = 0; i < given.size(); ++i) {
        const Results value{model_.inputs[i]};
        if (chance(0.3))
          given[i] = on_cpu(value)[0];
        else if (chance(0.2))
          given[i] = to_give_up(value, other->dram())[0];
      }
      const std::vector<Buffer> keeps = chance(0.3) ? given : std::vector<Buffer>();
      const std::vector<Buffer> got =
          chance(0.5) ? session.submit(std::move(given)) : session.forward(std::move(given));
      compare_bits("on a device", on_host(got), wanted);
      ++counts_.runs;
    }
    MemRegion& home = cpu_device()->default_mem_region();
    if (chance(0.5)) check_deadlines(session, chance(0.5) ? device->dram() : home, wanted);
  }

  static bool has_condition(const Program& program) {
    return std::ranges::any_of(program.functions, [](const Function& function) {
      return std::ranges::any_of(
          function.body, [](const Instruction& instruction) { return instruction.condition >= 0; });
    });
  }

  /// A profile changes no bit, and no step's work is lost or counted twice when steps are merged.
  void check_profile(const Program& program, const std::vector<BackendPtr>& backends,
                     const Results& results) {
    Session merged(program, {.backends = backends}), apart(program, {.backends = backends});
    apart.set_merge(false);
    const auto trace = std::make_shared<Trace>();
    merged.set_trace(trace);
    for (Session* const session : {&merged, &apart}) session->enable_time_profile(true);
    for (int round = 0; round < 2; ++round) {
      const std::size_t events = trace->size();
      compare_bits("with a profile", forward(merged), results);
      if (!results.empty() && merged.step_times().size() > trace->size() - events) {
        throw Failure{"a profile: fewer events than steps"};
      }
      forward(apart);
      const double together = checked_flops(merged.step_times());
      const double one_by_one = checked_flops(apart.step_times());
      // A loop with a condition counts once when merged, and as often as it runs step by step.
      if (!has_condition(program) && std::abs(together - one_by_one) > 1e-9 * one_by_one) {
        throw Failure{
            fmt::format("a profile: {} operations merged, {} step by step", together, one_by_one)};
      }
    }
  }

  /// The operations of all parts; NaN where data decides. Without the numbers of iterations, which
  /// only a loop that runs step by step has steps for.
  static double checked_flops(std::span<const StepTime> times) {
    double flops = 0;
    for (const StepTime& time : times) {
      std::chrono::nanoseconds in_parts{};
      std::set<std::string> titles;
      for (const StepTime::Part& part : time.parts) {
        if (part.count < 1 || part.op.empty() || part.bytes < 0 ||
            !titles.insert(part.title()).second) {
          throw Failure{fmt::format("a profile: the part '{}' of {} runs, op '{}', {} bytes",
                                    part.title(), part.count, part.op, part.bytes)};
        }
        in_parts += part.wall;
        const bool is_loop_number = part.op == "full" && part.title().starts_with("index");
        if (!is_loop_number) flops += part.flops;
      }
      if (in_parts > time.device) throw Failure{"a profile: parts take longer than the whole"};
    }
    return flops;
  }

  const RandomModel& model_;
  std::uint64_t seed_;
  std::mt19937_64 engine_;
  CheckCounts& counts_;
  GuardedArrays arrays_;  // of weights
  std::shared_ptr<const WeightSet> weights_;
  std::vector<Shape> shapes_;  // of results
  bool tame_ = true;           // finite: worth comparing
};

}  // namespace

void check_sessions(const RandomModelPlan& plan, CheckCounts& counts) {
  const RandomModel model = make_random_model(plan);
  Checker(model, plan.seed, counts).run();
}

}  // namespace tenon::testing
