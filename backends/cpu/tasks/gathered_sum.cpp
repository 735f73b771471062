// Embedding bags: sums of rows picked by data.
#include "../gathered_sum.hpp"

#include "../elementwise/picked_rows.hpp"
#include "reader.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace tenon::cpu {
namespace {

/// The slices of each bag, summed in f64 in their order and rounded once.
class GatheredSumTask final : public PartwiseTask {
 public:
  explicit GatheredSumTask(const Step& step)
      : x_(step.inputs[0]),
        index_(step.inputs[1]),
        y_(step.output),
        is_mean_(step.op.as<GatheredSum>()->is_mean),
        length_(index_.shape[index_.shape.rank() - 1]) {
    for (int i = 1; i < x_.shape.rank(); ++i) columns_ *= x_.shape[i];
    for (int i = 0; i < index_.shape.rank(); ++i) {
      picks_.push(index_.shape[i], index_.strides[static_cast<std::size_t>(i)]);
    }
    bags_ = index_.shape.elements() / std::max<std::int64_t>(length_, 1);
    if (length_ == 0) bags_ = columns_ == 0 ? 0 : y_.shape.elements() / columns_;
  }

  void run(const TaskContext& context) const noexcept override {
    const Range bags = context.share(bags_);
    if (length_ > block_elements) {
      for (std::int64_t bag = bags.begin; bag < bags.end; ++bag) {
        if (!sum_long(context, bag)) return;
      }
      return;
    }
    const std::int64_t at_once = block_elements / std::max<std::int64_t>(length_, 1);
    Places places;
    for (std::int64_t bag = bags.begin; bag < bags.end; bag += at_once) {
      const std::int64_t count = std::min(at_once, bags.end - bag) * length_;
      if (!find_places(context, bag * length_, count, places)) return;
      for (std::int64_t i = 0; i < std::min(at_once, bags.end - bag); ++i) {
        const std::int64_t first = i * length_;
        sum_short(context, bag + i, places.data() + first, count - first);
      }
    }
  }

 private:
  using Places = std::array<std::int64_t, block_elements>;  ///< bytes from x on
  using Sums = std::array<double, block_elements>;

  std::int64_t unit() const { return block_bytes(x_.shape.dtype()); }

  /// run(first, count) for columns that a buffer holds.
  template <class Run>
  void for_columns(const Run& run) const noexcept {
    for (std::int64_t c = 0; c < columns_; c += block_elements) {
      run(c, std::min(block_elements, columns_ - c));
    }
  }

  void sum_short(const TaskContext& context, std::int64_t bag, const std::int64_t* places,
                 std::int64_t known) const noexcept {
    const auto* const x = context.pointer<const std::byte>(x_);
    for_columns([&](std::int64_t column, std::int64_t columns) {
      Sums sums;
      sum_picked_rows(compute_type(x_.shape.dtype()), x + column * unit(), places, length_, known,
                      columns, sums.data());
      store(context, bag, column, columns, sums);
    });
  }

  /// Of more slices than places are found for at once; false where an index is out of range.
  bool sum_long(const TaskContext& context, std::int64_t bag) const noexcept {
    const auto* const x = context.pointer<const std::byte>(x_);
    bool is_found = true;
    for_columns([&](std::int64_t column, std::int64_t columns) {
      Sums sums, part;
      Places places;
      std::fill_n(sums.begin(), columns, 0.0);
      for (std::int64_t i = 0; i < length_ && is_found; i += block_elements) {
        const std::int64_t count = std::min(block_elements, length_ - i);
        is_found = find_places(context, bag * length_ + i, count, places);
        if (!is_found) return;
        sum_picked_rows(compute_type(x_.shape.dtype()), x + column * unit(), places.data(), count,
                        count, columns, part.data());
        for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) sums[c] += part[c];
      }
      store(context, bag, column, columns, sums);
    });
    return is_found;
  }

  void store(const TaskContext& context, std::int64_t bag, std::int64_t column,
             std::int64_t columns, Sums& sums) const noexcept {
    if (is_mean_) {
      for (double& sum : std::span(sums).first(static_cast<std::size_t>(columns))) {
        sum /= static_cast<double>(length_);
      }
    }
    auto* const y = context.pointer<std::byte>(y_) + (bag * columns_ + column) * unit();
    narrow_sums(y_.shape.dtype(), sums.data(), y, columns);
  }

  bool find_places(const TaskContext& context, std::int64_t first, std::int64_t count,
                   Places& places) const noexcept {
    const bool is_narrow = index_.shape.dtype() == DType::i32;
    const auto* const index = context.pointer<const std::byte>(index_);
    BlockBuffer buffer;
    picks_.gather(index, block_bytes(index_.shape.dtype()), first, count, buffer.bytes);
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t pick = is_narrow ? reinterpret_cast<const std::int32_t*>(buffer.bytes)[k]
                                          : reinterpret_cast<const std::int64_t*>(buffer.bytes)[k];
      if (pick < 0 || pick >= x_.shape[0]) {
        context.fault.report(Errc::out_of_range, "gather: index", pick, x_.shape[0]);
        return false;
      }
      places[static_cast<std::size_t>(k)] = pick * x_.strides[0];
    }
    return true;
  }

  Operand x_, index_, y_;
  bool is_mean_;
  std::int64_t length_, bags_ = 0, columns_ = 1;
  Loops picks_;  ///< of the index
};

}  // namespace

extern const Kernel gathered_sum_kernel;
constinit const Kernel gathered_sum_kernel{op_def<GatheredSum>, takes_everything,
                                           make_task<GatheredSumTask>};

}  // namespace tenon::cpu
