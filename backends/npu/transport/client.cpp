#include "connections.hpp"

#include <tenon/backends/npu_remote.hpp>
#include <tenon/error.hpp>
#include <tenon/npu/isa/address.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/instruction.hpp>
#include <tenon/npu/isa/memory_map.hpp>
#include <tenon/npu/isa/ranged_region.hpp>
#include <tenon/npu/isa/registers.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sstream>

#include <fmt/format.h>

namespace tenon {
namespace {

using namespace npu;
using namespace npu::transport;

[[noreturn]] void throw_lost(const std::string& where) {
  throw Error(Errc::device_lost, where, "the device's server is gone");
}

/// A memory region of the other process. Its addresses are dealt out here.
class RemoteRegion : public isa::RangedRegion {
 public:
  using MemRegion::copy;
  RemoteRegion(Connections& server, std::string name, std::uint32_t index, std::uint64_t base,
               std::uint64_t size)
      : RangedRegion(std::move(name), base, size, 0), server_(server), index_(index) {}

  void read(void* to, const MemPtr& from, std::uint64_t size) const override {
    fetch(to, base() + offset_of(from, size), size);
  }
  void write(const MemPtr& to, const void* from, std::uint64_t size) override {
    store(base() + offset_of(to, size), from, size);
  }
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override {
    const std::uint64_t target = base() + offset_of(to, size);
    call({Verb::copy_mem, index_, target, base() + offset_of(from, size), size, 0});
  }

  std::uint64_t begin() const noexcept { return base(); }
  /// Memory that the server's process uses itself, which begins within the region.
  void keep_off(std::uint64_t begin, std::uint64_t size) {
    reserve(MemPtr(begin), std::min(size, base() + usage().capacity_bytes - begin));
  }

 protected:
  void fetch(void* to, std::uint64_t address, std::uint64_t size) const {
    auto* bytes = static_cast<std::byte*>(to);
    for (std::uint64_t done = 0; done < size;) {
      const std::uint64_t piece = std::min(size - done, max_payload);
      call({Verb::read_mem, index_, address + done, piece, 0, 0}, {}, {bytes + done, piece});
      done += piece;
    }
  }
  void store(std::uint64_t address, const void* from, std::uint64_t size) const {
    const auto* bytes = static_cast<const std::byte*>(from);
    for (std::uint64_t done = 0; done < size;) {
      const std::uint64_t piece = std::min(size - done, max_payload);
      call({Verb::write_mem, index_, address + done, 0, 0, 0}, {bytes + done, piece});
      done += piece;
    }
  }

 private:
  void call(const Request& request, std::span<const std::byte> payload = {},
            std::span<std::byte> result = {}) const {
    try {
      server_.call(request, payload, result);
    } catch (const Disconnected&) {
      throw_lost(device().url() + ", " + name());
    }
  }

  Connections& server_;
  std::uint32_t index_;
};

/// Shared memory without sharing: this process has its own copy, and a sync carries bytes over.
class RemoteExchange final : public RemoteRegion {
 public:
  RemoteExchange(Connections& server, std::string name, std::uint32_t index, std::uint64_t base,
                 std::uint64_t size)
      : RemoteRegion(server, std::move(name), index, base, size),
        // The chunk's alignments count from the base; the copy begins at a page.
        memory_(new(std::align_val_t{page}) std::byte[size]()) {}
  ~RemoteExchange() override { ::operator delete[](memory_, std::align_val_t{page}); }

  bool is_host() const noexcept override { return true; }
  void read(void* to, const MemPtr& from, std::uint64_t size) const override {
    sync(from.addr(), size, false);
    std::memcpy(to, memory_ + offset_of(from, size), size);
  }
  void write(const MemPtr& to, const void* from, std::uint64_t size) override {
    std::memcpy(memory_ + offset_of(to, size), from, size);
    sync(to.addr(), size, true);
  }
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override {
    std::byte* const source = memory_ + offset_of(from, size);
    std::byte* const target = memory_ + offset_of(to, size);
    sync(from.addr(), size, false);
    std::memmove(target, source, size);
    sync(to.addr(), size, true);
  }
  void sync(std::uint64_t address, std::uint64_t size, bool to_device) const {
    std::byte* const at = memory_ + offset_of(MemPtr(address), size);
    if (to_device) {
      store(address, at, size);
    } else {
      fetch(at, address, size);
    }
  }

 private:
  static constexpr std::size_t page = 4096;
  MemPtr pointer(std::uint64_t address) const override {
    return {memory_ + (address - base()), address};
  }
  std::byte* memory_;
};

class RemoteRegisters final : public RegRegion {
 public:
  RemoteRegisters(Connections& server, std::string name, std::uint32_t index)
      : RegRegion(std::move(name)), server_(server), index_(index) {}  // the server checks

  std::uint64_t read(std::uint64_t address, bool relative) const override {
    try {
      const std::uint64_t value =
          server_.call({Verb::read_reg, index_, address, relative ? 1U : 0U, 0, 0});
      return is_caps3(address, relative) && value != isa::gone
                 ? value & ~std::uint64_t{isa::bits::coherent.mask()}
                 : value;
    } catch (const Disconnected&) {
      return isa::gone;
    }
  }
  void write(std::uint64_t address, std::uint64_t value, bool relative) override {
    try {
      server_.call({Verb::write_reg, index_, address, relative ? 1U : 0U, value, 0});
    } catch (const Disconnected&) {  // as a write to any device that is gone
    }
  }

 private:
  bool is_caps3(std::uint64_t address, bool relative) const {
    return name() == "npu" && address - (relative ? 0 : isa::npu_registers_base) == isa::reg::caps3;
  }

