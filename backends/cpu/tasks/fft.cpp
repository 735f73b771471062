// Fourier transforms: as many lanes at once as a vector holds, in the type of the elements, with
// roots from f64.
#include "../fourier/fourier_kernels.hpp"
#include "../task.hpp"
#include "reader.hpp"

#include <tenon/ops/fft.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <type_traits>
#include <vector>

namespace tenon::cpu {
namespace {

/// A plan with the tables it points to.
template <class T>
class OwnedPlan {
 public:
  explicit OwnedPlan(std::int64_t size) {
    plan_.size = size;
    std::int64_t rest = size;
    for (std::int64_t f = 4; rest > 1 && f <= FourierPlan<T>::most_factor;) {
      if (rest % f == 0) {
        plan_.factor[plan_.factors++] = static_cast<std::int8_t>(f);
        rest /= f;
      } else {
        f = f == 4 ? 2 : f == 2 ? 3 : f == 3 ? 5 : f + 2;
      }
    }
    if (rest > 1) {
      plan_.factors = 0;
      make_chirp();
    } else {
      for (std::int64_t j = 0; j < size; ++j) push_root(roots_, j, size);
      plan_.roots = roots_.data();
    }
  }
  const FourierPlan<T>& plan() const noexcept { return plan_; }

 private:
  /// exp(-2 pi i j / n).
  static void push_root(std::vector<T>& to, std::int64_t j, std::int64_t n) {
    const double angle = -2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(n);
    to.push_back(static_cast<T>(std::cos(angle)));
    to.push_back(static_cast<T>(std::sin(angle)));
  }

  void make_chirp() {
    const std::int64_t size = plan_.size;
    const auto length =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * size - 1)));
    longer_ = std::make_unique<OwnedPlan>(length);
    // j^2 mod 2 size, from differences: j^2 itself may not fit.
    for (std::int64_t j = 0, square = 0; j < size; ++j) {
      push_root(chirp_, square, 2 * size);
      square = (square + 2 * j + 1) % (2 * size);
    }
    // In f64 whatever T is: once per plan.
    const OwnedPlan<double> exact(length);
    std::vector<double> x(static_cast<std::size_t>(2 * length)), spare(x.size());
    std::vector<double> chirp;
    for (std::int64_t j = 0, square = 0; j < size; ++j) {
      const double angle =
          std::numbers::pi * static_cast<double>(square) / static_cast<double>(size);
      for (const std::int64_t at : {j, (length - j) % length}) {
        x[static_cast<std::size_t>(2 * at)] = std::cos(angle);
        x[static_cast<std::size_t>(2 * at + 1)] = std::sin(angle);
      }
      square = (square + 2 * j + 1) % (2 * size);
    }
    const double* y = fourier_kernels().single_f64.run(exact.plan(), x.data(), spare.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      filter_.push_back(static_cast<T>(y[i] / static_cast<double>(length)));
    }
    plan_.longer = &longer_->plan();
    plan_.chirp = chirp_.data();
    plan_.filter = filter_.data();
  }

  FourierPlan<T> plan_;
  std::vector<T> roots_, chirp_, filter_;
  std::unique_ptr<OwnedPlan> longer_;
};

/// The lanes of a real array or, of a complex one, of its real parts.
struct FourierLanes {
  Operand operand;
  Loops outer;
  std::int64_t count = 1, size, step, part = 0;

  FourierLanes(const Operand& array, int axis, bool is_complex)
      : operand(array),
        size(array.shape[axis]),
        step(array.strides[static_cast<std::size_t>(axis)]) {
    const int rank = array.shape.rank() - (is_complex ? 1 : 0);
    for (int i = 0; i < rank; ++i) {
      if (i == axis) continue;
      count *= array.shape[i];
      outer.push(array.shape[i], array.strides[static_cast<std::size_t>(i)]);
    }
    if (is_complex) part = array.strides[static_cast<std::size_t>(rank)];
  }
};

struct FourierForm {
  int axis;
  bool from_real, to_real, inverse;
  std::int64_t size;
};

