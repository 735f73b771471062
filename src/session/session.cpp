#include "backend/backend_registry.hpp"
#include "lower/constant_paths.hpp"
#include "memory/large_pages.hpp"
#include "memory/malloc_for.hpp"
#include "memory/submitted_handles.hpp"
#include "session/constants.hpp"
#include "session/run.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {

using namespace sessions;

namespace {

/// Which backend each op goes to, and the backends in the order of their views.
std::map<std::string, std::size_t> assign(const Program& program, std::span<const BoundView> views,
                                          std::vector<BackendPtr>& backends) {
  std::map<std::string, std::size_t> chosen;
  std::vector<std::string> twice, unknown, without;
  const std::vector<std::string> names = op_names(program);
  const std::set<std::string> known(names.begin(), names.end());
  for (const BoundView& bound : views) {
    const auto found = std::ranges::find(backends, bound.backend);
    const auto number = static_cast<std::size_t>(found - backends.begin());
    if (found == backends.end()) backends.push_back(bound.backend);
    for (const std::string& value : bound.ops.values) {
      if (!known.contains(value)) unknown.push_back(value);
      if (!chosen.emplace(value, number).second) twice.push_back(value);
    }
  }
  for (const std::string& name : names) {
    if (!chosen.contains(name)) without.push_back(name);
  }
  if (!unknown.empty()) {
    throw Error(Errc::bad_reference, program.name,
                fmt::format("views name ops that are not there: {}", fmt::join(unknown, ", ")));
  }
  if (!twice.empty() || !without.empty()) {
    throw Error(
        Errc::bad_argument, program.name,
        fmt::format("each op needs one view; {}: {}", twice.empty() ? "in none" : "in several",
                    fmt::join(twice.empty() ? without : twice, ", ")));
  }
  return chosen;
}

/// The first step, in loops too, that makes `value`; null when none does.
const Step* find_step(std::span<const Step> steps, std::string_view value) {
  for (const Step& step : steps) {
    const Step* const found = step.kind == Step::Kind::loop ? find_step(step.body, value)
                              : step.value == value         ? &step
                                                            : nullptr;
    if (found != nullptr) return found;
  }
  return nullptr;
}

std::string no_step(std::string_view value) {
  return fmt::format(
      "no step makes '{}' (views need none; what depends on constants alone is computed once)",
      value);
}

std::vector<Shape> signature_of(const Function& main, std::span<const Buffer> inputs) {
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
  return signature;
}

/// The inputs that a run could overwrite, and for which `is_given_up` is true; empty: none.
template <class IsGivenUp>
std::vector<bool> reusable_inputs(const Plan& plan, IsGivenUp&& is_given_up) {
  // A plan from a snapshot has no second one: that could need weights which the file lacks.
  if (plan.only_for) return {};
  const std::vector<InputSlot>& slots = plan.lowered.inputs;
  std::vector<bool> reusable;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].reusable || !is_given_up(i)) continue;
    reusable.resize(slots.size());
    reusable[i] = true;
  }
  return reusable;
}

/// The inputs of which the call has the last handle, where results are computed.
std::vector<bool> given_up_inputs(const Plan& plan, std::span<const Buffer> inputs) {
  if (plan.number_of(*plan.results) == plan.memories.size()) return {};
  return reusable_inputs(
      plan, [&](std::size_t i) { return inputs[i].is_unique() && inputs[i].is_on(*plan.results); });
}

void require_all(std::span<const BackendPtr> backends) {
  if (std::ranges::find(backends, nullptr) == backends.end()) return;
  throw Error(Errc::bad_argument, "Session", "a null backend");
}

}  // namespace

std::size_t Session::Shared::choose(const Step& step) const {
  if (!chosen) return first_that_takes(backends, step);
  const auto found = chosen->find(step.value);
  // Copies that no op asks for, such as of an input that is a result, go where they can.
  if (found == chosen->end()) return first_that_takes(backends, step);
  if (const auto refusal = backends[found->second]->refuses(step)) {
    throw Error(
        Errc::unsupported, step.value,
        fmt::format("its view puts it on {}: {}", backends[found->second]->name(), *refusal));
  }
  return found->second;
}

