// A device whose memory the CPU cannot address: proof that nothing above it assumes otherwise.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

/// Addresses [base, base + size), backed by host bytes that only read, write and copy may touch.
/// First fit; free ranges are what lies between the used ones.
class FakeRegion : public MemRegion {
 public:
  FakeRegion(std::string name, std::uint64_t base, std::uint64_t size, bool cpu_addressable,
             std::vector<std::string>* journal = nullptr)
      : MemRegion(std::move(name)),
        base_(base),
        cpu_addressable_(cpu_addressable),
        journal_(journal),
        cells_(size) {}

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

  Usage usage() const override {
    Usage usage = MemRegion::usage();
    usage.capacity_bytes = cells_.size();
    return usage;
  }

  MemPtr pointer(std::uint64_t offset) const {
    return cpu_addressable_ ? MemPtr(cells_.data() + offset, base_ + offset)
                            : MemPtr(base_ + offset);
  }
  std::size_t used_ranges() const {
    const std::scoped_lock lock(mutex_);
    return used_.size();
  }

  mutable std::atomic<int> transfers = 0;  ///< reads and writes so far

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override {
    const std::scoped_lock lock(mutex_);
    std::uint64_t at = 0;
    for (const auto& [begin, length] : used_) {
      if (begin >= at && begin - at >= size) break;
      at = (begin + length + alignment - 1) & ~(alignment - 1);
    }
    if (at > cells_.size() || size > cells_.size() - at) throw_no_room(size, alignment);
    used_.emplace(at, size);
    return pointer(at);
  }
  void release(const MemPtr& begin, std::uint64_t) override {
    const std::scoped_lock lock(mutex_);
    used_.erase(begin.addr() - base_);
  }
  void reserve(const MemPtr& begin, std::uint64_t size) override {
    const std::uint64_t at = begin.addr() - base_;
    if (at > cells_.size() || size > cells_.size() - at) {
      throw Error(Errc::out_of_range, name(), "outside the region");
    }
    const std::scoped_lock lock(mutex_);
    const auto next = used_.lower_bound(at);
    const bool hits_next = next != used_.end() && next->first - at < size;
    const bool hits_previous = next != used_.begin() && [&] {
      const auto& [other, length] = *std::prev(next);
      return at - other < length;
    }();
    if (hits_next || hits_previous) throw Error(Errc::overlap, name(), "the range is in use");
    used_.emplace(at, size);
  }
  void unreserve(const MemPtr& begin, std::uint64_t size) noexcept override {
    release(begin, size);
  }

 private:
  std::byte* cells(const MemPtr& at, std::uint64_t size) const {
    const std::uint64_t offset = at.addr() - base_;
    if (offset > cells_.size() || size > cells_.size() - offset) {
      throw Error(Errc::device_error, name(), "an access outside the region");
    }
    return cells_.data() + offset;
  }
  void note(const std::string& what) {
    if (journal_ != nullptr) journal_->push_back(what + " " + name());
  }

  std::uint64_t base_;
  bool cpu_addressable_;
  std::vector<std::string>* journal_;
  mutable std::vector<std::byte> cells_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> used_;
};

/// Sixteen registers of 64 bits, one every 8 bytes from `base`.
class FakeRegisters : public RegRegion {
 public:
  FakeRegisters(std::string name, std::uint64_t base, std::vector<std::string>* journal = nullptr)
      : RegRegion(std::move(name)), base_(base), journal_(journal) {}

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
    const std::uint64_t offset = relative ? address : address - base_;
    if (offset % 8 != 0 || offset / 8 >= values_.size()) {
      throw Error(Errc::out_of_range, name(), "no such register");
    }
    return offset / 8;
  }

  std::uint64_t base_;
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

  explicit FakeDevice(std::vector<std::string>* journal = nullptr) : Device("fake:") {
    declare(std::make_unique<FakeRegion>("xchg", xchg_base, region_bytes, true, journal));
    declare(std::make_unique<FakeRegisters>("npu", registers_base, journal));
    declare(std::make_unique<FakeRegion>("dram", dram_base, region_bytes, false, journal), true);
    init();
  }
  ~FakeDevice() override { deinit(); }

  FakeRegion& xchg() const { return static_cast<FakeRegion&>(mem_region("xchg")); }
  FakeRegion& dram() const { return static_cast<FakeRegion&>(mem_region("dram")); }

  std::string protocol() const override { return "fake"; }
  std::map<std::string, std::string> version() const override { return {{"core", "1"}}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int) override {}
};

}  // namespace tenon::testing