template <class T>
class FourierTask final : public Task {
 public:
  FourierTask(const Step& step, const FourierForm& form, Compiler& compiler)
      : form_(form),
        x_(step.inputs[0], form.axis, !form.from_real),
        y_(step.output, form.axis, !form.to_real),
        // Real lanes of even size are complex ones of half the size.
        halves_((form.from_real || form.to_real) && form.size % 2 == 0),
        owned_(halves_ ? form.size / 2 : form.size),
        kernel_(kernel(x_.count)),
        room_(std::max(owned_.plan().room(), form.size / 2 + 1) * 2 * kernel_.lanes) {
    if (halves_) {
      for (std::int64_t k = 0; k <= form.size / 2; ++k) {
        const double angle =
            -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(form.size);
        turns_.push_back(static_cast<T>(std::cos(angle)));
        turns_.push_back(static_cast<T>(std::sin(angle)));
      }
    }
    compiler.working_memory((2 * room_ + alignment) * std::int64_t{sizeof(T)});
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t lanes = kernel_.lanes;
    const auto* from = context.pointer<const std::byte>(x_.operand);
    auto* to = context.pointer<std::byte>(y_.operand);
    void* memory = context.working_memory();
    auto bytes = static_cast<std::size_t>((2 * room_ + alignment) * std::int64_t{sizeof(T)});
    auto* const first = static_cast<T*>(
        std::align(64, static_cast<std::size_t>(2 * room_) * sizeof(T), memory, bytes));
    T* const second = first + room_;
    const Range groups = context.share(ceil_div(x_.count, lanes));
    for (std::int64_t g = groups.begin; g < groups.end && !context.worker.is_interrupted(); ++g) {
      const std::int64_t count = std::min(lanes, x_.count - g * lanes);
      if (count < lanes) std::fill(first, first + room_, T{});
      for (std::int64_t l = 0; l < count; ++l) {
        read(from + x_.outer.offset(g * lanes + l), first + l);
      }
      T* x = first;
      T* other = second;
      if (halves_ && form_.to_real) {
        join_halves(first, second);
        std::swap(x, other);
      }
      T* y = kernel_.run(owned_.plan(), x, other);
      if (halves_ && form_.from_real) {
        T* const result = y == first ? second : first;
        split(y, result);
        y = result;
      }
      for (std::int64_t l = 0; l < count; ++l) {
        write(y + l, to + y_.outer.offset(g * lanes + l));
      }
    }
  }

 private:
  static constexpr std::int64_t alignment = 16;  // elements: 64 bytes of f32

  /// Fewer lanes than half a vector are computed one by one.
  static FourierKernel<T> kernel(std::int64_t lanes) {
    const FourierKernels& kernels = fourier_kernels();
    if constexpr (std::is_same_v<T, float>) {
      return 2 * lanes > kernels.f32.lanes ? kernels.f32 : kernels.single_f32;
    } else {
      return 2 * lanes > kernels.f64.lanes ? kernels.f64 : kernels.single_f64;
    }
  }
  static T load(const std::byte* element) noexcept {
    T value;
    std::memcpy(&value, element, sizeof value);
    return value;
  }

  /// One lane to x, whose elements are 2 * lanes apart. An inverse exchanges real and imaginary
  /// parts before and after a forward transform.
  void read(const std::byte* lane, T* x) const noexcept {
    const std::int64_t lanes = kernel_.lanes, step = x_.step;
    if (form_.from_real) {
      const std::int64_t pairs = halves_ ? form_.size / 2 : 0;
      for (std::int64_t j = 0; j < pairs; ++j, x += 2 * lanes) {
        x[0] = load(lane + 2 * j * step);
        x[lanes] = load(lane + (2 * j + 1) * step);
      }
      for (std::int64_t j = 2 * pairs; j < form_.size; ++j, x += 2 * lanes) {
        x[0] = load(lane + j * step);
        x[lanes] = 0;
      }
      return;
    }
    const std::int64_t re = form_.inverse && !halves_ ? lanes : 0, im = lanes - re;
    for (std::int64_t j = 0; j < x_.size; ++j) {
      const std::byte* element = lane + j * step;
      x[2 * lanes * j + re] = load(element);
      x[2 * lanes * j + im] = load(element + x_.part);
      if (!form_.to_real) continue;
      const bool own_mirror = j == 0 || 2 * j == form_.size;
      if (own_mirror) x[2 * lanes * j + im] = 0;
      if (!halves_ && !own_mirror) {
        x[2 * lanes * (form_.size - j) + re] = x[2 * lanes * j + re];
        x[2 * lanes * (form_.size - j) + im] = -x[2 * lanes * j + im];
      }
    }
  }