Lowered Session::Shared::lowered(std::span<const Shape> inputs, const WeightSet* weights,
                                 const std::vector<bool>& given_up, bool straight) {
  const ConstantTypes types = constant_types(program, weights);
  LowerOptions options{.given_up = given_up, .splits_constant_part = true};
  const auto of = [&](const Program& from) {
    const bool constant_numbers =
        std::ranges::any_of(backends, [](const BackendPtr& b) { return b->wants_unrolled(); });
    return constant_numbers ? lowering::lower_with_constant_numbers(from, inputs, types, options)
                            : lower(from, inputs, types, options);
  };
  if (!straight) return of(program);
  if (!unrolled_) {
    Program written_out = unroll(program, max_unrolled, &origins_);
    verify(written_out);
    unrolled_ = std::move(written_out);
  }
  if (program.functions.size() == 1) return of(*unrolled_);
  // Written out, what a loop carries into its first iteration may be a constant.
  const auto paths = lowering::constant_paths(program, inputs, types);
  if (paths) {
    options.may_be_constant = [this, &paths](const std::string& path) {
      return paths->contains(origin_of(origins_, path));
    };
  }
  return of(*unrolled_);
}

std::vector<BackendPtr> Session::Shared::constant_backends(std::span<const Step> steps) const {
  std::vector<BackendPtr> found;
  std::ranges::copy_if(backends, std::back_inserter(found),
                       [](const BackendPtr& backend) { return !backend->wants_unrolled(); });
  const auto is_taken = [&](const Step& step) {
    return std::ranges::any_of(found, [&](const auto& backend) { return !backend->refuses(step); });
  };
  if (!std::ranges::all_of(steps, is_taken)) {
    std::ranges::move(default_backends({.exact = true}), std::back_inserter(found));
  }
  return found;
}

const std::string& Session::Shared::constant_numbers() {
  if (!constant_numbers_.empty()) return constant_numbers_;
  for (const BackendPtr& backend : constant_backends({})) {
    constant_numbers_ += fmt::format("({}", backend->name());
    for (const auto& [name, value] : backend->properties()) {
      if (name != "threads") constant_numbers_ += fmt::format(" {}", value);
    }
    constant_numbers_ += ")";
  }
  if (constant_numbers_.empty()) constant_numbers_ = "default";
  return constant_numbers_;
}

std::unique_ptr<Plan> Session::Shared::make_plan(std::span<const Shape> inputs, bool merged,
                                                 const WeightSet* weights,
                                                 const std::vector<bool>& given_up,
                                                 const PlanMaker& maker) {
  const bool straight = !merged || chosen || std::ranges::any_of(backends, [](const BackendPtr& b) {
    return b->wants_unrolled();
  });
  auto plan = std::make_unique<Plan>();
  plan->signature.assign(inputs.begin(), inputs.end());
  plan->merged = merged;
  plan->only_for = maker.only_for;
  plan->given_up = given_up;
  plan->lowered = lowered(inputs, weights, given_up, straight);
  for (ConstantSlot& slot : plan->lowered.constants) {
    if (slot.computed) slot.name += " by " + constant_numbers();
  }
  MemRegion& first = backends.front()->region();
  if (results_on_device && !first.is_host()) plan->results = &first;
  const Chooser choice = maker.chooser ? maker.chooser(plan->lowered)
                                       : [this](const Step& step) { return choose(step); };
  partition(*plan, backends, choice, maker.compile);
  if (!chosen) plan->fallbacks = fallbacks_of(*plan, backends);
  if (maker.explain) maker.explain(plan->fallbacks);
  for (const PlanReport::Fallback& fallback : plan->fallbacks) tell(fallback);
  return plan;
}

void Session::Shared::tell(const PlanReport::Fallback& fallback) const {
  if (forbid_fallback) {
    throw Error(Errc::unsupported, fallback.value,
                fmt::format("{} would run {}, and fallbacks are forbidden; {}: {}",
                            fallback.backend, fallback.op, backends[0]->name(), fallback.why));
  }
  log_fallback(fallback, *backends[0]);
}

std::shared_ptr<const Plan> Session::Shared::plan_for(std::span<const Shape> inputs, bool merged,
                                                      const WeightSet* weights,
                                                      const std::vector<bool>& given_up) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find_if(plans_, [&](const auto& plan) {
    return plan->merged == merged && plan->given_up == given_up &&
           std::ranges::equal(plan->signature, inputs) && plan->suits(weights);
  });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
    return plans_.front();
  }
  const PlanMaker maker{[this](std::size_t backend, const Lowered& lowered,
                               std::span<const Step> together, std::span<const Step> steps) {
    return compile_stage(*backends[backend], lowered, together, steps);
  }};
  plans_.push_front(make_plan(inputs, merged, weights, given_up, maker));
  drop_oldest_plans(plans_, plan_limit, [](const auto& plan) -> const Plan& { return *plan; });
  return plans_.front();
}

