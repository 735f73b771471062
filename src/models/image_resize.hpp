#pragma once

#include <tenon/host_buffer.hpp>

#include <cstdint>

namespace tenon::models {

enum class Resampling : std::uint8_t { bilinear, bicubic, lanczos };

/// An image u8 [height, width, channels] at another size, of which each axis is 1 or more. A pixel is the mean of those below the
/// filter around it, which is widened where the image shrinks; lines first and then columns, each
/// rounded to u8. Bit by bit what Image.resize of Pillow 11 gives; 13 begins with columns where that is
/// less work, which changes a few values by 1.
/// Source    the filters of Pillow's documentation, Concepts, Filters; cubic with a = -0.5, Lanczos's with 3 lobes
HostBuffer resized(const HostBuffer& image, std::int64_t height, std::int64_t width,
                   Resampling resampling);

}  // namespace tenon::models
