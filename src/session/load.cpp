// A session from a file that save.cpp wrote, or somebody else: nothing in it is believed unchecked.
#include "session/constants.hpp"
#include "session/manifest.hpp"
#include "session/saved_plan.hpp"
#include "session/state.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/snapshot.hpp>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {

using namespace sessions;

namespace {

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
  if (!(weight->shape() == shape) && !is_object(weight->shape().dtype())) {
    throw Error(Errc::incompatible, manifest.where(),
                fmt::format("weight '{}' is {}, given as {}", name, to_string(shape),
                            to_string(weight->shape())));
  }
  const HostBuffer host = stored(*weight);
  if (digest_of(bytes_of(host)) != manifest.get<std::string>(entry, "xxh3")) {
    throw Error(Errc::incompatible, manifest.where(),
                fmt::format("weight '{}' holds other values than when this was saved", name));
  }
  return *weight;
}

/// The backends by the names that were saved, where those are of no device.
std::vector<BackendPtr> saved_backends(const Manifest& manifest) {
  const std::vector<std::string> known = backend_names();
  std::vector<BackendPtr> backends;
  for (const Json& one : manifest.list("backends")) {
    const auto name = manifest.get<std::string>(one, "name");
    if (std::ranges::find(known, name) == known.end()) {
      throw manifest.incompatible(
          fmt::format("'backends' names '{}', which has to be given: a backend of a device", name));
    }
    backends.push_back(make_backend(name));
  }
  return backends;
}

void check_backends(const Manifest& manifest, std::span<const BackendPtr> backends) {
  const Json::array_t& wanted = manifest.list("backends");
  if (wanted.size() != backends.size()) {
    std::vector<std::string> saved, given;
    for (const Json& one : wanted) saved.push_back(manifest.get<std::string>(one, "name"));
    for (const BackendPtr& one : backends) given.emplace_back(one ? one->name() : "null");
    throw manifest.incompatible(fmt::format("'backends' names {}, {} are given: {} and {}",
                                            wanted.size(), backends.size(), fmt::join(saved, ", "),
                                            fmt::join(given, ", ")));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto name = manifest.get<std::string>(wanted[i], "name");
    if (backends[i] == nullptr) {
      throw Error(Errc::bad_argument, "Session::load", "a null backend");
    }
    if (name != backends[i]->name()) {
      throw manifest.incompatible(
          fmt::format("'backends[{}]' is '{}', given '{}'", i, name, backends[i]->name()));
    }
  }
}

/// Which backend each op goes to, where views said so.
std::optional<std::map<std::string, std::size_t>> load_views(const Manifest& manifest,
                                                             std::size_t backend_count) {
  if (manifest.member(manifest.root(), "views").is_null()) return std::nullopt;
  auto chosen = manifest.get<std::map<std::string, std::size_t>>("views");
  for (const auto& [value, backend] : chosen) {
    if (backend < backend_count) continue;
    throw Error(Errc::corrupt, manifest.where(),
                fmt::format("manifest: 'views' puts '{}' on backend {}", value, backend));
  }
  return chosen;
}

struct OpenedSnapshot {
  Snapshot snapshot;
  bool is_trusted;  ///< nobody but this user or the superuser can have written it
};
OpenedSnapshot open_snapshot(const std::filesystem::path& path) {
  try {
    return {Snapshot::open(path, {.only_private = true}), true};
  } catch (const Error& error) {
    if (error.code() != Errc::path_escape && error.code() != Errc::io_error) throw;
  }
  return {Snapshot::open(path), false};
}

/// What PreparedCache::keep() was given, in the pages of the file.
std::shared_ptr<PreparedCache> load_prepared(const Snapshot& snapshot, bool is_trusted,
                                             const Manifest& manifest) {
  std::map<std::string, PreparedCache::Bytes> kept;
  if (!manifest.is_older()) {
    std::size_t index = 0;
    for (const Json& entry : manifest.list("prepared")) {
      kept.insert_or_assign(
          manifest.get<std::string>(entry, "key"),
          PreparedCache::Bytes{snapshot.bytes(fmt::format("prepared/{}", index++)),
                               snapshot.keeper(), is_trusted});
    }
  }
  return std::make_shared<PreparedCache>(std::move(kept));
}

}  // namespace

