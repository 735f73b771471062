#include "session/plan.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/stepwise.hpp>

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

namespace tenon::sessions {
namespace {

constexpr std::int64_t mirror_alignment = 4096;
constexpr std::size_t max_memories = 64;

class Partitioner {
 public:
  Partitioner(Plan& plan, std::span<const BackendPtr> backends, const Chooser& choose,
              const CompileStage& compile)
      : plan_(plan), backends_(backends), choose_(choose), compile_(compile) {
    has_conditions_ = std::ranges::any_of(
        plan.lowered.steps, [](const Step& step) { return step.condition() != nullptr; });
  }

  std::vector<Stage> stages(std::span<const Step> steps, bool in_loop = false) {
    std::vector<Stage> result;
    std::size_t begin = 0;
    while (begin < steps.size()) {
      const std::optional<std::size_t> backend = choice_for(steps[begin], in_loop);
      if (!backend) {
        Stage stage;
        stage.loop = &steps[begin];
        stage.steps = steps.subspan(begin, 1);
        stage.body = stages(steps[begin].body, true);
        result.push_back(std::move(stage));
        ++begin;
        continue;
      }
      std::size_t end = begin + 1;
      while (end < steps.size() && choice_for(steps[end], in_loop) == backend) ++end;
      const std::span<const Step> together = steps.subspan(begin, end - begin);
      const std::size_t length = plan_.merged ? together.size() : 1;
      for (std::size_t i = 0; i < together.size(); i += length) {
        result.push_back(stage(*backend, together, together.subspan(i, length)));
      }
      begin = end;
    }
    return result;
  }

  void add_edges(std::span<Stage> stages) {
    for (Stage& stage : stages) {
      add_edges(stage.body);
      if (stage.loop == nullptr) stage.edges = edges(plan_.lowered, stage.steps);
    }
  }

 private:
  /// The backend of a step, or of all steps of a loop; none where they differ, or where every step
  /// runs by itself.
  std::optional<std::size_t> choice_for(const Step& step, bool in_loop) const {
    if (step.kind != Step::Kind::loop) {
      if (!has_conditions_) return choose_(step);
      return in_loop || reads_loop(step) ? choice_with_loops(step) : choose_(step);
    }
    if (!plan_.merged) return std::nullopt;
    const std::optional<std::size_t> first = choice_for(step.body.front(), true);
    const bool agreed = std::ranges::all_of(
        step.body, [&](const Step& inner) { return choice_for(inner, true) == first; });
    return agreed ? first : std::nullopt;
  }

  /// Whether a step reads what a loop with a condition has left, of which such backends know nothing,
  /// its range not.
  bool reads_loop(const Step& step) const {
    const std::vector<Step>& all = plan_.lowered.steps;
    return std::ranges::any_of(step.inputs, [&](const Operand& input) {
      const auto overlaps = [&](const Operand& other) {
        return same_storage(other.place, input.place) &&
               byte_range(other).overlaps(byte_range(input));
      };
      for (std::size_t i = static_cast<std::size_t>(&step - all.data()); i-- > 0;) {
        if (all[i].condition() == nullptr) {
          if (all[i].kind != Step::Kind::loop && overlaps(all[i].output)) return false;
        } else if (std::ranges::any_of(all[i].inputs, overlaps)) {
          return true;
        }
      }
      return false;
    });
  }

  /// The chosen backend, or where that has programs unrolled, so that only loops with a condition are
  /// left, the first of the others that takes the step.
  std::size_t choice_with_loops(const Step& step) const {
    const std::size_t chosen = choose_(step);
    if (!backends_[chosen]->wants_unrolled()) return chosen;
    for (std::size_t i = 0; i < backends_.size(); ++i) {
      if (!backends_[i]->wants_unrolled() && !backends_[i]->refuses(step)) return i;
    }
    throw Error(Errc::unsupported, step.value,
                fmt::format("{} runs no loops with a condition, and no other backend runs {}",
                            backends_[chosen]->name(), op_of(step)));
  }

  Stage stage(std::size_t backend, std::span<const Step> together, std::span<const Step> steps) {
    Stage stage;
    stage.backend = backend;
    stage.memory = memory_of(*backends_[backend]);
    stage.steps = steps;
    stage.partition = compile_(backend, plan_.lowered, together, steps);
    plan_.scratch_bytes = std::max(plan_.scratch_bytes, stage.partition->scratch_bytes());
    return stage;
  }

