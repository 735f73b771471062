#include <tenon/error.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <optional>

#include <fmt/format.h>

namespace tenon {
namespace {

/// A stretch of steps on one backend, or a loop whose body several backends share.
struct Stage {
  std::size_t backend = 0;
  std::span<const Step> steps;
  std::unique_ptr<Partition> partition;
  const Step* loop = nullptr;
  std::vector<Stage> body;
};

struct Plan {
  std::vector<Shape> signature;
  Lowered lowered;
  std::vector<Stage> stages;
  std::int64_t scratch_bytes = 0;
};

/// A stage with weights.
struct BoundStage {
  std::unique_ptr<BoundPartition> partition;
  const Step* loop = nullptr;
  std::vector<BoundStage> body;
};

struct BoundPlan {
  std::shared_ptr<const Plan> plan;
  std::vector<Buffer> constants;
  std::vector<const std::byte*> addresses;
  std::vector<BoundStage> stages;
};

/// The first backend that takes a step. A loop goes to a backend that is the first choice of every
/// step in its body; otherwise it is run here, so that one step which the fastest backend refuses
/// does not take the whole stack of layers away from it.
std::optional<std::size_t> backend_for(std::span<const BackendPtr> backends, const Step& step) {
  if (step.kind == Step::Kind::loop) {
    if (step.body.empty()) return 0;
    const std::optional<std::size_t> first = backend_for(backends, step.body.front());
    const bool agreed = std::ranges::all_of(
        step.body, [&](const Step& inner) { return backend_for(backends, inner) == first; });
    return agreed ? first : std::nullopt;
  }
  for (std::size_t i = 0; i < backends.size(); ++i) {
    if (!backends[i]->refuses(step)) return i;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(std::span<const BackendPtr> backends, const Step& step) {
  std::string why;
  for (const BackendPtr& backend : backends) {
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", backend->name(),
                       backend->refuses(step).value_or("takes it"));
  }
  throw Error(Errc::unsupported, step.value,
              fmt::format("no backend runs {}: {}",
                          step.op.def() != nullptr ? step.op.def()->name : "copy", why));
}

class Partitioner {
 public:
  Partitioner(std::span<const BackendPtr> backends, Plan& plan)
      : backends_(backends), plan_(plan) {}

  std::vector<Stage> stages(std::span<const Step> steps) {
    std::vector<Stage> result;
    std::size_t begin = 0;
    while (begin < steps.size()) {
      const std::optional<std::size_t> backend = backend_for(backends_, steps[begin]);
      if (!backend) {
        if (steps[begin].kind != Step::Kind::loop) refuse(backends_, steps[begin]);
        Stage stage;
        stage.loop = &steps[begin];
        stage.steps = steps.subspan(begin, 1);
        stage.body = stages(steps[begin].body);
        result.push_back(std::move(stage));
        ++begin;
        continue;
      }
      std::size_t end = begin + 1;
      while (end < steps.size() && backend_for(backends_, steps[end]) == backend) ++end;
      Stage stage;
      stage.backend = *backend;
      stage.steps = steps.subspan(begin, end - begin);
      stage.partition = backends_[*backend]->compile(plan_.lowered, stage.steps);
      plan_.scratch_bytes = std::max(plan_.scratch_bytes, stage.partition->scratch_bytes());
      result.push_back(std::move(stage));
      begin = end;
    }
    return result;
  }

 private:
  std::span<const BackendPtr> backends_;
  Plan& plan_;
};

std::vector<BoundStage> bind_stages(std::span<const Stage> stages,
                                    const BoundConstants& constants) {
  std::vector<BoundStage> result;
  for (const Stage& stage : stages) {
    BoundStage bound;
    bound.loop = stage.loop;
    if (stage.partition) bound.partition = stage.partition->bind(constants);
    bound.body = bind_stages(stage.body, constants);
    result.push_back(std::move(bound));
  }
  return result;
}

void run_stages(std::span<const BoundStage> stages, HostFrame& frame) {
  for (const BoundStage& stage : stages) {
    if (stage.loop == nullptr) {
      stage.partition->run(frame);
      continue;
    }
    const auto depth = static_cast<std::size_t>(stage.loop->depth);
    for (std::int64_t i = 0; i < stage.loop->count; ++i) {
      frame.iteration[depth] = i;
      frame.loop_index[depth] = stage.loop->first + i;
      run_stages(stage.body, frame);
    }
    frame.iteration[depth] = 0;
  }
}

void describe(std::span<const BackendPtr> backends, std::span<const Stage> stages,
              PlanReport& report) {
  const auto list = [&](auto&& self, std::span<const Step> steps, PlanReport::Part& part) -> void {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::copy) report.copies.push_back(step.value);
      if (step.kind == Step::Kind::loop) {
        self(self, step.body, part);
      } else {
        part.values.push_back(step.value);
      }
    }
  };
  for (const Stage& stage : stages) {
    if (stage.loop != nullptr) {
      describe(backends, stage.body, report);
      continue;
    }
    PlanReport::Part part{std::string(backends[stage.backend]->name()), {}};
    list(list, stage.steps, part);
    report.parts.push_back(std::move(part));
  }
}

bool same_shapes(std::span<const Shape> a, std::span<const Shape> b) {
  return std::ranges::equal(a, b, [](const Shape& x, const Shape& y) { return x == y; });
}

}  // namespace

