// Where along an axis the extreme elements stand.
#include "../elementwise/elementwise.hpp"
#include "../elementwise/top_row.hpp"
#include "../elementwise/typed.hpp"
#include "../integer_math.hpp"
#include "extreme.hpp"
#include "lanes.hpp"
#include "ordered.hpp"
#include "radix_sort.hpp"

#include <tenon/ops/arg_reduce.hpp>
#include <tenon/ops/topk.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

template <bool greatest, class T>
class ArgTask final : public PartwiseTask {
 public:
  ArgTask(const Step& step, int axis)
      : x_(step.inputs[0]),
        y_(step.output),
        lanes_(x_, axis),
        step_(x_.strides[static_cast<std::size_t>(axis)]),
        are_columns_(is_computed_as_stored(x_.shape.dtype()) && lanes_.adjacent() >= min_columns &&
                     lanes_.size() <= std::numeric_limits<std::int32_t>::max()) {}

  void run(const TaskContext& context) const noexcept override {
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    const Range range = context.share(lanes_.count());
    for (std::int64_t lane = range.begin, count = 0; lane < range.end; lane += count) {
      count = are_columns_ ? std::min(lanes_.adjacent_from(lane), range.end - lane) : 1;
      count = std::min(count, block_elements);
      std::array<std::int64_t, block_elements> places;
      if (are_columns_) {
        find_places(compute_type(x_.shape.dtype()), greatest, x + lanes_.offset(lane), count,
                    lanes_.size(), step_, places.data());
      } else {
        places[0] = place_in(x + lanes_.offset(lane));
      }
      for (std::int64_t i = 0; i < count; ++i) {
        store_int64(y_.shape.dtype(), y + (lane + i) * block_bytes(y_.shape.dtype()),
                    places[static_cast<std::size_t>(i)]);
      }
    }
  }

 private:
  static constexpr std::int64_t min_columns = 8;  // fewer: one by one

  std::int64_t place_in(const std::byte* lane) const noexcept {
    Extreme<T, greatest> best;
    BlockBuffer buffer;
    for (std::int64_t i = 0; i < lanes_.size(); i += block_elements) {
      const std::int64_t count = std::min(block_elements, lanes_.size() - i);
      best.add(static_cast<const T*>(lanes_.read(lane, i, count, buffer)), i, count);
    }
    return best.index();
  }

  Operand x_, y_;
  Lanes lanes_;
  std::int64_t step_;  ///< bytes from one element of a lane to the next
  bool are_columns_;   ///< adjacent lanes are read together
};

template <class Op, bool greatest>
std::unique_ptr<Task> make_arg(const Step& step, Compiler&) {
  return with_type(step, [&]<class T>(T) -> std::unique_ptr<Task> {
    return std::make_unique<ArgTask<greatest, T>>(step, static_cast<int>(step.op.as<Op>()->axis));
  });
}

/// The k best of a lane whose elements are added in order: the candidates so far.
template <class T>
class Candidates {
  using Key = decltype(ordered(T{}));
  using S = Sorted<T, true>;

 public:
  /// Of flipped keys, so that the best comes first, and of equal ones the one that stood first.
  using Entry = typename S::Entry;

  /// Entries that a lane of `size` elements needs: candidates, one behind them, and the k best.
  static std::int64_t entries(std::int64_t k, std::int64_t size) noexcept {
    return capacity(k, size) + 1 + k;
  }

  /// `room` holds entries(k, size).
  Candidates(Entry* room, std::int64_t k, std::int64_t size)
      : room_(room), k_(k), capacity_(capacity(k, size)) {}

