// A session from a file that save.cpp wrote, or somebody else: nothing in it is believed unchecked.
#include "session/manifest.hpp"
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

void check_backends(const Manifest& manifest, std::span<const BackendPtr> backends) {
  const Json::array_t& wanted = manifest.list("backends");
  if (wanted.size() != backends.size()) {
    throw manifest.incompatible(
        fmt::format("'backends' names {}, {} are given", wanted.size(), backends.size()));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto name = manifest.get<std::string>(wanted[i], "name");
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

std::shared_ptr<const WeightSet> load_weights(const Snapshot& snapshot, const Manifest& manifest,
                                              const WeightSet* given) {
  std::map<std::string, Buffer> weights;
  for (const auto& [name, array] : load_arrays(snapshot, manifest, "weights", "weight")) {
    weights.emplace(name, array.to_device(cpu_device()));
  }
  for (const Json& entry : manifest.list("weights")) {
    if (manifest.get<bool>(entry, "bytes")) continue;
    weights.emplace(manifest.get<std::string>(entry, "name"),
                    checked_weight(given, manifest, entry));
  }
  return std::make_shared<const WeightSet>(std::move(weights));
}

}  // namespace

class Session::Loader {
 public:
  explicit Loader(const std::filesystem::path& path)
      : snapshot_(Snapshot::open(path)), manifest_(snapshot_) {}

  Session load(std::vector<BackendPtr> backends, const WeightSet* weights) const {
    check_backends(manifest_, backends);
    Program program = parse(snapshot_.text("program"), manifest_.where() + ": program");
    program.folded = load_arrays(snapshot_, manifest_, "folded", "folded");
    SessionOptions options{.backends = std::move(backends)};
    options.plan_limit = manifest_.get<std::size_t>("plan_limit");
    Session session(std::move(program), std::move(options));
    session.shared_->chosen = load_views(manifest_, session.backends().size());
    session.state_->options.merge = manifest_.get<bool>("merge");
    session.state_->merge_is_fixed = true;
    session.bind(load_weights(snapshot_, manifest_, weights));
    std::size_t number = 0;
    for (const Json& plan : manifest_.list("plans")) load_plan(session, plan, number++);
    return session;
  }

 private:
  void load_plan(Session& session, const Json& saved, std::size_t number) const {
    std::vector<Shape> inputs;
    for (const Json& input : manifest_.list(saved, "inputs")) {
      inputs.push_back(manifest_.shape(input));
    }
    const Json::array_t& parts = manifest_.list(saved, "parts");
    const auto section = [&](std::size_t part) {
      return fmt::format("plan/{}/part/{}", number, part);
    };
    const std::span<const BackendPtr> backends = session.backends();
    std::size_t next = 0;
    const auto plan = session.shared_->add_plan(
        inputs, manifest_.get<bool>(saved, "merged"), session.bound_->weights.get(),
        [&](std::size_t backend, const Lowered& lowered, std::span<const Step> together,
            std::span<const Step> steps) {
          if (next == parts.size()) {
            throw manifest_.incompatible(
                fmt::format("'{}' is not there: the plan has become longer", section(next)));
          }
          const auto was_on = manifest_.get<std::size_t>(parts[next], "backend");
          const auto was_long = manifest_.get<std::size_t>(parts[next], "steps");
          if (was_on != backend || was_long != steps.size()) {
            throw manifest_.incompatible(fmt::format(
                "'{}' was {} steps on backend {}, and is now {} on backend {} ('{}')",
                section(next), was_long, was_on, steps.size(), backend, backends[backend]->name()));
          }
          ++next;
          return compile_stage(*backends[backend], lowered, together, steps);
        });
    if (next != parts.size()) {
      throw manifest_.incompatible(
          fmt::format("'{}' is left over: the plan has become shorter", section(next)));
    }
    next = 0;
    session.bound_->bind(
        *session.shared_, plan, [&](const Stage& stage, const BoundConstants& constants) {
          const std::size_t part = next++;
          return manifest_.get<bool>(parts[part], "saved")
                     ? stage.partition->bind_saved(constants, snapshot_.bytes(section(part)))
                     : stage.partition->bind(constants);
        });
  }

  Snapshot snapshot_;
  Manifest manifest_;
};

Session Session::load(const std::filesystem::path& path, std::vector<BackendPtr> backends,
                      std::shared_ptr<const WeightSet> weights) {
  return with_memory_errors("Session::load",
                            [&] { return Loader(path).load(std::move(backends), weights.get()); });
}

}  // namespace tenon