struct Session::Shared {
  Program program;
  std::vector<BackendPtr> backends;
  std::size_t plan_limit = 0;
  std::mutex mutex;
  std::list<std::shared_ptr<const Plan>> plans;  // most recently used first

  std::shared_ptr<const Plan> plan_for(std::span<const Shape> inputs, const WeightSet* weights) {
    const std::scoped_lock lock(mutex);
    const auto found = std::ranges::find_if(
        plans, [&](const auto& plan) { return same_shapes(plan->signature, inputs); });
    if (found != plans.end()) {
      plans.splice(plans.begin(), plans, found);
      return plans.front();
    }
    auto plan = std::make_shared<Plan>();
    plan->signature.assign(inputs.begin(), inputs.end());
    plan->lowered = lower(program, inputs, [&](const std::string& name) -> std::optional<Shape> {
      if (const auto folded = program.folded.find(name); folded != program.folded.end()) {
        return folded->second.shape();
      }
      const Buffer* weight = weights != nullptr ? weights->find(name) : nullptr;
      return weight != nullptr ? std::optional(weight->shape()) : std::nullopt;
    });
    plan->stages = Partitioner(backends, *plan).stages(plan->lowered.steps);
    plans.push_front(plan);
    if (plans.size() > plan_limit) plans.pop_back();
    return plan;
  }
};

/// Plans with weights, shared by forks.
struct Session::Bound {
  std::shared_ptr<const WeightSet> weights;
  std::mutex mutex;
  std::list<std::shared_ptr<const BoundPlan>> plans;  // most recently used first

  std::shared_ptr<const BoundPlan> bind(const Shared& shared, std::shared_ptr<const Plan> plan) {
    const std::scoped_lock lock(mutex);
    const auto found = std::ranges::find_if(plans, [&](const auto& p) { return p->plan == plan; });
    if (found != plans.end()) {
      plans.splice(plans.begin(), plans, found);
      return plans.front();
    }
    auto bound = std::make_shared<BoundPlan>();
    for (const ConstantSlot& slot : plan->lowered.constants) {
      bound->constants.push_back(constant(shared, slot));
      bound->addresses.push_back(bound->constants.back().host_view().data);
    }
    bound->stages = bind_stages(plan->stages, {bound->constants, weights->prepared()});
    bound->plan = std::move(plan);
    plans.push_front(bound);
    if (plans.size() > shared.plan_limit) plans.pop_back();
    return bound;
  }

  Buffer constant(const Shared& shared, const ConstantSlot& slot) const {
    if (const auto folded = shared.program.folded.find(slot.name);
        folded != shared.program.folded.end()) {
      return folded->second.to_device(cpu_device());
    }
    const Buffer* weight = weights->find(slot.name);
    if (weight == nullptr) {
      throw Error(Errc::bad_reference, shared.program.name,
                  fmt::format("no weight is bound to constant '{}'", slot.name));
    }
    if (!(weight->shape() == slot.shape)) {
      throw Error(Errc::shape_mismatch, shared.program.name,
                  fmt::format("constant '{}' is {}, its weight {}", slot.name,
                              to_string(slot.shape), to_string(weight->shape())));
    }
    return *weight;
  }
};

struct Session::Activations {
  std::atomic_flag running;
  HostBuffer slab;
  HostBuffer scratch;

  static std::byte* at_least(HostBuffer& memory, std::int64_t bytes) {
    if (bytes > 0 && (memory.is_empty() || memory.shape().bytes() < bytes)) {
      memory = HostBuffer::uninitialized(Shape({bytes}, u8));
    }
    return memory.view().data;
  }
};

const Buffer* WeightSet::find(const std::string& name) const noexcept {
  const auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}

Session::Session(Program program, SessionOptions options)
    : shared_(std::make_shared<Shared>()),
      bound_(std::make_shared<Bound>()),
      activations_(std::make_shared<Activations>()) {
  verify(program);
  shared_->program = std::move(program);
  shared_->backends = options.backends.empty() ? default_backends() : std::move(options.backends);
  shared_->plan_limit = std::max<std::size_t>(options.plan_limit, 1);
  bound_->weights = std::make_shared<const WeightSet>(std::map<std::string, Buffer>());
}

const Program& Session::program() const noexcept { return shared_->program; }

void Session::bind(std::shared_ptr<const WeightSet> weights) {
  auto bound = std::make_shared<Bound>();
  bound->weights = std::move(weights);
  bound_ = std::move(bound);
}

