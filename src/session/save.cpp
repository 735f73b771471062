// A session as a file: sections "manifest" (JSON), "program" (text), "folded/<i>", "weight/<i>",
// "prepared/<i>" and "plan/<i>/part/<j>".
#include "program/registered.hpp"
#include "session/constants.hpp"
#include "session/manifest.hpp"
#include "session/state.hpp"

#include <tenon/memory_errors.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/version.hpp>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace tenon {

using namespace sessions;

namespace {

// Values are built in their place in the document: a temporary container that an exception takes
// down would need memory (JsonDocument).

Json& empty_array(Json& value) { return value = Json::array(); }
Json& empty_object(Json& value) { return value = Json::object(); }
/// A new item of an array.
Json& new_object(Json& list) { return list.get_ref<Json::array_t&>().emplace_back(Json::object()); }

void write_shape(Json& object, const Shape& shape) {
  object["dtype"] = std::string(name(shape.dtype()));
  Json& dims = empty_array(object["dims"]);
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
}

/// Which backend runs each op, in the order of the program.
void write_choices(Json& list, std::span<const Stage> stages) {
  const auto add = [&](auto&& self, std::span<const Step> steps, std::size_t backend) -> void {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) {
        self(self, step.body, backend);
      } else {
        list.push_back(backend);
      }
    }
  };
  for (const Stage& stage : stages) {
    if (stage.loop != nullptr) {
      write_choices(list, stage.body);
    } else {
      add(add, stage.steps, stage.backend);
    }
  }
}

/// Calls `visit(stage, bound)` for every stage with a partition; `bound` is null where the plan is
/// not bound.
void for_each_bound_part(std::span<const Stage> stages, std::span<const BoundStage> bound,
                         const std::function<void(const Stage&, const BoundPartition*)>& visit) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const BoundStage* const twin = bound.empty() ? nullptr : &bound[i];
    if (stages[i].partition) visit(stages[i], twin != nullptr ? twin->partition.get() : nullptr);
    for_each_bound_part(
        stages[i].body,
        twin != nullptr ? std::span<const BoundStage>(twin->body) : std::span<const BoundStage>(),
        visit);
  }
}

}  // namespace

/// Writes the sections of one file; the manifest grows meanwhile.
class Session::Saver {
 public:
  Saver(const Session& session, const std::filesystem::path& path, const SaveOptions& options)
      : session_(session),
        options_(options),
        saves_prepared_(options.prepared || options.weights == SavedWeights::needed),
        writer_(path),
        document_(Json::object()) {}

  void save() {
    require_plans();
    write_facts();
    writer_.add("program", print(session_.shared_->program));
    write_folded();
    Json& plans = empty_array(manifest()["plans"]);
    for (const auto& plan : session_.shared_->plans()) write_plan(*plan, bound(plan), plans);
    write_prepared();
    write_weights();
    writer_.add("manifest", manifest().dump());
    writer_.commit();
  }

 private:
  Json& manifest() { return document_.root(); }

  /// The weights that no plan needs are left out: without plans that would be all of them.
  void require_plans() const {
    const Program& program = session_.shared_->program;
    const auto& weights = session_.bound_->weights->all();
    const bool has_weights =
        weights.empty()
            ? std::ranges::any_of(constant_names(program),
                                  [&](const auto& name) { return !program.folded.contains(name); })
            : std::ranges::any_of(weights,
                                  [](const auto& one) { return one.second.shape().bytes() > 0; });
    if (options_.weights == SavedWeights::needed && has_weights &&
        session_.shared_->plans().empty()) {
      throw Error(Errc::call_order, "Session::save",
                  "no plan needs any of the weights yet: prepare(), or a run, comes first");
    }
  }

  std::shared_ptr<const BoundPlan> bound(const std::shared_ptr<const Plan>& plan) {
    return saves_prepared_ ? session_.bound_->bind(*session_.shared_, plan)
                           : session_.bound_->find(*plan);
  }

  void write_facts() {
    const Shared& shared = *session_.shared_;
    manifest()["format"] = manifest_format;
    manifest()["library"] = version();
    manifest()["name"] = shared.program.name;
    manifest()["merge"] = session_.state_->options.merge;
    manifest()["plan_limit"] = shared.plan_limit;
    manifest()["forbid_fallback"] = shared.forbid_fallback;
    manifest()["results_on_device"] = shared.results_on_device;
    Json& backends = empty_array(manifest()["backends"]);
    for (const BackendPtr& backend : shared.backends) {
      Json& entry = new_object(backends);
      entry["name"] = backend->name();
      entry["region"] = backend->region().name();
      Json& properties = empty_object(entry["properties"]);
      for (const auto& [name, value] : backend->properties()) properties[name] = value;
    }
    Json& views = manifest()["views"];
    if (!shared.chosen) return;
    empty_object(views);
    for (const auto& [value, backend] : *shared.chosen) views[value] = backend;
  }

