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

/// Ceilings of a machine, per second, with the threads that a profile was taken with. A
/// multiply-add counts as two operations; 0 where nobody measured.
struct Limits {
  double f32_ops = 0;
  double int8_ops = 0;    ///< unsigned by signed bytes, sums of 32 bits
  double bf16_ops = 0;    ///< on tiles
  double read_bytes = 0;  ///< from memory beyond the caches
};

/// Where the time of runs went, summed over runs:
///
///   session.enable_time_profile(true);
///   for (…) { session.forward(inputs); profile.add(session.step_times()); }
///   fmt::print("{}", profile.table(cpu::measure_limits()));
class Profile {
 public:
  /// A step of the program, or several whose work is one.
  struct Line {
    std::string value;  ///< StepTime::Part::title()
    std::string op;     ///< empty where a backend does not tell what it merged
    std::string backend;
    Shape shape;                   ///< of the output
    std::optional<DType> weights;  ///< of a product: the element type of its second factor
    std::int64_t count = 0;        ///< how often it ran
    std::chrono::nanoseconds wall{};
    double bytes = 0;  ///< read and written in all; NaN where data decides, or nobody tells
    double flops = 0;  ///< multiplications and additions in all; NaN likewise

    double seconds() const noexcept { return std::chrono::duration<double>(wall).count(); }
    double bytes_per_second() const noexcept { return bytes / seconds(); }
    double flops_per_second() const noexcept { return flops / seconds(); }
    /// How near the line comes to the machine's limits: the larger share of reading and computing.
    /// Products with block-quantised weights count against int8_ops, others against f32_ops, or
    /// bf16_ops where the machine has tiles for their weights. May be above 1 where operands lie in
    /// caches. Nothing where bytes are NaN or limits 0.
    std::optional<double> share_of(const Limits& limits) const;
  };

  /// Adds what step_times() of a session, an Exe or a conversation says of its last run.
  void add(std::span<const StepTime> times);

  std::size_t runs() const noexcept { return runs_; }
  /// Of all runs, copies between memories included.
  std::chrono::nanoseconds wall() const noexcept { return wall_; }
  /// Longest first. Their times, copies between memories and what sessions do themselves add up to
  /// wall().
  std::vector<Line> lines() const;

  /// The lines for people: a row each, times of one run on average, and at most `rows` of them.
  std::string table(const Limits& limits = {}, std::size_t rows = 40) const;

 private:
  void add(const StepTime& time, const StepTime::Part& part);

  std::vector<Line> lines_;
  std::size_t runs_ = 0;
  std::chrono::nanoseconds wall_{};
};

}  // namespace tenon
