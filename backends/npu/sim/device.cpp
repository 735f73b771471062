#include "base/immortal.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "regions.hpp"

#include <tenon/backends/npu_sim.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/npu/isa/address.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/host_dma.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon {
namespace npu::sim {
namespace {

/// Watched on both sides of every chunk of a strict device.
constexpr std::uint64_t strict_redzone_bytes = 64;

class SimDevice final : public Device, public isa::DeviceControl {
 public:
  /// `executes` false is the mock: memory and capabilities, but nothing that can be started.
  SimDevice(const DeviceUrl& url, const Options& options, bool executes)
      : Device(url.text),
        options_(options),
        executes_(executes),
        machine_(std::make_unique<Machine>(options)) {
    const std::uint64_t redzone = options.strict ? strict_redzone_bytes : 0;
    auto xchg = std::make_unique<XchgRegion>(*machine_, process(), options.xchg_bytes, redzone);
    xchg_ = xchg.get();
    declare(std::move(xchg));
    RegRegion& registers = declare(
        std::make_unique<SimRegisters>(*machine_, process(), SimRegisters::Bank::npu, executes),
        true);
    if (options.host_dma) {
      host_dma_.emplace(
          registers, *xchg_,
          isa::HostDmaOptions{.patience = std::chrono::nanoseconds(options.patience_ns)});
      declare(std::make_unique<DmaEtmRegion>(*machine_, *host_dma_, process(), options.ddr_bytes,
                                             redzone),
              true);
    } else {
      declare(std::make_unique<EtmRegion>(*machine_, process(), options.ddr_bytes, redzone), true);
    }
    declare(std::make_unique<OcmRegion>(*machine_, process(), options.ocm_bytes));
    if (executes)
      declare(std::make_unique<SimRegisters>(*machine_, process(), SimRegisters::Bank::simctl));
    init();
  }
  ~SimDevice() override {
    host_dma_.reset();
    deinit();
    // A fork of the process that opened the device has no thread to end, and locks as they were.
    if (!process().is_this()) immortal<std::unique_ptr<Machine>>(std::move(machine_));
  }

  std::string protocol() const override { return executes_ ? "sim" : "mock"; }
  std::map<std::string, std::string> version() const override {
    return {{"isa", fmt::format("{}.{}", isa::version_major, isa::version_minor)},
            {"simulator", "1.0"}};
  }
  std::map<std::string, std::string> params() const override { return options_.params(); }

  /// Level 0 is the reset of the control register.
  void reset(int level) override {
    check_reset_level(level);
    process().check(url());
    if (machine_->is_removed()) throw Error(Errc::device_lost, url(), "the device is gone");
    machine_->reset(level);
  }

  std::uint32_t wait_irq(std::uint32_t mask, std::chrono::nanoseconds timeout) override {
    process().check(url());
    return machine_->wait_irq(mask, timeout);
  }
  void sync(const MemPtr& begin, std::uint64_t size, Direction direction) override {
    process().check(url());
    if (machine_->is_removed()) throw Error(Errc::device_lost, url(), "the device is gone");
    xchg_->sync(begin.addr(), size, direction == Direction::to_device);
  }

 private:
  const Options options_;
  const bool executes_;
  std::unique_ptr<Machine> machine_;
  XchgRegion* xchg_ = nullptr;
  std::optional<isa::HostDma> host_dma_;
};

DevicePtr open(const DeviceUrl& url, bool executes) {
  Options options = Options::parse(url);
  if (!executes) options.host_dma = false;
  return std::make_shared<SimDevice>(url, options, executes);
}

}  // namespace
}  // namespace npu::sim

void register_npu_sim() {
  npu::isa::register_address("sim", [](const DeviceUrl& url) { return npu::sim::open(url, true); });
  npu::isa::register_address("mock",
                             [](const DeviceUrl& url) { return npu::sim::open(url, false); });
}

}  // namespace tenon
