#pragma once

#include "faults.hpp"

#include <tenon/device.hpp>
#include <tenon/npu/isa/caps.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tenon::npu::sim {

/// What the URL of a simulated device sets; the defaults are those of a URL without parameters.
struct Options {
  std::uint32_t array_rows = 32;  ///< mac=32x32, each 1 to 1024
  std::uint32_t array_cols = 32;
  std::uint64_t ocm_bytes = 2 << 20;                 ///< ocm=2MiB, 4 KiB to 32 MiB
  std::uint64_t acc_bytes = 256 << 10;               ///< acc=256KiB, 4 KiB to 2 MiB
  std::uint64_t ddr_bytes = std::uint64_t{1} << 30;  ///< ddr=1GiB, 1 MiB to 60 GiB, whole MiB
  std::uint64_t xchg_bytes = 16 << 20;               ///< dma=16MiB, 64 KiB to 1 GiB
  std::uint64_t freq_hz = 800'000'000;               ///< freq=800MHz, whole MHz
  std::uint64_t ddr_bps = 12'800'000'000;            ///< bw=12.8GB/s, whole MB/s
  std::uint32_t ddr_latency = 96;                    ///< lat=96, cycles
  std::uint32_t wbuf = 2;                            ///< wbuf=1|2
  isa::Flow flow = isa::Flow::ws;                    ///< flow=ws|os|is
  std::uint32_t queue_depth = 32;                    ///< queue=32, 1 to 255
  bool coherent = false;                             ///< coherent=0|1
  bool random_schedule = false;                      ///< sched=time|random
  std::uint32_t seed = 0;                            ///< seed=0
  bool paced = false;                                ///< pace=none|real: no faster than its clock
  std::uint64_t reset_ns = 0;                        ///< reset=0s: how long one takes, up to 60 s
  bool host_dma = true;                              ///< hostdma=0|1
  std::uint64_t patience_ns = 10'000'000'000;        ///< patience=10s, of the host with its DMA
  bool strict = true;                                ///< strict=0|1
  bool m8 = false;                                   ///< profile=full|m8
  std::vector<FaultPlan> faults;                     ///< fault=kind@nth[,layer][+...]
  std::string trace;    ///< trace=FILE: registers, doorbells, interrupts
  std::string vcd;      ///< vcd=FILE: states of the engines
  std::string chrome;   ///< chrome=FILE: events per layer and engine
  std::string listing;  ///< listing=FILE: instructions with their cycles

  /// Errc::bad_key for a parameter that is none, Errc::out_of_range for a value out of range or
  /// without its unit; both name the key.
  static Options parse(const DeviceUrl& url);

  /// Every effective value, spelled as a URL would.
  std::map<std::string, std::string> params() const;
  /// What the capability registers say.
  isa::Caps caps() const;
};

}  // namespace tenon::npu::sim
