#pragma once

#include "driver/driver.hpp"

#include <tenon/device.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::cuda {

/// A device's memory, of which the CPU can address nothing. Copies wait until they are done.
class DeviceMemory final : public MemRegion {
 public:
  explicit DeviceMemory(DriverPtr driver);
  ~DeviceMemory() override;

  bool is_host() const noexcept override { return false; }
  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override;
  void write(const MemPtr& to, const void* from, std::uint64_t size) override;
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override;
  Usage usage() const override;

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override;
  void release(const MemPtr& begin, std::uint64_t size) override;

 private:
  /// On a stream that no other copy uses meanwhile, so that those of several threads do not wait
  /// for each other.
  template <class Submit>
  void run_copy(Submit&& submit) const;
  StreamId take_stream() const;

  DriverPtr driver_;
  mutable std::mutex mutex_;
  mutable std::vector<StreamId> streams_;  ///< not in use
};

/// "cuda:N", or "cuda:emulated".
class CudaDevice final : public Device {
 public:
  CudaDevice(std::string url, DriverPtr driver);
  ~CudaDevice() override;

  std::string protocol() const override { return driver_->facts().protocol; }
  std::map<std::string, std::string> version() const override { return driver_->facts().version; }
  std::map<std::string, std::string> params() const override;
  /// A device that failed stays so: Errc::device_error, with what it failed of.
  void reset(int level) override;

  const DriverPtr& driver() const noexcept { return driver_; }

 private:
  DriverPtr driver_;
};

/// Opens "cuda:emulated?..."; registered by the emulation, where a program links that.
using EmulatedDeviceFactory = DriverPtr (*)(const DeviceUrl& url);
void register_emulated_devices(EmulatedDeviceFactory factory);

/// Opens a device of the scheme "cuda".
DevicePtr open_device(const DeviceUrl& url);

}  // namespace tenon::cuda
