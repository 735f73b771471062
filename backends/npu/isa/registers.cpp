#include <tenon/npu/isa/registers.hpp>

namespace tenon::npu::isa {
namespace {

constexpr RegisterInfo register_map[] = {
#define TENON_NPU_REG(id, offset, access, meaning) {#id, offset, Access::access, meaning},
#include <tenon/npu/isa/isa.def>
};

constexpr RegisterInfo counter_map[] = {
#define TENON_NPU_PERF(id, offset, meaning) {#id, offset, Access::ro, meaning},
#include <tenon/npu/isa/isa.def>
};

}  // namespace

std::span<const RegisterInfo> registers() noexcept { return register_map; }
std::span<const RegisterInfo> counters() noexcept { return counter_map; }

const RegisterInfo* find_register(std::uint32_t offset) noexcept {
  for (const RegisterInfo& info : register_map) {
    if (info.offset == offset) return &info;
  }
  return nullptr;
}

}  // namespace tenon::npu::isa
