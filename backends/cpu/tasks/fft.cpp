// Fourier transforms. Several lanes are transformed at once, element by element side by side, so
// that every loop runs over adjacent numbers: Stockham's form of the mixed-radix transform, and
// Bluestein's convolution for sizes with a large prime factor.
#include "lanes.hpp"

#include <tenon/ops/fft.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

namespace tenon::cpu {
namespace {

/// Complex numbers: real and imaginary parts apart.
template <class T>
struct Split {
  T *re, *im;
  Split swapped() const noexcept { return {im, re}; }
  Split at(std::int64_t i) const noexcept { return {re + i, im + i}; }
};

template <class T>
struct SplitTable {
  std::vector<T> re, im;
  void push(std::complex<double> value) {
    re.push_back(static_cast<T>(value.real()));
    im.push_back(static_cast<T>(value.imag()));
  }
};

/// exp(-2 pi i k / n).
std::complex<double> root_of_one(std::int64_t k, std::int64_t n) {
  return std::polar(1.0,
                    -2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n));
}

template <class T>
class FftPlan {
 public:
  static constexpr std::int64_t largest_radix = 31;

  explicit FftPlan(std::int64_t n) : n_(n) {
    std::int64_t rest = n;
    std::vector<std::int64_t> radices;
    const auto divide = [&](std::int64_t radix) {
      for (; rest % radix == 0; rest /= radix) radices.push_back(radix);
    };
    divide(4);
    for (std::int64_t radix = 2; radix <= largest_radix && rest > 1; ++radix) divide(radix);
    if (rest > 1) {
      plan_convolution();
      return;
    }
    rest = n;
    for (const std::int64_t radix : radices) {
      Pass pass{radix, rest / radix, {}, {}};
      for (std::int64_t p = 0; p < pass.parts; ++p) {
        for (std::int64_t k = 1; k < radix; ++k) pass.twiddles.push(root_of_one(p * k, rest));
      }
      for (std::int64_t k = 0; k < radix; ++k) pass.roots.push(root_of_one(k, radix));
      passes_.push_back(std::move(pass));
      rest /= radix;
    }
  }

  /// Elements that x and y need for each lane.
  std::int64_t room() const noexcept { return inner_ ? inner_->n_ : n_; }

  /// Transforms x, element j of lane q at [j * lanes + q], not scaled; x or y has the result, which
  /// is returned, and then the other is overwritten. The inverse: with parts swapped.
  Split<T> run(Split<T> x, Split<T> y, std::int64_t lanes) const noexcept {
    if (inner_) return convolve(x, y, lanes);
    std::int64_t stride = lanes;
    for (const Pass& pass : passes_) {
      switch (pass.radix) {
        case 2:
          step2(pass, x, y, stride);
          break;
        case 4:
          step4(pass, x, y, stride);
          break;
        default:
          step(pass, x, y, stride);
      }
      std::swap(x, y);
      stride *= pass.radix;
    }
    return x;
  }

 private:
  struct Pass {
    std::int64_t radix, parts;
    SplitTable<T> twiddles;  ///< [parts][radix - 1]
    SplitTable<T> roots;     ///< of 1, `radix` of them
  };

  static void step2(const Pass& pass, Split<T> x, Split<T> y, std::int64_t stride) noexcept {
    for (std::int64_t p = 0; p < pass.parts; ++p) {
      const auto index = static_cast<std::size_t>(p);
      const T wr = pass.twiddles.re[index], wi = pass.twiddles.im[index];
      const Split<T> a = x.at(p * stride), b = x.at((p + pass.parts) * stride);
      const Split<T> u = y.at(2 * p * stride), v = y.at((2 * p + 1) * stride);
      for (std::int64_t q = 0; q < stride; ++q) {
        const T dr = a.re[q] - b.re[q], di = a.im[q] - b.im[q];
        u.re[q] = a.re[q] + b.re[q];
        u.im[q] = a.im[q] + b.im[q];
        v.re[q] = dr * wr - di * wi;
        v.im[q] = dr * wi + di * wr;
      }
    }
  }

