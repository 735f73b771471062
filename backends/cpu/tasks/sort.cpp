// Lanes in order, and places in ordered lanes.
#include "../integer_math.hpp"
#include "lanes.hpp"
#include "ordered.hpp"
#include "radix_sort.hpp"

#include <tenon/ops/sort.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace tenon::cpu {
namespace {

/// Sorts lanes. Of a single long one, each of many threads sorts the keys that fall into its own
/// range. Finding these takes each of them two thirds of the time of sorting the lane, so that a few
/// threads are no faster than one.
template <class Op, class T>
class SortTask final : public Task {
  static constexpr bool with_place = std::is_same_v<Op, Argsort>;
  using S = Sorted<T, with_place>;
  using Entry = typename S::Entry;
  using Key = decltype(ordered(T{}));

 public:
  SortTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]),
        y_(step.output),
        axis_(static_cast<std::size_t>(step.op.as<Op>()->axis)),
        flip_(step.op.as<Op>()->descending ? static_cast<Key>(~Key{0}) : Key{0}),
        lanes_(x_, static_cast<int>(axis_)),
        results_(y_, static_cast<int>(axis_)) {
    constexpr std::int64_t least_divided = 16384;
    divides_ = lanes_.count() == 1 && lanes_.size() >= least_divided &&
               compiler.threads() >= least_threads;
    lane_bytes_ = round_up(lanes_.size() * std::int64_t{sizeof(Entry)}, 64);
    if (divides_) {
      scratch_ = compiler.scratch(2 * lane_bytes_);
    } else {
      compiler.working_memory(2 * lane_bytes_);
    }
  }

  void run(const TaskContext& context) const noexcept override {
    if (lanes_.size() == 0) return;
    const bool divides = divides_ && !context.alone && context.worker.threads >= least_threads;
    const Range range = divides ? Range{0, 1} : context.share(lanes_.count());
    for (std::int64_t lane = range.begin; lane < range.end && !context.worker.is_interrupted();
         ++lane) {
      std::byte* const room = divides_ ? context.scratch(scratch_) : context.working_memory();
      auto* const entries = reinterpret_cast<Entry*>(room);
      auto* const more = reinterpret_cast<Entry*>(room + lane_bytes_);
      const std::byte* x = context.pointer<const std::byte>(x_) + lanes_.offset(lane);
      std::byte* y = context.pointer<std::byte>(y_) + results_.offset(lane);
      if (divides) {
        sort_part(x, y, entries, more, context.worker);
      } else {
        std::int64_t next = 0;
        const Interrupt* const interrupt = context.worker.interrupt;
        each_key(x, interrupt, [&](Key key, std::int64_t i) {
          entries[next++] = S::make(key, static_cast<std::uint32_t>(i));
        });
        write(y, 0, sort_entries<S>(entries, more, next, interrupt), next, interrupt);
      }
    }
  }

 private:
  static constexpr int least_threads = 8;

  /// Calls visit(key, place) for the elements of the lane at `x`. Returns whether for all of them.
  template <class Visit>
  bool each_key(const std::byte* x, const Interrupt* interrupt, Visit&& visit) const noexcept {
    BlockBuffer buffer;
    return in_parts(lanes_.size(), interrupt, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i += block_elements) {
        const std::int64_t count = std::min(block_elements, end - i);
        const auto* values = static_cast<const T*>(lanes_.read(x, i, count, buffer));
        for (std::int64_t j = 0; j < count; ++j)
          visit(static_cast<Key>(ordered(values[j]) ^ flip_), i + j);
      }
    });
  }

  /// Sorts the keys in the range of a thread. Ranges are bounded by keys of a sample, the same one
  /// for all threads.
  void sort_part(const std::byte* x, std::byte* y, Entry* entries, Entry* more,
                 const Worker& worker) const noexcept {
    const int thread = worker.thread, threads = worker.threads;
    constexpr std::int64_t sampled = 1024;
    std::array<Key, sampled> sample;
    BlockBuffer buffer;
    for (std::int64_t i = 0; i < sampled; ++i) {
      const std::int64_t place = i * lanes_.size() / sampled;
      const T value = *static_cast<const T*>(lanes_.read(x, place, 1, buffer));
      sample[static_cast<std::size_t>(i)] = static_cast<Key>(ordered(value) ^ flip_);
    }
    std::sort(sample.begin(), sample.end());
    const bool is_first = thread == 0, is_last = thread + 1 == threads;
    const auto bound = [&](int part) {
      return sample[static_cast<std::size_t>(split(sampled, part, threads).begin)];
    };
    const Key low = is_first ? Key{0} : bound(thread);
    const Key high = is_last ? static_cast<Key>(~Key{0}) : bound(thread + 1);
    // Keys equal to `high` belong to the next thread, but for the last.
    std::int64_t below = 0, inside = 0;
    const bool are_counted = each_key(x, worker.interrupt, [&](Key key, std::int64_t) {
      below += key < low;
      inside += (key >= low) & ((key < high) | is_last);
    });
    if (!are_counted || inside == 0) return;
    Entry* const own = entries + below;
    // Without branches, which would be mispredicted. Entries pass through a block, since every one
    // is written, and behind this thread's last place are those of another.
    std::array<Entry, block_elements> kept;
    std::size_t count = 0;
    std::int64_t next = 0;
    const auto flush = [&] {
      std::copy_n(kept.begin(), count, own + next);
      next += static_cast<std::int64_t>(count);
      count = 0;
    };
    each_key(x, worker.interrupt, [&](Key key, std::int64_t i) {
      kept[count] = S::make(key, static_cast<std::uint32_t>(i));
      count += static_cast<std::size_t>((key >= low) & ((key < high) | is_last));
      if (count == kept.size()) flush();
    });
    flush();
    write(y, below, sort_entries<S>(own, more + below, inside, worker.interrupt), inside,
          worker.interrupt);
  }

  /// Entries as elements [first, first + count) of the lane at `y`.
  void write(std::byte* y, std::int64_t first, const Entry* entries, std::int64_t count,
             const Interrupt* interrupt) const noexcept {
    in_parts(count, interrupt, [&](std::int64_t begin, std::int64_t end) {
      write_part(y + (first + begin) * y_.strides[axis_], entries + begin, end - begin);
    });
  }
  void write_part(std::byte* y, const Entry* entries, std::int64_t count) const noexcept {
    const DType dtype = y_.shape.dtype();
    const std::int64_t step = y_.strides[axis_], unit = block_bytes(dtype);
    BlockBuffer computed, stored;
    for (std::int64_t i = 0; i < count; i += block_elements) {
      const std::int64_t block = std::min(block_elements, count - i);
      std::byte* const to = y + i * step;
      const bool in_place = step == unit;
      if constexpr (with_place) {
        auto* places = reinterpret_cast<std::int32_t*>(in_place ? to : stored.bytes);
        for (std::int64_t j = 0; j < block; ++j)
          places[j] = static_cast<std::int32_t>(S::place(entries[i + j]));
      } else {
        const bool is_direct = in_place && is_computed_as_stored(dtype);
        auto* values = reinterpret_cast<T*>(is_direct ? to : computed.bytes);
        for (std::int64_t j = 0; j < block; ++j)
          values[j] = value_of<T>(static_cast<Key>(entries[i + j] ^ flip_));
        if (!is_direct) narrow(dtype, computed.bytes, in_place ? to : stored.bytes, block);
      }
      if (!in_place) spread_run(stored.bytes, unit, block, to, step);
    }
  }

  Operand x_, y_;
  std::size_t axis_;
  Key flip_;
  Lanes lanes_, results_;
  bool divides_ = false;
  std::int64_t lane_bytes_ = 0, scratch_ = 0;
};

