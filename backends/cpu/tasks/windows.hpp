// Attributes of convolutions and pools as numbers.
#pragma once

#include "../convolution/convolution_kernels.hpp"

#include <tenon/attributes.hpp>

#include <array>
#include <cstddef>

namespace tenon::cpu {

/// `axis` 0: rows, 1: columns. The op's checks have passed.
inline WindowAxis window_axis(std::size_t axis, std::int64_t inputs, std::int64_t outputs,
                              std::int64_t taps, const IntList& stride, std::int64_t default_stride,
                              const IntList& padding, const IntList& dilation) {
  const std::int64_t before = padding.empty() ? 0 : padding[padding.size() == 4 ? 2 * axis : axis];
  return {inputs,
          outputs,
          taps,
          stride.empty() ? default_stride : stride[axis],
          dilation.empty() ? 1 : dilation[axis],
          before};
}

}  // namespace tenon::cpu