  Connections& server_;
  std::uint32_t index_;
};

class RemoteDevice final : public Device, public isa::DeviceControl {
 public:
  RemoteDevice(const DeviceUrl& url, std::string path)
      : Device(url.text), server_(std::move(path)) {
    std::istringstream lines(server_.description());
    std::string kind;
    std::string name;
    std::uint32_t memories = 0;
    std::uint32_t banks = 0;
    while (lines >> kind >> name) {
      if (kind == "reg") {
        declare(std::make_unique<RemoteRegisters>(server_, name, banks++), name == "npu");
        continue;
      }
      const std::uint64_t size = number(lines), used_begin = number(lines),
                          used_size = number(lines);
      declare_memory(name, memories++, size, used_begin, used_size);
    }
    if (exchange_ == nullptr || banks == 0) throw_odd("no regions of an NPU");
    init();
  }
  ~RemoteDevice() override { deinit(); }

  std::string protocol() const override { return "unix"; }
  std::map<std::string, std::string> version() const override {
    return {{"isa", fmt::format("{}.{}", isa::version_major, isa::version_minor)},
            {"transport", std::to_string(protocol_version)}};
  }
  std::map<std::string, std::string> params() const override {
    std::string text;
    call({Verb::parameters, 0, 0, 0, 0, 0}, &text);
    std::map<std::string, std::string> result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t equals = line.find('=');
      if (equals != std::string::npos) result[line.substr(0, equals)] = line.substr(equals + 1);
    }
    result.insert_or_assign("coherent", std::string(1, '0'));
    return result;
  }
  void reset(int level) override {
    check_reset_level(level);
    call({Verb::reset, 0, static_cast<std::uint64_t>(level), 0, 0, 0});
  }

  std::uint32_t wait_irq(std::uint32_t mask, std::chrono::nanoseconds timeout) override {
    const auto end = std::chrono::steady_clock::now() +
                     std::min<std::chrono::nanoseconds>(timeout, std::chrono::years(1));
    for (;;) {
      const auto left = std::max<std::chrono::nanoseconds>(end - std::chrono::steady_clock::now(),
                                                           std::chrono::nanoseconds(0));
      const auto wait =
          std::min<std::uint64_t>(static_cast<std::uint64_t>(left.count()), max_wait_ns);
      try {
        const std::uint64_t pending = server_.call({Verb::wait_irq, 0, mask, wait, 0, 0});
        if (pending != 0 || left.count() == 0) return static_cast<std::uint32_t>(pending);
      } catch (const Disconnected&) {
        return isa::gone;
      }
    }
  }

  void sync(const MemPtr& begin, std::uint64_t size, Direction direction) override {
    exchange_->sync(begin.addr(), size, direction == Direction::to_device);
    // For the count of the device; where it keeps two copies too, they are one after its write.
    call({Verb::sync, 0, begin.addr(), size, direction == Direction::to_device ? 0U : 1U, 0});
  }

 private:
  /// What is served there is another device, or none.
  [[noreturn]] void throw_odd(const std::string& what) const {
    throw Error(Errc::incompatible, url(), "what is served there has " + what);
  }
  /// The next word of the server's description.
  std::uint64_t number(std::istringstream& lines) const {
    std::string word;
    lines >> word;
    std::uint64_t value = 0;
    const char* const end = word.data() + word.size();
    const auto read = std::from_chars(word.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end)
      throw_odd(fmt::format("'{}' in the place of a number", word));
    return value;
  }

  void declare_memory(const std::string& name, std::uint32_t index, std::uint64_t size,
                      std::uint64_t used_begin, std::uint64_t used_size) {
    // Where the next memory begins; of etm also what a register of MiB holds.
    const std::uint64_t most = name == "xchg"  ? isa::etm_base - isa::xchg_base
                               : name == "etm" ? isa::ocm_base - isa::etm_base
                                               : std::uint64_t{1} << 32;
    if (size == 0 || size > most) throw_odd(fmt::format("a region '{}' of {} bytes", name, size));
    RemoteRegion& region = declare_region(name, index, size);
    if (used_size == 0) return;
    if (used_begin < region.begin() || used_begin - region.begin() >= size)
      throw_odd(fmt::format("memory in use outside of its region '{}'", name));
    region.keep_off(used_begin, used_size);
  }
  RemoteRegion& declare_region(const std::string& name, std::uint32_t index, std::uint64_t size) {
    if (name == "xchg") {
      auto region = std::make_unique<RemoteExchange>(server_, name, index, isa::xchg_base, size);
      exchange_ = region.get();
      declare(std::move(region));
      return *exchange_;
    }
    if (name != "etm" && name != "ocm") {
      throw_odd(fmt::format("a region '{}', which no NPU has", name));
    }
    const bool etm = name == "etm";
    auto region = std::make_unique<RemoteRegion>(server_, name, index,
                                                 etm ? isa::etm_base : isa::ocm_base, size);
    RemoteRegion& declared = *region;
    declare(std::move(region), etm);
    return declared;
  }

  void call(const Request& request, std::string* text = nullptr) const {
    try {
      server_.call(request, {}, {}, text);
    } catch (const Disconnected&) {
      throw_lost(url());
    }
  }

  mutable Connections server_;
  RemoteExchange* exchange_ = nullptr;
};

DevicePtr open(const DeviceUrl& url) {
  if (!url.params.empty()) {
    throw Error(Errc::bad_key, url.text,
                fmt::format("the server has set every parameter, also '{}'", url.params[0].first));
  }
  return std::make_shared<RemoteDevice>(url, url.address.substr(std::strlen("unix:")));
}

}  // namespace

void register_npu_remote() { isa::register_address("unix:", open); }

}  // namespace tenon