  std::size_t memory_of(const Backend& backend) {
    MemRegion& region = backend.region();
    if (region.is_host()) return 0;
    const auto found = std::ranges::find(plan_.memories, &region);
    if (found != plan_.memories.end()) {
      return static_cast<std::size_t>(found - plan_.memories.begin());
    }
    if (plan_.memories.size() == max_memories) {
      throw Error(Errc::unsupported, "Session", fmt::format("more than {} memories", max_memories));
    }
    plan_.memories.push_back(&region);
    return plan_.memories.size() - 1;
  }

  Plan& plan_;
  std::span<const BackendPtr> backends_;
  const Chooser& choose_;
  const CompileStage& compile_;
  bool has_conditions_;  // of loops
};

/// Marks the constants that stages in CPU memory read.
void mark_host_constants(const Lowered& program, std::span<const Stage> stages,
                         std::vector<bool>& marks) {
  for_each_part(stages, [&](const Stage& stage) {
    if (stage.memory != 0) return;
    for (const std::size_t constant : constants_read(program, stage.steps)) marks[constant] = true;
  });
}

/// Notes the memory of the first stage that reads each input.
void find_readers(std::span<const Stage> stages, std::vector<bool>& found,
                  std::vector<std::size_t>& readers) {
  for (const Stage& stage : stages) {
    find_readers(stage.body, found, readers);
    for (const Operand& read : stage.edges.reads) {
      if (read.place.kind != Place::Kind::input || found[read.place.index]) continue;
      found[read.place.index] = true;
      readers[read.place.index] = stage.memory;
    }
  }
}

MirrorLayout mirror_of(const Lowered& lowered) {
  MirrorLayout layout;
  layout.bytes = lowered.slab_bytes;
  const auto place = [&](const Shape& shape) {
    layout.bytes =
        checked_add(layout.bytes, mirror_alignment - 1) / mirror_alignment * mirror_alignment;
    return std::exchange(layout.bytes, checked_add(layout.bytes, shape.bytes()));
  };
  for (const InputSlot& input : lowered.inputs) layout.inputs.push_back(place(input.shape));
  for (const OutputSlot& output : lowered.outputs) layout.outputs.push_back(place(output.shape));
  return layout;
}

/// The bytes of an operand while the session is in loops 0 .. depth - 1; those of loops further in
/// are the backend's business, and may lie anywhere.
ByteRange range_of(const Plan& plan, const Operand& operand, const LoopSteps& iteration,
                   int depth) {
  for (std::size_t d = static_cast<std::size_t>(depth); d < max_loop_depth; ++d) {
    if (operand.place.byte_step[d] != 0) return whole(plan, key_of(operand.place));
  }
  return byte_range(operand, iteration);
}

/// Whether there are bytes between the elements that lie in `range`.
bool has_gaps(const Operand& operand, const ByteRange& range) {
  return range.size() != operand.shape.bytes();
}

void describe(std::span<const BackendPtr> backends, std::span<const Stage> stages,
              PlanReport& report) {
  const auto list_copies = [&](auto&& self, std::span<const Step> steps) -> void {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::copy) report.copies.push_back(step.value);
      self(self, step.body);
    }
  };
  for (const Stage& stage : stages) {
    if (stage.loop != nullptr) {
      describe(backends, stage.body, report);
      continue;
    }
    list_copies(list_copies, stage.steps);
    report.parts.push_back(
        {std::string(backends[stage.backend]->name()), values_of(stage), stage.partition->notes()});
  }
}

/// Walks the stages as a run does, and notes what would move: inputs in CPU memory, but state where
/// results lie.
class TransferList {
 public:
  TransferList(const Plan& plan, PlanReport& report) : plan_(plan), report_(report) {
    for (std::uint32_t i = 0; i < plan.lowered.inputs.size(); ++i) {
      note({Place::Kind::input, i}, plan.lowered.inputs[i].name, home_of(i));
    }
    walk(plan.stages, 0);
    const std::size_t results = plan.number_of(*plan.results);
    const bool is_elsewhere = results == plan.memories.size();
    for (std::uint32_t i = 0; i < plan.lowered.outputs.size(); ++i) {
      const auto& slot = plan.lowered.outputs[i];
      const StorageKey key = slot.from_input ? StorageKey{Place::Kind::input, *slot.from_input}
                                             : StorageKey{Place::Kind::output, i};
      const std::size_t home = slot.from_input ? home_of(*slot.from_input)
                               : is_elsewhere  ? 0
                                               : results;
      residency_.require(key, whole(plan, key), home, copy());
    }
    if (is_elsewhere) move_results();
  }

 private:
  std::size_t home_of(std::uint32_t input) const {
    const std::size_t results = plan_.number_of(*plan_.results);
    return plan_.lowered.inputs[input].updated && results < plan_.memories.size() ? results : 0;
  }

