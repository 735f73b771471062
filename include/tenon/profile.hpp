#pragma once

#include <tenon/session.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon {

/// Limits of a machine, per second, with the number of threads of a profile. A multiply-add counts
/// as two operations. 0: not measured.
struct Limits {
  double f32_ops = 0;
  double int8_ops = 0;    ///< unsigned by signed bytes, accumulated in 32 bits
  double bf16_ops = 0;    ///< with matrix tiles (AMX)
  double read_bytes = 0;  ///< from main memory
};

/// Where the time of runs went, summed over runs:
///
///   session.enable_time_profile(true);
///   for (…) { session.forward(inputs); profile.add(session.step_times()); }
///   fmt::print("{}", profile.table(cpu::measure_limits()));
class Profile {
 public:
  /// A step of the program, or several that were run as one.
  struct Line {
    std::string value;  ///< StepTime::Part::title()
    std::string op;     ///< empty where a backend does not report what it merged
    std::string backend;
    Shape shape;                   ///< of the output
    std::optional<DType> weights;  ///< of a matrix multiplication: dtype of its second operand
    std::int64_t count = 0;        ///< how often it ran
    std::chrono::nanoseconds wall{};
    double bytes = 0;  ///< read and written in total; NaN: unknown, or dependent on data
    double flops = 0;  ///< multiplications and additions in total; NaN likewise

    double seconds() const noexcept { return std::chrono::duration<double>(wall).count(); }
    double bytes_per_second() const noexcept { return bytes / seconds(); }
    double flops_per_second() const noexcept { return flops / seconds(); }
    /// The larger of two shares: bytes per second of read_bytes, and operations per second of the
    /// limit that applies: int8_ops for matrix multiplications with block-quantised weights,
    /// bf16_ops where the machine has matrix tiles for their weights, f32_ops otherwise. May exceed
    /// 1 where operands are in caches. Nothing where bytes are NaN or limits 0.
    std::optional<double> share_of(const Limits& limits) const;
  };

  /// Adds the step_times() of the last run of a session, an Exe or a conversation.
  void add(std::span<const StepTime> times);

  std::size_t runs() const noexcept { return runs_; }
  /// Wall time of all runs, copies between memories included.
  std::chrono::nanoseconds wall() const noexcept { return wall_; }
  /// Longest first. Their times, copies between memories and the sessions' own overhead add up to
  /// wall().
  std::vector<Line> lines() const;

  /// The lines as a table: one row each, at most `rows`, with the mean time of a run.
  std::string table(const Limits& limits = {}, std::size_t rows = 40) const;

 private:
  void add(const StepTime& time, const StepTime::Part& part);

  std::vector<Line> lines_;
  std::size_t runs_ = 0;
  std::chrono::nanoseconds wall_{};
};

}  // namespace tenon
