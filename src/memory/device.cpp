#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/log.hpp>

#include <algorithm>
#include <exception>

#include <fmt/format.h>

namespace tenon {
namespace {

template <class Regions>
auto& find_region(const Regions& regions, std::string_view name, const std::string& url) {
  for (const auto& region : regions) {
    if (region->name() == name) return *region;
  }
  std::string known;
  for (const auto& region : regions) known += (known.empty() ? "" : ", ") + region->name();
  throw Error(Errc::bad_reference, url,
              fmt::format("no region '{}'; there is: {}", name, known.empty() ? "none" : known));
}

template <class Region>
Region& default_region(Region* region, std::string_view what, const std::string& url) {
  if (region == nullptr) {
    throw Error(Errc::unsupported, url, fmt::format("the device has no {} region", what));
  }
  return *region;
}

template <class Region>
void adopt(std::vector<std::unique_ptr<Region>>& regions, Region*& chosen,
           std::unique_ptr<Region> region, bool is_default, const std::string& url) {
  if (!region) throw Error(Errc::bad_argument, url, "a null region");
  if (std::ranges::any_of(regions, [&](const auto& r) { return r->name() == region->name(); })) {
    throw Error(Errc::duplicate_name, url, fmt::format("two regions '{}'", region->name()));
  }
  regions.push_back(std::move(region));
  if (is_default || regions.size() == 1) chosen = regions.back().get();
}

}  // namespace

Device::~Device() {
  deinit();
  for (auto part = order_.rbegin(); part != order_.rend(); ++part) {  // dependants first
    if (part->mem != nullptr) {
      mem_.pop_back();
    } else {
      reg_.pop_back();
    }
  }
}

MemRegion& Device::declare(std::unique_ptr<MemRegion> region, bool is_default) {
  adopt(mem_, default_mem_, std::move(region), is_default, url_);
  mem_.back()->device_ = this;
  order_.push_back({mem_.back().get(), nullptr});
  return *mem_.back();
}

RegRegion& Device::declare(std::unique_ptr<RegRegion> region, bool is_default) {
  adopt(reg_, default_reg_, std::move(region), is_default, url_);
  order_.push_back({nullptr, reg_.back().get()});
  return *reg_.back();
}

void Device::init() {
  try {
    for (; initialised_ < order_.size(); ++initialised_) {
      const Part& part = order_[initialised_];
      if (part.mem != nullptr) {
        part.mem->init();
      } else {
        part.reg->init();
      }
    }
  } catch (...) {
    deinit();
    throw;
  }
}

void Device::deinit() noexcept {
  while (initialised_ > 0) {
    const Part& part = order_[--initialised_];
    try {
      if (part.mem != nullptr) {
        part.mem->report_remains();
        part.mem->deinit();
      } else {
        part.reg->deinit();
      }
    } catch (const std::exception& error) {
      log(LogLevel::error, error.what());
    } catch (...) {
      log(LogLevel::error, "a region's deinit threw something that is no std::exception");
    }
  }
}

void Device::check_reset_level(int level) const {
  if (level < 0 || level > 2) {
    throw Error(Errc::bad_argument, url_, fmt::format("reset level {}, expected 0 to 2", level));
  }
}

MemRegion& Device::mem_region(std::string_view name) const { return find_region(mem_, name, url_); }
RegRegion& Device::reg_region(std::string_view name) const { return find_region(reg_, name, url_); }

MemRegion& Device::default_mem_region() const {
  return default_region(default_mem_, "memory", url_);
}
RegRegion& Device::default_reg_region() const {
  return default_region(default_reg_, "register", url_);
}

}  // namespace tenon
