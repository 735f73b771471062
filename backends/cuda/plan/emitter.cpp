#include "lower/point_groups.hpp"
#include "plan/heads.hpp"
#include "plan/launch.hpp"
#include "plan/planners.hpp"

#include <tenon/error.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

constexpr std::int64_t alignment = 256;

std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

Planner planner_of(const Step& step) {
  if (step.kind == Step::Kind::copy) return plan_copy;
  struct Entry {
    std::string_view op;
    Planner planner;
  };
  static constexpr Entry entries[] = {
#define TENON_CUDA_OP(name, planner) {#name, planner},
#include "kernels.def"
#undef TENON_CUDA_OP
  };
  const auto found = std::ranges::find(entries, step.op.def()->name, &Entry::op);
  return found == std::end(entries) ? nullptr : found->planner;
}

/// Whether a step may write to an operand.
bool may_overwrite(const Step& step, const Operand& operand) {
  if (operand.place.kind != Place::Kind::slab) return true;  // an output may be an input's memory
  const bool has_more_outputs = step.kind != Step::Kind::op ||
                                step.op.as<FusedPoints>() != nullptr ||
                                step.op.as<HeadsIntoCache>() != nullptr;
  if (has_more_outputs) return true;
  if (!same_storage(step.output.place, operand.place)) return false;
  const bool moves =
      step.output.place.byte_step != LoopSteps{} || operand.place.byte_step != LoopSteps{};
  return moves || byte_range(step.output).overlaps(byte_range(operand));
}

/// The input of which kernels read rows or slices by 64-bit steps, so that no element of it is
/// counted.
std::optional<std::size_t> indexed_input(const Step& step) {
  if (step.kind != Step::Kind::op) return std::nullopt;
  const OpInstance& op = step.op;
  if (op.as<Select>() != nullptr || op.as<Gather>() != nullptr || op.as<TakeAlong>() != nullptr) {
    return 0;
  }
  const bool has_weights = op.as<Linear>() != nullptr || op.as<GroupedLinear>() != nullptr ||
                           op.as<Embedding>() != nullptr;
  if (has_weights && has_dense_rows(step.inputs[1])) return 1;  // others are copied
  return std::nullopt;
}

/// Whether a step writes only slices of its output, which is its first input.
bool writes_slices_in_place(const Step& step) {
  return step.kind == Step::Kind::op &&
         (step.op.as<CacheUpdate>() != nullptr || step.op.as<UpdateSlice>() != nullptr) &&
         step.inputs[0].place == step.output.place;
}

/// Kernels count elements in 32 bits.
Refusal exceeds_kernels(const Step& step) {
  // Its steps were asked one by one.
  if (step.kind == Step::Kind::op && step.op.as<HeadsIntoCache>() != nullptr) return std::nullopt;
  const bool updates = writes_slices_in_place(step);
  const std::optional<std::size_t> indexed = updates ? 0 : indexed_input(step);
  const auto refused = [](const Operand& operand) -> Refusal {
    if (operand.shape.elements() <= max_elements) return std::nullopt;
    return fmt::format("{}: more than {} elements", to_string(operand.shape), max_elements);
  };
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (i == indexed) continue;
    if (Refusal refusal = refused(step.inputs[i])) return refusal;
  }
  return updates ? std::nullopt : refused(step.output);
}

}  // namespace

Refusal plan_step(const Step& step, Emitter* out) {
  const Planner planner = planner_of(step);
  if (planner == nullptr) return fmt::format("no kernel for {}", step.op.def()->name);
  if (Refusal refusal = exceeds_kernels(step)) return refusal;
  return planner(step, out != nullptr && step.output.shape.elements() == 0 ? nullptr : out);
}

std::int32_t Emitter::reporter() { return reporter(*step_); }
std::int32_t Emitter::reporter(const Step& step) {
  plan_.reporters.push_back(&step);
  return static_cast<std::int32_t>(plan_.reporters.size() - 1);
}

Source Emitter::scratch(std::int64_t bytes) {
  const std::int64_t begin = step_scratch_;
  step_scratch_ = begin + aligned(bytes);
  plan_.scratch_bytes = std::max(plan_.scratch_bytes, step_scratch_);
  return {Source::Kind::scratch, {}, begin};
}

std::optional<Source> Emitter::kept_copy(CopyKind kind, const Operand& operand) const {
  if (!kept_copy_ || kept_copy_->kind != kind || kept_copy_->of != operand) return std::nullopt;
  return Source{Source::Kind::scratch, {}, 0};
}

Source Emitter::keep_copy(CopyKind kind, const Operand& operand, std::int64_t bytes) {
  step_scratch_ = 0;  // a copy that was kept before is not read any more
  kept_copy_ = KeptCopy{kind, operand, bytes};
  return scratch(bytes);
}
Source Emitter::keep_copy_of_output(CopyKind kind, const Step& step, std::int64_t bytes) {
  const Source source = keep_copy(kind, step.output, bytes);
  kept_copy_->writer = &step;
  return source;
}

Source Emitter::tickets(std::int64_t count) {
  const auto bytes = count * static_cast<std::int64_t>(sizeof(std::uint32_t));
  plan_.ticket_bytes = std::max(plan_.ticket_bytes, bytes);
  return {Source::Kind::tickets, {}, 0};
}

Source Emitter::data(std::span<const std::byte> bytes) {
  const auto begin =
      static_cast<std::size_t>(aligned(static_cast<std::int64_t>(plan_.data.size())));
  plan_.data.resize(begin);
  plan_.data.insert(plan_.data.end(), bytes.begin(), bytes.end());
  return {Source::Kind::data, {}, static_cast<std::int64_t>(begin)};
}

void Emitter::launch_generated(const std::string& text, const Grid& grid,
                               std::span<const std::uint64_t> words, std::vector<Patch> patches) {
  const auto found = std::ranges::find(plan_.generated, text, &GeneratedText::text);
  const auto bytes = std::as_bytes(words);
  Launch launch{{}, grid, {bytes.begin(), bytes.end()}, std::move(patches)};
  launch.generated = static_cast<std::size_t>(found - plan_.generated.begin());
  if (found == plan_.generated.end()) plan_.generated.push_back({text, bytes.size()});
  add(std::move(launch));
}

void Emitter::add(Launch launch) {
  ++plan_.launches;
  into_->push_back(std::move(launch));
}

void Emitter::step(const Step& step) {
  if (step.kind == Step::Kind::loop) {
    Loop loop;
    loop.step = &step;
    auto* const outer = std::exchange(into_, &loop.body);
    kept_copy_.reset();  // an iteration begins where the one before it ended
    steps(step.body);
    kept_copy_.reset();
    into_ = outer;
    into_->push_back(std::move(loop));
    return;
  }
  step_ = &step;
  step_scratch_ = kept_copy_ ? aligned(kept_copy_->bytes) : 0;
  if (const Refusal refusal = plan_step(step, this)) {
    throw Error(Errc::unsupported, step.value, fmt::format("cuda: {}", *refusal));
  }
  for (const Step& written : std::span(&step, 1 + taken_)) {
    if (!kept_copy_ || kept_copy_->writer == &written) continue;
    if (may_overwrite(written, kept_copy_->of)) kept_copy_.reset();
  }
}

void Emitter::steps(std::span<const Step> steps) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    next_ = steps.subspan(i + 1);
    taken_ = 0;
    step(steps[i]);
    i += std::exchange(taken_, 0);
  }
}

}  // namespace tenon::cuda