class Session::Loader {
 public:
  explicit Loader(const std::filesystem::path& path) : Loader(open_snapshot(path)) {}

  Session load(std::vector<BackendPtr> backends, const WeightSet* weights) const {
    if (backends.empty()) backends = saved_backends(manifest_);
    check_backends(manifest_, backends);
    Program program = parse(snapshot_.text("program"), manifest_.where() + ": program");
    program.folded = load_arrays(snapshot_, manifest_, "folded", "folded");
    SessionOptions options{.backends = std::move(backends)};
    options.plan_limit = manifest_.get<std::size_t>("plan_limit");
    // Files of earlier versions do not say.
    options.forbid_fallback =
        manifest_.root().contains("forbid_fallback") && manifest_.get<bool>("forbid_fallback");
    options.results_on_device = !manifest_.is_older() && manifest_.get<bool>("results_on_device");
    Session session(std::move(program), std::move(options));
    session.shared_->chosen = load_views(manifest_, session.backends().size());
    session.state_->options.merge = manifest_.get<bool>("merge");
    session.state_->merge_is_fixed = true;
    bind_weights(session, weights);
    std::size_t number = 0;
    for (const Json& plan : manifest_.list("plans")) load_plan(session, plan, number++);
    return session;
  }

 private:
  explicit Loader(OpenedSnapshot opened)
      : snapshot_(std::move(opened.snapshot)),
        is_trusted_(opened.is_trusted),
        manifest_(snapshot_) {}

  void bind_weights(Session& session, const WeightSet* given) const {
    const bool asks = manifest_.is_older() || manifest_.get<bool>("asks_for_weights");
    std::map<std::string, Buffer> weights;
    std::map<std::string, std::string> digests;
    for (const auto& [name, array] : load_arrays(snapshot_, manifest_, "weights", "weight")) {
      weights.emplace(name, array.to_device(cpu_device()));
    }
    for (const Json& entry : manifest_.list("weights")) {
      const auto name = manifest_.get<std::string>(entry, "name");
      if (manifest_.get<bool>(entry, "bytes")) {
        // Others than the file's would be ignored: they are bound after loading.
        if (given != nullptr && given->find(name) != nullptr) {
          static_cast<void>(checked_weight(given, manifest_, entry));
        }
        continue;
      }
      if (asks || given != nullptr) {
        weights.emplace(name, checked_weight(given, manifest_, entry));
      } else {
        weights.emplace(name, Buffer(manifest_.shape(entry)));
        digests.emplace(name, manifest_.get<std::string>(entry, "xxh3"));
      }
    }
    // A session that was saved before weights were bound has none in the file.
    if (given != nullptr && weights.empty()) weights = given->all();
    session.bind(std::make_shared<const WeightSet>(
        std::move(weights), load_prepared(snapshot_, is_trusted_, manifest_)));
    session.bound_->digests = std::move(digests);
  }

  void load_plan(Session& session, const Json& saved, std::size_t number) const {
    Shared& shared = *session.shared_;
    const std::shared_ptr<const WeightSet>& weights = session.bound_->weights;
    SavedPlan plan(snapshot_, manifest_, saved, number, session.backends(), weights);
    if (manifest_.is_older()) {
      session.bound_->bind(shared, shared.plan_for(plan.inputs(), plan.is_merged(), weights.get()));
      return;
    }
    auto made = shared.add_plan(plan.inputs(), plan.is_merged(), weights.get(), plan.maker());
    plan.check(*made);
    session.bound_->bind(shared, std::move(made));
  }

  Snapshot snapshot_;
  bool is_trusted_;
  Manifest manifest_;
};

Session Session::load(const std::filesystem::path& path, std::vector<BackendPtr> backends,
                      std::shared_ptr<const WeightSet> weights) {
  return with_memory_errors("Session::load",
                            [&] { return Loader(path).load(std::move(backends), weights.get()); });
}

}  // namespace tenon