std::vector<std::shared_ptr<const Plan>> Session::Shared::plans() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<const Plan>> plans;
  std::ranges::copy_if(plans_.rbegin(), plans_.rend(), std::back_inserter(plans),
                       [](const auto& plan) { return plan->given_up.empty(); });
  return plans;
}

std::shared_ptr<const Plan> Session::Shared::add_plan(std::span<const Shape> inputs, bool merged,
                                                      const WeightSet* weights,
                                                      const PlanMaker& maker) {
  const std::scoped_lock lock(mutex_);
  plans_.push_front(make_plan(inputs, merged, weights, {}, maker));
  return plans_.front();
}

Activations::Lock::Lock(Activations& activations) : held_(activations) {
  activations.running_.lock();
}

Activations::Lock::Lock(Activations& activations, const Interrupt& interrupt) : held_(activations) {
  activations.queue().drain(interrupt, "forward");
  if (activations.running_.try_lock()) return;
  if (activations.running_.is_lost()) {
    throw Error(Errc::forked_process, "Session::forward",
                "the session was running on another thread of the parent process at fork(); "
                "fork() the session");
  }
  throw Error(Errc::busy, "Session::forward",
              "the session is running, on another thread or because one of its callbacks calls it; "
              "fork() it");
}

const MemChunk& Activations::get(Chunks& chunks, MemRegion& region, std::int64_t bytes) {
  MemChunk& chunk = chunks[&region];
  if (bytes > 0 && (!chunk || chunk.size_bytes() < static_cast<std::uint64_t>(bytes))) {
    chunk = {};  // given back before the larger one is taken
    // Activations are walked from end to end in every run: in small pages, the look-up of pages
    // costs a tenth of the time of a batch of images.
    const auto size = static_cast<std::uint64_t>(bytes);
    const bool is_large = region.is_host() && size >= 2 * large_page_bytes;
    chunk = malloc_for(region, size, is_large ? large_page_bytes : 64, [&] {
      return region.is_host() ? "the activations of a run"
                              : "the activations, inputs and results of a run";
    });
  }
  return chunk;
}

std::vector<Buffer> Activations::results(MemRegion& region, std::span<const Shape> shapes) {
  std::vector<std::uint64_t> large;
  for (const Shape& shape : shapes) {
    const auto size = static_cast<std::uint64_t>(shape.bytes());
    if (size >= kept_bytes_from) large.push_back(size);
  }
  kept_.keep(std::move(large));
  std::vector<Buffer> results;
  results.reserve(shapes.size());
  for (const Shape& shape : shapes) {
    const Buffer& result = results.emplace_back(Buffer::allocate(shape, region));
    const auto size = static_cast<std::uint64_t>(shape.bytes());
    if (size >= mapped_bytes_from && result.data().has_cptr()) {
      prefer_large_pages(result.data().cptr(), size);
    }
  }
  return results;
}

Session::Session(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)),
      bound_(std::make_shared<Bound>()),
      state_(std::make_shared<State>()) {
  bound_->weights = std::make_shared<const WeightSet>(std::map<std::string, Buffer>());
}

Session::Session(Program program, SessionOptions options) {
  with_memory_errors("Session", [&] {
    *this = Session(std::make_shared<Shared>());
    verify(program);
    require_all(options.backends);
    shared_->program = std::move(program);
    shared_->backends = options.backends.empty() ? default_backends() : std::move(options.backends);
    if (shared_->backends.empty()) throw_no_backend("Session");
    shared_->plan_limit = std::max<std::size_t>(options.plan_limit, 1);
    shared_->forbid_fallback = options.forbid_fallback;
    shared_->results_on_device = options.results_on_device;
  });
}

Session::Session(Program program, std::initializer_list<BoundView> views) {
  *this = views.size() == 0 ? Session(std::move(program), SessionOptions())
                            : Session(std::move(program),
                                      std::span<const BoundView>(views.begin(), views.size()));
}

Session::Session(Program program, std::span<const BoundView> views) {
  with_memory_errors("Session", [&] {
    *this = Session(std::make_shared<Shared>());
    verify(program);
    shared_->chosen = assign(program, views, shared_->backends);
    require_all(shared_->backends);
    shared_->program = std::move(program);
    shared_->plan_limit = SessionOptions().plan_limit;
  });
}