  static void step4(const Pass& pass, Split<T> x, Split<T> y, std::int64_t stride) noexcept {
    const std::int64_t m = pass.parts;
    for (std::int64_t p = 0; p < m; ++p) {
      const auto index = static_cast<std::size_t>(3 * p);
      const T* wr = pass.twiddles.re.data() + index;
      const T* wi = pass.twiddles.im.data() + index;
      const Split<T> a = x.at(p * stride), b = x.at((p + m) * stride),
                     c = x.at((p + 2 * m) * stride), d = x.at((p + 3 * m) * stride);
      const Split<T> to = y.at(4 * p * stride);
      T *r1 = to.re + stride, *r2 = r1 + stride, *r3 = r2 + stride;
      T *i1 = to.im + stride, *i2 = i1 + stride, *i3 = i2 + stride;
      for (std::int64_t q = 0; q < stride; ++q) {
        const T sr = a.re[q] + c.re[q], si = a.im[q] + c.im[q];
        const T tr = a.re[q] - c.re[q], ti = a.im[q] - c.im[q];
        const T ur = b.re[q] + d.re[q], ui = b.im[q] + d.im[q];
        const T vr = b.re[q] - d.re[q], vi = b.im[q] - d.im[q];
        to.re[q] = sr + ur;
        to.im[q] = si + ui;
        const T e1r = tr + vi, e1i = ti - vr;  // t - i v
        const T e2r = sr - ur, e2i = si - ui;
        const T e3r = tr - vi, e3i = ti + vr;
        r1[q] = e1r * wr[0] - e1i * wi[0];
        i1[q] = e1r * wi[0] + e1i * wr[0];
        r2[q] = e2r * wr[1] - e2i * wi[1];
        i2[q] = e2r * wi[1] + e2i * wr[1];
        r3[q] = e3r * wr[2] - e3i * wi[2];
        i3[q] = e3r * wi[2] + e3i * wr[2];
      }
    }
  }

  static void step(const Pass& pass, Split<T> x, Split<T> y, std::int64_t stride) noexcept {
    const std::int64_t radix = pass.radix;
    for (std::int64_t p = 0; p < pass.parts; ++p) {
      for (std::int64_t k = 0; k < radix; ++k) {
        const Split<T> to = y.at((radix * p + k) * stride), first = x.at(p * stride);
        std::copy_n(first.re, stride, to.re);
        std::copy_n(first.im, stride, to.im);
        for (std::int64_t r = 1; r < radix; ++r) {
          const auto root = static_cast<std::size_t>(r * k % radix);
          const T cr = pass.roots.re[root], ci = pass.roots.im[root];
          const Split<T> from = x.at((p + r * pass.parts) * stride);
          for (std::int64_t q = 0; q < stride; ++q) {
            to.re[q] += from.re[q] * cr - from.im[q] * ci;
            to.im[q] += from.re[q] * ci + from.im[q] * cr;
          }
        }
        if (k == 0) continue;
        const auto index = static_cast<std::size_t>(p * (radix - 1) + k - 1);
        scale(to, stride, pass.twiddles.re[index], pass.twiddles.im[index]);
      }
    }
  }

  static void scale(Split<T> x, std::int64_t count, T wr, T wi) noexcept {
    for (std::int64_t q = 0; q < count; ++q) {
      const T re = x.re[q];
      x.re[q] = re * wr - x.im[q] * wi;
      x.im[q] = re * wi + x.im[q] * wr;
    }
  }

  /// j k = (j^2 + k^2 - (k - j)^2) / 2: a convolution with chirps, of a power of 2.
  void plan_convolution() {
    std::int64_t size = 1;
    while (size < 2 * n_ - 1) size *= 2;
    inner_ = std::make_unique<FftPlan>(size);
    std::vector<T> re(static_cast<std::size_t>(2 * size)), im(re.size());
    std::int64_t square = 0;  // j^2 modulo 2n
    for (std::int64_t j = 0; j < n_; square = (square + 2 * j + 1) % (2 * n_), ++j) {
      const std::complex<double> chirp = root_of_one(square, 2 * n_);
      chirps_.push(chirp);
      for (const std::int64_t at : {j, (size - j) % size}) {
        re[static_cast<std::size_t>(at)] = static_cast<T>(chirp.real());
        im[static_cast<std::size_t>(at)] = static_cast<T>(-chirp.imag());
      }
    }
    const Split<T> x{re.data(), im.data()};
    const Split<T> y = inner_->run(x, x.at(size), 1);
    for (std::int64_t j = 0; j < size; ++j) {
      kernel_.push(std::complex<double>(y.re[j], y.im[j]) / static_cast<double>(size));
    }
  }

  Split<T> convolve(Split<T> x, Split<T> y, std::int64_t lanes) const noexcept {
    const std::int64_t size = inner_->n_;
    const auto times = [lanes](Split<T> values, const SplitTable<T>& factors, std::int64_t count) {
      for (std::int64_t j = 0; j < count; ++j) {
        const auto index = static_cast<std::size_t>(j);
        scale(values.at(j * lanes), lanes, factors.re[index], factors.im[index]);
      }
    };
    times(x, chirps_, n_);
    std::fill(x.re + n_ * lanes, x.re + size * lanes, T{});
    std::fill(x.im + n_ * lanes, x.im + size * lanes, T{});
    const Split<T> spectrum = inner_->run(x, y, lanes);
    times(spectrum, kernel_, size);
    const Split<T> other = spectrum.re == x.re ? y : x;
    const Split<T> result = inner_->run(spectrum.swapped(), other.swapped(), lanes).swapped();
    times(result, chirps_, n_);
    return result;
  }

