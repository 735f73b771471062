#include <tenon/npu/isa/enums.hpp>

namespace tenon::npu::isa {

#define TENON_NPU_ENUM(Type, meaning)                \
  std::span<const EnumValue> values(Type) noexcept { \
    static constexpr EnumValue all[] = {
#define TENON_NPU_VALUE(id, value, meaning) {#id, value, meaning},
#define TENON_NPU_ENUM_END(Type) \
  }                              \
  ;                              \
  return all;                    \
  }
#include <tenon/npu/isa/isa.def>

}  // namespace tenon::npu::isa
