#pragma once

#include <tenon/memory.hpp>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon {

class Device;
using DevicePtr = std::shared_ptr<Device>;

/// A device URL, such as "npu://sim?ocm=2MiB": scheme "npu", address "sim", parameters in the order
/// written. "cpu:" is a scheme alone; "cuda:0" has the address "0".
struct DeviceUrl {
  std::string text;
  std::string scheme;
  std::string address;
  std::vector<std::pair<std::string, std::string>> params;

  /// Parses scheme ":" ["//"] address ["?" key "=" value {"&" key "=" value}] in printable ASCII. A
  /// scheme is a letter, then letters, digits, '+', '-' or '.'. Errc::syntax; Errc::duplicate_name
  /// for a repeated key.
  static DeviceUrl parse(std::string_view url);

  /// The value of a parameter; null when it is not given.
  const std::string* find(std::string_view key) const noexcept;
  /// For factories: throws Errc::bad_key, naming the first parameter that is not in `known`.
  void check_keys(std::initializer_list<std::string_view> known) const;
};

/// The memory and registers behind one URL. Shared; regions live as long as their device.
class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Opens a device with the factory of the URL's scheme. "cpu:" is one shared device.
  /// Errc::device_unavailable without a factory, Errc::bad_key naming a parameter that the device
  /// does not know, Errc::out_of_memory also where no thread can be started.
  static DevicePtr open(std::string_view url);

  /// Makes a device for a parsed URL. Each scheme has one factory (Errc::duplicate_name).
  using Factory = std::function<DevicePtr(const DeviceUrl& url)>;
  static void register_scheme(std::string scheme, Factory factory);
  static std::vector<std::string> schemes();

  const std::string& url() const noexcept { return url_; }
  virtual std::string protocol() const = 0;                        ///< "cpu", "sim", ...
  virtual std::map<std::string, std::string> version() const = 0;  ///< component -> version
  virtual std::map<std::string, std::string> params() const = 0;   ///< every effective parameter

  /// Resets the device so that it accepts work again. Level 0 aborts running work and clears
  /// errors; 1 also resets registers to their initial values; 2 also discards the contents of
  /// memory (chunks stay allocated). Errc::bad_argument for other levels: implementations call
  /// check_reset_level(). Errc::device_lost when the device no longer answers.
  virtual void reset(int level = 0) = 0;

  /// In declaration order; a region may depend on the ones before it.
  const std::vector<std::unique_ptr<MemRegion>>& mem_regions() const noexcept { return mem_; }
  const std::vector<std::unique_ptr<RegRegion>>& reg_regions() const noexcept { return reg_; }
  /// Errc::bad_reference when the device has no region of this name.
  MemRegion& mem_region(std::string_view name) const;
  RegRegion& reg_region(std::string_view name) const;
  /// The region declared as default, otherwise the first. Errc::unsupported when there is none.
  MemRegion& default_mem_region() const;
  RegRegion& default_reg_region() const;

 protected:
  explicit Device(std::string url) : url_(std::move(url)) {}

  // For constructors of devices: declare() regions in dependency order (Errc::duplicate_name for a
  // name used twice), then init() initialises them in that order; when one throws, those before it
  // are deinitialised. The destructor of the concrete device calls deinit(), which goes in reverse
  // order, as their destruction does. Chunks hold a reference to their device, so a device that
  // keeps chunks of its own would never be freed: it allocates them in its constructor, where
  // chunks do not hold the device yet.
  MemRegion& declare(std::unique_ptr<MemRegion> region, bool is_default = false);
  RegRegion& declare(std::unique_ptr<RegRegion> region, bool is_default = false);
  void init();
  void deinit() noexcept;

  void check_reset_level(int level) const;

 private:
  struct Part {  // exactly one is set
    MemRegion* mem;
    RegRegion* reg;
  };
  std::string url_;
  std::vector<std::unique_ptr<MemRegion>> mem_;
  std::vector<std::unique_ptr<RegRegion>> reg_;
  std::vector<Part> order_;
  std::size_t initialised_ = 0;  // how many of order_, from the front
  MemRegion* default_mem_ = nullptr;
  RegRegion* default_reg_ = nullptr;
};

/// The CPU's own memory: one region "host", pointers of kind cptr, no registers.
DevicePtr cpu_device();

}  // namespace tenon
