#include "image_resize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace tenon::models {
namespace {

// Weights are whole numbers of this fraction, as Pillow has them: 32 bits hold the sum of 255 times
// each, with two to spare for those below 0.
constexpr int fraction_bits = 32 - 8 - 2;

struct Filter {
  double reach;  // it is 0 from here on
  double (*at)(double);
};

double bilinear(double x) { return std::max(0.0, 1 - std::abs(x)); }

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

double sinc(double x) {
  const double turned = x * std::numbers::pi;
  return x == 0 ? 1 : std::sin(turned) / turned;
}

double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

Filter filter_of(Resampling resampling) {
  if (resampling == Resampling::bilinear) return {1, bilinear};
  if (resampling == Resampling::bicubic) return {2, bicubic};
  return {3, lanczos};
}

/// The pixels of a line that make one of another line, and their weights.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to, const Filter& filter) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  const double widening = std::max(step, 1.0);
  const double shrinking = 1 / widening;
  const double reach = filter.reach * widening;
  std::vector<Taps> all(static_cast<std::size_t>(to));
  std::vector<double> weights;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double center = (static_cast<double>(i) + 0.5) * step;
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(center - reach + 0.5), 0);
    const auto end = std::min<std::int64_t>(static_cast<std::int64_t>(center + reach + 0.5), from);
    weights.clear();
    double sum = 0;
    for (std::int64_t x = first; x < end; ++x) {
      weights.push_back(filter.at((static_cast<double>(x) - center + 0.5) * shrinking));
      sum += weights.back();
    }
    all[i].first = first;
    for (const double weight : weights) {
      const double scaled = (sum == 0 ? weight : weight / sum) * (1 << fraction_bits);
      all[i].weights.push_back(static_cast<std::int32_t>(scaled + (scaled < 0 ? -0.5 : 0.5)));
    }
  }
  return all;
}

/// Another size of one axis. `outer` runs of [from, inner] become runs of [to, inner].
std::vector<std::uint8_t> resized_axis(std::span<const std::uint8_t> pixels, std::int64_t outer,
                                       std::int64_t from, std::int64_t to, std::int64_t inner,
                                       const Filter& filter) {
  const auto all = taps_of(from, to, filter);
  std::vector<std::uint8_t> made;
  made.reserve(static_cast<std::size_t>(outer * to * inner));
  for (std::int64_t run = 0; run < outer; ++run) {
    for (const Taps& taps : all) {
      for (std::int64_t i = 0; i < inner; ++i) {
        std::int64_t sum = std::int64_t{1} << (fraction_bits - 1);
        std::int64_t at = (run * from + taps.first) * inner + i;
        for (const std::int32_t weight : taps.weights) {
          sum += std::int64_t{weight} * pixels[static_cast<std::size_t>(at)];
          at += inner;
        }
        made.push_back(
            static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> fraction_bits, 0, 255)));
      }
    }
  }
  return made;
}

}  // namespace

HostBuffer resized(const HostBuffer& image, std::int64_t height, std::int64_t width,
                   Resampling resampling) {
  const Filter filter = filter_of(resampling);
  const std::int64_t rows = image.shape()[0], columns = image.shape()[1],
                     channels = image.shape()[2];
  const auto given = image.values<std::uint8_t>();
  std::vector<std::uint8_t> pixels(given.begin(), given.end());
  if (width != columns) pixels = resized_axis(pixels, rows, columns, width, channels, filter);
  if (height != rows) pixels = resized_axis(pixels, 1, rows, height, width * channels, filter);
  return HostBuffer::of(Shape({height, width, channels}, u8),
                        std::span<const std::uint8_t>(pixels));
}

}  // namespace tenon::models
