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

/// A device URL: scheme "npu", address "sim", parameters in the order written. "cpu:" is a scheme
/// alone; "cuda:0" has the address "0".
struct DeviceUrl {
  std::string text;
  std::string scheme;
  std::string address;
  std::vector<std::pair<std::string, std::string>> params;

  /// scheme ":" ["//"] address ["?" key "=" value {"&" key "=" value}] in printable ASCII, the
  /// scheme a letter and then letters, digits, '+', '-' or '.'; Errc::syntax, and
  /// Errc::duplicate_name for a repeated key.
  static DeviceUrl parse(std::string_view url);

  /// The value of a parameter; null when it is not given.
  const std::string* find(std::string_view key) const noexcept;
  /// For factories: Errc::bad_key, naming the first parameter that is none of these.
  void check_keys(std::initializer_list<std::string_view> known) const;
};

/// Memory and registers behind one URL. Shared; regions live as long as their device.
class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Opens through the factory registered for the URL's scheme. Errc::device_unavailable when none
  /// is, Errc::bad_key naming a parameter that the device does not know, Errc::out_of_memory also
  /// where no thread can be started. "cpu:" is one shared device.
  static DevicePtr open(std::string_view url);

  /// Makes a device for a parsed URL; registered once per scheme (Errc::duplicate_name).
  using Factory = std::function<DevicePtr(const DeviceUrl& url)>;
  static void register_scheme(std::string scheme, Factory factory);
  static std::vector<std::string> schemes();

  const std::string& url() const noexcept { return url_; }
  virtual std::string protocol() const = 0;                        ///< "cpu", "sim", ...
  virtual std::map<std::string, std::string> version() const = 0;  ///< component -> version
  virtual std::map<std::string, std::string> params() const = 0;   ///< every effective parameter

  /// Brings the device back to where it takes work again. Level 0 ends the work that is running and
  /// clears errors; 1 also gives registers their first values; 2 also forgets what memory holds
  /// (the chunks stay). Errc::bad_argument for other levels: implementations call
  /// check_reset_level(). Errc::device_lost when the device no longer answers.
  virtual void reset(int level = 0) = 0;

  /// In declaration order; a region may depend on the ones before it.
  const std::vector<std::unique_ptr<MemRegion>>& mem_regions() const noexcept { return mem_; }
  const std::vector<std::unique_ptr<RegRegion>>& reg_regions() const noexcept { return reg_; }
  /// Errc::bad_reference when the device has no region of this name.
  MemRegion& mem_region(std::string_view name) const;
  RegRegion& reg_region(std::string_view name) const;
  /// The one declared as the default, or else the first. Errc::unsupported when there is none.
  MemRegion& default_mem_region() const;
  RegRegion& default_reg_region() const;

 protected:
  explicit Device(std::string url) : url_(std::move(url)) {}

  // For constructors of devices: adopt regions in dependency order (Errc::duplicate_name for a
  // second one of a name), then init() runs each in order; when one throws, those before it are
  // taken back. The destructor of the concrete device calls deinit(), which runs them backwards; so
  // does their destruction. A device that keeps chunks of its own would never end: it allocates
  // them in its constructor, where chunks do not hold the device yet.
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
  std::size_t initialised_ = 0;  // the first so many of order_
  MemRegion* default_mem_ = nullptr;
  RegRegion* default_reg_ = nullptr;
};

/// The CPU's own memory: one region "host", pointers of kind cptr, no registers.
DevicePtr cpu_device();

}  // namespace tenon
