// The digit images of examples/data, and the networks trained on them, as programs.
#pragma once

#include "npu/driver_rig.hpp"

#include <cstdint>
#include <vector>

namespace tenon::npu::testing {

/// The held-out images and what they show.
struct Digits {
  HostBuffer images, labels;  ///< f32 [count, 1, side, side]; i32 [count]
  std::int64_t count = 0;

  /// `side` is 8, as they were scanned, or 32, enlarged as python/digits.py does it.
  explicit Digits(std::int64_t side);

  HostBuffer part(std::int64_t begin, std::int64_t end) const;
  /// How many rows of `scores` [n, 10] are highest at the label of images [begin, begin + n).
  std::int64_t right(const HostBuffer& scores, std::int64_t begin) const;
};

/// The convolutional network of examples/digits.cpp, for `count` images, calibrated on `samples`.
Network digit_cnn(std::int64_t count, const HostBuffer& samples, const CalibrationOptions& options);

/// The inverted residuals of examples/digits_mobilenet.hpp.
Network digit_mobilenet(std::int64_t count, const HostBuffer& samples,
                        const CalibrationOptions& options);

}  // namespace tenon::npu::testing