  void note(const StorageKey& key, const std::string& name, std::size_t memory) {
    residency_.written(key, whole(plan_, key), memory);
    makers_.push_back({key, whole(plan_, key), name});
  }

  Residency::Copy copy() {
    return [this](const StorageKey& key, const ByteRange& range, std::size_t from, std::size_t to) {
      const auto maker = std::ranges::find_if(
          makers_.rbegin(), makers_.rend(),
          [&](const Maker& m) { return m.key == key && m.range.overlaps(range); });
      report_.transfers.push_back({maker != makers_.rend() ? maker->value : "",
                                   plan_.memories[from]->name(), plan_.memories[to]->name(),
                                   range.size()});
    };
  }

  void walk(std::span<const Stage> stages, int depth) {
    for (const Stage& stage : stages) {
      if (stage.loop != nullptr) {
        for (std::int64_t i = 0; i < stage.loop->counted_runs(); ++i) {
          iteration_[static_cast<std::size_t>(stage.loop->depth)] = i;
          walk(stage.body, depth + 1);
        }
        iteration_[static_cast<std::size_t>(stage.loop->depth)] = 0;
        continue;
      }
      bring_in(plan_, stage, iteration_, depth, residency_, copy());
      note_writes(plan_, stage, iteration_, depth, residency_);
      for (const Step& step : stage.steps) {
        if (step.kind == Step::Kind::loop) continue;
        makers_.push_back(
            {key_of(step.output.place), byte_range(step.output, iteration_), step.value});
      }
    }
  }

  struct Maker {
    StorageKey key;
    ByteRange range;
    std::string value;
  };
  /// Results are copied to their memory where no backend of the plan computes in it.
  void move_results() {
    for (const OutputSlot& output : plan_.lowered.outputs) {
      if (output.from_input) continue;
      report_.transfers.push_back(
          {"", plan_.memories[0]->name(), plan_.results->name(), output.shape.bytes()});
    }
  }

  const Plan& plan_;
  PlanReport& report_;
  Residency residency_;
  LoopSteps iteration_{};
  std::vector<Maker> makers_;
};

}  // namespace

std::size_t Plan::number_of(const MemRegion& memory) const noexcept {
  const auto found = std::ranges::find(memories, &memory);
  return static_cast<std::size_t>(found - memories.begin());
}

std::vector<std::string> values_of(const Stage& stage) {
  std::vector<std::string> values;
  const auto list = [&](auto&& self, std::span<const Step> steps) -> void {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) {
        self(self, step.body);
      } else {
        values.push_back(step.value);
      }
    }
  };
  list(list, stage.steps);
  return values;
}

void partition(Plan& plan, std::span<const BackendPtr> backends, const Chooser& choose,
               const CompileStage& compile) {
  plan.memories = {&cpu_device()->default_mem_region()};
  if (plan.results == nullptr) plan.results = plan.memories[0];
  Partitioner partitioner(plan, backends, choose, compile);
  plan.stages = partitioner.stages(plan.lowered.steps);
  plan.mirror = mirror_of(plan.lowered);
  plan.host_constants.assign(plan.lowered.constants.size(), !plan.has_devices());
  if (plan.has_devices()) mark_host_constants(plan.lowered, plan.stages, plan.host_constants);
  if (plan.has_devices() || !plan.merged) partitioner.add_edges(plan.stages);
  std::vector<bool> found(plan.lowered.inputs.size());
  plan.input_readers.assign(plan.lowered.inputs.size(), 0);
  find_readers(plan.stages, found, plan.input_readers);
}

std::unique_ptr<Partition> compile_stage(const Backend& backend, const Lowered& program,
                                         std::span<const Step> together,
                                         std::span<const Step> steps) {
  const auto* const stepwise = dynamic_cast<const StepCompiler*>(&backend);
  std::unique_ptr<Partition> made =
      stepwise == nullptr || steps.size() == together.size()
          ? backend.compile(program, steps)
          : stepwise->compile_step(program, together,
                                   static_cast<std::size_t>(steps.data() - together.data()));
  // A stage without a partition is a loop of the session's own.
  if (made == nullptr) {
    throw Error(Errc::internal, std::string(backend.name()),
                "Backend::compile returned no partition");
  }
  return made;
}

std::size_t first_that_takes(std::span<const BackendPtr> backends, const Step& step) {
  std::string why;
  for (std::size_t i = 0; i < backends.size(); ++i) {
    const std::optional<std::string> refusal = backends[i]->refuses(step);
    if (!refusal) return i;
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", backends[i]->name(), *refusal);
  }
  throw Error(Errc::unsupported, step.value,
              fmt::format("no backend runs {}: {}", op_of(step), why));
}

