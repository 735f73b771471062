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
struct Lowered;
struct Step;
class Session;
class WeightSet;
}  // namespace tenon

namespace tenon::quant {

/// The range of one value of a program, and, with CalibrationOptions::per_channel, of its channels.
struct ValueRange {
  Range tensor;
  std::vector<Range> channels;
};

/// Ranges by value name: needed to run a network in int8, on an NPU (npu::Options) or on the CPU
/// (cpu::Options).
struct CalibrationTable {
  std::map<std::string, ValueRange, std::less<>> values;

  const ValueRange* find(std::string_view value) const noexcept;

  /// The ranges of a program's inputs and steps alone.
  CalibrationTable of(const Lowered& program) const;

  /// Text form, which from_text() reads back without loss: a first line "tenon-calibration 1"; then
  /// a line `name min max threshold` per value, and below it `- min max threshold` per channel.
  std::string to_text() const;
  /// Reads that text. Errc::bad_magic, Errc::syntax, Errc::duplicate_name or Errc::out_of_range
  /// (a threshold that is negative or not finite, min > max), each naming "file:line".
  static CalibrationTable from_text(std::string_view text, std::string_view file = "calibration");
};

struct CalibrationOptions {
  ObserverOptions observer;
  /// Also collect the range of each channel, by its largest magnitude: axis 1 of rank 4
  /// ([N, C, H, W]), the last axis of other ranks. Feature maps whose channels differ are then
  /// quantised per channel.
  bool per_channel = false;
};

/// Collects ranges of a program's f32 values from arrays that a caller provides. Not thread-safe.
class Calibration {
 public:
  explicit Calibration(CalibrationOptions options = {});
  ~Calibration();
  Calibration(Calibration&& other) noexcept;
  Calibration& operator=(Calibration&& other) noexcept;

  /// Adds an array of `value` to the statistics. Arrays that are not f32 are ignored: they are not
  /// quantised. Errc::shape_mismatch when the number of channels changes; Errc::bad_argument for a
  /// null pointer with elements. Steps whose results had NaN or infinities do not run in int8.
  void observe(std::string_view value, const HostView& data);
  CalibrationTable table() const;

 private:
  struct Values;
  CalibrationOptions options_;
  std::unique_ptr<Values> values_;
};

/// The name under which a table has the output of a step: the value's, or `function.value` for a
/// value of a loop with a condition, whose function has names of its own.
std::string value_name(const Step& step);
std::string value_name(std::string_view function, std::string_view value);

/// The name under which a table has the output of a linear layer before its residual is added.
std::string product_name(std::string_view value);

/// Runs the program in f32 on the reference kernels, once per sample (its inputs in order), and
/// collects the ranges of its inputs, of every step's output, and of linear layers' outputs before
/// their residuals (product_name).
///
/// Errors: those of lowering and running; Errc::bad_argument without samples.
CalibrationTable calibrate(const Program& program, const WeightSet& weights,
                           std::span<const std::vector<HostBuffer>> samples,
                           const CalibrationOptions& options = {});

/// The same on the backends of `session`, which has its weights bound: faster, and without the
/// outputs before residuals, which only an NPU needs. A fork of the session runs, without merging:
/// the session itself stays as it is.
///
/// Errors: Errc::call_order for a session from a snapshot; those of running; Errc::bad_argument
/// without samples.
CalibrationTable calibrate(Session session, std::span<const std::vector<HostBuffer>> samples,
                           const CalibrationOptions& options = {});

struct CalibratedProgram {
  Program program;
  CalibrationTable calibration;
};

/// A network that comes quantised, for backends that take networks of f32 and a table (an NPU): the
/// scales in the program are the table, and no samples are needed. Its parameters, results and
/// weights are those of `program`, without `repeat`.
///
/// - Weights and biases of codes are dequantised (Program::folded).
/// - matmul_integer and conv2d_integer by constant weights, with sums that only a dequantize_linear
///   reads, become linear and conv2d, of weights that have the scale of the sums.
/// - dequantize_linear(quantize_linear(x)) by the same numbers becomes x, or a relu or clamp of it
///   where the codes have other limits on both sides. The range of x is that of the codes.
/// - Views, limits, pools and means get the range of their operand, or it gets theirs.
///
/// What else there is stays as it is: conversions of parameters and results, scales that are not
/// one known number for activations. Values between have no range then, and backends refuse their
/// steps by name. Errors: those of verify() and unroll().
CalibratedProgram dequantized(const Program& program, const WeightSet& weights);

}  // namespace tenon::quant