  /// Scans elements beforehand, if they are few enough to stay in cache, in runs of `run`: where the maxima of k runs reach a
  /// number, so do the k best, and smaller elements need not be kept. For unordered elements that leaves few more than k.
  void look_ahead(const T* x, std::int64_t size, std::int64_t run) noexcept {
    constexpr std::int64_t most = 512, unit = sizeof(T);
    const std::int64_t runs = size / run;
    if (runs < 2 * k_ || runs > most) return;
    alignas(64) std::array<T, most> maxima;
    fold_rows(type, Gathering::max, x, run * unit, runs, run, maxima.data());
    std::array<Key, most> reached;
    for (std::size_t i = 0; i < static_cast<std::size_t>(runs); ++i)
      reached[i] = ordered(maxima[i]);
    const auto begin = reached.begin();
    std::nth_element(begin, begin + (k_ - 1), begin + runs, std::greater<>());
    const T bar = value_of<T>(reached[static_cast<std::size_t>(k_ - 1)]);
    constexpr T lowest = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                     : std::numeric_limits<T>::lowest();
    if (!(bar > lowest)) return;  // or it is NaN
    if constexpr (std::is_floating_point_v<T>) {
      worst_ = std::nextafter(bar, lowest);
    } else {
      worst_ = bar - 1;
    }
    has_worst_ = true;
  }

  /// The next elements, `first` being the place of the first of them; count <= block_elements.
  void add(const T* x, std::int64_t first, std::int64_t count) noexcept {
    if (!has_worst_ && size_ > k_) keep_best();
    if (!has_worst_) look_ahead(x, count, 16);
    if (has_worst_ && !may_hold_better(x, count)) return;
    if (size_ + count > capacity_) keep_best();
    for (std::int64_t i = 0; i < count; ++i) {
      room_[size_] =
          S::make(static_cast<Key>(~ordered(x[i])), static_cast<std::uint32_t>(first + i));
      // An equal one loses to those before it; a NaN is no less than anything.
      size_ += !(has_worst_ & (x[i] <= worst_));
    }
  }

  /// The k best, best first, once k or more elements were added.
  const Entry* sorted() noexcept {
    if (size_ > k_) keep_best();
    Entry* const best = sort_entries<S>(room_, room_ + capacity_ + 1, k_);
    for (Entry *run = best, *end = run; run != best + k_;
         run = end) {  // of equal keys, in any order
      while (end != best + k_ && S::key(*end) == S::key(*run)) ++end;
      std::sort(run, end, S::is_before);
    }
    return best;
  }

 private:
  static constexpr Compute type = std::is_same_v<T, float>          ? Compute::f32
                                  : std::is_same_v<T, double>       ? Compute::f64
                                  : std::is_same_v<T, std::int32_t> ? Compute::i32
                                                                    : Compute::i64;

  bool may_hold_better(const T* x, std::int64_t count) const noexcept {
    T most{};
    fold_rows(type, Gathering::max, x, 0, 1, count, &most);
    return !(most <= worst_);
  }

  static std::int64_t capacity(std::int64_t k, std::int64_t size) noexcept {
    return std::min(size, 2 * k + block_elements);
  }

  void keep_best() noexcept {
    constexpr std::int64_t many = 512;
    Entry* const undecided = size_ < many ? room_ : decide_by_digit();
    std::nth_element(undecided, room_ + k_ - 1, room_ + size_, S::is_before);
    size_ = k_;
    worst_ = value_of<T>(static_cast<Key>(~S::key(room_[k_ - 1])));
    has_worst_ = true;
  }

  /// Drops candidates by their leading digit. Returns the first of those whose digit is that of the
  /// last of the k best; those before it belong to them.
  Entry* decide_by_digit() noexcept {
    constexpr int digit_bits = 11;
    const auto digit_of = [](const Entry& entry) {
      return static_cast<std::size_t>(S::key(entry) >> (S::bits - digit_bits));
    };
    std::array<std::uint32_t, std::size_t{1} << digit_bits> counts{};
    for (std::int64_t i = 0; i < size_; ++i) ++counts[digit_of(room_[i])];
    std::size_t digit = 0;
    for (std::int64_t reached = counts[0]; reached < k_;) reached += counts[++digit];
    std::int64_t kept = 0;  // without branches, which would be mispredicted
    for (std::int64_t i = 0; i < size_; ++i) {
      room_[kept] = room_[i];
      kept += digit_of(room_[i]) <= digit;
    }
    size_ = kept;
    return std::partition(room_, room_ + size_,
                          [&](const Entry& entry) { return digit_of(entry) < digit; });
  }

