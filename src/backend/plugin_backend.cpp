#include "backend/plugin_backend.hpp"

#include <exception>

namespace tenon {
namespace {

/// An object of a plugin, and a reference to the plugin's library, which must be released last.
template <class T>
struct Held {
  std::shared_ptr<const void> library;
  T object;
};

class HeldBoundPartition final : public BoundPartition {
 public:
  HeldBoundPartition(Held<std::unique_ptr<BoundPartition>> inner, std::string plugin)
      : inner_(std::move(inner)), plugin_(std::move(plugin)) {}

  void run(HostFrame& frame) const override {
    guarded(plugin_, [&] { inner_.object->run(frame); });
  }
  void run_on_device(DeviceFrame& frame) const override {
    guarded(plugin_, [&] { inner_.object->run_on_device(frame); });
  }
  std::vector<std::byte> save() const override {
    return guarded(plugin_, [&] { return inner_.object->save(); });
  }

 private:
  Held<std::unique_ptr<BoundPartition>> inner_;
  std::string plugin_;
};

class HeldPartition final : public Partition {
 public:
  HeldPartition(Held<std::unique_ptr<Partition>> inner, std::string plugin)
      : inner_(std::move(inner)), plugin_(std::move(plugin)) {}

  std::int64_t scratch_bytes() const override {
    return guarded(plugin_, [&] { return inner_.object->scratch_bytes(); });
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    return bound([&](const BoundConstants& held) { return inner_.object->bind(held); }, constants);
  }
  std::unique_ptr<BoundPartition> bind_saved(const BoundConstants& constants,
                                             std::span<const std::byte> saved) const override {
    return bound([&](const BoundConstants& held) { return inner_.object->bind_saved(held, saved); },
                 constants);
  }

 private:
  template <class Bind>
  std::unique_ptr<BoundPartition> bound(const Bind& bind, const BoundConstants& constants) const {
    // Weights outlive backends: what the plugin packs goes into a cache that holds the library too.
    using Cache = Held<PreparedCache>;
    const auto kept = std::static_pointer_cast<const Cache>(constants.prepared.get(
        "plugin:" + plugin_, [&] { return std::make_shared<Cache>(inner_.library); }));
    auto& cache = const_cast<Cache&>(*kept).object;
    auto made = guarded(plugin_, [&] { return bind({constants.buffers, cache}); });
    if (!made) throw Error(Errc::plugin_fault, plugin_, "bind made nothing");
    return std::make_unique<HeldBoundPartition>(
        Held<std::unique_ptr<BoundPartition>>{inner_.library, std::move(made)}, plugin_);
  }

  Held<std::unique_ptr<Partition>> inner_;
  std::string plugin_;
};

class HeldBackend final : public Backend {
 public:
  explicit HeldBackend(Held<BackendPtr> inner)
      : inner_(std::move(inner)), name_(inner_.object->name()) {}

  std::string_view name() const noexcept override { return name_; }
  MemRegion& region() const override {
    return guarded(name_, [&]() -> MemRegion& { return inner_.object->region(); });
  }
  std::optional<std::string> refuses(const Step& step) const override {
    return guarded(name_, [&] { return inner_.object->refuses(step); });
  }
  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    auto partition = guarded(name_, [&] { return inner_.object->compile(program, steps); });
    if (!partition) throw Error(Errc::plugin_fault, name_, "compile made nothing");
    return std::make_unique<HeldPartition>(
        Held<std::unique_ptr<Partition>>{inner_.library, std::move(partition)}, name_);
  }
  bool wants_unrolled() const noexcept override { return inner_.object->wants_unrolled(); }
  std::map<std::string, std::string> properties() const override {
    return guarded(name_, [&] { return inner_.object->properties(); });
  }

 private:
  Held<BackendPtr> inner_;
  std::string name_;
};

}  // namespace

BackendPtr keep_loaded(BackendPtr backend, std::shared_ptr<const void> library) {
  return std::make_shared<const HeldBackend>(
      Held<BackendPtr>{std::move(library), std::move(backend)});
}

}  // namespace tenon
