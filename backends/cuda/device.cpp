#include "device.hpp"

#include <tenon/error.hpp>

#include <atomic>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

constexpr std::uint64_t max_alignment = 256;

std::atomic<EmulatedDeviceFactory> emulated_devices{nullptr};

int index_of(const DeviceUrl& url) {
  int index = -1;
  const char* const end = url.address.data() + url.address.size();
  const auto [rest, error] = std::from_chars(url.address.data(), end, index);
  if (error == std::errc() && rest == end && index >= 0) return index;
  throw Error(Errc::device_unavailable, url.text,
              "a CUDA device is cuda:0, cuda:1, ..., or cuda:emulated where the program has it");
}

}  // namespace

DeviceMemory::DeviceMemory(DriverPtr driver) : MemRegion("device"), driver_(std::move(driver)) {}
DeviceMemory::~DeviceMemory() {
  for (const StreamId stream : streams_) driver_->destroy(stream);
}

StreamId DeviceMemory::take_stream() const {
  const std::scoped_lock lock(mutex_);
  if (streams_.empty()) return driver_->create_stream();
  const StreamId stream = streams_.back();
  streams_.pop_back();
  return stream;
}

template <class Submit>
void DeviceMemory::run_copy(Submit&& submit) const {
  const StreamId stream = take_stream();
  try {
    submit(stream);
    driver_->synchronize(stream);
  } catch (...) {
    driver_->destroy(stream);
    throw;
  }
  const std::scoped_lock lock(mutex_);
  streams_.push_back(stream);
}

void DeviceMemory::read(void* to, const MemPtr& from, std::uint64_t size) const {
  if (size == 0) return;
  run_copy([&](StreamId stream) { driver_->read(stream, to, from.addr(), size); });
}
void DeviceMemory::write(const MemPtr& to, const void* from, std::uint64_t size) {
  if (size == 0) return;
  run_copy([&](StreamId stream) { driver_->write(stream, to.addr(), from, size); });
}
void DeviceMemory::copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) {
  if (size == 0) return;
  run_copy([&](StreamId stream) { driver_->copy(stream, to.addr(), from.addr(), size); });
}

MemRegion::Usage DeviceMemory::usage() const {
  Usage usage = MemRegion::usage();
  usage.capacity_bytes = driver_->facts().memory_bytes;
  return usage;
}

MemPtr DeviceMemory::allocate(std::uint64_t size, std::uint64_t alignment) {
  if (alignment > max_alignment) {
    throw Error(Errc::bad_argument, name(),
                fmt::format("alignment {} is above {}", alignment, max_alignment));
  }
  return MemPtr(driver_->allocate(size));
}
void DeviceMemory::release(const MemPtr& begin, std::uint64_t /*size*/) {
  driver_->free(begin.addr());
}

CudaDevice::CudaDevice(std::string url, DriverPtr driver)
    : Device(std::move(url)), driver_(std::move(driver)) {
  declare(std::make_unique<DeviceMemory>(driver_), true);
  init();
}
CudaDevice::~CudaDevice() { deinit(); }

std::map<std::string, std::string> CudaDevice::params() const {
  std::map<std::string, std::string> params = driver_->facts().params;
  params["name"] = driver_->facts().name;
  params["free_bytes"] = std::to_string(driver_->free_bytes());
  return params;
}

void CudaDevice::reset(int level) {
  check_reset_level(level);
  driver_->destroy(driver_->create_event());  // throws what the device failed of
}

void register_emulated_devices(EmulatedDeviceFactory factory) { emulated_devices = factory; }

DevicePtr open_device(const DeviceUrl& url) {
  const EmulatedDeviceFactory emulated = emulated_devices;
  if (url.address == "emulated" && emulated != nullptr) {
    return std::make_shared<CudaDevice>(url.text, emulated(url));
  }
  const int index = index_of(url);
  url.check_keys({});
  return std::make_shared<CudaDevice>(url.text, open_cuda_driver(index));
}

}  // namespace tenon::cuda
