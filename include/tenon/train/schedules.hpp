// Rates by step, counted from 0; formulas as in PyTorch's schedulers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

namespace tenon::train {

/// Linear growth to `peak`, then half a cosine to `floor`.
struct WarmupCosine {
  double peak = 1e-3;
  double floor = 0;
  std::int64_t warmup = 0;  ///< steps of linear growth to the peak
  std::int64_t total = 1;   ///< steps until the floor

  double at(std::int64_t step) const {
    if (step < warmup) {
      return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    }
    if (step >= total) return floor;
    const double done = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
    return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }
};

/// Times `factor` every so many steps; a count below 1 is 1.
struct StepDecay {
  double start = 1e-3;
  double factor = 0.1;
  std::int64_t every = 1;
  double at(std::int64_t step) const {
    const std::int64_t changes = step / std::max<std::int64_t>(every, 1);
    return start * std::pow(factor, static_cast<double>(changes));
  }
};

/// Times `factor` from each of these steps on.
struct MilestoneDecay {
  double start = 1e-3;
  double factor = 0.1;
  std::vector<std::int64_t> milestones{};
  double at(std::int64_t step) const {
    const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                      [&](std::int64_t one) { return step >= one; });
    return start * std::pow(factor, static_cast<double>(passed));
  }
};

/// start factor^step.
struct ExponentialDecay {
  double start = 1e-3;
  double factor = 0.99;
  double at(std::int64_t step) const { return start * std::pow(factor, static_cast<double>(step)); }
};

/// floor + (start - floor) (1 - step / total)^power, from `total` on the floor; power 1 is a line.
struct PolynomialDecay {
  double start = 1e-3;
  double floor = 0;
  double power = 1;
  std::int64_t total = 1;
  double at(std::int64_t step) const {
    const double done = static_cast<double>(std::min(step, total)) /
                        static_cast<double>(std::max<std::int64_t>(total, 1));
    return floor + (start - floor) * std::pow(1 - done, power);
  }
};

/// Halves of a cosine from peak to floor, the first of `period` steps, each `factor` times as long as
/// the one before (Loshchilov and Hutter, arXiv:1608.03983). Counts below 1 are 1.
struct CosineRestarts {
  double peak = 1e-3;
  double floor = 0;
  std::int64_t period = 1;
  std::int64_t factor = 1;
  double at(std::int64_t step) const {
    std::int64_t length = std::max<std::int64_t>(period, 1);
    if (factor <= 1) step %= length;
    while (step >= length) {
      step -= length;
      length *= factor;
    }
    const double done = static_cast<double>(step) / static_cast<double>(length);
    return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }
};

/// From peak / start_divisor up to the peak in the first `rise` of the steps, then down to
/// peak / start_divisor / end_divisor at step total - 1, as halves of a cosine or, with `linear`, as
/// lines (Smith and Topin, arXiv:1708.07120).
struct OneCycle {
  double peak = 1e-3;
  std::int64_t total = 2;
  double rise = 0.3;
  double start_divisor = 25;
  double end_divisor = 1e4;
  bool linear = false;
  double at(std::int64_t step) const {
    const auto between = [&](double a, double b, double done) {
      return a + (b - a) * (linear ? done : 0.5 * (1 - std::cos(std::numbers::pi * done)));
    };
    const double now = static_cast<double>(step), start = peak / start_divisor;
    const double last = static_cast<double>(total) - 1, top = rise * static_cast<double>(total) - 1;
    if (now <= top) return between(start, peak, top > 0 ? now / top : 1);
    const double done = last <= top ? 1 : std::min(1.0, (now - top) / (last - top));
    return between(peak, start / end_divisor, done);
  }
};

/// Another schedule behind `steps` steps of linear growth to its first rate.
template <class Rates>
struct Warmup {
  Rates rates{};
  std::int64_t steps = 1;
  double at(std::int64_t step) const {
    if (step >= steps) return rates.at(step - steps);
    return rates.at(0) * static_cast<double>(step + 1) / static_cast<double>(steps + 1);
  }
};

/// A rate that is multiplied by `factor` when a measure has not become better for more than
/// `patience` times, such as the loss of held-out data after each epoch: `rate.see(measure)`.
class PlateauDecay {
 public:
  struct Options {
    double factor = 0.1;
    std::int64_t patience = 10;
    double threshold = 1e-4;  ///< better is less by this share of the best, or this number:
    bool relative = true;
    std::int64_t cooldown = 0;  ///< measures after a change that do not count
    double floor = 0;
    bool largest = false;  ///< better is more
  };

  PlateauDecay(double start, const Options& options)
      : now_(start),
        best_(options.largest ? -std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::infinity()),
        options_(options) {}

  double now() const noexcept { return now_; }

  /// The rate after another measure.
  double see(double measure) {
    ++waited_;
    if (is_better(measure)) {
      best_ = measure;
      waited_ = 0;
    }
    if (cooling_ > 0) {
      --cooling_;
      waited_ = 0;
    }
    if (waited_ > options_.patience) {
      const double lower = std::max(now_ * options_.factor, options_.floor);
      if (now_ - lower > 1e-8) now_ = lower;
      cooling_ = options_.cooldown;
      waited_ = 0;
    }
    return now_;
  }

 private:
  bool is_better(double measure) const {
    const double step = options_.largest ? options_.threshold : -options_.threshold;
    const double bound = options_.relative ? best_ * (1 + step) : best_ + step;
    return options_.largest ? measure > bound : measure < bound;
  }

  double now_;
  double best_;
  std::int64_t waited_ = 0;
  std::int64_t cooling_ = 0;
  Options options_;
};

}  // namespace tenon::train