  Entry* room_;
  std::int64_t k_, capacity_, size_ = 0;
  T worst_{};
  bool has_worst_ = false;
};

template <class T>
class TopkTask final : public PartwiseTask {
  using Entry = typename Candidates<T>::Entry;

 public:
  TopkTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]),
        y_(step.output),
        count_(step.op.as<Topk>()->k),
        axis_(static_cast<std::size_t>(step.op.as<Topk>()->axis)),
        lanes_(x_, static_cast<int>(axis_)),
        results_(y_, static_cast<int>(axis_)) {
    const std::int64_t entries = Candidates<T>::entries(count_, lanes_.size());
    entry_bytes_ = round_up(entries * static_cast<std::int64_t>(sizeof(Entry)), 64);
    scratch_ = compiler.scratch(compiler.threads() * entry_bytes_);
  }

  void run(const TaskContext& context) const noexcept override {
    if (count_ == 0) return;
    const auto* x = context.pointer<const std::byte>(x_);
    auto* y = context.pointer<std::byte>(y_);
    auto* room =
        reinterpret_cast<Entry*>(context.scratch(scratch_) + context.worker.thread * entry_bytes_);
    const std::int64_t step = y_.strides[axis_];
    const Range range = context.share(lanes_.count());
    for (std::int64_t lane = range.begin; lane < range.end; ++lane) {
      const std::byte* start = x + lanes_.offset(lane);
      std::byte* to = y + results_.offset(lane);
      const auto write = [&](std::int64_t i, std::int32_t place) {
        *reinterpret_cast<std::int32_t*>(to + i * step) = place;
      };
      std::array<std::int32_t, max_top_places> places;
      if (is_quick(start, places.data())) {
        for (std::int64_t i = 0; i < count_; ++i) write(i, places[static_cast<std::size_t>(i)]);
        continue;
      }
      const Entry* const best = search(start, room);
      for (std::int64_t i = 0; i < count_; ++i) {
        write(i, static_cast<std::int32_t>(Sorted<T, true>::place(best[i])));
      }
    }
  }

 private:
  /// Whether the few greatest of this lane are now in `places`.
  bool is_quick(const std::byte* start, std::int32_t* places) const noexcept {
    if constexpr (std::is_same_v<T, float>) {
      const TopRowKernel kernel = top_row_kernel();
      return kernel != nullptr && count_ <= max_top_places && lanes_.is_direct() &&
             kernel(reinterpret_cast<const float*>(start), lanes_.size(), count_, places);
    } else {
      return false;
    }
  }

  /// The best of a lane, best first; in `room`.
  const Entry* search(const std::byte* start, Entry* room) const noexcept {
    Candidates<T> candidates(room, count_, lanes_.size());
    if (lanes_.is_direct()) {
      candidates.look_ahead(reinterpret_cast<const T*>(start), lanes_.size(), 32);
    }
    BlockBuffer buffer;
    for (std::int64_t i = 0; i < lanes_.size(); i += block_elements) {
      const std::int64_t count = std::min(block_elements, lanes_.size() - i);
      candidates.add(static_cast<const T*>(lanes_.read(start, i, count, buffer)), i, count);
    }
    return candidates.sorted();
  }

  Operand x_, y_;
  std::int64_t count_;
  std::size_t axis_;
  Lanes lanes_, results_;
  std::int64_t entry_bytes_ = 0, scratch_ = 0;
};

std::unique_ptr<Task> make_topk(const Step& step, Compiler& compiler) {
  return with_type(step, [&]<class T>(T) -> std::unique_ptr<Task> {
    return std::make_unique<TopkTask<T>>(step, compiler);
  });
}

}  // namespace

extern const Kernel argmax_kernel, argmin_kernel, topk_kernel;
constinit const Kernel argmax_kernel{op_def<Argmax>, takes_everything, make_arg<Argmax, true>};
constinit const Kernel argmin_kernel{op_def<Argmin>, takes_everything, make_arg<Argmin, false>};
constinit const Kernel topk_kernel{op_def<Topk>, takes_everything, make_topk};

}  // namespace tenon::cpu
