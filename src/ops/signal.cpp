#include "ops/builder.hpp"
#include "ops/checks.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fft.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/signal.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon {
namespace {

/// Records an iota beside a tensor or, without one, in the active graph.
class Numbers {
 public:
  Numbers(const Tensor* beside, const std::source_location& where)
      : beside_(beside), where_(where) {}

  /// start, start + step, ..
  Tensor count(std::int64_t size, DType dtype, std::int64_t step = 1) const {
    const Iota op{.size = size, .step = step, .dtype = dtype};
    if (beside_ == nullptr) return record(op, std::span<const Tensor>(), where_);
    return record_beside(*beside_, op_def<Iota>(), &op, where_);
  }
  Tensor scaled(const Tensor& x, double factor, double offset = 0) const {
    const Tensor y = mul(x, scalar_like(x, factor, where_), where_);
    return offset == 0 ? y : add(y, scalar_like(y, offset, where_), where_);
  }

 private:
  const Tensor* beside_;
  std::source_location where_;
};

/// middle - (1 - middle) cos(2 pi i / n)
Tensor cosine_window(const Numbers& numbers, std::int64_t size, bool periodic, double middle,
                     DType dtype, const std::source_location& where) {
  const auto period = static_cast<double>(periodic ? size : std::max<std::int64_t>(size - 1, 1));
  const Tensor angle = numbers.scaled(numbers.count(size, f64), 2 * std::numbers::pi / period);
  Tensor y = numbers.scaled(cos(angle, where), middle - 1, middle);
  if (size == 1) y = full_like(y, 1, where);  // as NumPy and PyTorch have it
  return dtype == f64 ? y : cast(y, dtype, where);
}

Tensor checked_window(std::string_view name, std::int64_t size, bool periodic, double middle,
                      DType dtype, const std::source_location& where) {
  if (size < 1 || !is_floating(dtype)) {
    fail_at(where, Errc::bad_argument, name,
            fmt::format("makes no window of {} in {}", size, tenon::name(dtype)));
  }
  return cosine_window(Numbers(nullptr, where), size, periodic, middle, dtype, where);
}

/// Slaney's scale: 3 mels for 200 Hz up to 1 kHz, then 27 for each factor of 6.4.
constexpr double slaney_bend = 15, slaney_hertz = 1000;
const double slaney_step = std::log(6.4) / 27;

double mel_of(double hertz, MelScale scale) {
  if (scale == MelScale::htk) return 2595 * std::log10(1 + hertz / 700);
  if (hertz < slaney_hertz) return hertz * 3 / 200;
  return slaney_bend + std::log(hertz / slaney_hertz) / slaney_step;
}

Tensor hertz_of(const Numbers& numbers, const Tensor& mel, MelScale scale,
                const std::source_location& where) {
  if (scale == MelScale::htk) {
    const Tensor power = exp(numbers.scaled(mel, std::numbers::ln10 / 2595), where);
    return numbers.scaled(power, 700, -700);
  }
  const Tensor above = exp(numbers.scaled(mel, slaney_step, -slaney_bend * slaney_step), where);
  return tenon::where(lt(mel, scalar_like(mel, slaney_bend, where), where),
                      numbers.scaled(mel, 200.0 / 3), numbers.scaled(above, slaney_hertz), where);
}

Tensor filters_of(const Numbers& numbers, std::int64_t mels, std::int64_t size, double rate,
                  double low, double high, MelScale scale, const std::source_location& where) {
  const double first = mel_of(low, scale), last = mel_of(high, scale);
  // The corners of the triangles are evenly spaced in mels.
  const Tensor corners = numbers.scaled(numbers.count(mels + 2, f64),
                                        (last - first) / static_cast<double>(mels + 1), first);
  const Tensor hertz = hertz_of(numbers, corners, scale, where);
  const auto column = [&](std::int64_t begin) {
    return unsqueeze(slice(hertz, 0, begin, begin + mels, 1, where), 1, {}, where);
  };
  const Tensor left = column(0), middle = column(1), right = column(2);
  const Tensor bins =
      numbers.scaled(numbers.count(size / 2 + 1, f64), rate / static_cast<double>(size));
  const Tensor rise = div(sub(bins, left, where), sub(middle, left, where), where);
  const Tensor fall = div(sub(right, bins, where), sub(right, middle, where), where);
  Tensor y = maximum(minimum(rise, fall, where), scalar_like(rise, 0, where), where);
  if (scale == MelScale::slaney) {
    y = mul(y, div(scalar_like(y, 2, where), sub(right, left, where), where), where);
  }
  return cast(y, f32, where);
}

}  // namespace

