// A simulated NPU behind a device that gets something wrong: what the kit for devices has to find.
#pragma once

#include <tenon/backends/npu_sim.hpp>
#include <tenon/device.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/memory_map.hpp>
#include <tenon/npu/isa/ranged_region.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace tenon::npu::testing {

/// What is changed on the way between the host and the device. Empty functions change nothing.
struct Wrong {
  std::function<std::uint32_t(std::uint32_t offset, std::uint32_t value)> read_register{};
  /// Writes nothing where it returns false.
  std::function<bool(std::uint32_t offset, std::uint32_t& value)> write_register{};
  /// Where an access to memory goes.
  std::function<std::uint64_t(std::uint64_t address)> memory{};
  std::function<std::uint32_t(std::uint32_t pending)> wait_irq{};
  std::function<int(int level)> reset{};
  bool syncs = true;
  std::string lacks{};  ///< name of a region of memory or registers
  std::string default_region = "etm";
};

class WrongRegion final : public isa::RangedRegion {
 public:
  WrongRegion(MemRegion& inner, std::uint64_t base, const Wrong& wrong)
      : RangedRegion(inner.name(), base, inner.usage().capacity_bytes, 0),
        inner_(inner),
        wrong_(wrong) {
    const MemPtr probe = inner.malloc(64).begin();
    if (probe.has_cptr())
      first_ = probe + (static_cast<std::int64_t>(base) - static_cast<std::int64_t>(probe.addr()));
  }
  bool is_host() const noexcept override { return inner_.is_host(); }
  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override {
    inner_.read(to, target(from), size);
  }
  void write(const MemPtr& to, const void* from, std::uint64_t size) override {
    inner_.write(target(to), from, size);
  }
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override {
    inner_.copy(target(to), target(from), size);
  }

 private:
  MemPtr pointer(std::uint64_t address) const override {
    return first_.has_addr() ? first_ + static_cast<std::int64_t>(address - base())
                             : MemPtr(address);
  }
  MemPtr target(const MemPtr& pointer) const {
    return MemPtr(wrong_.memory ? wrong_.memory(pointer.addr()) : pointer.addr());
  }

  MemRegion& inner_;
  const Wrong& wrong_;
  MemPtr first_;
};

class WrongRegisters final : public RegRegion {
 public:
  WrongRegisters(RegRegion& inner, const Wrong& wrong)
      : RegRegion("npu", inner.base(), inner.size_bytes()), inner_(inner), wrong_(wrong) {}
  std::uint64_t read(std::uint64_t address, bool relative) const override {
    const std::uint64_t offset = offset_of(address, relative);
    const auto value = static_cast<std::uint32_t>(inner_.read(offset, true));
    return wrong_.read_register ? wrong_.read_register(static_cast<std::uint32_t>(offset), value)
                                : value;
  }
  void write(std::uint64_t address, std::uint64_t value, bool relative) override {
    const std::uint64_t offset = offset_of(address, relative);
    auto bits = static_cast<std::uint32_t>(value);
    if (wrong_.write_register && !wrong_.write_register(static_cast<std::uint32_t>(offset), bits)) {
      return;
    }
    inner_.write(offset, bits, true);
  }

 private:
  RegRegion& inner_;
  const Wrong& wrong_;
};

class WrongDevice final : public Device, public isa::DeviceControl {
 public:
  /// `url` of a simulated device; without host DMA, whose memory of xchg this one knows nothing of.
  explicit WrongDevice(Wrong wrong, const std::string& url = "npu://sim?ddr=64MiB&dma=1MiB")
      : Device("npu://wrong"), wrong_(std::move(wrong)) {
    register_npu_sim();
    inner_ = Device::open(url + "&hostdma=0");
    const std::pair<const char*, std::uint64_t> memories[] = {
        {"xchg", isa::xchg_base}, {"etm", isa::etm_base}, {"ocm", isa::ocm_base}};
    for (const auto& [name, base] : memories) {
      if (wrong_.lacks == name) continue;
      declare(std::make_unique<WrongRegion>(inner_->mem_region(name), base, wrong_),
              wrong_.default_region == name);
    }
    if (wrong_.lacks != "npu") {
      declare(std::make_unique<WrongRegisters>(inner_->reg_region("npu"), wrong_), true);
    }
    init();
  }
  ~WrongDevice() override { deinit(); }

  std::string protocol() const override { return "wrong"; }
  std::map<std::string, std::string> version() const override { return inner_->version(); }
  std::map<std::string, std::string> params() const override { return inner_->params(); }
  void reset(int level) override { inner_->reset(wrong_.reset ? wrong_.reset(level) : level); }
  std::uint32_t wait_irq(std::uint32_t mask, std::chrono::nanoseconds timeout) override {
    const std::uint32_t pending = control().wait_irq(mask, timeout);
    return wrong_.wait_irq ? wrong_.wait_irq(pending) : pending;
  }
  void sync(const MemPtr& begin, std::uint64_t size, Direction direction) override {
    if (wrong_.syncs) control().sync(begin, size, direction);
  }

 private:
  isa::DeviceControl& control() { return dynamic_cast<isa::DeviceControl&>(*inner_); }

  Wrong wrong_;
  DevicePtr inner_;
};

}  // namespace tenon::npu::testing