const Program& Session::program() const { return shared_->program; }
const std::vector<BackendPtr>& Session::backends() const { return shared_->backends; }

void Session::bind(std::shared_ptr<const WeightSet> weights) {
  if (weights == nullptr) throw Error(Errc::bad_argument, "Session::bind", "no weights: null");
  auto bound = with_memory_errors("Session::bind", [] { return std::make_shared<Bound>(); });
  bound->weights = std::move(weights);
  bound_ = std::move(bound);
  state_->stepping.reset();
}

void Session::change_option(std::string_view option) {
  if (!state_->applied) return;
  throw Error(Errc::call_order, "Session",
              fmt::format("{} is fixed: apply() or a run came before", option));
}

void Session::set_merge(bool merge) {
  if (state_->merge_is_fixed) {
    throw Error(Errc::call_order, "Session", "set_merge is fixed: the plans come from a snapshot");
  }
  change_option("set_merge");
  state_->options.merge = merge;
}
void Session::set_log_io(bool log_io) {
  change_option("set_log_io");
  state_->options.log_io = log_io;
}
void Session::set_log_time(bool log_time) {
  change_option("set_log_time");
  state_->options.log_time = log_time;
}
void Session::set_dump_outputs(std::string folder, std::string format) {
  change_option("set_dump_outputs");
  state_->options.dump_folder = std::move(folder);
  state_->options.dump_format = std::move(format);
}
void Session::set_pre_callback(StepCallback callback) {
  change_option("set_pre_callback");
  state_->options.before = std::move(callback);
}
void Session::set_post_callback(StepCallback callback) {
  change_option("set_post_callback");
  state_->options.after = std::move(callback);
}
void Session::enable_time_profile(bool enable) {
  change_option("enable_time_profile");
  state_->options.profile = enable;
}
void Session::set_trace(std::shared_ptr<Trace> trace) {
  change_option("set_trace");
  state_->options.trace = std::move(trace);
}
void Session::apply() { state_->applied = true; }
void Session::set_interrupt(Interrupt interrupt) { state_->interrupt = std::move(interrupt); }

std::vector<Buffer> Session::forward(std::vector<Buffer>&& inputs) {
  return with_memory_errors("Session::forward", [&] { return run(inputs, {}, state_->interrupt); });
}

std::vector<Buffer> Session::forward(std::vector<Buffer>&& inputs, const Interrupt& interrupt) {
  return with_memory_errors("Session::forward", [&] {
    Interrupt both = state_->interrupt;
    if (interrupt.cancel.stop_possible()) both.cancel = interrupt.cancel;
    if (interrupt.deadline) {
      both.deadline = std::min(both.deadline.value_or(*interrupt.deadline), *interrupt.deadline);
    }
    return run(inputs, {}, both);
  });
}

std::vector<Buffer> Session::forward(const std::vector<Buffer>& inputs) {
  return with_memory_errors("Session::forward", [&] {
    std::vector<Buffer> copies = inputs;
    return run(copies, {}, state_->interrupt);
  });
}

void Session::forward(std::vector<Buffer>&& inputs, std::span<Buffer> outputs) {
  if (outputs.empty()) throw Error(Errc::bad_argument, "Session::forward", "no outputs given");
  with_memory_errors("Session::forward", [&] { run(inputs, outputs, state_->interrupt); });
}

void Session::forward(const std::vector<Buffer>& inputs, std::span<Buffer> outputs) {
  with_memory_errors("Session::forward", [&] { forward(std::vector<Buffer>(inputs), outputs); });
}

/// The plan for a call with these inputs, of which it keeps all or gives up those that it has the
/// last handles of.
std::shared_ptr<const BoundPlan> Session::plan_of(std::span<const Buffer> inputs, bool keeps_all) {
  const std::vector<Shape> signature = signature_of(shared_->program.main(), inputs);
  const bool merged = state_->options.merges();
  auto plan = shared_->plan_for(signature, merged, bound_->weights.get());
  std::vector<bool> given_up;
  if (!keeps_all) {  // while no run that ends lets go of its handles
    const std::scoped_lock lock(state_->activations->handles());
    given_up = given_up_inputs(*plan, inputs);
  }
  if (!given_up.empty()) {
    plan = shared_->plan_for(signature, merged, bound_->weights.get(), given_up);
  }
  return bound_->bind(*shared_, std::move(plan));
}

