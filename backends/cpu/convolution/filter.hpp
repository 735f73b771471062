#pragma once

#include "../integer_math.hpp"
#include "../kept_bytes.hpp"
#include "winograd/winograd.hpp"

#include <tenon/host_view.hpp>
#include <tenon/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace tenon::cpu {

class Recipe;

/// The form of a packed filter's taps for an output and a channel.
enum class FilterForm : std::uint8_t {
  taps,      ///< itself
  winograd,  ///< 3 by 3 taps, transformed (winograd/winograd.hpp)
};

/// Sizes of a convolution's filter w[outputs][channels][rows][columns], the outputs in `groups`
/// groups, and how it is packed.
struct FilterShape {
  std::int64_t outputs, channels, rows, columns, groups;
  FilterForm form = FilterForm::taps;

  friend bool operator==(const FilterShape&, const FilterShape&) noexcept = default;
  Shape file_shape() const { return Shape({outputs, channels, rows, columns}, DType::f32); }
  /// Whether every group is one output of one channel: such a filter is packed as one group.
  bool is_depthwise() const noexcept { return channels == 1 && groups > 1 && outputs == groups; }
  std::int64_t group_outputs() const noexcept {
    return is_depthwise() ? outputs : outputs / groups;
  }
  std::int64_t packed_groups() const noexcept { return is_depthwise() ? 1 : groups; }
  std::int64_t group_panels() const noexcept { return ceil_div(group_outputs(), 16); }
  /// For an output and a channel.
  std::int64_t numbers() const noexcept {
    return form == FilterForm::winograd ? winograd::numbers : rows * columns;
  }
  std::int64_t panel_elements() const noexcept { return channels * numbers() * 16; }
  std::int64_t packed_elements() const noexcept {
    return packed_groups() * group_panels() * panel_elements();
  }
};

/// The filter as the kernels read it: for each group panels of 16 outputs, in each [tap row][tap
/// column][channel][16] or [number][channel][16], the rest of the last panel zeros. Packs this
/// thread's share of the panels; `w` is f32 of any strides, `packed` holds `packed_elements`.
void pack_filter(const FilterShape& shape, const HostView& w, float* packed, int thread,
                 int threads) noexcept;

/// A filter packed once, for all runs. A change of the layout needs another key in filter_recipe().
class PackedFilter {
 public:
  /// Room for it; errors: out_of_memory.
  explicit PackedFilter(const FilterShape& shape) : shape_(shape), elements_(packed_bytes(shape)) {}
  /// Of packed_bytes() that were kept. No content makes a kernel read out of bounds.
  PackedFilter(const FilterShape& shape, PreparedCache::Bytes kept)
      : shape_(shape), elements_(std::move(kept)) {}

  static std::size_t packed_bytes(const FilterShape& shape) noexcept {
    return static_cast<std::size_t>(shape.packed_elements()) * sizeof(float);
  }
  void pack(const HostView& w, int thread, int threads) noexcept {
    pack_filter(shape_, w, reinterpret_cast<float*>(elements_.own()), thread, threads);
  }
  const float* elements() const noexcept {
    return reinterpret_cast<const float*>(elements_.data());
  }
  std::span<const std::byte> bytes() const noexcept { return elements_.span(); }

 private:
  FilterShape shape_;
  KeptBytes elements_;
};

/// Makes a PackedFilter.
std::shared_ptr<const Recipe> filter_recipe(const FilterShape& shape);

}  // namespace tenon::cpu
