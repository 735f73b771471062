#pragma once

#include "../tasks/image_task.hpp"
#include "convolution.hpp"
#include "convolution_kernels.hpp"

#include <cstdint>

namespace tenon::cpu {

/// The layout of the images of a batch: steps in elements from one row, column, channel and image
/// to the next.
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
  /// For operands in place.
  explicit ConvolutionPlan(const Convolution& conv);

  /// Makes it read the image from a dense copy with `width` columns, channels last, whose rows
  /// include the padding.
  void read_padded_copy(const Convolution& conv, std::int64_t width);
  static std::int64_t padded_width(const WindowAxis& columns) noexcept;

  /// Where each pixel of the output depends on one pixel of the image, treats all pixels as one
  /// row.
  void flatten(const Convolution& conv);
  /// Where images are so narrow that their rows would make small tiles, takes a pixel of several
  /// images for a row; otherwise false. Such a convolution needs no padding.
  bool put_images_across(const Convolution& conv);
  /// Cache limits for dividing work, in elements.
  struct Caches {
    std::int64_t cached;  ///< of image or filter that fit in half of L2
    std::int64_t large;   ///< larger filters are not read by every thread
  };
  /// Divides the work for threads and caches.
  void divide(const Convolution& conv, std::int64_t threads, const Caches& caches);

  ImageSteps x, residual, y;
  WindowAxis rows, columns;
  ImageGrid grid;
  bool has_images_across = false;
};

}  // namespace tenon::cpu