std::vector<Buffer> Session::run(std::vector<Buffer>& inputs, std::span<Buffer> given,
                                 const Interrupt& interrupt) {
  auto bound = plan_of(inputs, !given.empty());
  const Activations::Lock lock(*state_->activations, interrupt);
  state_->applied = true;
  state_->stepping.reset();
  const auto begin = Trace::Clock::now();
  Run run(std::move(bound), *shared_, *state_, inputs, given, interrupt);
  try {
    run.run();
    state_->total = Trace::Clock::now() - begin;
    inputs.clear();
    return std::move(run).results();
  } catch (...) {
    run.fail(inputs, std::current_exception());
    throw;
  }
}

std::vector<Buffer> Session::submit(std::vector<Buffer>&& inputs, const SubmitOptions& options) {
  return with_memory_errors("Session::submit", [&] { return start(inputs, options); });
}

std::vector<Buffer> Session::submit(const std::vector<Buffer>& inputs,
                                    const SubmitOptions& options) {
  return with_memory_errors("Session::submit", [&] {
    std::vector<Buffer> handles = inputs;
    return start(handles, options);
  });
}

std::vector<Buffer> Session::start(std::vector<Buffer>& inputs, const SubmitOptions& options) {
  struct Submitted {
    std::shared_ptr<const Shared> shared;
    std::shared_ptr<State> state;
    std::optional<Run> run;
    std::optional<SubmittedHandles> handles;
    std::vector<Event> after;

    void execute() {
      std::exception_ptr error;
      try {
        for (const Event& event : after) run->await(event);
        const Activations::Lock lock(*state->activations);
        const auto begin = Trace::Clock::now();
        with_memory_errors("Session::submit", [&] { run->run(); });
        state->total = Trace::Clock::now() - begin;
      } catch (...) {
        error = std::current_exception();
      }
      release();
      if (error) std::rethrow_exception(error);
    }
    /// Before anybody is told that the run has ended: who then destroys the session frees its memory.
    void release() {
      {
        const std::scoped_lock lock(state->activations->handles());
        handles.reset();
        run.reset();
      }
      state.reset();
      shared.reset();
    }
  };
  state_->applied = true;
  state_->stepping.reset();
  const auto submitted = std::make_shared<Submitted>();
  submitted->shared = shared_.shared();
  submitted->state = state_.shared();
  submitted->after = options.after;
  // Before the lock, since binding waits for a weight that an earlier run makes, which ends under it.
  std::shared_ptr<const BoundPlan> bound = plan_of(inputs, false);
  const std::scoped_lock lock(state_->activations->handles());
  submitted->run.emplace(std::move(bound), *shared_, *state_, inputs, std::span<Buffer>(),
                         state_->interrupt);
  std::vector<Buffer> copied;
  try {
    if (options.after.empty()) submitted->run->start_input_copies(copied);
    submitted->handles.emplace(submitted->run->handles_of_results());
    EventSource ended;
    std::vector<Buffer> results;
    for (const Buffer& result : submitted->run->results()) {
      results.push_back(result.ready_at(ended.event()));
    }
    state_->activations->queue().push([submitted] { submitted->execute(); }, std::move(ended));
    inputs.clear();
    return results;
  } catch (...) {
    submitted->run->fail(inputs, std::current_exception());
    for (std::size_t i = 0; i < copied.size(); ++i) {
      if (copied[i].has_data()) inputs[i] = std::move(copied[i]);
    }
    throw;
  }
}

/// Where a run that goes step by step comes to a value.
std::size_t Session::stage_of(const Run& run, std::string_view value) {
  std::size_t stage = 0;
  const auto makes = [&](const Step& step) {
    return step.kind != Step::Kind::loop && step.value == value;
  };
  while (stage < run.stage_count() && !makes(run.step(stage))) ++stage;
  if (stage == run.stage_count()) {
    throw Error(Errc::bad_reference, "Session::step_to", no_step(value));
  }
  if (stage < run.position()) {
    throw Error(Errc::call_order, "Session::step_to",
                fmt::format("'{}' has been passed: the next step is '{}'", value,
                            run.step(run.position()).value));
  }
  return stage;
}

Buffer Session::step_to(std::string_view value, std::vector<Buffer> inputs) {
  return with_memory_errors("Session::step_to", [&] { return run_to(value, std::move(inputs)); });
}