ByteRange whole(const Plan& plan, const StorageKey& storage) {
  switch (storage.kind) {
    case Place::Kind::input:
      return {0, plan.lowered.inputs[storage.index].shape.bytes()};
    case Place::Kind::output:
      return {0, plan.lowered.outputs[storage.index].shape.bytes()};
    default:
      return {0, plan.lowered.slab_bytes};
  }
}

void bring_in(const Plan& plan, const Stage& stage, const LoopSteps& iteration, int depth,
              Residency& residency, const Residency::Copy& copy) {
  for (const Operand& read : stage.edges.reads) {
    residency.require(key_of(read.place), range_of(plan, read, iteration, depth), stage.memory,
                      copy);
  }
  // What lies between the elements that are written stays, and so must be there.
  for (const Operand& write : stage.edges.writes) {
    const ByteRange range = range_of(plan, write, iteration, depth);
    if (has_gaps(write, range)) {
      residency.require(key_of(write.place), range, stage.memory, copy);
    }
  }
}

void note_writes(const Plan& plan, const Stage& stage, const LoopSteps& iteration, int depth,
                 Residency& residency) {
  for (const Operand& write : stage.edges.writes) {
    residency.written(key_of(write.place), range_of(plan, write, iteration, depth), stage.memory);
  }
}

std::vector<BoundStage> bind_stages(std::span<const Stage> stages,
                                    const BoundConstants& constants) {
  std::vector<BoundStage> result;
  for (const Stage& stage : stages) {
    BoundStage bound;
    bound.stage = &stage;
    if (stage.partition) {
      bound.partition = stage.partition->bind(constants);
      if (bound.partition == nullptr) {
        throw Error(Errc::internal, stage.steps.front().value,
                    "Partition::bind returned no bound partition");
      }
    }
    bound.body = bind_stages(stage.body, constants);
    result.push_back(std::move(bound));
  }
  return result;
}

PlanReport::Fallback fallback_of(const Step& step, std::string why, const Backend& backend) {
  std::int64_t bytes = step.output.shape.bytes();
  for (const Operand& input : step.inputs) bytes += input.shape.bytes();
  return {step.value, std::string(op_of(step)), std::string(backend.name()), std::move(why), bytes};
}

void log_fallback(const PlanReport::Fallback& fallback, const Backend& first) {
  if (!log_enabled()) return;
  const bool is_slow = fallback.backend == "reference";
  log(is_slow ? LogLevel::warning : LogLevel::info,
      fmt::format("{}: {} runs on {}{}, {} bytes in a run; {}: {}", fallback.value, fallback.op,
                  fallback.backend, is_slow ? ", element by element" : "", fallback.bytes,
                  first.name(), fallback.why));
}

std::vector<PlanReport::Fallback> fallbacks_of(const Plan& plan,
                                               std::span<const BackendPtr> backends) {
  std::vector<PlanReport::Fallback> fallbacks;
  const std::string elsewhere = backends[0]->wants_unrolled()
                                    ? "in a loop with a condition, or of its results"
                                    : "runs elsewhere";
  const auto add = [&](auto&& self, const Backend& backend, std::span<const Step> steps,
                       std::int64_t runs) -> void {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) {
        self(self, backend, step.body, runs * step.counted_runs());
        continue;
      }
      fallbacks.push_back(
          fallback_of(step, backends[0]->refuses(step).value_or(elsewhere), backend));
      fallbacks.back().bytes *= runs;
    }
  };
  const auto walk = [&](auto&& self, std::span<const Stage> stages, std::int64_t runs) -> void {
    for (const Stage& stage : stages) {
      if (stage.loop != nullptr) {
        self(self, stage.body, runs * stage.loop->counted_runs());
      } else if (stage.backend > 0) {
        add(add, *backends[stage.backend], stage.steps, runs);
      }
    }
  };
  walk(walk, plan.stages, 1);
  return fallbacks;
}

PlanReport describe(const Plan& plan, std::span<const BackendPtr> backends) {
  PlanReport report;
  report.slab_bytes = plan.lowered.slab_bytes;
  report.activation_bytes = plan.lowered.activation_bytes;
  describe(backends, plan.stages, report);
  report.fallbacks = plan.fallbacks;
  const bool moves_results = plan.results != plan.memories[0];
  if (plan.has_devices() || moves_results) TransferList(plan, report);
  return report;
}

}  // namespace tenon::sessions