template <class Op>
std::unique_ptr<Task> make_sort(const Step& step, Compiler& compiler) {
  return with_type(step, [&]<class T>(T) -> std::unique_ptr<Task> {
    return std::make_unique<SortTask<Op, T>>(step, compiler);
  });
}

/// Not where one of them is a NaN.
template <class T>
bool ascends(const T* values, std::int64_t count) noexcept {
  bool result = true;
  for (std::int64_t i = 1; i < count; ++i) result &= values[i - 1] <= values[i];
  return result;
}

/// Values whose searches run side by side, so that they wait for memory together.
constexpr std::size_t searches = 16;

/// Where each of the values stands in a row, its elements adjacent: halves are chosen without
/// branches, which would be mispredicted every other time. A NaN in the row stands before nothing.
template <bool right, class T>
void search_together(const T* row, std::int64_t size, const std::array<T, searches>& values,
                     std::array<std::int64_t, searches>& places) noexcept {
  const auto is_before = [](T element, T value) {
    return std::int64_t{right ? element <= value : element < value};
  };
  places.fill(0);
  std::int64_t rest = size;
  for (; rest > 1; rest -= rest / 2) {
    const std::int64_t half = rest / 2;
    for (std::size_t i = 0; i < searches; ++i)
      places[i] += half & -is_before(row[places[i] + half - 1], values[i]);
  }
  if (rest == 0) return;
  for (std::size_t i = 0; i < searches; ++i) places[i] += is_before(row[places[i]], values[i]);
}

/// A binary search for each value.
template <class T>
class SearchsortedTask final : public PartwiseTask {
  using Key = decltype(ordered(T{}));

 public:
  SearchsortedTask(const Step& step, Compiler& compiler)
      : sorted_(step.inputs[0]),
        y_(step.output),
        right_(step.op.as<Searchsorted>()->right),
        rows_(sorted_, sorted_.shape.rank() - 1),
        values_(step.inputs[1], step.output.shape, Reader::As::computed, compiler),
        step_(rows_.size() <= 1
                  ? 0
                  : sorted_.strides[static_cast<std::size_t>(sorted_.shape.rank() - 1)]),
        per_row_(sorted_.shape.rank() == 1 ? y_.shape.elements() : row_size(y_.shape)) {
    // A search of 16 values reads as many elements as a copy of a few hundred.
    if (rows_.is_direct() || rows_.size() > 16 * per_row_) return;
    copies_ = true;
    compiler.working_memory(rows_.size() * std::int64_t{sizeof(T)});
  }