Session Session::fork() const {
  Session other;
  other.shared_ = shared_;
  other.bound_ = bound_;
  other.activations_ = std::make_shared<Activations>();
  return other;
}

Session Session::fork(const Session& other) const {
  Session made;
  made.shared_ = shared_;
  made.bound_ = bound_;
  made.activations_ = other.activations_;
  return made;
}

std::vector<Buffer> Session::forward(std::vector<Buffer> inputs) { return run(inputs, {}); }

void Session::forward(std::vector<Buffer> inputs, std::span<Buffer> outputs) {
  if (outputs.empty()) throw Error(Errc::bad_argument, "Session::forward", "no outputs given");
  run(inputs, outputs);
}

std::vector<Buffer> Session::run(std::vector<Buffer>& inputs, std::span<Buffer> given) {
  const Function& main = shared_->program.main();
  if (inputs.size() != main.parameter_count) {
    throw Error(Errc::bad_input, main.name,
                fmt::format("{} inputs given, {} expected", inputs.size(), main.parameter_count));
  }
  std::vector<Shape> signature;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].has_data()) {
      throw Error(Errc::bad_input, main.name,
                  fmt::format("input '{}' has no data", main.values[i].name));
    }
    signature.push_back(inputs[i].shape().without_tags());
  }
  const auto bound = bound_->bind(*shared_, shared_->plan_for(signature, bound_->weights.get()));
  const Plan& plan = *bound->plan;

  if (activations_->running.test_and_set()) {
    throw Error(Errc::busy, "Session::forward",
                "the session is running on another thread; fork() it");
  }
  struct Release {
    Activations& held;
    ~Release() { held.running.clear(); }
  } const release{*activations_};

  MemRegion& host = cpu_device()->default_mem_region();
  std::vector<std::byte*> input_bytes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].wait();
    inputs[i] = inputs[i].to(host);
    if (plan.lowered.inputs[i].updated && !inputs[i].is_unique()) {
      const Buffer own = Buffer::allocate(inputs[i].shape(), host);
      host.copy(own.data(), inputs[i].data(), static_cast<std::uint64_t>(own.shape().bytes()));
      inputs[i] = own;
    }
    input_bytes.push_back(inputs[i].data().cptr());
  }
  std::vector<Buffer> outputs;
  std::vector<std::byte*> output_bytes;
  const auto& slots = plan.lowered.outputs;
  if (!given.empty() && given.size() != slots.size()) {
    throw Error(Errc::bad_input, main.name,
                fmt::format("{} outputs given, the program has {}", given.size(), slots.size()));
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!given.empty() && !(given[i].shape() == slots[i].shape)) {
      throw Error(Errc::bad_input, main.name,
                  fmt::format("output {} is {}, memory given for {}", i, to_string(slots[i].shape),
                              to_string(given[i].shape())));
    }
    if (slots[i].from_input) {
      outputs.push_back(inputs[*slots[i].from_input]);
    } else {
      outputs.push_back(given.empty() || !given[i].is_on(host)
                            ? Buffer::allocate(slots[i].shape, host)
                            : given[i]);
    }
    output_bytes.push_back(outputs.back().data().cptr());
  }

  HostFrame frame;
  frame.inputs = input_bytes;
  frame.outputs = output_bytes;
  frame.constants = bound->addresses;
  frame.slab = Activations::at_least(activations_->slab, plan.lowered.slab_bytes);
  frame.scratch = Activations::at_least(activations_->scratch, plan.scratch_bytes);
  run_stages(bound->stages, frame);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].chunk() == outputs[i].chunk()) continue;
    given[i].region().copy(given[i].data(), host, outputs[i].data(),
                           static_cast<std::uint64_t>(outputs[i].shape().bytes()));
  }
  return outputs;
}

PlanReport Session::report(std::span<const Shape> inputs) {
  const auto plan = shared_->plan_for(inputs, bound_->weights.get());
  PlanReport report;
  report.slab_bytes = plan->lowered.slab_bytes;
  report.activation_bytes = plan->lowered.activation_bytes;
  describe(shared_->backends, plan->stages, report);
  return report;
}

std::vector<std::string> Session::explain(std::string_view value, std::span<const Shape> inputs) {
  const auto plan = shared_->plan_for(inputs, bound_->weights.get());
  const Step* found = nullptr;
  const auto search = [&](auto&& self, std::span<const Step> steps) -> void {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) {
        self(self, step.body);
      } else if (found == nullptr && step.value == value) {
        found = &step;
      }
    }
  };
  search(search, plan->lowered.steps);
  if (found == nullptr) {
    throw Error(Errc::bad_reference, "Session::explain",
                fmt::format("no step makes '{}' (views need none)", value));
  }
  std::vector<std::string> lines;
  for (const BackendPtr& backend : shared_->backends) {
    lines.push_back(
        fmt::format("{}: {}", backend->name(), backend->refuses(*found).value_or("takes it")));
  }
  return lines;
}

}  // namespace tenon
