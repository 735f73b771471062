// Fourier transforms in the type of the elements, with roots from f64: by vectors along a lane where its elements lie
// side by side and its size allows it, else as many lanes at once as a vector holds.
#include "../fourier/fourier_kernels.hpp"
#include "../task.hpp"
#include "reader.hpp"

#include <tenon/ops/fft.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <optional>
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
    const double* y =
        fourier_kernels().f64.single.run(exact.plan(), x.data(), spare.data(), StopSign{});
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
const FourierOf<T>& fourier_kernels_of() {
  if constexpr (std::is_same_v<T, float>) {
    return fourier_kernels().f32;
  } else {
    return fourier_kernels().f64;
  }
}

/// Real numbers 2j and 2j + 1 are taken as the parts of complex number j where their number is even.
bool takes_halves(const FourierForm& form) {
  return (form.from_real || form.to_real) && form.size % 2 == 0;
}

template <class T>
class FourierSteps {
 public:
  FourierSteps(const Step& step, const FourierForm& form)
      : form_(form),
        x_(step.inputs[0], form.axis, !form.from_real),
        y_(step.output, form.axis, !form.to_real),
        halves_(takes_halves(form)),
        size_(halves_ ? form.size / 2 : form.size) {}

  bool reads_rows() const noexcept {
    return lies_in_rows(x_, form_.from_real) && (halves_ || !form_.to_real);
  }
  bool writes_rows() const noexcept { return lies_in_rows(y_, form_.to_real); }

 protected:
  void make_turns() {
    if (!halves_) return;
    const double sign = form_.to_real ? -1 : 1;
    turns_.resize(static_cast<std::size_t>(2 * (size_ + 1)));
    for (std::int64_t k = 0; k <= size_; ++k) {
      const double angle =
          sign * -std::numbers::pi * static_cast<double>(k) / static_cast<double>(size_);
      turns_[static_cast<std::size_t>(k)] = static_cast<T>(sign * std::cos(angle));
      turns_[static_cast<std::size_t>(size_ + 1 + k)] = static_cast<T>(sign * std::sin(angle));
    }
  }
  T fold_factor() const noexcept { return static_cast<T>(form_.to_real ? 1 : 0.5); }
  T scale() const noexcept {
    return static_cast<T>(form_.inverse ? 1 / static_cast<double>(form_.size) : 1);
  }

  /// Whether elements along the axis lie side by side, as the kernels for rows want them.
  bool lies_in_rows(const FourierLanes& array, bool is_real) const noexcept {
    constexpr std::int64_t unit = sizeof(T);
    return is_real ? halves_ && array.step == unit : array.step == 2 * unit && array.part == unit;
  }

  FourierForm form_;
  FourierLanes x_, y_;
  bool halves_;
  std::int64_t size_;     ///< of the complex transform
  std::vector<T> turns_;  ///< as FourierKernel::fold has them
};

/// Lane by lane.
template <class T>
class LineTask final : public Task, FourierSteps<T> {
  using Base = FourierSteps<T>;
  using Base::form_, Base::x_, Base::y_, Base::halves_, Base::size_, Base::turns_;

 public:
  LineTask(const Step& step, const FourierForm& form, Compiler& compiler)
      : Base(step, form), kernel_(*line_for(step, form)), owned_(size_ / kernel_.lanes) {
    Base::make_turns();
    const std::int64_t columns = size_ / kernel_.lanes;
    for (std::int64_t l = 1; l < kernel_.lanes; ++l) {
      const std::size_t at = across_.size();
      across_.resize(at + static_cast<std::size_t>(2 * columns));
      for (std::int64_t k = 0; k < columns; ++k) {
        const double angle =
            -2 * std::numbers::pi * static_cast<double>(l * k) / static_cast<double>(size_);
        across_[at + static_cast<std::size_t>(k)] = static_cast<T>(std::cos(angle));
        across_[at + static_cast<std::size_t>(columns + k)] = static_cast<T>(std::sin(angle));
      }
    }
    compiler.working_memory(memory_bytes());
  }

  /// The kernel for such a step, or null: then lanes are better taken side by side.
  static const FourierLine<T>* line_for(const Step& step, const FourierForm& form) {
    const Base steps(step, form);
    if (!steps.reads_rows() || !steps.writes_rows()) return nullptr;
    const std::int64_t size = takes_halves(form) ? form.size / 2 : form.size;
    const FourierOf<T>& kernels = fourier_kernels_of<T>();
    for (const FourierLine<T>* line : {&kernels.line, &kernels.shorter_line}) {
      const std::int64_t columns = size / line->lanes;
      if (size % line->lanes == 0 && columns >= line->lanes && is_smooth(columns)) return line;
    }
    return nullptr;
  }