Tensor hann_window(std::int64_t size, bool periodic, DType dtype,
                   const std::source_location& where) {
  return checked_window("hann_window", size, periodic, 0.5, dtype, where);
}
Tensor hamming_window(std::int64_t size, bool periodic, DType dtype,
                      const std::source_location& where) {
  return checked_window("hamming_window", size, periodic, 0.54, dtype, where);
}

Tensor stft(const Tensor& x, const Tensor& window, std::int64_t hop, bool center,
            const std::source_location& where) {
  return stft(x, window, hop, center, x.dtype(where), where);
}

Tensor stft(const Tensor& x, const Tensor& window, std::int64_t hop, bool center, DType dtype,
            const std::source_location& where) {
  const Shape& shape = x.shape(where);
  const Shape& weights = window.shape(where);
  const int last = shape.rank() - 1;
  if (last < 0 || weights.rank() != 1 || !is_static(shape[last]) || !is_static(weights[0]) ||
      hop < 1) {
    fail_at(
        where, Errc::bad_argument, "stft",
        fmt::format("needs known sizes, a vector as window and steps above 0, got {}, {} and {}{}",
                    to_string(shape), to_string(weights), hop, advice_on_symbols(shape)));
  }
  const std::int64_t n = weights[0], length = shape[last], margin = center ? n / 2 : 0;
  if (n < 1 || length + 2 * margin < n || (center && length <= margin)) {
    fail_at(where, Errc::bad_argument, "stft",
            fmt::format("{} is too short for frames of {}", to_string(shape), n));
  }
  const std::int64_t frames = (length + 2 * margin - n) / hop + 1;
  const Numbers numbers(&x, where);
  // Where each sample of each frame is: |i| before the first, mirrored at the last.
  Tensor places =
      add(unsqueeze(numbers.count(frames, i64, hop), 1, {}, where), numbers.count(n, i64), where);
  if (center) {
    const auto number = [&](std::int64_t value) {
      return scalar_like(places, static_cast<double>(value), where);
    };
    places = abs(sub(places, number(margin), where), where);
    const Tensor end = number(length - 1);
    places = sub(end, abs(sub(end, places, where), where), where);
  }
  const Tensor plain = shape.has_tags() ? x.with_tags(std::span<const Name>(), where) : x;
  return rfft(mul(gather(plain, places, last, where), window, where), -1, dtype, where);
}

Tensor mel_filters(std::int64_t mels, std::int64_t size, double rate, double low, double high,
                   MelScale scale, const std::source_location& where) {
  if (high == 0) high = rate / 2;
  if (mels < 1 || size < 1 || !(low >= 0 && low < high)) {
    fail_at(where, Errc::bad_argument, "mel_filters",
            fmt::format("{} mels of {} samples between {} and {} Hz", mels, size, low, high));
  }
  return filters_of(Numbers(nullptr, where), mels, size, rate, low, high, scale, where);
}

Tensor log_mel_spectrogram(const Tensor& x, std::int64_t mels, const std::source_location& where) {
  if (mels < 1 || x.dtype(where) != f32) {
    fail_at(where, Errc::bad_argument, "log_mel_spectrogram",
            fmt::format("makes {} mels of {}", mels, to_string(x.shape(where))));
  }
  constexpr std::int64_t size = 400, hop = 160;
  constexpr double rate = 16000;
  const Numbers numbers(&x, where);
  const Tensor window = cosine_window(numbers, size, true, 0.5, f32, where);
  const Tensor spectrum = stft(x, window, hop, true, where);
  const Tensor kept = slice(spectrum, -3, 0, -1, 1, where);
  const Tensor power = sum(square(kept, where), -1, false, where);  // [.., frames, bins]
  const Tensor filters =
      filters_of(numbers, mels, size, rate, 0, rate / 2, MelScale::slaney, where);
  const Tensor energy = matmul(filters, transpose(power, -2, -1, where), where);
  const Tensor least = scalar_like(energy, 1e-10, where);
  const Tensor y = numbers.scaled(log(maximum(energy, least, where), where), std::numbers::log10e);
  const Tensor floor = numbers.scaled(max(y, {-2, -1}, true, where), 1, -8);
  return numbers.scaled(maximum(y, floor, where), 0.25, 1);
}

}  // namespace tenon
