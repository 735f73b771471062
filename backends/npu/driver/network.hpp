// A compiled partition on its device.
#pragma once

#include "compile.hpp"
#include "runtime.hpp"

#include <tenon/lowered.hpp>
#include <tenon/trace.hpp>

#include <memory>
#include <vector>

namespace tenon::npu {

class DeviceNetwork {
 public:
  /// Uploads constants and programs, allocates what lies between layers.
  DeviceNetwork(std::shared_ptr<Runtime> runtime, CompiledNetwork compiled, const Options& options);

  /// Runs every stage; recovers as the options say. Takes the device's lock.
  void run(DeviceFrame& frame, RunReport& report) const;
  /// Uploads what is damaged; returns how many images were. Needs the lock.
  int mend() const;

  const CompiledNetwork& compiled() const noexcept { return compiled_; }

 private:
  std::vector<isa::Descriptor> commands(const DeviceFrame& frame) const;
  std::string where(const Outcome& outcome) const;
  void attempt(const std::vector<isa::Descriptor>& commands, DeviceFrame& frame,
               RunReport& report) const;
  void collect(RunReport& report) const;
  void add_events(Trace& trace, Trace::Clock::time_point begin, Trace::Clock::time_point end,
                  const RunReport& report) const;
  void run_on_cpu(const DeviceFrame& frame) const;

  std::shared_ptr<Runtime> runtime_;
  CompiledNetwork compiled_;
  Options options_;
  DeviceImage constants_;
  DeviceImage programs_;
  std::vector<std::uint64_t> program_offsets_;
  MemChunk ftmp_;
};

}  // namespace tenon::npu