  void run(const TaskContext& context) const noexcept override {
    const auto* from = context.pointer<const std::byte>(x_.operand);
    auto* to = context.pointer<std::byte>(y_.operand);
    void* memory = context.working_memory();
    auto bytes = static_cast<std::size_t>(memory_bytes());
    auto* const work = static_cast<T*>(std::align(64, bytes - 64, memory, bytes));
    T* const halves = work + 4 * size_;
    const StopSign stop = stop_sign(context.worker.interrupt);
    const Range lanes = context.share(x_.count);
    for (std::int64_t i = lanes.begin; i < lanes.end && !context.worker.is_interrupted(); ++i) {
      const auto* x = reinterpret_cast<const T*>(from + x_.outer.offset(i));
      auto* y = reinterpret_cast<T*>(to + y_.outer.offset(i));
      if (halves_ && form_.to_real) {
        kernel_.fold(x, turns_.data(), size_, Base::fold_factor(), halves);
        // The imaginary parts of the ends do not count.
        halves[0] = x[0] + x[2 * size_];
        halves[1] = x[0] - x[2 * size_];
        x = halves;
      }
      T* const made = halves_ && form_.from_real ? halves : y;
      kernel_.run(owned_.plan(), across_.data(), x, form_.inverse, Base::scale(), work, made, stop);
      if (made == y) continue;
      std::copy_n(halves, 2, halves + 2 * size_);
      kernel_.fold(halves, turns_.data(), size_, Base::fold_factor(), y);
    }
  }

 private:
  std::int64_t memory_bytes() const noexcept {
    return (4 * size_ + 2 * (size_ + 1)) * std::int64_t{sizeof(T)} + 64;
  }
  /// Whether no prime factor needs a chirp.
  static bool is_smooth(std::int64_t size) {
    for (std::int64_t f = 2; f <= FourierPlan<T>::most_factor; ++f) {
      while (size % f == 0) size /= f;
    }
    return size == 1;
  }

  const FourierLine<T>& kernel_;
  OwnedPlan<T> owned_;
  std::vector<T> across_;
};

/// As many lanes at once as a vector holds.
template <class T>
class LanesTask final : public Task, FourierSteps<T> {
  using Base = FourierSteps<T>;
  using Base::form_, Base::x_, Base::y_, Base::halves_, Base::size_, Base::turns_;

 public:
  LanesTask(const Step& step, const FourierForm& form, Compiler& compiler)
      : Base(step, form),
        owned_(size_),
        kernel_(kernel(x_.count)),
        room_(std::max(owned_.plan().room(), form.size / 2 + 1) * 2 * kernel_.lanes) {
    Base::make_turns();
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
    const StopSign stop = stop_sign(context.worker.interrupt);
    const Range groups = context.share(ceil_div(x_.count, lanes));
    for (std::int64_t g = groups.begin; g < groups.end && !context.worker.is_interrupted(); ++g) {
      read_group(from, g, first);
      T* x = first;
      T* other = second;
      if (halves_ && form_.to_real) {
        kernel_.fold(first, turns_.data(), size_, Base::fold_factor(), second);
        std::swap(x, other);
        exchange_parts(x);
      }
      T* y = kernel_.run(owned_.plan(), x, other, stop);
      if (halves_ && form_.from_real) {
        T* const result = y == first ? second : first;
        std::copy_n(y, 2 * lanes, y + 2 * lanes * size_);
        kernel_.fold(y, turns_.data(), size_, Base::fold_factor(), result);
        y = result;
      }
      write_group(y, g, to);
    }
  }

 private:
  static constexpr std::int64_t alignment = 16;  // elements: 64 bytes of f32
  static constexpr std::size_t most_lanes = 16;

  /// Fewer lanes than half a vector are computed one by one.
  static const FourierKernel<T>& kernel(std::int64_t lanes) {
    const FourierOf<T>& kernels = fourier_kernels_of<T>();
    return 2 * lanes > kernels.lanes.lanes ? kernels.lanes : kernels.single;
  }
  static T load(const std::byte* element) noexcept {
    T value;
    std::memcpy(&value, element, sizeof value);
    return value;
  }

  /// Where lanes are fewer than a vector's, the last one again and again.
  std::int64_t lane(std::int64_t group, std::int64_t number) const noexcept {
    return std::min(group * kernel_.lanes + number, x_.count - 1);
  }
  /// Where the lanes of a group begin.
  template <class Byte>
  auto lanes_of(const FourierLanes& array, std::int64_t group, Byte* data) const noexcept {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    std::array<Element*, most_lanes> pointers{};
    for (std::int64_t l = 0; l < kernel_.lanes; ++l) {
      pointers[static_cast<std::size_t>(l)] =
          reinterpret_cast<Element*>(data + array.outer.offset(lane(group, l)));
    }
    return pointers;
  }
  /// Where the lanes of a whole group begin if they lie side by side, as pairs of parts.
  std::optional<std::int64_t> columns_of(const FourierLanes& array, bool is_real,
                                         std::int64_t group) const noexcept {
    if (is_real || array.part != std::int64_t{sizeof(T)}) return std::nullopt;
    if ((group + 1) * kernel_.lanes > array.count) return std::nullopt;
    return array.outer.run_at(std::int64_t{2 * sizeof(T)}, group * kernel_.lanes, kernel_.lanes);
  }