  void write(const T* y, std::byte* lane) const noexcept {
    const std::int64_t lanes = kernel_.lanes, step = y_.step;
    const auto scale = static_cast<T>(form_.inverse ? 1 / static_cast<double>(form_.size) : 1);
    const auto store = [&](std::byte* element, T value) {
      value *= scale;
      std::memcpy(element, &value, sizeof value);
    };
    const std::int64_t re = form_.inverse ? lanes : 0, im = lanes - re;
    if (form_.to_real && halves_) {
      for (std::int64_t j = 0; j < form_.size / 2; ++j, y += 2 * lanes) {
        store(lane + 2 * j * step, y[re]);
        store(lane + (2 * j + 1) * step, y[im]);
      }
      return;
    }
    for (std::int64_t j = 0; j < y_.size; ++j, y += 2 * lanes) {
      store(lane + j * step, y[re]);
      if (!form_.to_real) store(lane + j * step + y_.part, y[im]);
    }
  }

  /// From the transform z of x_{2j} + i x_{2j+1}, of h = n / 2 elements, that of x:
  /// y_k = (z_k + conj z_{h-k}) / 2 - i w^k (z_k - conj z_{h-k}) / 2, w = exp(-2 pi i / n).
  void split(const T* z, T* y) const noexcept {
    const std::int64_t lanes = kernel_.lanes, half = form_.size / 2;
    for (std::int64_t k = 0; k <= half; ++k) {
      const T* a = z + 2 * lanes * (k == half ? 0 : k);
      const T* b = z + 2 * lanes * (k == 0 ? 0 : half - k);
      const T c = turns_[static_cast<std::size_t>(2 * k)];
      const T s = turns_[static_cast<std::size_t>(2 * k + 1)];
      T* to = y + 2 * lanes * k;
      for (std::int64_t l = 0; l < lanes; ++l) {
        const T sum_re = a[l] + b[l], sum_im = a[lanes + l] - b[lanes + l];
        const T rest_re = a[l] - b[l], rest_im = a[lanes + l] + b[lanes + l];
        to[l] = static_cast<T>(0.5) * (sum_re + (c * rest_im + s * rest_re));
        to[lanes + l] = static_cast<T>(0.5) * (sum_im - (c * rest_re - s * rest_im));
      }
    }
  }

  /// The other way round, twice z: z_k = (y_k + conj y_{h-k}) + i w^-k (y_k - conj y_{h-k}), with
  /// real and imaginary parts exchanged for the inverse.
  void join_halves(const T* y, T* z) const noexcept {
    const std::int64_t lanes = kernel_.lanes, half = form_.size / 2;
    for (std::int64_t k = 0; k < half; ++k) {
      const T* a = y + 2 * lanes * k;
      const T* b = y + 2 * lanes * (half - k);
      const T c = turns_[static_cast<std::size_t>(2 * k)];
      const T s = -turns_[static_cast<std::size_t>(2 * k + 1)];
      T* to = z + 2 * lanes * k;
      for (std::int64_t l = 0; l < lanes; ++l) {
        const T sum_re = a[l] + b[l], sum_im = a[lanes + l] - b[lanes + l];
        const T rest_re = a[l] - b[l], rest_im = a[lanes + l] + b[lanes + l];
        to[lanes + l] = sum_re - (c * rest_im + s * rest_re);
        to[l] = sum_im + (c * rest_re - s * rest_im);
      }
    }
  }

  FourierForm form_;
  FourierLanes x_, y_;
  bool halves_;
  OwnedPlan<T> owned_;
  FourierKernel<T> kernel_;
  std::int64_t room_;
  std::vector<T> turns_;
};

template <class Op>
std::unique_ptr<Task> make_fourier(const Step& step, Compiler& compiler) {
  const Op& op = *step.op.as<Op>();
  const auto axis = static_cast<int>(op.axis);
  FourierForm form{axis, std::is_same_v<Op, Rfft>, std::is_same_v<Op, Irfft>,
                   std::is_same_v<Op, Irfft>, step.inputs[0].shape[axis]};
  if constexpr (std::is_same_v<Op, Irfft>) form.size = op.size;
  if constexpr (std::is_same_v<Op, Fft>) form.inverse = op.inverse;
  if (step.output.shape.dtype() == DType::f64) {
    return std::make_unique<FourierTask<double>>(step, form, compiler);
  }
  return std::make_unique<FourierTask<float>>(step, form, compiler);
}

}  // namespace

extern const Kernel fft_kernel, rfft_kernel, irfft_kernel;
constinit const Kernel fft_kernel{op_def<Fft>, takes_everything, make_fourier<Fft>};
constinit const Kernel rfft_kernel{op_def<Rfft>, takes_everything, make_fourier<Rfft>};
constinit const Kernel irfft_kernel{op_def<Irfft>, takes_everything, make_fourier<Irfft>};

}  // namespace tenon::cpu
