#include "session/saved_plan.hpp"

#include "session/constants.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>

#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon::sessions {
namespace {

template <class Visit>
void for_each_op(std::span<const Step> steps, const Visit& visit) {
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::loop) {
      for_each_op(step.body, visit);
    } else {
      visit(step);
    }
  }
}

}  // namespace

SavedPlan::SavedPlan(const Snapshot& snapshot, const Manifest& manifest, const Json& saved,
                     std::size_t number, std::span<const BackendPtr> backends,
                     std::shared_ptr<const WeightSet> weights)
    : snapshot_(snapshot),
      manifest_(manifest),
      saved_(saved),
      number_(number),
      backends_(backends),
      weights_(std::move(weights)) {}

std::vector<Shape> SavedPlan::inputs() const {
  std::vector<Shape> inputs;
  for (const Json& input : manifest_.list(saved_, "inputs")) {
    inputs.push_back(manifest_.shape(input));
  }
  return inputs;
}

bool SavedPlan::is_merged() const { return manifest_.get<bool>(saved_, "merged"); }

PlanMaker SavedPlan::maker() {
  PlanMaker maker;
  maker.compile = [this](std::size_t backend, const Lowered& program,
                         std::span<const Step> together, std::span<const Step> steps) {
    return compile(backend, program, together, steps);
  };
  maker.chooser = [this](const Lowered& program) { return chooser(program); };
  const bool restores = std::ranges::any_of(manifest_.list(saved_, "parts"), [&](const Json& part) {
    return manifest_.get<bool>(part, "saved");
  });
  if (restores) maker.only_for = weights_;
  maker.explain = [this](std::vector<PlanReport::Fallback>& fallbacks) { explain(fallbacks); };
  return maker;
}

Chooser SavedPlan::chooser(const Lowered& program) const {
  const auto choices = manifest_.get<std::vector<std::int64_t>>(saved_, "choices");
  std::map<const Step*, std::size_t> by_step;
  for_each_op(program.steps, [&](const Step& step) {
    const std::size_t place = by_step.size();
    const std::int64_t choice = place < choices.size() ? choices[place] : 0;
    if (choice < 0 || !(static_cast<std::size_t>(choice) < backends_.size())) {
      throw Error(Errc::corrupt, manifest_.where(),
                  fmt::format("manifest: 'choices' puts '{}' on backend {}", step.value, choice));
    }
    by_step.emplace(&step, static_cast<std::size_t>(choice));
  });
  if (by_step.size() != choices.size()) {
    throw manifest_.incompatible(fmt::format("plan {} had {} steps, and now has {}", number_,
                                             choices.size(), by_step.size()));
  }
  return [by_step = std::move(by_step)](const Step& step) { return by_step.at(&step); };
}

const Json& SavedPlan::next_part(std::size_t backend, std::size_t steps) {
  const Json::array_t& parts = manifest_.list(saved_, "parts");
  if (next_ == parts.size()) {
    throw manifest_.incompatible(
        fmt::format("'plan/{}/part/{}' is not there: the plan has become longer", number_, next_));
  }
  const Json& part = parts[next_];
  const auto was_on = manifest_.get<std::size_t>(part, "backend");
  const auto was_long = manifest_.get<std::size_t>(part, "steps");
  if (was_on != backend || was_long != steps) {
    throw manifest_.incompatible(fmt::format(
        "'plan/{}/part/{}' was {} steps on backend {}, and is now {} on backend {} ('{}')", number_,
        next_, was_long, was_on, steps, backend, backends_[backend]->name()));
  }
  return part;
}

std::unique_ptr<Partition> SavedPlan::compile(std::size_t backend, const Lowered& program,
                                              std::span<const Step> together,
                                              std::span<const Step> steps) {
  const Json& part = next_part(backend, steps.size());
  const std::string section = fmt::format("plan/{}/part/{}", number_, next_++);
  if (manifest_.get<bool>(part, "saved")) {
    return restore(backend, program, steps, part, section);
  }
  try {
    require_accepted(*backends_[backend], steps);
  } catch (const Error& error) {
    throw manifest_.incompatible(
        fmt::format("'{}' cannot run where it did: {}", section, error.what()));
  }
  return compile_stage(*backends_[backend], program, together, steps);
}

