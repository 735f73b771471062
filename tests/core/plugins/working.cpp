// A plugin that runs ops through their references and packs a weight, to see what it keeps alive.
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

class WorkingBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "working"; }
  MemRegion& region() const override { return cpu_device()->default_mem_region(); }
  std::optional<std::string> refuses(const Step& step) const override {
    if (step.kind != Step::Kind::op) return "ops alone";
    return std::nullopt;
  }
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step> steps) const override {
    return std::make_unique<Work>(steps, nullptr);
  }
  std::map<std::string, std::string> properties() const override { return {{"kind", "test"}}; }
};

const PluginDescriptor descriptor{
    .name = "working",
    .create = [](const BackendOptions&) -> BackendPtr {
      return std::make_shared<const WorkingBackend>();
    },
    .scheme = "fake",
    .create_for = [](const DevicePtr& device, const BackendOptions& options) -> BackendPtr {
      if (!options.device.has_value()) throw Error(Errc::bad_argument, device->url(), "no options");
      return std::make_shared<const WorkingBackend>();
    }};

}  // namespace

extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept { return &descriptor; }
