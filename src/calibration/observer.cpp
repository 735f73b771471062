#include <tenon/error.hpp>
#include <tenon/observer.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

namespace tenon::quant {
namespace {

constexpr std::size_t levels = 128;

/// KL divergence of the histogram cut to its first `n` bins from the same in 128 levels; infinity
/// when the levels leave a bin empty that the cut histogram fills, or the cut is excluded.
double divergence(const std::vector<std::int64_t>& bins, std::size_t n, std::int64_t total) {
  std::int64_t inside = 0;
  for (std::size_t i = 0; i < n; ++i) inside += bins[i];
  const std::int64_t outside = total - inside;
  if (static_cast<double>(inside) < 0.99 * static_cast<double>(total) ||
      (outside > 0 && bins[n - 1] == 0)) {
    return std::numeric_limits<double>::infinity();
  }

  double sum = 0;
  for (std::size_t level = 0; level < levels; ++level) {
    const std::size_t begin = level * n / levels;
    const std::size_t end = (level + 1) * n / levels;
    std::int64_t mass = 0;
    std::int64_t filled = 0;
    for (std::size_t i = begin; i < end; ++i) {
      mass += bins[i];
      filled += bins[i] > 0 ? 1 : 0;
    }
    if (filled == 0) continue;
    const double q =
        static_cast<double>(mass) / static_cast<double>(filled) / static_cast<double>(inside);
    for (std::size_t i = begin; i < end; ++i) {
      const std::int64_t count = bins[i] + (i + 1 == n ? outside : 0);
      if (count == 0) continue;
      const double p = static_cast<double>(count) / static_cast<double>(total);
      sum += p * std::log(p / q);
    }
  }
  return sum;
}

}  // namespace

std::string_view to_string(ObserverKind kind) noexcept {
  switch (kind) {
    case ObserverKind::min_max:
      return "min_max";
    case ObserverKind::percentile:
      return "percentile";
    case ObserverKind::entropy:
      return "entropy";
  }
  return "?";
}

Observer::Observer(const ObserverOptions& options) : options_(options) {
  if (!(options.percentile > 0 && options.percentile <= 100)) {
    throw Error(Errc::bad_argument, "quant::Observer",
                fmt::format("percentile {} is outside (0, 100]", options.percentile));
  }
  if (options.bins < 256 || options.bins > 65536 ||
      !std::has_single_bit(static_cast<unsigned>(options.bins))) {
    throw Error(Errc::bad_argument, "quant::Observer",
                fmt::format("{} bins; a power of two from 256 to 65536 is needed", options.bins));
  }
  if (options.kind != ObserverKind::min_max) bins_.resize(static_cast<std::size_t>(options.bins));
}

double Observer::bin_width() const { return std::ldexp(1.0, exponent_) / options_.bins; }

// Bin widths are powers of two, so a wider histogram is the old one with adjacent bins added.
void Observer::widen(int exponent) {
  const int shift = std::min(exponent - exponent_, 31);
  for (std::size_t i = 1; i < bins_.size(); ++i) {
    const std::int64_t count = bins_[i];
    bins_[i] = 0;
    bins_[i >> shift] += count;
  }
  exponent_ = exponent;
}

void Observer::observe(float value) {
  if (!std::isfinite(value)) {
    is_below_ = is_below_ || !(value > 0);
    is_above_ = is_above_ || !(value < 0);
    return;
  }
  const double x = value;
  min_ = count_ == 0 ? x : std::min(min_, x);
  max_ = count_ == 0 ? x : std::max(max_, x);
  ++count_;
  if (bins_.empty()) return;
  const double magnitude = std::abs(x);
  if (magnitude == 0) {
    if (options_.kind == ObserverKind::percentile) ++bins_[0];
    return;
  }
  ++non_zero_;
  const int needed = std::ilogb(magnitude) + 1;
  if (!spans_) {
    exponent_ = needed;
    spans_ = true;
  } else if (needed > exponent_) {
    widen(needed);
  }
  ++bins_[static_cast<std::size_t>(magnitude / bin_width())];
}

void Observer::observe(const HostView& data) {
  if (data.shape.dtype() != DType::f32) {
    throw Error(Errc::unsupported_dtype, "quant::Observer",
                fmt::format("{} is not f32", to_string(data.shape)));
  }
  if (data.data == nullptr && data.shape.elements() > 0) {
    throw Error(Errc::bad_argument, "quant::Observer",
                fmt::format("null for {}", to_string(data.shape)));
  }
  for_each_index(data.shape, [&](std::span<const std::int64_t> index) {
    observe(*reinterpret_cast<const float*>(data.at(index)));
  });
}

double Observer::percentile_threshold() const {
  const double wanted = static_cast<double>(count_) * options_.percentile / 100;
  std::int64_t below = 0;
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    below += bins_[i];
    if (static_cast<double>(below) >= wanted) return static_cast<double>(i + 1) * bin_width();
  }
  return static_cast<double>(bins_.size()) * bin_width();
}

double Observer::entropy_threshold() const {
  std::size_t used = bins_.size();
  while (used > 0 && bins_[used - 1] == 0) --used;
  std::size_t best = used;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t n = std::min(levels, used); n <= used; ++n) {
    const double found = divergence(bins_, n, non_zero_);
    if (found < least) {
      least = found;
      best = n;
    }
  }
  return static_cast<double>(best) * bin_width();
}

Range Observer::range() const {
  const double largest = std::max(std::abs(min_), std::abs(max_));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Range result{is_below_ ? -infinity : min_, is_above_ ? infinity : max_, largest};
  if (largest == 0) return result;
  if (options_.kind == ObserverKind::percentile) result.threshold = percentile_threshold();
  if (options_.kind == ObserverKind::entropy) result.threshold = entropy_threshold();
  result.threshold = std::min(result.threshold, largest);
  return result;
}

}  // namespace tenon::quant
