#pragma once

#include <tenon/memory.hpp>
#include <tenon/npu/isa/enums.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::npu::isa {

/// What a device says of itself in its capability registers.
struct Caps {
  std::uint32_t array_rows = 32;
  std::uint32_t array_cols = 32;
  std::uint32_t ocm_bytes = 0;
  std::uint32_t acc_bytes = 0;
  Flow flow = Flow::ws;
  std::uint32_t wbuf = 2;
  bool coherent = false;
  bool strict = false;
  bool m8 = false;
  bool host_dma = false;
  std::uint32_t queue_depth = 0;
  std::uint32_t freq_khz = 0;
  std::uint32_t ddr_kbps = 0;  ///< thousands of bytes per second
  std::uint32_t ddr_latency = 0;
  std::uint32_t ddr_mib = 0;
  friend bool operator==(const Caps&, const Caps&) = default;
};

/// Errc::device_lost when the id register reads all ones, Errc::unsupported_version when the id or
/// the major version is another one.
Caps read_caps(const RegRegion& npu);

/// What of them no device of this instruction set has, a sentence each: no driver can work with it.
std::vector<std::string> odd_caps(const Caps& caps);

}  // namespace tenon::npu::isa
