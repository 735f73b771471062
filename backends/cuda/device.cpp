#include "device.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

constexpr std::uint64_t max_alignment = 256;
/// No machine has so many devices.
constexpr int emulated_number = 255;
/// Copies of fewer bytes are not worth pieces.
constexpr std::uint64_t staged_bytes = std::uint64_t{1} << 20;

std::atomic<EmulatedDeviceFactory> emulated_devices{nullptr};

void check_alignment(const MemRegion& region, std::uint64_t alignment) {
  if (alignment <= max_alignment) return;
  throw Error(Errc::bad_argument, region.name(),
              fmt::format("alignment {} is above {}", alignment, max_alignment));
}

struct OptionKey {
  const char* name;
  bool DeviceOptions::* value;
};
constexpr OptionKey option_keys[] = {
    {"graphs", &DeviceOptions::graphs}, {"overlap", &DeviceOptions::overlap},
    {"checks", &DeviceOptions::checks}, {"libraries", &DeviceOptions::libraries},
    {"fusion", &DeviceOptions::fusion}, {"digits", &DeviceOptions::digits},
    {"tf32", &DeviceOptions::tf32}};

bool is_on(const DeviceUrl& url, const char* key, bool by_default) {
  const std::string* const text = url.find(key);
  if (text == nullptr) return by_default;
  if (*text == "on") return true;
  if (*text == "off") return false;
  throw Error(Errc::out_of_range, url.text, fmt::format("{}={} is neither on nor off", key, *text));
}

/// Takes the keys of DeviceOptions out of a URL.
DeviceOptions take_options(DeviceUrl& url) {
  DeviceOptions options;
  for (const auto& [key, value] : option_keys) options.*value = is_on(url, key, options.*value);
  std::erase_if(url.params, [](const auto& param) {
    return std::ranges::any_of(option_keys,
                               [&](const OptionKey& key) { return param.first == key.name; });
  });
  return options;
}

int index_of(const DeviceUrl& url) {
  int index = -1;
  const char* const end = url.address.data() + url.address.size();
  const auto [rest, error] = std::from_chars(url.address.data(), end, index);
  if (error == std::errc() && rest == end && index >= 0) return index;
  throw Error(Errc::device_unavailable, url.text,
              "a CUDA device is cuda:0, cuda:1, ..., or cuda:emulated where the program has it");
}

}  // namespace

DeviceMemory::DeviceMemory(DriverPtr driver, bool has_redzones)
    : MemRegion("device"),
      driver_(std::move(driver)),
      redzone_(has_redzones ? max_alignment : 0),
      staging_(driver_) {}
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
  if (size >= staged_bytes) return staging_.read(to, from.addr(), size);
  read_unstaged(to, from, size);
}
void DeviceMemory::read_unstaged(void* to, const MemPtr& from, std::uint64_t size) const {
  if (size == 0) return;
  run_copy([&](StreamId stream) { driver_->read(stream, to, from.addr(), size); });
}
void DeviceMemory::write(const MemPtr& to, const void* from, std::uint64_t size) {
  if (size >= staged_bytes) return staging_.write(to.addr(), from, size);
  if (size == 0) return;
  run_copy([&](StreamId stream) { driver_->write(stream, to.addr(), from, size); });
}
void DeviceMemory::copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) {
  if (size == 0) return;
  run_copy([&](StreamId stream) { driver_->copy(stream, to.addr(), from.addr(), size); });
}

void DeviceMemory::copy(const MemPtr& to, const MemRegion& source, const MemPtr& from,
                        std::uint64_t size) {
  if (size == 0) return;
  if (dynamic_cast<const PinnedMemory*>(&source) != nullptr) {
    return run_copy([&](StreamId stream) { driver_->write(stream, to.addr(), from.cptr(), size); });
  }
  const auto* const other = dynamic_cast<const DeviceMemory*>(&source);
  if (other == nullptr || !driver_->is_peer(*other->driver_)) {
    return MemRegion::copy(to, source, from, size);
  }
  run_copy([&](StreamId stream) {
    driver_->copy_from_peer(stream, to.addr(), *other->driver_, from.addr(), size);
  });
}

MemRegion::Usage DeviceMemory::usage() const {
  Usage usage = MemRegion::usage();
  usage.capacity_bytes = driver_->facts().memory_bytes;
  return usage;
}

MemPtr DeviceMemory::allocate(std::uint64_t size, std::uint64_t alignment) {
  check_alignment(*this, alignment);
  if (size > ~std::uint64_t{0} - 2 * redzone_) throw_no_room(size, alignment);
  return MemPtr(driver_->allocate(size + 2 * redzone_) + redzone_);
}
void DeviceMemory::release(const MemPtr& begin, std::uint64_t /*size*/) {
  driver_->free(begin.addr() - redzone_);
}

void PinnedMemory::read(void* to, const MemPtr& from, std::uint64_t size) const {
  std::memcpy(to, from.cptr(), size);
}
void PinnedMemory::write(const MemPtr& to, const void* from, std::uint64_t size) {
  std::memcpy(to.cptr(), from, size);
}
void PinnedMemory::copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) {
  std::memmove(to.cptr(), from.cptr(), size);
}
void PinnedMemory::copy(const MemPtr& to, const MemRegion& source, const MemPtr& from,
                        std::uint64_t size) {
  if (const auto* const device = dynamic_cast<const DeviceMemory*>(&source)) {
    return device->read_unstaged(to.cptr(), from, size);
  }
  MemRegion::copy(to, source, from, size);
}
MemPtr PinnedMemory::allocate(std::uint64_t size, std::uint64_t alignment) {
  check_alignment(*this, alignment);
  return MemPtr(driver_->allocate_pinned(size));
}
void PinnedMemory::release(const MemPtr& begin, std::uint64_t /*size*/) {
  driver_->free_pinned(begin.cptr());
}

CudaDevice::CudaDevice(std::string url, int number, DriverPtr driver, const DeviceOptions& options)
    : Device(std::move(url)), number_(number), driver_(std::move(driver)), options_(options) {
  declare(std::make_unique<DeviceMemory>(driver_, options.checks), true);
  declare(std::make_unique<PinnedMemory>(driver_));
  init();
}
CudaDevice::~CudaDevice() { deinit(); }

std::map<std::string, std::string> CudaDevice::params() const {
  std::map<std::string, std::string> params = driver_->facts().params;
  params["name"] = driver_->facts().name;
  params["free_bytes"] = std::to_string(driver_->free_bytes());
  params["graph_launches"] = std::to_string(graph_launches_);
  for (const auto& [key, value] : option_keys) params[key] = options_.*value ? "on" : "off";
  return params;
}

void CudaDevice::reset(int level) {
  check_reset_level(level);
  driver_->destroy(driver_->create_event());  // throws what the device failed of
}

void register_emulated_devices(EmulatedDeviceFactory factory) { emulated_devices = factory; }

DevicePtr open_device(const DeviceUrl& url) {
  DeviceUrl rest = url;
  const DeviceOptions options = take_options(rest);
  const EmulatedDeviceFactory emulated = emulated_devices;
  if (url.address == "emulated" && emulated != nullptr) {
    return std::make_shared<CudaDevice>(url.text, emulated_number, emulated(rest), options);
  }
  const int index = index_of(url);
  rest.check_keys({});
  return std::make_shared<CudaDevice>(url.text, index, open_cuda_driver(index), options);
}

}  // namespace tenon::cuda
