#include "backend/plugin_backend.hpp"

#include <algorithm>
#include <exception>
#include <mutex>

#include <fmt/format.h>

namespace tenon {
namespace {

/// An object of a plugin, and a reference to the plugin's library, which must be released last.
template <class T>
struct Held {
  std::shared_ptr<const void> library;
  T object;
};

/// Nothing is kept of what a plugin packs: it reads all constants that it uses.
std::optional<ConstantUse> as_read(std::optional<ConstantUse> use) {
  if (!use) return use;
  for (const ConstantUse::Kept& kept : use->kept) use->read.push_back(kept.constant);
  use->kept.clear();
  return use;
}

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
  SavedPartition save() const override {
    SavedPartition saved = guarded(plugin_, [&] { return inner_.object->save(); });
    saved.use = as_read(std::move(saved.use));
    return saved;
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

  std::vector<std::string> notes() const override {
    return guarded(plugin_, [&] { return inner_.object->notes(); });
  }

  std::optional<ConstantUse> constant_use() const override {
    return as_read(guarded(plugin_, [&] { return inner_.object->constant_use(); }));
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    // Weights outlive backends: what the plugin packs goes into a cache that holds the library too.
    using Cache = Held<PreparedCache>;
    const auto kept = std::static_pointer_cast<const Cache>(constants.prepared.get(
        "plugin:" + plugin_, [&] { return std::make_shared<Cache>(inner_.library); }));
    auto& cache = const_cast<Cache&>(*kept).object;
    auto made = guarded(
        plugin_, [&] { return inner_.object->bind({constants.buffers, cache, constants.key}); });
    if (!made) throw Error(Errc::plugin_fault, plugin_, "bind made nothing");
    return std::make_unique<HeldBoundPartition>(
        Held<std::unique_ptr<BoundPartition>>{inner_.library, std::move(made)}, plugin_);
  }

 private:
  Held<std::unique_ptr<Partition>> inner_;
  std::string plugin_;
};

class HeldBackend final : public Backend {
 public:
  HeldBackend(Held<BackendPtr> inner, PluginDevices* devices)
      : inner_(std::move(inner)), devices_(devices), name_(inner_.object->name()) {}

  std::string_view name() const noexcept override { return name_; }
  MemRegion& region() const override {
    return guarded(name_, [&]() -> MemRegion& {
      MemRegion& region = inner_.object->region();
      if (devices_ != nullptr) devices_->add(region);
      return region;
    });
  }
  std::optional<std::string> refuses(const Step& step) const override {
    return guarded(name_, [&] { return inner_.object->refuses(step); });
  }
  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    return held("compile", [&] { return inner_.object->compile(program, steps); });
  }
  std::unique_ptr<Partition> restore(const Lowered& program, std::span<const Step> steps,
                                     std::span<const std::byte> saved) const override {
    return held("restore", [&] { return inner_.object->restore(program, steps, saved); });
  }
  std::unique_ptr<Partition> recompile(const Lowered& program, std::span<const Step> steps,
                                       std::span<const std::byte> saved) const override {
    return held("recompile", [&] { return inner_.object->recompile(program, steps, saved); });
  }
  bool wants_unrolled() const noexcept override { return inner_.object->wants_unrolled(); }
  std::map<std::string, std::string> properties() const override {
    return guarded(name_, [&] { return inner_.object->properties(); });
  }

 private:
  template <class Make>
  std::unique_ptr<Partition> held(std::string_view what, const Make& make) const {
    auto partition = guarded(name_, make);
    if (!partition) throw Error(Errc::plugin_fault, name_, fmt::format("{} made nothing", what));
    return std::make_unique<HeldPartition>(
        Held<std::unique_ptr<Partition>>{inner_.library, std::move(partition)}, name_);
  }

  Held<BackendPtr> inner_;
  PluginDevices* devices_;
  std::string name_;
};

/// The device of a region; null where none that is shared has it.
std::shared_ptr<const Device> device_of(const MemRegion& region) {
  try {
    return region.device().weak_from_this().lock();
  } catch (const Error&) {  // no device has adopted it
    return nullptr;
  }
}

std::size_t chunks_of(const Device& device) {
  std::size_t count = 0;
  for (const auto& region : device.mem_regions()) count += region->all_chunks().size();
  return count;
}

}  // namespace

void PluginDevices::add(const MemRegion& region) {
  if (region.is_host()) return;  // sessions have arrays of CPU memory in the program's own device
  const auto device = device_of(region);
  if (device == nullptr) return;
  const auto is_known = [&] {
    return std::ranges::any_of(entries_,
                               [&](const Entry& entry) { return entry.device.lock() == device; });
  };
  {
    const std::scoped_lock lock(mutex_);
    if (is_known()) return;
  }
  const std::size_t chunks = chunks_of(*device);
  const std::scoped_lock lock(mutex_);
  std::erase_if(entries_, [](const Entry& entry) { return entry.device.expired(); });
  if (!is_known()) entries_.push_back({device, chunks});
}

bool PluginDevices::has_arrays() const {
  std::vector<Entry> entries;
  {
    const std::scoped_lock lock(mutex_);
    entries = entries_;
  }
  return std::ranges::any_of(entries, [](const Entry& entry) {
    const auto device = entry.device.lock();
    return device != nullptr && chunks_of(*device) > entry.own_chunks;
  });
}

BackendPtr keep_loaded(BackendPtr backend, std::shared_ptr<const void> library,
                       PluginDevices* devices) {
  return std::make_shared<const HeldBackend>(
      Held<BackendPtr>{std::move(library), std::move(backend)}, devices);
}

}  // namespace tenon