  std::int64_t n_;
  std::vector<Pass> passes_;
  std::unique_ptr<FftPlan> inner_;
  SplitTable<T> chirps_, kernel_;
};

/// An array whose last axis is the pair of parts, without it.
Operand without_parts(const Operand& x) {
  Operand result = x;
  result.shape = x.shape.without_tags().without_axis(x.shape.rank() - 1);
  return result;
}

template <class T>
class FftTask final : public Task {
 public:
  enum class Kind : std::uint8_t { forward, inverse, from_real, to_real };

  FftTask(const Step& step, int axis, Kind kind, Compiler& compiler)
      : x_(step.inputs[0]),
        y_(step.output),
        kind_(kind),
        x_lanes_(kind == Kind::from_real ? x_ : without_parts(x_), axis),
        y_lanes_(kind == Kind::to_real ? y_ : without_parts(y_), axis),
        n_(kind == Kind::to_real ? y_.shape[axis] : x_.shape[axis]),
        halves_(kind != Kind::forward && kind != Kind::inverse && n_ % 2 == 0),
        plan_(std::max<std::int64_t>(halves_ ? n_ / 2 : n_, 1)) {
    const auto stride = [axis](const Operand& operand, int at) {
      return operand.strides[static_cast<std::size_t>(at < 0 ? operand.shape.rank() + at : axis)];
    };
    x_step_ = stride(x_, axis);
    y_step_ = stride(y_, axis);
    x_part_ = kind == Kind::from_real ? 0 : stride(x_, -1);
    y_part_ = kind == Kind::to_real ? 0 : stride(y_, -1);
    if (halves_) {
      for (std::int64_t k = 0; k <= n_ / 2; ++k) roots_.push(root_of_one(k, n_));
    }
    at_once_ = std::clamp<std::int64_t>(8192 / plan_.room(), 1, 16);
    compiler.working_memory(4 * array_elements() * static_cast<std::int64_t>(sizeof(T)));
  }

  void run(const TaskContext& context) const noexcept override {
    if (n_ == 0) return;
    const std::int64_t count = x_lanes_.count();
    const Range groups = context.share(ceil_div(count, at_once_));
    auto* memory = reinterpret_cast<T*>(context.working_memory());
    const std::int64_t step = array_elements();
    const Split<T> first{memory, memory + step}, second{memory + 2 * step, memory + 3 * step};
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    for (std::int64_t g = groups.begin; g < groups.end; ++g) {
      const std::int64_t lane = g * at_once_, lanes = std::min(at_once_, count - lane);
      for (std::int64_t q = 0; q < lanes; ++q) {
        read(x + x_lanes_.offset(lane + q), first.at(q), lanes);
      }
      const bool back = kind_ == Kind::inverse || kind_ == Kind::to_real;
      const Split<T> result = back ? plan_.run(first.swapped(), second.swapped(), lanes).swapped()
                                   : plan_.run(first, second, lanes);
      for (std::int64_t q = 0; q < lanes; ++q) {
        write(result.at(q), lanes, y + y_lanes_.offset(lane + q));
      }
    }
  }

 private:
  std::int64_t array_elements() const noexcept {
    return round_up(plan_.room() * at_once_, 64 / static_cast<std::int64_t>(sizeof(T)));
  }

  static T at(const std::byte* p) noexcept { return *reinterpret_cast<const T*>(p); }
  static void put(std::byte* p, T value) noexcept { *reinterpret_cast<T*>(p) = value; }
  T x_re(const std::byte* x, std::int64_t k) const noexcept { return at(x + k * x_step_); }
  T x_im(const std::byte* x, std::int64_t k) const noexcept {
    return 2 * k % n_ == 0 ? T{} : at(x + k * x_step_ + x_part_);
  }

