// The memories of the device: bytes at the addresses that docs/npu-device.md gives them.
#pragma once

#include <tenon/npu/isa/memory_map.hpp>
#include <tenon/npu/isa/owner_process.hpp>
#include <tenon/npu/isa/ranged_region.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace own {

namespace isa = tenon::npu::isa;

inline constexpr std::uint64_t etm_bytes = 32 << 20;
inline constexpr std::uint64_t xchg_bytes = 1 << 20;
inline constexpr std::uint64_t ocm_bytes = 256 << 10;
inline constexpr std::uint64_t acc_bytes = 64 << 10;

/// What the CPU and the instructions work on. The device is coherent: both see the same bytes.
struct Memory {
  std::vector<std::byte> xchg = std::vector<std::byte>(xchg_bytes);
  std::vector<std::byte> etm = std::vector<std::byte>(etm_bytes);
  std::vector<std::byte> ocm = std::vector<std::byte>(ocm_bytes);
  std::vector<std::int32_t> acc = std::vector<std::int32_t>(acc_bytes / 4);

  /// The bytes at an address of etm or xchg; null where it is neither.
  std::byte* at(std::uint64_t address, std::uint64_t size) {
    const auto within = [&](std::vector<std::byte>& bytes, std::uint64_t base) -> std::byte* {
      const std::uint64_t offset = address - base;
      if (address < base || offset > bytes.size() || size > bytes.size() - offset) return nullptr;
      return bytes.data() + offset;
    };
    std::byte* const etm_byte = within(etm, isa::etm_base);
    return etm_byte != nullptr ? etm_byte : within(xchg, isa::xchg_base);
  }
};

/// One of them as the host sees it. Allocation comes from the package.
class Region final : public isa::RangedRegion {
 public:
  Region(std::string name, std::uint64_t base, std::vector<std::byte>& bytes,
         const isa::OwnerProcess& process)
      : RangedRegion(std::move(name), base, bytes.size(), /*redzone=*/0),
        bytes_(bytes),
        process_(process) {}

  bool is_host() const noexcept override { return base() == isa::xchg_base; }
  using MemRegion::copy;
  void read(void* to, const tenon::MemPtr& from, std::uint64_t size) const override {
    std::memcpy(to, checked(from, size), size);
  }
  void write(const tenon::MemPtr& to, const void* from, std::uint64_t size) override {
    std::memcpy(checked(to, size), from, size);
  }
  void copy(const tenon::MemPtr& to, const tenon::MemPtr& from, std::uint64_t size) override {
    std::memmove(checked(to, size), checked(from, size), size);
  }

 private:
  tenon::MemPtr pointer(std::uint64_t address) const override {
    if (!is_host()) return tenon::MemPtr(address);
    return {bytes_.data() + (address - base()), address};
  }
  std::byte* checked(const tenon::MemPtr& pointer, std::uint64_t size) const {
    process_.check(name());
    return bytes_.data() + offset_of(pointer, size);
  }

  std::vector<std::byte>& bytes_;
  const isa::OwnerProcess& process_;
};

}  // namespace own
