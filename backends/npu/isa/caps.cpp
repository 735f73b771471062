#include <tenon/error.hpp>
#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/instruction.hpp>
#include <tenon/npu/isa/registers.hpp>

#include <fmt/format.h>

namespace tenon::npu::isa {

Caps read_caps(const RegRegion& npu) {
  const auto get = [&](std::uint32_t offset) {
    return static_cast<std::uint32_t>(npu.read(offset, true));
  };
  const std::uint32_t id = get(reg::id);
  if (id == gone) throw Error(Errc::device_lost, npu.name(), "the device does not answer");
  if (id != device_id) {
    throw Error(Errc::unsupported_version, npu.name(), fmt::format("id {:#010x} is no NPU", id));
  }
  const std::uint32_t found = get(reg::version);
  if (found >> 16 != version_major || (found & 0xFFFF) < version_minor) {
    throw Error(Errc::unsupported_version, npu.name(),
                fmt::format("instruction set {}.{}, needed is {}.{}", found >> 16, found & 0xFFFF,
                            version_major, version_minor));
  }
  const std::uint32_t array = get(reg::caps0);
  const std::uint32_t features = get(reg::caps3);
  Caps caps;
  caps.array_rows = bits::array_rows.get(array);
  caps.array_cols = bits::array_cols.get(array);
  caps.ocm_bytes = get(reg::caps1);
  caps.acc_bytes = get(reg::caps2);
  caps.flow = static_cast<Flow>(bits::flow.get(features));
  caps.wbuf = bits::wbuf.get(features);
  caps.coherent = bits::coherent.get(features) != 0;
  caps.strict = bits::strict.get(features) != 0;
  caps.m8 = bits::m8.get(features) != 0;
  caps.host_dma = bits::host_dma.get(features) != 0;
  caps.queue_depth = bits::queue_depth.get(features);
  caps.freq_khz = get(reg::freq_khz);
  caps.ddr_kbps = get(reg::ddr_kbps);
  caps.ddr_latency = get(reg::ddr_latency);
  caps.ddr_mib = get(reg::ddr_mib);
  if (caps.array_rows == 0 || caps.array_cols == 0 || caps.freq_khz == 0 || caps.ddr_kbps == 0) {
    throw Error(Errc::device_error, npu.name(), "capability registers read zero");
  }
  return caps;
}

std::vector<std::string> odd_caps(const Caps& caps) {
  std::vector<std::string> odd;
  if (caps.ocm_bytes % line_bytes != 0 || caps.ocm_bytes > (32U << 20)) {
    odd.push_back(
        fmt::format("caps1 says {} bytes of OCM, expected whole lines of 32 bytes up to 32 MiB",
                    caps.ocm_bytes));
  }
  if (caps.acc_bytes == 0 || caps.acc_bytes % acc_row_bytes != 0 || caps.acc_bytes > (2U << 20)) {
    odd.push_back(
        fmt::format("caps2 says {} bytes of ACC, expected whole rows of 128 bytes up to 2 MiB",
                    caps.acc_bytes));
  }
  if (!is_value<Flow>(static_cast<std::uint32_t>(caps.flow))) {
    odd.push_back(
        fmt::format("caps3 says flow {}, expected 0, 1 or 2", static_cast<int>(caps.flow)));
  }
  if (caps.wbuf < 1 || caps.wbuf > 2) {
    odd.push_back(fmt::format("caps3 says {} weight buffers, expected 1 or 2", caps.wbuf));
  }
  if (caps.queue_depth == 0) {
    odd.emplace_back("caps3 says that an engine's queue holds no instruction");
  }
  return odd;
}

}  // namespace tenon::npu::isa
