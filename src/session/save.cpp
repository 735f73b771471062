// A session as a file: sections "manifest" (JSON), "program" (text), "folded/<i>", "weight/<i>" and
// "plan/<i>/part/<j>".
#include "program/registered.hpp"
#include "session/manifest.hpp"
#include "session/state.hpp"

#include <tenon/memory_errors.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/version.hpp>

#include <functional>
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

/// Writes arrays as sections "<kind>/<i>", or only their digests.
void save_arrays(Json& list, SnapshotWriter& writer, const std::string& kind,
                 const std::map<std::string, HostBuffer>& arrays, bool with_bytes) {
  empty_array(list);
  for (const auto& [name, array] : arrays) {
    const HostBuffer dense = array.is_contiguous() ? array : array.contiguous();
    if (with_bytes) writer.add(fmt::format("{}/{}", kind, list.size()), bytes_of(dense));
    Json& entry = new_object(list);
    write_shape(entry, dense.shape());
    entry["name"] = name;
    entry["xxh3"] = digest_of(bytes_of(dense));
    entry["bytes"] = with_bytes;
  }
}

/// Calls `visit(stage, bound)` for every stage with a partition; `bound` is null where the plan is
/// not bound.
void for_each_part(std::span<const Stage> stages, std::span<const BoundStage> bound,
                   const std::function<void(const Stage&, const BoundPartition*)>& visit) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const BoundStage* const twin = bound.empty() ? nullptr : &bound[i];
    if (stages[i].partition) visit(stages[i], twin != nullptr ? twin->partition.get() : nullptr);
    for_each_part(
        stages[i].body,
        twin != nullptr ? std::span<const BoundStage>(twin->body) : std::span<const BoundStage>(),
        visit);
  }
}

}  // namespace

void Session::save(const std::filesystem::path& path, const SaveOptions& options) const {
  with_memory_errors("Session::save", [&] { write_to(path, options); });
}

void Session::write_to(const std::filesystem::path& path, const SaveOptions& options) const {
  require_registered_ops(shared_->program);
  SnapshotWriter writer(path);
  JsonDocument document(Json::object());
  Json& manifest = document.root();
  manifest["format"] = manifest_format;
  manifest["library"] = version();
  manifest["name"] = shared_->program.name;
  manifest["merge"] = state_->options.merge;
  manifest["plan_limit"] = shared_->plan_limit;
  Json& backends = empty_array(manifest["backends"]);
  for (const BackendPtr& backend : shared_->backends) {
    Json& entry = new_object(backends);
    entry["name"] = backend->name();
    entry["region"] = backend->region().name();
    Json& properties = empty_object(entry["properties"]);
    for (const auto& [name, value] : backend->properties()) properties[name] = value;
  }
  Json& views = manifest["views"];
  if (shared_->chosen) {
    empty_object(views);
    for (const auto& [value, backend] : *shared_->chosen) views[value] = backend;
  }
  writer.add("program", print(shared_->program));
  save_arrays(manifest["folded"], writer, "folded", shared_->program.folded, true);

  std::map<std::string, HostBuffer> weights;
  for (const auto& [name, buffer] : bound_->weights->all()) weights.emplace(name, buffer.to_host());
  save_arrays(manifest["weights"], writer, "weight", weights, options.weights);

  Json& plans = empty_array(manifest["plans"]);
  for (const auto& plan : shared_->plans()) {
    const std::size_t number = plans.size();
    Json& entry = new_object(plans);
    entry["merged"] = plan->merged;
    Json& inputs = empty_array(entry["inputs"]);
    for (const Shape& input : plan->signature) write_shape(new_object(inputs), input);
    Json& parts = empty_array(entry["parts"]);
    const auto bound = bound_->find(*plan);
    const auto bound_stages = bound != nullptr ? std::span<const BoundStage>(bound->stages)
                                               : std::span<const BoundStage>();
    for_each_part(plan->stages, bound_stages, [&](const Stage& stage, const BoundPartition* part) {
      const std::vector<std::byte> bytes =
          part != nullptr ? part->save() : std::vector<std::byte>();
      if (!bytes.empty()) writer.add(fmt::format("plan/{}/part/{}", number, parts.size()), bytes);
      Json& saved = new_object(parts);
      saved["backend"] = stage.backend;
      saved["first"] = values_of(stage).front();
      saved["steps"] = stage.steps.size();
      saved["saved"] = !bytes.empty();
    });
  }
  writer.add("manifest", manifest.dump());
  writer.commit();
}

}  // namespace tenon
