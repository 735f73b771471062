// A compiled partition on its device.
#pragma once

#include "compile.hpp"
#include "runtime.hpp"

#include <tenon/error.hpp>
#include <tenon/lowered.hpp>
#include <tenon/trace.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu {

class DeviceNetwork {
 public:
  /// Uploads constants and programs, allocates what lies between layers. `bound` is what the CPU
  /// runs in the device's place, with Options::host_fallback; it may be absent otherwise.
  /// `counters`, of the backend, change under the device's lock.
  DeviceNetwork(std::shared_ptr<Runtime> runtime, DeviceCode code, std::optional<BoundGraph> bound,
                const Options& options, std::shared_ptr<Counters> counters);

  /// Runs every stage; recovers as the options say. Takes the device's lock.
  void run(DeviceFrame& frame, RunReport& report) const;
  /// Runs the layers of one step (Layer::step) of a network with a program for each layer. Between
  /// steps, values lie in device memory that belongs to the session whose slab this is. Does not
  /// fall back to the CPU.
  void run_step(DeviceFrame& frame, RunReport& report, int step) const;
  /// Uploads what is damaged; returns how many images were. Needs the lock, and an idle device.
  int mend() const;

  /// Its constants are constants().
  const DeviceCode& code() const noexcept { return code_; }
  std::span<const std::byte> constants() const noexcept { return constants_.bytes(); }

 private:
  using Stages = std::vector<std::size_t>;  // indices of those that run, in order
  std::vector<isa::Descriptor> commands(const DeviceFrame& frame, const Stages& stages,
                                        const MemChunk& ftmp) const;
  std::string where(const Outcome& outcome, const Stages& stages) const;
  /// Bytes of the session as they were before a run.
  struct KeptInput {
    MemPtr at;
    std::vector<std::byte> bytes;
  };
  std::vector<KeptInput> keep_inputs(const DeviceFrame& frame, int step) const;
  void put_back(const std::vector<KeptInput>& inputs) const;
  /// `kept`: put back before the run is repeated.
  void attempt(Runtime::Lock& lock, const std::vector<isa::Descriptor>& commands,
               const Stages& stages, const std::vector<KeptInput>& kept, DeviceFrame& frame,
               RunReport& report) const;
  void upload() const;
  void note_failure(const Error& error) const;
  MemChunk new_ftmp() const;
  MemChunk stepped_ftmp(const MemPtr& slab) const;
  void collect(RunReport& report, const Stages& stages) const;
  void add_events(Trace& trace, Trace::Clock::time_point begin, Trace::Clock::time_point end,
                  const RunReport& report) const;
  void run_on_cpu(const DeviceFrame& frame) const;

  std::shared_ptr<Runtime> runtime_;
  DeviceCode code_;
  std::optional<BoundGraph> bound_;
  Options options_;
  std::shared_ptr<Counters> counters_;
  DeviceImage constants_;
  DeviceImage programs_;
  std::vector<std::uint64_t> program_offsets_;
  MemChunk ftmp_;
  mutable std::uint64_t losses_ = 0;  // of the device's memory, when the images were last there
  // What each session that goes step by step has to itself, by where its slab lies. Changed under
  // the device's lock.
  mutable std::map<std::uint64_t, MemChunk> stepped_ftmp_;
};

}  // namespace tenon::npu
