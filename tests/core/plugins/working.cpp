// A plugin that runs ops through their references and packs a weight, to see what it keeps alive.
#include "support/fake_device.hpp"

#include <tenon/backend.hpp>
#include <tenon/error.hpp>

#include <memory>
#include <vector>

namespace {

using namespace tenon;

/// What bind makes once for all partitions: destroyed by code of this library.
struct Packed {
  virtual ~Packed() = default;
};

class Work final : public Partition, public BoundPartition {
 public:
  Work(std::span<const Step> steps, std::shared_ptr<const void> packed)
      : steps_(steps), packed_(std::move(packed)) {}

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    return std::make_unique<Work>(
        steps_, constants.prepared.get("packed", [] { return std::make_shared<const Packed>(); }));
  }

  std::vector<std::string> notes() const override {
    return {steps_.front().value + ": by its reference"};
  }

  void run(HostFrame& frame) const override {
    for (const Step& step : steps_) {
      std::vector<HostView> inputs;
      for (const Operand& input : step.inputs) inputs.push_back(frame.view(input));
      step.op.def()->reference(step.op.attributes(), inputs, frame.view(step.output));
    }
  }

 private:
  std::span<const Step> steps_;
  std::shared_ptr<const void> packed_;
};

/// A class of this library, whatever the program has under that name.
class OwnDevice final : public testing::FakeDevice {
 public:
  OwnDevice() : own_(dram().malloc(64)) {}

 private:
  MemChunk own_;
};

class WorkingBackend final : public Backend {
 public:
  explicit WorkingBackend(DevicePtr device) : device_(std::move(device)) {}
  std::string_view name() const noexcept override { return "working"; }
  MemRegion& region() const override { return device_->default_mem_region(); }
  std::optional<std::string> refuses(const Step& step) const override {
    if (step.kind != Step::Kind::op) return "ops alone";
    return std::nullopt;
  }
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step> steps) const override {
    return std::make_unique<Work>(steps, nullptr);
  }
  std::map<std::string, std::string> properties() const override { return {{"kind", "test"}}; }

 private:
  DevicePtr device_;
};

const PluginDescriptor descriptor{
    .name = "working",
    .create = [](const BackendOptions& options) -> BackendPtr {
      const DevicePtr device = options.exact ? std::make_shared<OwnDevice>() : cpu_device();
      return std::make_shared<const WorkingBackend>(device);
    },
    .scheme = "fake",
    .create_for = [](const DevicePtr& device, const BackendOptions& options) -> BackendPtr {
      if (!options.device.has_value()) throw Error(Errc::bad_argument, device->url(), "no options");
      return std::make_shared<const WorkingBackend>(device);
    }};

}  // namespace

extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept { return &descriptor; }
