#pragma once

#include "../kernels/image_task.hpp"
#include "convolution.hpp"
#include "kernels.hpp"

#include <cstdint>

namespace tenon::cpu {

/// Where the images of a batch lie: steps in elements from one row, column, channel and image to
/// the next.
struct ImageSteps {
  std::int64_t row = 0, column = 0, channel = 0, image = 0;

  static ImageSteps of(const Operand& batch) noexcept;
  template <class T>
  Image<T> at(T* first) const noexcept {
    return {first, row, column, channel};
  }
};

/// A convolution as its kernel sees it, and how its work is divided.
struct ConvolutionPlan {
  /// As the operands lie.
  explicit ConvolutionPlan(const Convolution& conv);

  /// The image is read from a dense copy with `width` columns, channels last, which has what lies
  /// outside along a row beside it.
  void lay_in(const Convolution& conv, std::int64_t width);
  static std::int64_t laid_width(const WindowAxis& columns) noexcept;

  /// Where a pixel of the output is one of the image, all pixels become one row.
  void flatten(const Convolution& conv);
  /// What work is divided for, in elements.
  struct Caches {
    std::int64_t cached;  ///< of image or filter stay in half of a core's own cache
    std::int64_t large;   ///< filters above this size are not read by every thread
  };
  /// Divides the work for threads and caches.
  void divide(const Convolution& conv, std::int64_t threads, const Caches& caches);

  ImageSteps x, residual, y;
  WindowAxis rows, columns;
  ImageGrid grid;
};

}  // namespace tenon::cpu