  /// One lane to every `step`-th element of `to`.
  void read(const std::byte* x, Split<T> to, std::int64_t step) const noexcept {
    const std::int64_t h = n_ / 2;
    if (kind_ == Kind::from_real) {
      const std::int64_t size = halves_ ? h : n_;
      for (std::int64_t j = 0; j < size; ++j) {
        to.re[j * step] = x_re(x, halves_ ? 2 * j : j);
        to.im[j * step] = halves_ ? x_re(x, 2 * j + 1) : T{};
      }
    } else if (kind_ == Kind::to_real && halves_) {
      // Even and odd elements of the result as the two parts of one transform of half the size.
      for (std::int64_t k = 0; k < h; ++k) {
        const T ar = x_re(x, k), ai = x_im(x, k), br = x_re(x, h - k), bi = -x_im(x, h - k);
        const auto index = static_cast<std::size_t>(k);
        const T wr = roots_.re[index], wi = -roots_.im[index];
        const T er = (ar + br) / 2, ei = (ai + bi) / 2, dr = (ar - br) / 2, di = (ai - bi) / 2;
        const T odd_r = dr * wr - di * wi, odd_i = dr * wi + di * wr;
        to.re[k * step] = er - odd_i;
        to.im[k * step] = ei + odd_r;
      }
    } else if (kind_ == Kind::to_real) {
      for (std::int64_t k = 0; k < n_; ++k) {
        const bool mirrored = k > h;
        const T im = x_im(x, mirrored ? n_ - k : k);
        to.re[k * step] = x_re(x, mirrored ? n_ - k : k);
        to.im[k * step] = mirrored ? -im : im;
      }
    } else {
      for (std::int64_t j = 0; j < n_; ++j) {
        to.re[j * step] = at(x + j * x_step_);
        to.im[j * step] = at(x + j * x_step_ + x_part_);
      }
    }
  }

  void write(Split<T> from, std::int64_t step, std::byte* y) const noexcept {
    const std::int64_t h = n_ / 2;
    if (kind_ == Kind::from_real && halves_) {
      for (std::int64_t k = 0; k <= h; ++k) {
        const std::int64_t a = k % h * step, b = (h - k) % h * step;
        const auto index = static_cast<std::size_t>(k);
        const T er = (from.re[a] + from.re[b]) / 2, ei = (from.im[a] - from.im[b]) / 2;
        const T odd_r = (from.im[a] + from.im[b]) / 2, odd_i = (from.re[b] - from.re[a]) / 2;
        const T wr = roots_.re[index], wi = roots_.im[index];
        put(y + k * y_step_, er + odd_r * wr - odd_i * wi);
        put(y + k * y_step_ + y_part_, ei + odd_r * wi + odd_i * wr);
      }
    } else if (kind_ == Kind::to_real) {
      const T factor = T{1} / static_cast<T>(halves_ ? h : n_);
      for (std::int64_t j = 0; j < n_; ++j) {
        const T value = !halves_     ? from.re[j * step]
                        : j % 2 == 0 ? from.re[j / 2 * step]
                                     : from.im[j / 2 * step];
        put(y + j * y_step_, value * factor);
      }
    } else {
      const T factor = kind_ == Kind::inverse ? T{1} / static_cast<T>(n_) : T{1};
      const std::int64_t count = kind_ == Kind::from_real ? h + 1 : n_;
      for (std::int64_t j = 0; j < count; ++j) {
        put(y + j * y_step_, from.re[j * step] * factor);
        put(y + j * y_step_ + y_part_, from.im[j * step] * factor);
      }
    }
  }

  Operand x_, y_;
  Kind kind_;
  Lanes x_lanes_, y_lanes_;
  std::int64_t n_;
  bool halves_;
  FftPlan<T> plan_;
  SplitTable<T> roots_;
  std::int64_t x_step_ = 0, y_step_ = 0, x_part_ = 0, y_part_ = 0, at_once_ = 1;
};

template <class T>
std::unique_ptr<Task> make_fft_of(const Step& step, Compiler& compiler) {
  using Kind = typename FftTask<T>::Kind;
  if (const auto* op = step.op.as<Fft>()) {
    return std::make_unique<FftTask<T>>(step, static_cast<int>(op->axis),
                                        op->inverse ? Kind::inverse : Kind::forward, compiler);
  }
  if (const auto* op = step.op.as<Rfft>()) {
    return std::make_unique<FftTask<T>>(step, static_cast<int>(op->axis), Kind::from_real,
                                        compiler);
  }
  return std::make_unique<FftTask<T>>(step, static_cast<int>(step.op.as<Irfft>()->axis),
                                      Kind::to_real, compiler);
}

std::unique_ptr<Task> make_fft(const Step& step, Compiler& compiler) {
  return step.output.shape.dtype() == DType::f32 ? make_fft_of<float>(step, compiler)
                                                 : make_fft_of<double>(step, compiler);
}

}  // namespace

extern const Kernel fft_kernel, rfft_kernel, irfft_kernel;
constinit const Kernel fft_kernel{op_def<Fft>, takes_everything, make_fft};
constinit const Kernel rfft_kernel{op_def<Rfft>, takes_everything, make_fft};
constinit const Kernel irfft_kernel{op_def<Irfft>, takes_everything, make_fft};

}  // namespace tenon::cpu
