#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/host_view.hpp>
#include <tenon/observer.hpp>
#include <tenon/program.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {
class Session;
class WeightSet;
}  // namespace tenon

namespace tenon::quant {

/// The range of one value of a program, and of each of its channels where those were asked for.
struct ValueRange {
  Range tensor;
  std::vector<Range> channels;
};

/// Ranges by value name: what a network needs to run in int8, on an NPU (npu::Options) or on the
/// CPU (cpu::Options).
struct CalibrationTable {
  std::map<std::string, ValueRange, std::less<>> values;

  const ValueRange* find(std::string_view value) const noexcept;

  /// Text that reads back as the same table. A first line "tenon-calibration 1"; then a line
  /// `name min max threshold` per value, and below it one `- min max threshold` per channel.
  std::string to_text() const;
  /// Errc::bad_magic, Errc::syntax, Errc::duplicate_name or Errc::out_of_range (numbers that are
  /// not finite, a negative threshold, min > max) with "file:line" as the place.
  static CalibrationTable from_text(std::string_view text, std::string_view file = "calibration");
};

struct CalibrationOptions {
  ObserverOptions observer;
  /// Ranges of channels as well, each by its largest magnitude: axis 1 of rank 4 ([N, C, H, W]),
  /// the last axis of other ranks. Feature maps whose channels differ are then quantised per
  /// channel.
  bool per_channel = false;
};

/// Gathers what any source shows of a program's f32 values. Not thread-safe.
class Calibration {
 public:
  explicit Calibration(CalibrationOptions options = {});
  ~Calibration();
  Calibration(Calibration&& other) noexcept;
  Calibration& operator=(Calibration&& other) noexcept;

  /// Adds an array to what was seen of `value`. Arrays that are not f32 are ignored: they are not
  /// quantised. Errc::bad_input naming the value for a NaN or an infinity, Errc::shape_mismatch
  /// when the number of channels changes.
  void observe(std::string_view value, const HostView& data);
  CalibrationTable table() const;

 private:
  struct Values;
  CalibrationOptions options_;
  std::unique_ptr<Values> values_;
};

/// Name of the sum of a linear layer before its residual is added, in a table.
std::string product_name(std::string_view value);

/// Runs the program in f32 on the reference kernels, step by step, once per sample (its inputs in
/// order), and collects the ranges of its inputs, of every value that a step makes, and of the sums
/// before residuals.
/// Errors: as lowering and running report them; Errc::bad_argument without samples.
CalibrationTable calibrate(const Program& program, const WeightSet& weights,
                           std::span<const std::vector<HostBuffer>> samples,
                           const CalibrationOptions& options = {});

/// The same on the backends of `session`, which has its weights: faster, and without sums before
/// residuals, which only an NPU asks for. Takes a fresh session for itself: it ends merging, and
/// the session's post callback is this function's. Errors: as setting these (Errc::call_order after
/// the first run) and running report them; Errc::bad_argument without samples.
CalibrationTable calibrate(Session session, std::span<const std::vector<HostBuffer>> samples,
                           const CalibrationOptions& options = {});

}  // namespace tenon::quant
