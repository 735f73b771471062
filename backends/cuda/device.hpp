#pragma once

#include "driver/driver.hpp"
#include "staging.hpp"

#include <tenon/device.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tenon::cuda {

/// What a device's URL chooses: "cuda:0?graphs=off&checks=on".
struct DeviceOptions {
  bool graphs = true;     ///< repeated runs are launched as CUDA graphs
  bool overlap = true;    ///< a kernel of a graph may begin while the one before it ends
  bool checks = false;    ///< redzones beside every allocation
  bool libraries = true;  ///< cuBLASLt and cuDNN, where they are
  bool fusion = true;   ///< element-wise steps become generated kernels, where there is a compiler
  bool digits = false;  ///< few rows are multiplied as digits in tensor cores (gemv_codes.hpp)
  bool tf32 = false;    ///< they may round f32 to TF32, but in exact computations
};

/// A device's memory, of which the CPU can address nothing. Copies wait until they are done.
class DeviceMemory final : public MemRegion {
 public:
  DeviceMemory(DriverPtr driver, bool has_redzones);
  ~DeviceMemory() override;

  bool is_host() const noexcept override { return false; }
  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override;
  void write(const MemPtr& to, const void* from, std::uint64_t size) override;
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override;
  /// From another CUDA device without the CPU's memory.
  void copy(const MemPtr& to, const MemRegion& source, const MemPtr& from,
            std::uint64_t size) override;
  /// Without staging: to pinned memory, or few bytes.
  void read_unstaged(void* to, const MemPtr& from, std::uint64_t size) const;
  Usage usage() const override;

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override;
  void release(const MemPtr& begin, std::uint64_t size) override;
  std::uint64_t redzone_bytes() const noexcept override { return redzone_; }

 private:
  /// On a stream that no other copy uses meanwhile, so that those of several threads do not wait
  /// for each other.
  template <class Submit>
  void run_copy(Submit&& submit) const;
  StreamId take_stream() const;

  DriverPtr driver_;
  std::uint64_t redzone_;
  mutable std::mutex mutex_;
  mutable std::vector<StreamId> streams_;  ///< not in use
  mutable Staging staging_;
};

/// Pinned memory of the CPU, to which a device copies, and from which, without staging.
class PinnedMemory final : public MemRegion {
 public:
  explicit PinnedMemory(DriverPtr driver) : MemRegion("pinned"), driver_(std::move(driver)) {}

  bool is_host() const noexcept override { return true; }
  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override;
  void write(const MemPtr& to, const void* from, std::uint64_t size) override;
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override;
  void copy(const MemPtr& to, const MemRegion& source, const MemPtr& from,
            std::uint64_t size) override;

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override;
  void release(const MemPtr& begin, std::uint64_t size) override;

 private:
  DriverPtr driver_;
};

/// "cuda:N", or "cuda:emulated".
class CudaDevice final : public Device {
 public:
  /// `number`: CUDA's.
  CudaDevice(std::string url, int number, DriverPtr driver, const DeviceOptions& options);
  ~CudaDevice() override;

  std::string protocol() const override { return driver_->facts().protocol; }
  std::map<std::string, std::string> version() const override { return driver_->facts().version; }
  std::map<std::string, std::string> params() const override;
  /// A device that failed stays so: Errc::device_error, with what it failed of.
  void reset(int level) override;

  const DriverPtr& driver() const noexcept { return driver_; }
  int number() const noexcept { return number_; }
  const DeviceOptions& options() const noexcept { return options_; }
  void count_graph_launch() noexcept { ++graph_launches_; }

 private:
  int number_;
  DriverPtr driver_;
  DeviceOptions options_;
  std::atomic<std::uint64_t> graph_launches_{0};
};

/// Opens "cuda:emulated?..."; registered by the emulation, where a program links that. The keys of
/// DeviceOptions are not its own.
using EmulatedDeviceFactory = DriverPtr (*)(const DeviceUrl& url);
void register_emulated_devices(EmulatedDeviceFactory factory);

/// Opens a device of the scheme "cuda".
DevicePtr open_device(const DeviceUrl& url);

}  // namespace tenon::cuda
