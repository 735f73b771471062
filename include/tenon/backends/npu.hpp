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
  /// Ranges of the program's values; steps without one are refused.
  std::shared_ptr<const CalibrationTable> calibration{};
  Mode mode = Mode::device;
  Placement placement = Placement::best;
  bool fuse = true;         ///< element-wise ops run behind the layer that makes their operand
  bool merge = true;        ///< one program for as many layers as possible, or one for each
  bool per_channel = true;  ///< a step per output channel of weights
  Profile profile = Profile::m15;  ///< without a device; one says what it takes
  /// How long one attempt to run a partition may take, by the clock on the wall.
  std::chrono::milliseconds deadline{30000};
  int retries = 1;        ///< further attempts after a timeout or a damaged program
  bool precheck = false;  ///< compare what lies in device memory with its checksums before runs
  bool profile_layers = false;  ///< read the counters of every layer after each run
  /// Run a partition, no single step, on the CPU in the same integers when the device fails.
  bool host_fallback = false;
};

/// Of a device: open -> running -> open; a failure makes it faulted, the next run resets and
/// reloads; one that is gone stays removed.
enum class State : std::uint8_t { open, running, faulted, removed };
std::string_view to_string(State state) noexcept;

/// What happened since the backend was made.
struct Counters {
  std::uint64_t runs = 0;      ///< partitions that ended well on the device
  std::uint64_t timeouts = 0;  ///< attempts that did not end in time
  std::uint64_t faults = 0;    ///< attempts that the device stopped with an error
  std::uint64_t retries = 0;
  std::uint64_t resets = 0;
  std::uint64_t reloads = 0;          ///< uploads of constants or programs that were damaged
  std::uint64_t lost_interrupts = 0;  ///< runs that were over and had not said so
  std::uint64_t host_fallbacks = 0;
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
  std::uint64_t cycles = 0, ddr_read = 0, ddr_write = 0, macs = 0, instructions = 0;
  std::uint64_t ld_busy = 0, ex_busy = 0, st_busy = 0;
  std::vector<LayerReport> layers;  ///< with Options::profile_layers
};

/// What the compiler made of a partition.
struct NetworkReport {
  std::string text;         ///< layers, places, predicted cycles and bytes; for people
  std::string disassembly;  ///< every program
  Placement placement = Placement::none;  ///< the strategy that was used
  std::size_t layers = 0, programs = 0;
  std::int64_t constant_bytes = 0, ftmp_bytes = 0;
  std::int64_t on_chip_bytes = 0;  ///< of feature maps that never leave the chip
  std::uint64_t predicted_cycles = 0, predicted_read = 0, predicted_write = 0, macs = 0;
};

/// The backend. Sessions, threads of forks, and other backends of its device take turns on that.
class Npu : public Backend {
 public:
  virtual State state() const = 0;
  virtual Counters counters() const = 0;
  /// Of the last partition that ran; empty before.
  virtual RunReport last_run() const = 0;
  /// Partitions that are bound now, in the order they were.
  virtual std::vector<NetworkReport> networks() const = 0;
  /// Compares constants and programs in device memory with their checksums and uploads what
  /// differs; returns how many were. Errors as for a run.
  virtual int precheck() const = 0;
};

/// A backend for an open device whose protocol is an NPU's. In a mode other than device, partitions
/// run on the CPU: a device then only says what it refuses, and `device` may be null.
/// Errc::bad_argument without calibration, for a deadline or retries below what makes sense, or for
/// a device that is no NPU, Errc::device_lost when it is gone, Errc::unsupported_version when it
/// speaks another instruction set.
///
/// Runs throw Errc::device_timeout (11015, within twice the deadline, retries included) with the
/// state of the queues, Errc::device_error (11014) naming the value and op where the device
/// stopped, Errc::device_lost, and in a child of fork() Errc::forked_process.
std::shared_ptr<const Npu> backend(DevicePtr device, Options options);

/// The table behind `refuses`: op (or "*") and what must hold.
struct ConstraintText {
  std::string_view op, clause;
};
std::vector<ConstraintText> constraint_texts();

}  // namespace tenon::npu

namespace tenon {

/// Has device_backends(), and so compile() on a device, serve devices of the scheme "npu". They
/// need npu::Options in BackendOptions::device. Calling this again does nothing.
void register_npu_backend();

}  // namespace tenon