  void run(const TaskContext& context) const noexcept override {
    const T* row = nullptr;  // its elements, where they are adjacent
    const Range range = flat_share(context, y_.shape.elements());
    auto* y = context.pointer<std::int32_t>(y_);
    BlockBuffer buffer;
    values_.begin(context);
    std::int64_t count = 0;
    for (std::int64_t i = range.begin; i < range.end; i += count) {
      const std::int64_t at = i % per_row_;
      count = std::min({block_elements, range.end - i, per_row_ - at});
      const std::byte* start =
          context.pointer<const std::byte>(sorted_) + rows_.offset(i / per_row_);
      if (rows_.is_direct()) {
        row = reinterpret_cast<const T*>(start);
      } else if (copies_ && (row == nullptr || at == 0)) {
        rows_.read_all(start, context.working_memory());
        row = reinterpret_cast<const T*>(context.working_memory());
      }
      const Reader::Block block = values_.read(context, i, count, buffer);
      const auto* values = static_cast<const T*>(block.data);
      const std::int64_t different = block.step == 0 ? 1 : count;
      if (row != nullptr) {
        right_ ? search_block<true>(row, values, y + i, different)
               : search_block<false>(row, values, y + i, different);
      } else {
        for (std::int64_t j = 0; j < different; ++j)
          y[i + j] = static_cast<std::int32_t>(search(start, step_, values[j]));
      }
      std::fill(y + i + different, y + i + count, y[i]);
    }
  }

 private:
  /// Of a row of adjacent elements. Between the places of the first and the last of ascending
  /// values are those of all.
  template <bool right>
  void search_block(const T* row, const T* values, std::int32_t* y,
                    std::int64_t count) const noexcept {
    constexpr auto together = static_cast<std::int64_t>(searches);
    std::int64_t first = 0, size = rows_.size();
    std::array<T, searches> some;
    std::array<std::int64_t, searches> places;
    if (count > 2 * together && ascends(values, count)) {
      some.fill(values[0]);
      some.back() = values[count - 1];
      search_together<right>(row, size, some, places);
      first = places.front();
      size = std::max<std::int64_t>(places.back() - first, 0);
    }
    for (std::int64_t i = 0; i < count; i += together) {
      const std::int64_t next = std::min(together, count - i);
      std::copy_n(values + i, next, some.begin());
      std::fill(some.begin() + next, some.end(), some[0]);
      search_together<right>(row + first, size, some, places);
      for (std::int64_t j = 0; j < next; ++j) {
        const T value = some[static_cast<std::size_t>(j)];
        const std::int64_t place = first + places[static_cast<std::size_t>(j)];
        y[i + j] = static_cast<std::int32_t>(
            value == value ? place
                           : search(reinterpret_cast<const std::byte*>(row), sizeof(T), value));
      }
    }
  }

  /// By the order in which a NaN is a number like others.
  std::int64_t search(const std::byte* row, std::int64_t step, T value) const noexcept {
    const Key wanted = ordered(value);
    std::int64_t begin = 0, size = rows_.size();
    while (size > 0) {
      const std::int64_t half = size / 2;
      const Key key = key_at(row + (begin + half) * step);
      const bool is_before = right_ ? key <= wanted : key < wanted;
      begin = is_before ? begin + half + 1 : begin;
      size = is_before ? size - half - 1 : half;
    }
    return begin;
  }

  Key key_at(const std::byte* element) const noexcept {
    if (copies_ || is_computed_as_stored(sorted_.shape.dtype()))
      return ordered(*reinterpret_cast<const T*>(element));
    T value;
    widen(sorted_.shape.dtype(), element, &value, 1);
    return ordered(value);
  }

  Operand sorted_, y_;
  bool right_, copies_ = false;
  Lanes rows_;
  Reader values_;
  std::int64_t step_, per_row_;
};

std::unique_ptr<Task> make_searchsorted(const Step& step, Compiler& compiler) {
  return with_type(step, [&]<class T>(T) -> std::unique_ptr<Task> {
    return std::make_unique<SearchsortedTask<T>>(step, compiler);
  });
}

}  // namespace

extern const Kernel sort_kernel, argsort_kernel, searchsorted_kernel;
constinit const Kernel sort_kernel{op_def<Sort>, takes_everything, make_sort<Sort>};
constinit const Kernel argsort_kernel{op_def<Argsort>, takes_everything, make_sort<Argsort>};
constinit const Kernel searchsorted_kernel{op_def<Searchsorted>, takes_everything,
                                           make_searchsorted};

}  // namespace tenon::cpu