  /// An array as a section "<kind>/<i>", or only its digest.
  void write_array(Json& list, const std::string& kind, const std::string& name,
                   const HostBuffer& array, bool with_bytes) {
    const HostBuffer dense = array.is_contiguous() ? array : array.contiguous();
    if (with_bytes) writer_.add(fmt::format("{}/{}", kind, list.size()), bytes_of(dense));
    Json& entry = new_object(list);
    write_shape(entry, dense.shape());
    entry["name"] = name;
    entry["xxh3"] = digest_of(bytes_of(dense));
    entry["bytes"] = with_bytes;
  }

  void write_folded() {
    Json& list = empty_array(manifest()["folded"]);
    for (const auto& [name, array] : session_.shared_->program.folded) {
      write_array(list, "folded", name, array, true);
    }
  }

  void write_plan(const Plan& plan, const std::shared_ptr<const BoundPlan>& bound, Json& plans) {
    const std::size_t number = plans.size();
    Json& entry = new_object(plans);
    entry["merged"] = plan.merged;
    Json& inputs = empty_array(entry["inputs"]);
    for (const Shape& input : plan.signature) write_shape(new_object(inputs), input);
    write_choices(empty_array(entry["choices"]), plan.stages);
    Json& fallbacks = empty_array(entry["fallbacks"]);
    for (const PlanReport::Fallback& fallback : plan.fallbacks) {
      new_object(fallbacks)["why"] = fallback.why;
    }
    Json& parts = empty_array(entry["parts"]);
    const auto stages = bound != nullptr ? std::span<const BoundStage>(bound->stages)
                                         : std::span<const BoundStage>();
    for_each_bound_part(plan.stages, stages, [&](const Stage& stage, const BoundPartition* part) {
      SavedPartition saved = part != nullptr ? part->save() : SavedPartition();
      const bool has_bytes = !saved.bytes.empty();
      if (has_bytes) {
        writer_.add(fmt::format("plan/{}/part/{}", number, parts.size()), saved.bytes);
      }
      note_use(plan.lowered,
               full_use(has_bytes ? std::move(saved.use) : stage.partition->constant_use(),
                        stage.steps, plan.lowered));
      Json& written = new_object(parts);
      written["backend"] = stage.backend;
      written["first"] = values_of(stage).front();
      written["steps"] = stage.steps.size();
      written["saved"] = has_bytes;
      if (has_bytes) written["digest"] = digest_of(plan.lowered, stage.steps);
    });
  }

  /// What a partition will use when the file is loaded.
  void note_use(const Lowered& program, const ConstantUse& use) {
    if (!saves_prepared_) return;
    for (const std::size_t constant : use.read) note_read(program, constant);
    for (const ConstantUse::Kept& kept : use.kept) {
      if (session_.bound_->weights->prepared().kept(kept.key)) {
        prepared_.insert(kept.key);
      } else {
        note_read(program, kept.constant);
      }
    }
    for (const std::string& key : use.made) {
      if (session_.bound_->weights->prepared().kept(key)) prepared_.insert(key);
    }
  }

  void note_read(const Lowered& program, std::size_t constant) {
    const ConstantSlot& slot = program.constants[constant];
    if (!slot.computed) {
      read_.insert(slot.name);
      return;
    }
    const Lowered& part = *program.constant_part;
    for (const std::size_t source : sources_of(part, *slot.computed)) {
      read_.insert(part.constants[source].name);
    }
  }

  void write_prepared() {
    Json& list = empty_array(manifest()["prepared"]);
    for (const std::string& key : prepared_) {
      const auto kept = session_.bound_->weights->prepared().kept(key);
      writer_.add(fmt::format("prepared/{}", list.size()), kept->bytes);
      new_object(list)["key"] = key;
    }
  }

  void write_weights() {
    const Bound& bound = *session_.bound_;
    manifest()["asks_for_weights"] = options_.weights == SavedWeights::digests;
    Json& list = empty_array(manifest()["weights"]);
    for (const auto& [name, weight] : bound.weights->all()) {
      const bool is_needed = read_.contains(name) || weight.shape().bytes() == 0;
      const bool with_bytes = options_.weights == SavedWeights::all ||
                              (options_.weights == SavedWeights::needed && is_needed);
      if (weight.has_data()) {
        write_array(list, "weight", name, stored(weight), with_bytes);
        continue;
      }
      if (with_bytes) {
        throw Error(Errc::call_order, "Session::save",
                    fmt::format("weight '{}' has no data to save", name));
      }
      Json& entry = new_object(list);
      write_shape(entry, weight.shape());
      entry["name"] = name;
      const auto digest = bound.digests.find(name);
      entry["xxh3"] = digest != bound.digests.end() ? digest->second : "";
      entry["bytes"] = false;
    }
  }

  const Session& session_;
  const SaveOptions& options_;
  const bool saves_prepared_;
  SnapshotWriter writer_;
  JsonDocument document_;
  std::set<std::string> read_;      // names of the weights that partitions read
  std::set<std::string> prepared_;  // keys
};

void Session::save(const std::filesystem::path& path, const SaveOptions& options) const {
  with_memory_errors("Session::save", [&] {
    require_registered_ops(shared_->program);
    Saver(*this, path, options).save();
  });
}

}  // namespace tenon
