// A session as a file: sections "manifest" (JSON), "program" (text), "folded/<i>", "weight/<i>" and
// "plan/<i>/part/<j>".
#include "session/state.hpp"
#include "strict_json.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/snapshot.hpp>

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon {

using namespace sessions;

namespace {

using Json = nlohmann::json;

constexpr int manifest_format = 1;

Json json_of(const Shape& shape) {
  Json dims = Json::array();
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return {{"dtype", std::string(name(shape.dtype()))}, {"dims", dims}};
}

std::string digest_of(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::span<const std::byte> bytes_of(const HostBuffer& array) {
  return {array.bytes(), static_cast<std::size_t>(array.shape().bytes())};
}

/// Writes arrays as sections "<kind>/<i>", or only their digests.
Json save_arrays(SnapshotWriter& writer, const std::string& kind,
                 const std::map<std::string, HostBuffer>& arrays, bool with_bytes) {
  Json list = Json::array();
  for (const auto& [name, array] : arrays) {
    const HostBuffer dense = array.is_contiguous() ? array : array.contiguous();
    Json entry = json_of(dense.shape());
    entry["name"] = name;
    entry["xxh3"] = digest_of(bytes_of(dense));
    entry["bytes"] = with_bytes;
    if (with_bytes) writer.add(fmt::format("{}/{}", kind, list.size()), bytes_of(dense));
    list.push_back(std::move(entry));
  }
  return list;
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

/// Reads a manifest; whatever is not as save() writes it is Errc::corrupt, naming the field.
class Manifest {
 public:
  Manifest(const Snapshot& snapshot)
      : where_(snapshot.path().string()), json_(parse(snapshot, where_)) {}

  const std::string& where() const noexcept { return where_; }

  template <class T>
  T get(const Json& object, const char* key) const {
    try {
      const Json& value = object.at(key);
      if (fits<T>(value)) return value.get<T>();
    } catch (const Json::exception&) {
      // Said below.
    }
    throw Error(Errc::corrupt, where_, fmt::format("manifest: '{}' is missing or odd", key));
  }
  template <class T>
  T get(const char* key) const {
    return get<T>(json_, key);
  }
  /// An array of objects.
  std::vector<Json> list(const char* key) const {
    auto items = get<std::vector<Json>>(key);
    for (const Json& item : items) {
      if (!item.is_object()) {
        throw Error(Errc::corrupt, where_, fmt::format("manifest: '{}' holds no objects", key));
      }
    }
    return items;
  }

  Shape shape(const Json& object) const {
    const auto type = find_dtype(get<std::string>(object, "dtype"));
    if (!type) throw Error(Errc::corrupt, where_, "manifest: an unknown 'dtype'");
    return Shape(std::span<const std::int64_t>(get<std::vector<std::int64_t>>(object, "dims")),
                 *type);
  }

 private:
  /// Numbers that a type cannot hold would be undefined behaviour in the conversion.
  template <class T>
  static bool fits(const Json& value) {
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
      return value.is_array() && std::ranges::all_of(value, fits<std::int64_t>);
    } else if constexpr (std::is_same_v<T, std::map<std::string, std::size_t>>) {
      return value.is_object() && std::ranges::all_of(value, fits<std::size_t>);
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (!value.is_number_integer()) return false;
      if (value.is_number_unsigned()) return std::in_range<T>(value.get<std::uint64_t>());
      return std::in_range<T>(value.get<std::int64_t>());
    } else {
      return true;
    }
  }

  static Json parse(const Snapshot& snapshot, const std::string& where) {
    Json json = parse_strict_json(snapshot.text("manifest"), where + ": manifest");
    if (!json.is_object()) throw Error(Errc::corrupt, where, "the manifest is no object");
    return json;
  }

  std::string where_;
  Json json_;
};

std::map<std::string, HostBuffer> load_arrays(const Snapshot& snapshot, const Manifest& manifest,
                                              const char* key, const std::string& kind) {
  std::map<std::string, HostBuffer> arrays;
  std::size_t index = 0;
  for (const Json& entry : manifest.list(key)) {
    const std::string section = fmt::format("{}/{}", kind, index++);
    if (!manifest.get<bool>(entry, "bytes")) continue;
    const Shape shape = manifest.shape(entry);
    const auto bytes = snapshot.bytes(section);
    if (static_cast<std::uint64_t>(shape.bytes()) != bytes.size()) {
      throw Error(Errc::corrupt, manifest.where(),
                  fmt::format("section '{}' has {} bytes, {} needs {}", section, bytes.size(),
                              to_string(shape), shape.bytes()));
    }
    arrays.emplace(manifest.get<std::string>(entry, "name"),
                   HostBuffer::mapped(bytes.data(), shape, snapshot.keeper()));
  }
  return arrays;
}

/// The weights that a snapshot has digests of, out of the caller's hands.
Buffer checked_weight(const WeightSet* weights, const Manifest& manifest, const Json& entry) {
  const auto name = manifest.get<std::string>(entry, "name");
  const Buffer* weight = weights != nullptr ? weights->find(name) : nullptr;
  if (weight == nullptr) {
    throw Error(Errc::bad_reference, manifest.where(),
                fmt::format("it has no bytes of weight '{}', and none were given", name));
  }
  const Shape shape = manifest.shape(entry);
  if (!(weight->shape() == shape)) {
    throw Error(Errc::incompatible, manifest.where(),
                fmt::format("weight '{}' is {}, given as {}", name, to_string(shape),
                            to_string(weight->shape())));
  }
  const HostBuffer host = weight->to_host();
  if (digest_of(bytes_of(host)) != manifest.get<std::string>(entry, "xxh3")) {
    throw Error(Errc::incompatible, manifest.where(),
                fmt::format("weight '{}' holds other values than when this was saved", name));
  }
  return *weight;
}

}  // namespace

void Session::save(const std::filesystem::path& path, const SaveOptions& options) const {
  SnapshotWriter writer(path);
  Json manifest = {{"format", manifest_format},
                   {"name", shared_->program.name},
                   {"merge", state_->options.merge},
                   {"plan_limit", shared_->plan_limit}};
  for (const BackendPtr& backend : shared_->backends) {
    manifest["backends"].push_back({{"name", std::string(backend->name())},
                                    {"region", backend->region().name()},
                                    {"properties", backend->properties()}});
  }
  manifest["views"] = shared_->chosen ? Json(*shared_->chosen) : Json();
  writer.add("program", print(shared_->program));
  manifest["folded"] = save_arrays(writer, "folded", shared_->program.folded, true);

  std::map<std::string, HostBuffer> weights;
  for (const auto& [name, buffer] : bound_->weights->all()) weights.emplace(name, buffer.to_host());
  manifest["weights"] = save_arrays(writer, "weight", weights, options.weights);

  manifest["plans"] = Json::array();
  for (const auto& plan : shared_->plans()) {
    Json entry = {{"merged", plan->merged}, {"inputs", Json::array()}, {"parts", Json::array()}};
    for (const Shape& input : plan->signature) entry["inputs"].push_back(json_of(input));
    const auto bound = bound_->find(*plan);
    const auto bound_stages = bound != nullptr ? std::span<const BoundStage>(bound->stages)
                                               : std::span<const BoundStage>();
    for_each_part(plan->stages, bound_stages, [&](const Stage& stage, const BoundPartition* part) {
      const std::vector<std::byte> bytes =
          part != nullptr ? part->save() : std::vector<std::byte>();
      if (!bytes.empty()) {
        writer.add(fmt::format("plan/{}/part/{}", manifest["plans"].size(), entry["parts"].size()),
                   bytes);
      }
      entry["parts"].push_back({{"backend", stage.backend},
                                {"first", values_of(stage).front()},
                                {"steps", stage.steps.size()},
                                {"saved", !bytes.empty()}});
    });
    manifest["plans"].push_back(std::move(entry));
  }
  writer.add("manifest", manifest.dump());
  writer.commit();
}

Session Session::load(const std::filesystem::path& path, std::vector<BackendPtr> backends,
                      std::shared_ptr<const WeightSet> weights) {
  const Snapshot snapshot = Snapshot::open(path);
  const Manifest manifest(snapshot);
  const auto incompatible = [&](const std::string& why) {
    return Error(Errc::incompatible, manifest.where(), why);
  };
  if (const int format = manifest.get<int>("format"); format != manifest_format) {
    throw incompatible(
        fmt::format("'format' is {}, this library reads {}", format, manifest_format));
  }
  const std::vector<Json> wanted = manifest.list("backends");
  if (wanted.size() != backends.size()) {
    throw incompatible(
        fmt::format("'backends' names {}, {} are given", wanted.size(), backends.size()));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto name = manifest.get<std::string>(wanted[i], "name");
    if (name != backends[i]->name()) {
      throw incompatible(
          fmt::format("'backends[{}]' is '{}', given '{}'", i, name, backends[i]->name()));
    }
  }

  Program program = parse(snapshot.text("program"), manifest.where() + ": program");
  program.folded = load_arrays(snapshot, manifest, "folded", "folded");
  SessionOptions options{.backends = std::move(backends)};
  options.plan_limit = manifest.get<std::size_t>("plan_limit");
  Session session(std::move(program), std::move(options));
  Shared& shared = *session.shared_;
  if (!manifest.get<Json>("views").is_null()) {
    shared.chosen = manifest.get<std::map<std::string, std::size_t>>("views");
    for (const auto& [value, backend] : *shared.chosen) {
      if (backend < shared.backends.size()) continue;
      throw Error(Errc::corrupt, manifest.where(),
                  fmt::format("manifest: 'views' puts '{}' on backend {}", value, backend));
    }
  }
  session.state_->options.merge = manifest.get<bool>("merge");
  session.state_->merge_is_fixed = true;

  std::map<std::string, Buffer> bound;
  for (const auto& [name, array] : load_arrays(snapshot, manifest, "weights", "weight")) {
    bound.emplace(name, array.to_device(cpu_device()));
  }
  for (const Json& entry : manifest.list("weights")) {
    if (manifest.get<bool>(entry, "bytes")) continue;
    bound.emplace(manifest.get<std::string>(entry, "name"),
                  checked_weight(weights.get(), manifest, entry));
  }
  session.bind(std::make_shared<const WeightSet>(std::move(bound)));

  std::size_t number = 0;
  for (const Json& saved : manifest.list("plans")) {
    std::vector<Shape> inputs;
    for (const Json& input : manifest.get<std::vector<Json>>(saved, "inputs")) {
      inputs.push_back(manifest.shape(input));
    }
    const auto parts = manifest.get<std::vector<Json>>(saved, "parts");
    const auto section = [&](std::size_t part) {
      return fmt::format("plan/{}/part/{}", number, part);
    };
    std::size_t part = 0;
    const auto plan = shared.add_plan(
        inputs, manifest.get<bool>(saved, "merged"), session.bound_->weights.get(),
        [&](std::size_t backend, const Lowered& lowered, std::span<const Step> steps) {
          if (part == parts.size()) {
            throw incompatible(
                fmt::format("'{}' is not there: the plan has become longer", section(part)));
          }
          const Json& entry = parts[part];
          if (manifest.get<std::size_t>(entry, "backend") != backend ||
              manifest.get<std::size_t>(entry, "steps") != steps.size()) {
            throw incompatible(
                fmt::format("'{}' was {} steps on backend {}, and is now {} on backend {} ('{}')",
                            section(part), manifest.get<std::size_t>(entry, "steps"),
                            manifest.get<std::size_t>(entry, "backend"), steps.size(), backend,
                            shared.backends[backend]->name()));
          }
          ++part;
          return shared.backends[backend]->compile(lowered, steps);
        });
    part = 0;
    session.bound_->bind(shared, plan, [&](const Stage& stage, const BoundConstants& constants) {
      const std::size_t number_of_part = part++;
      return manifest.get<bool>(parts[number_of_part], "saved")
                 ? stage.partition->bind_saved(constants, snapshot.bytes(section(number_of_part)))
                 : stage.partition->bind(constants);
    });
    ++number;
  }
  return session;
}

}  // namespace tenon