  void read_group(const std::byte* from, std::int64_t group, T* x) const noexcept {
    const std::int64_t lanes = kernel_.lanes;
    const bool exchange = form_.inverse && !halves_;
    const bool is_whole = halves_ || !form_.to_real;  // nothing to mirror
    if (lanes > 1 && Base::reads_rows()) {
      const std::int64_t count = form_.from_real ? form_.size : 2 * x_.size;
      kernel_.read_rows(lanes_of(x_, group, from).data(), count, exchange, x);
    } else if (const auto columns =
                   lanes > 1 && is_whole ? columns_of(x_, form_.from_real, group) : std::nullopt) {
      kernel_.read_columns(from + *columns, x_.step, x_.size, exchange, x);
    } else {
      for (std::int64_t l = 0; l < lanes; ++l) read(from + x_.outer.offset(lane(group, l)), x + l);
    }
    if (form_.to_real && halves_) {  // the imaginary parts of the ends do not count
      for (const std::int64_t end : {std::int64_t{0}, size_}) {
        std::fill_n(x + (2 * end + 1) * lanes, lanes, T{});
      }
    }
  }

  void write_group(const T* y, std::int64_t group, std::byte* to) const noexcept {
    const std::int64_t lanes = kernel_.lanes;
    if (lanes > 1 && Base::writes_rows()) {
      const std::int64_t count = form_.to_real ? form_.size : 2 * y_.size;
      kernel_.write_rows(y, count, form_.inverse, Base::scale(), lanes_of(y_, group, to).data());
    } else if (const auto columns =
                   lanes > 1 ? columns_of(y_, form_.to_real, group) : std::nullopt) {
      kernel_.write_columns(y, y_.size, form_.inverse, Base::scale(), to + *columns, y_.step);
    } else {
      const std::int64_t count = std::min(lanes, x_.count - group * lanes);
      for (std::int64_t l = 0; l < count; ++l) {
        write(y + l, to + y_.outer.offset(group * lanes + l));
      }
    }
  }

  void exchange_parts(T* x) const noexcept {
    const std::int64_t lanes = kernel_.lanes;
    for (std::int64_t k = 0; k < size_; ++k, x += 2 * lanes) {
      std::swap_ranges(x, x + lanes, x + lanes);
    }
  }

  /// One lane to x, whose elements are 2 * lanes apart.
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
      if (!form_.to_real || halves_) continue;
      if (j == 0) {
        x[im] = 0;
      } else {
        x[2 * lanes * (form_.size - j) + re] = x[2 * lanes * j + re];
        x[2 * lanes * (form_.size - j) + im] = -x[2 * lanes * j + im];
      }
    }
  }

  void write(const T* y, std::byte* lane) const noexcept {
    const std::int64_t lanes = kernel_.lanes, step = y_.step;
    const auto store = [scale = Base::scale()](std::byte* element, T value) {
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

  OwnedPlan<T> owned_;
  const FourierKernel<T>& kernel_;
  std::int64_t room_;
};

template <class T>
std::unique_ptr<Task> make_fourier_of(const Step& step, const FourierForm& form,
                                      Compiler& compiler) {
  if (LineTask<T>::line_for(step, form) != nullptr) {
    return std::make_unique<LineTask<T>>(step, form, compiler);
  }
  return std::make_unique<LanesTask<T>>(step, form, compiler);
}

template <class Op>
std::unique_ptr<Task> make_fourier(const Step& step, Compiler& compiler) {
  const Op& op = *step.op.as<Op>();
  const auto axis = static_cast<int>(op.axis);
  FourierForm form{axis, std::is_same_v<Op, Rfft>, std::is_same_v<Op, Irfft>,
                   std::is_same_v<Op, Irfft>, step.inputs[0].shape[axis]};
  if constexpr (std::is_same_v<Op, Irfft>) form.size = op.size;
  if constexpr (std::is_same_v<Op, Fft>) form.inverse = op.inverse;
  if (step.output.shape.dtype() == DType::f64) {
    return make_fourier_of<double>(step, form, compiler);
  }
  return make_fourier_of<float>(step, form, compiler);
}

}  // namespace

extern const Kernel fft_kernel, rfft_kernel, irfft_kernel;
constinit const Kernel fft_kernel{op_def<Fft>, takes_everything, make_fourier<Fft>};
constinit const Kernel rfft_kernel{op_def<Rfft>, takes_everything, make_fourier<Rfft>};
constinit const Kernel irfft_kernel{op_def<Irfft>, takes_everything, make_fourier<Irfft>};

}  // namespace tenon::cpu
