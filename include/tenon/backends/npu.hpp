#pragma once

#include <tenon/backend.hpp>
#include <tenon/device.hpp>
#include <tenon/npu/calibration.hpp>
#include <tenon/npu/mode.hpp>
#include <tenon/npu/placement.hpp>
#include <tenon/npu/quantize.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::npu {

struct Options {
  /// Ranges of the program's values; steps with a value without a range are refused. Null for a
  /// backend that runs only what was saved (Session::load): it refuses every step.
  std::shared_ptr<const CalibrationTable> calibration{};
  Mode mode = Mode::device;
  Placement placement = Placement::best;
  bool fuse = true;         ///< fuse element-wise ops into the layer that computes their operand
  bool merge = true;        ///< one program for as many layers as possible, instead of one each
  bool per_channel = true;  ///< a quantisation step per output channel of weights
  Profile profile = Profile::m15;  ///< used without a device; a device has its own
  /// Wall time that one attempt to run a partition may take, once those before it have ended; at
  /// most 30 years.
  std::chrono::milliseconds deadline{30000};
  int retries = 1;        ///< further attempts after a timeout or a damaged program, at most 1000
  bool precheck = false;  ///< verify checksums of device memory before each run
  bool profile_layers = false;  ///< read the counters of every layer after each run
  /// When the device fails, run the whole partition on the CPU, in the same integers. Partitions of a snapshot are then
  /// compiled again, from weights. A device that is gone is Errc::device_lost nevertheless.
  bool host_fallback = false;
};

/// State of a device: open -> running -> open. A failure makes it faulted; the next run then resets
/// it and uploads everything again. A removed device stays removed.
enum class State : std::uint8_t { open, running, faulted, removed };
std::string_view to_string(State state) noexcept;

/// Event counts since the backend was made.
struct Counters {
  std::uint64_t runs = 0;      ///< successful runs of a partition on the device
  std::uint64_t timeouts = 0;  ///< attempts that did not end in time
  std::uint64_t faults = 0;    ///< attempts that the device stopped with an error
  std::uint64_t retries = 0;
  std::uint64_t resets = 0;
  std::uint64_t reloads = 0;          ///< repeated uploads of damaged constants or programs
  std::uint64_t lost_interrupts = 0;  ///< runs that ended without an interrupt
  std::uint64_t host_fallbacks = 0;
  /// Runs that were repeated because another run in the ring failed or was interrupted.
  std::uint64_t thrown_out = 0;
  std::uint64_t most_in_flight = 0;  ///< the most runs that were in the ring with one of these
};

struct LayerReport {
  std::vector<std::string> values;   ///< the program's values that the layer computes
  std::string kind;                  ///< "conv +add", ...
  std::uint64_t begin = 0, end = 0;  ///< cycles since its program began
  std::uint64_t ld_busy = 0, ex_busy = 0, st_busy = 0;
  std::uint64_t ddr_read = 0, ddr_write = 0, macs = 0;
};

/// Counters of one run of a partition, from the device.
struct RunReport {
  /// Other runs were in the device's ring meanwhile, so that its counters are of all of them: the
  /// numbers below are 0. With Options::profile_layers or a trace a run has the ring to itself.
  bool shared = false;
  std::uint64_t cycles = 0, ddr_read = 0, ddr_write = 0, macs = 0, instructions = 0;
  std::uint64_t ld_busy = 0, ex_busy = 0, st_busy = 0;
  std::vector<LayerReport> layers;  ///< with Options::profile_layers
};

/// The compiler's report on a partition.
struct NetworkReport {
  std::string text;         ///< layers, addresses, predicted cycles and bytes; for people
  std::string disassembly;  ///< every program
  Placement placement = Placement::none;  ///< the strategy that was used
  std::size_t layers = 0, programs = 0;
  std::int64_t constant_bytes = 0, ftmp_bytes = 0;
  std::int64_t on_chip_bytes = 0;  ///< of feature maps that never leave the chip
  std::uint64_t predicted_cycles = 0, predicted_read = 0, predicted_write = 0, macs = 0;
};

/// The backend. Sessions, their forks and other backends share the device: their runs wait in its
/// ring, so that it goes from one to the next by itself, in the order of submission. A run that
/// fails or is interrupted stops the device; the others in the ring are then repeated.
class Npu : public Backend {
 public:
  virtual State state() const = 0;
  virtual Counters counters() const = 0;
  /// Report of the last partition that ran; empty before.
  virtual RunReport last_run() const = 0;
  /// Reports of the bound partitions, in the order of binding.
  virtual std::vector<NetworkReport> networks() const = 0;
  /// Compares constants and programs in device memory with their checksums and uploads those that
  /// differ; returns their number. Errors as for a run.
  virtual int precheck() const = 0;
};

/// A backend for an open NPU device. In a mode other than device, partitions run on the CPU:
/// `device` then only determines which steps are refused, and may be null.
///
/// Errors  bad_argument         an invalid deadline or number of retries, or a device that is not an
///                              NPU
///         device_lost          the device is gone
///         unsupported_version  the device has another instruction set
/// Errors of runs
///         device_timeout (11015)  after at most twice the deadline, retries included; with the
///                                 state of the queues
///         device_error (11014)    names the value and the op where the device stopped, or the
///                                 transfer to or from its memory that failed
///         device_lost             the device is gone
///         forked_process          in the child of a fork()
/// Transfers to and from the device's memory have the patience of the device, not the deadline.
std::shared_ptr<const Npu> backend(DevicePtr device, Options options);

/// The table of constraints behind `refuses`: an op (or "*") and its constraint.
struct ConstraintText {
  std::string_view op, clause;
};
std::vector<ConstraintText> constraint_texts();

}  // namespace tenon::npu

namespace tenon {

/// Registers the backend for devices of the scheme "npu", for device_backends() and compile(). It
/// needs npu::Options in BackendOptions::device. Idempotent.
void register_npu_backend();

}  // namespace tenon
