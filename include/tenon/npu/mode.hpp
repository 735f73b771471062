#pragma once

#include <cstdint>
#include <string_view>

namespace tenon::npu {

/// Where the layers of a network run, and in which arithmetic.
enum class Mode : std::uint8_t {
  device,          ///< on the device
  exact,           ///< on the CPU, in the device's integer arithmetic: bit-identical results
  fake_quantized,  ///< on the CPU: weights rounded to int8, everything else f32, nothing saturates
  floating,        ///< on the CPU, in f32
};

/// "device", "exact", "fake_quantized", "floating".
std::string_view to_string(Mode mode) noexcept;

}  // namespace tenon::npu
