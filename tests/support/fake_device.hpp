// A device whose memory the CPU cannot address: proof that nothing above it assumes otherwise.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/range_allocator.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

/// Addresses [base, base + size), backed by host bytes that only read, write and copy may access.
class FakeRegion : public MemRegion {
 public:
  FakeRegion(const std::string& name, std::uint64_t base, std::uint64_t size, bool cpu_addressable,
             std::vector<std::string>* journal = nullptr, std::uint64_t redzone = 0)
      : MemRegion(name),
        cpu_addressable_(cpu_addressable),
        journal_(journal),
        cells_(size),
        ranges_(base, size, {name, redzone}) {}

  bool is_host() const noexcept override { return false; }
  void init() override { note("init"); }
  void deinit() override { note("deinit"); }

  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override {
    std::memcpy(to, cells(from, size), size);
    ++transfers;
  }
  void write(const MemPtr& to, const void* from, std::uint64_t size) override {
    std::memcpy(cells(to, size), from, size);
    ++transfers;
  }
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override {
    std::memmove(cells(to, size), cells(from, size), size);
  }

  Usage usage() const override { return ranges_.usage(); }

  MemPtr pointer(std::uint64_t offset) const {
    return cpu_addressable_ ? MemPtr(cells_.data() + offset, ranges_.base() + offset)
                            : MemPtr(ranges_.base() + offset);
  }
  std::size_t used_ranges() const { return ranges_.count(); }

  mutable std::atomic<int> transfers = 0;  ///< reads and writes so far

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override {
    const auto begin = ranges_.try_allocate(size, alignment);
    if (!begin) throw_no_room(size, alignment);
    return pointer(*begin - ranges_.base());
  }
  void release(const MemPtr& begin, std::uint64_t size) override {
    ranges_.release(begin.addr(), size);
  }
  void reserve(const MemPtr& begin, std::uint64_t size) override {
    ranges_.reserve(begin.addr(), size);
  }
  void unreserve(const MemPtr& begin, std::uint64_t size) noexcept override {
    ranges_.unreserve(begin.addr(), size);
  }
  std::uint64_t redzone_bytes() const noexcept override { return ranges_.redzone_bytes(); }

 private:
  std::byte* cells(const MemPtr& at, std::uint64_t size) const {
    const std::uint64_t offset = at.addr() - ranges_.base();
    if (offset > cells_.size() || size > cells_.size() - offset) {
      throw Error(Errc::device_error, name(), "an access outside the region");
    }
    return cells_.data() + offset;
  }
  void note(const std::string& what) {
    if (journal_ != nullptr) journal_->push_back(what + " " + name());
  }

  bool cpu_addressable_;
  std::vector<std::string>* journal_;
  mutable std::vector<std::byte> cells_;
  RangeAllocator ranges_;
};

/// Sixteen registers of 64 bits, one every 8 bytes from `base`.
class FakeRegisters : public RegRegion {
 public:
  FakeRegisters(std::string name, std::uint64_t base, std::vector<std::string>* journal = nullptr)
      : RegRegion(std::move(name), base, 16 * 8), journal_(journal) {}

  void init() override {
    if (journal_ != nullptr) journal_->push_back("init " + name());
  }
  void deinit() override {
    if (journal_ != nullptr) journal_->push_back("deinit " + name());
  }
  std::uint64_t read(std::uint64_t address, bool relative = false) const override {
    return values_.at(index(address, relative));
  }
  void write(std::uint64_t address, std::uint64_t value, bool relative = false) override {
    values_.at(index(address, relative)) = value;
  }

 private:
  std::size_t index(std::uint64_t address, bool relative) const {
    const std::uint64_t offset = offset_of(address, relative);
    if (offset % 8 != 0) throw Error(Errc::out_of_range, name(), "no such register");
    return offset / 8;
  }

  std::vector<std::string>* journal_;
  std::vector<std::uint64_t> values_ = std::vector<std::uint64_t>(16);
};

/// Exchange memory that both sides address, DRAM that needs it (the default), one register bank.
class FakeDevice : public Device {
 public:
  static constexpr std::uint64_t xchg_base = 0x8000'0000;
  static constexpr std::uint64_t dram_base = 0x1'0000'0000;
  static constexpr std::uint64_t registers_base = 0x4000'0000;
  static constexpr std::uint64_t region_bytes = std::uint64_t{4} << 20;

  explicit FakeDevice(std::vector<std::string>* journal = nullptr,
                      std::string url = "fake:", std::uint64_t dram_bytes = region_bytes)
      : Device(std::move(url)) {
    declare(std::make_unique<FakeRegion>("xchg", xchg_base, region_bytes, true, journal));
    declare(std::make_unique<FakeRegisters>("npu", registers_base, journal));
    declare(std::make_unique<FakeRegion>("dram", dram_base, dram_bytes, false, journal), true);
    init();
  }
  ~FakeDevice() override { deinit(); }

  FakeRegion& xchg() const { return static_cast<FakeRegion&>(mem_region("xchg")); }
  FakeRegion& dram() const { return static_cast<FakeRegion&>(mem_region("dram")); }

  std::string protocol() const override { return "fake"; }
  std::map<std::string, std::string> version() const override { return {{"core", "1"}}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int level) override { check_reset_level(level); }
};

}  // namespace tenon::testing
