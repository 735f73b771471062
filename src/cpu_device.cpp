#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tenon {
namespace {

/// Beyond what any x86-64 process can address; refused here because allocators differ on whether
/// such a request fails or ends the process.
constexpr std::uint64_t address_space = std::uint64_t{1} << 47;
constexpr std::uint64_t max_alignment = std::uint64_t{1} << 30;

class HostRegion final : public MemRegion {
 public:
  HostRegion() : MemRegion("host") {}

  bool is_host() const noexcept override { return true; }

  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override {
    std::memmove(to, from.cptr(), size);
  }
  void write(const MemPtr& to, const void* from, std::uint64_t size) override {
    std::memmove(to.cptr(), from, size);
  }
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override {
    std::memmove(to.cptr(), from.cptr(), size);
  }

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override {
    if (size > address_space || alignment > max_alignment) throw_no_room(size, alignment);
    void* bytes = nullptr;
    if (posix_memalign(&bytes, std::max<std::uint64_t>(alignment, sizeof(void*)), size) != 0) {
      throw_no_room(size, alignment);
    }
    return MemPtr(bytes);
  }
  void release(const MemPtr& begin, std::uint64_t) override { std::free(begin.cptr()); }
};

class CpuDevice final : public Device {
 public:
  CpuDevice() : Device("cpu:") {
    declare(std::make_unique<HostRegion>(), true);
    init();
  }
  ~CpuDevice() override { deinit(); }

  std::string protocol() const override { return "cpu"; }
  std::map<std::string, std::string> version() const override { return {}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int) override {}
};

}  // namespace

// Never destroyed: arrays in static objects give their chunks back after main.
DevicePtr cpu_device() {
  static const DevicePtr* const device = new DevicePtr(std::make_shared<CpuDevice>());
  return *device;
}

}  // namespace tenon