Buffer Session::run_to(std::string_view value, std::vector<Buffer> inputs) {
  const Activations::Lock lock(*state_->activations, state_->interrupt);
  state_->applied = true;
  auto& run = state_->stepping;
  if (run != nullptr && !run->has_its_memory()) {
    run.reset();
    throw Error(Errc::call_order, "Session::step_to",
                "a session that shares its activations has run meanwhile: begin again");
  }
  std::unique_ptr<Run> fresh;
  if (run == nullptr) {
    const std::vector<Shape> signature = signature_of(shared_->program.main(), inputs);
    auto bound = bound_->bind(*shared_, shared_->plan_for(signature, false, bound_->weights.get()));
    fresh = std::make_unique<Run>(std::move(bound), *shared_, *state_, inputs, std::span<Buffer>(),
                                  state_->interrupt);
  }
  const std::size_t target = stage_of(fresh ? *fresh : *run, value);
  if (fresh) {
    state_->times.clear();
    fresh->begin();
    run = std::move(fresh);
  }
  try {
    while (run->position() <= target) run->run_next();
    Buffer output = run->output_of(target);
    if (run->position() == run->stage_count()) run.reset();
    return output;
  } catch (...) {
    run.reset();
    throw;
  }
}

void Session::prepare(std::span<const Shape> inputs) {
  with_memory_errors("Session::prepare", [&] {
    const bool merged = state_->options.merges();
    const WeightSet* const weights = bound_->weights.get();
    const auto plan = shared_->plan_for(inputs, merged, weights);
    bound_->bind(*shared_, plan);
    // Calls that give up inputs have another plan.
    const auto given_up = reusable_inputs(*plan, [](std::size_t) { return true; });
    if (given_up.empty()) return;
    bound_->bind(*shared_, shared_->plan_for(inputs, merged, weights, given_up));
  });
}

PlanReport Session::report(std::span<const Shape> inputs) {
  return with_memory_errors("Session::report", [&] {
    const auto plan = shared_->plan_for(inputs, state_->options.merges(), bound_->weights.get());
    PlanReport report = describe(*plan, shared_->backends);
    report.weight_copies = weight_copies(*plan, *bound_->weights);
    if (const auto& part = plan->lowered.constant_part) {
      for (const Step& step : part->steps) {
        report.computed.push_back(
            {step.value, std::string(op_of(step)), step.output.shape.bytes()});
      }
    }
    return report;
  });
}

std::vector<std::string> Session::explain(std::string_view value, std::span<const Shape> inputs) {
  return with_memory_errors("Session::explain", [&] {
    const auto plan = shared_->plan_for(inputs, state_->options.merges(), bound_->weights.get());
    const Step* const step = find_step(plan->lowered.steps, value);
    if (step == nullptr) {
      throw Error(Errc::bad_reference, "Session::explain", no_step(value));
    }
    std::vector<std::string> lines;
    for (const BackendPtr& backend : shared_->backends) {
      lines.push_back(
          fmt::format("{}: {}", backend->name(), backend->refuses(*step).value_or("takes it")));
    }
    const std::string prefix = fmt::format("{}: ", value);
    for (const PlanReport::Part& part : describe(*plan, shared_->backends).parts) {
      std::ranges::copy_if(part.notes, std::back_inserter(lines),
                           [&](const std::string& note) { return note.starts_with(prefix); });
    }
    return lines;
  });
}

std::span<const StepTime> Session::step_times() const {
  state_->activations->queue().drain();
  return state_->times;
}
std::chrono::nanoseconds Session::total_time() const {
  state_->activations->queue().drain();
  return state_->total;
}

Session Session::fork() const {
  return with_memory_errors("Session::fork", [&] {
    Session other;
    other.shared_ = shared_;
    other.bound_ = bound_;
    other.state_ = std::make_shared<State>();
    other.state_->options = state_->options;
    other.state_->merge_is_fixed = state_->merge_is_fixed;
    other.state_->interrupt = state_->interrupt;
    return other;
  });
}

Session Session::fork(const Session& other) const {
  Session made = fork();
  made.state_->activations = other.state_->activations;
  return made;
}

Session Session::view(std::size_t first, std::size_t last) const {
  return with_memory_errors("Session::view", [&] {
    auto shared = std::make_shared<Shared>();
    shared->program = extract(shared_->program, first, last);
    shared->backends = shared_->backends;
    shared->plan_limit = shared_->plan_limit;
    shared->forbid_fallback = shared_->forbid_fallback;
    shared->results_on_device = shared_->results_on_device;
    shared->chosen = shared_->chosen;
    Session part(std::move(shared));
    part.bound_->weights = bound_->weights;
    return part;
  });
}

}  // namespace tenon