std::unique_ptr<Partition> SavedPlan::restore(std::size_t backend, const Lowered& program,
                                              std::span<const Step> steps, const Json& part,
                                              const std::string& section) {
  const auto saved = snapshot_.bytes(section);
  std::string why = "this version of the library lowers the program to other steps";
  if (manifest_.get<std::string>(part, "digest") == digest_of(program, steps)) {
    try {
      return backends_[backend]->restore(program, steps, saved);
    } catch (const Error& error) {
      if (error.code() != Errc::incompatible) throw;
      why = error.what();
    }
  }
  require_weights(program, steps, section, why);
  log(LogLevel::warning,
      fmt::format("{}: '{}' is compiled again: {}", manifest_.where(), section, why));
  return backends_[backend]->recompile(program, steps, saved);
}

void SavedPlan::require_weights(const Lowered& program, std::span<const Step> steps,
                                const std::string& section, const std::string& why) const {
  for (const std::size_t constant : full_use(std::nullopt, steps, program).read) {
    const ConstantSlot& slot = program.constants[constant];
    const auto require = [&](const ConstantSlot& source) {
      const Buffer* const weight = source.folded ? nullptr : weights_->find(source.name);
      if (weight == nullptr || weight->has_data()) return;
      throw manifest_.incompatible(
          fmt::format("'{}' cannot be used as it was saved ({}), nor be compiled again: the file "
                      "has no data of weight '{}'",
                      section, why, source.name));
    };
    if (!slot.computed) {
      require(slot);
      continue;
    }
    const Lowered& part = *program.constant_part;
    for (const std::size_t source : sources_of(part, *slot.computed)) {
      require(part.constants[source]);
    }
  }
}

void SavedPlan::explain(std::vector<PlanReport::Fallback>& fallbacks) const {
  const Json::array_t& saved = manifest_.list(saved_, "fallbacks");
  if (saved.size() != fallbacks.size()) return;
  for (std::size_t i = 0; i < saved.size(); ++i) {
    fallbacks[i].why = manifest_.get<std::string>(saved[i], "why");
  }
}

void SavedPlan::check(const Plan& plan) const {
  if (next_ != manifest_.list(saved_, "parts").size()) {
    throw manifest_.incompatible(
        fmt::format("'plan/{}/part/{}' is left over: the plan has become shorter", number_, next_));
  }
  if (const auto missing = missing_constant(plan, *weights_)) {
    throw manifest_.incompatible(fmt::format(
        "plan {}: the file has no data of weight '{}', and '{}' {}{}", number_, missing->weight,
        backends_[missing->backend]->name(), missing->use(), differences(missing->backend)));
  }
  if (manifest_.list("prepared").empty()) return;
  for_each_part(plan.stages, [&](const Stage& stage) {
    const std::optional<ConstantUse> use = stage.partition->constant_use();
    if (!use) return;
    const auto again = std::ranges::count_if(use->kept, [&](const ConstantUse::Kept& kept) {
      return !weights_->prepared().kept(kept.key);
    });
    if (again == 0) return;
    log(LogLevel::warning,
        fmt::format("{}: plan {}: {} of {} weights are packed again{}", manifest_.where(), number_,
                    again, use->kept.size(), differences(stage.backend)));
  });
}

/// "; its isa was 'avx2', and is 'avx512'": what a backend says of itself, then and now.
std::string SavedPlan::differences(std::size_t backend) const {
  const Json& entry = manifest_.list("backends")[backend];
  const Json& was = manifest_.member(entry, "properties");
  std::string text;
  for (const auto& [name, is] : backends_[backend]->properties()) {
    const auto found = was.find(name);
    if (found == was.end() || !found->is_string() || found->get<std::string>() == is) continue;
    text += fmt::format("; its {} was '{}', and is '{}'", name, found->get<std::string>(), is);
  }
  return text;
}

}  // namespace tenon::sessions
