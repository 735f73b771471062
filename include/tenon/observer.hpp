#pragma once

#include <tenon/host_view.hpp>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::quant {

/// How the range that int8 covers is chosen from the observed values.
enum class ObserverKind : std::uint8_t {
  min_max,     ///< the largest magnitude: nothing saturates
  percentile,  ///< the magnitude that ObserverOptions::percentile % of the values do not exceed
  entropy,     ///< the cut whose 128 levels lose the least information (KL divergence)
};

/// "min_max", "percentile", "entropy".
std::string_view to_string(ObserverKind kind) noexcept;

struct ObserverOptions {
  ObserverKind kind = ObserverKind::min_max;
  double percentile = 99.99;  ///< in (0, 100]
  int bins = 4096;            ///< of the histogram of magnitudes; a power of two, 256 to 65536
};

/// The observed range of one value, and the magnitude that quantisation maps to 127: that of finite
/// numbers. `min` is -infinity where one was observed, `max` infinity, and both are where a NaN was.
struct Range {
  double min = 0;
  double max = 0;
  double threshold = 0;

  /// Whether int8 holds such values: every other one saturates.
  bool is_finite() const noexcept { return std::isfinite(min) && std::isfinite(max); }

  friend bool operator==(const Range& a, const Range& b) noexcept = default;
};

/// Collects the distribution of one value over many runs. Its histogram spans [0, 2^e) with the
/// smallest e that holds every magnitude, so the result does not depend on the order of the values.
///
/// Threshold  min_max     max |x|
///            percentile  upper edge of the first bin up to which `percentile` % of values lie
///            entropy     of the magnitudes above 0 (0 is exact with every step): upper edge of
///                        bin i that minimises KL(P || Q), where P is the histogram up to i with
///                        everything above counted in bin i, and Q the histogram up to i averaged
///                        over 128 levels of equal width (level j is bins [j n / 128,
///                        (j + 1) n / 128), n = i + 1), spread over its non-empty bins. Cuts that
///                        keep less than 99 % (a lone bin is its own average), and those where P
///                        has mass and Q none, are excluded; among equal cuts the lowest is taken
///            never above max |x|
/// Source     entropy: S. Migacz, 8-bit inference with TensorRT (GTC 2017)
class Observer {
 public:
  /// Errc::bad_argument for options outside the stated limits.
  explicit Observer(const ObserverOptions& options = {});

  /// Every element of an f32 array of any strides. Errc::unsupported_dtype for another dtype,
  /// Errc::bad_argument for a null pointer with elements.
  void observe(const HostView& data);
  void observe(float value);

  std::int64_t count() const noexcept { return count_; }  ///< of finite numbers
  Range range() const;                                    ///< all zero before the first element

 private:
  void widen(int exponent);
  double bin_width() const;
  double percentile_threshold() const;
  double entropy_threshold() const;

  ObserverOptions options_;
  std::int64_t count_ = 0;
  std::int64_t non_zero_ = 0;
  double min_ = 0;
  double max_ = 0;
  bool is_below_ = false;  // there was -infinity or NaN
  bool is_above_ = false;
  int exponent_ = 0;  // the histogram spans [0, 2^exponent_), from the first magnitude above 0 on
  bool spans_ = false;
  std::vector<std::int64_t> bins_;  // empty for min_max
};

}  // namespace tenon::quant
