#pragma once

#include "../convolution/filter.hpp"
#include "../integer_math.hpp"
#include "../kept_bytes.hpp"

#include <tenon/host_view.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tenon::cpu {

/// How a filter is packed for convolutions of codes.
struct Int8FilterForm {
  FilterShape shape;
  bool joined;  ///< the taps of a row are one run
  int limit;    ///< the largest magnitude of a weight
  /// The weights are codes already, i8 or u8, of which 128 is taken: they stay as they are.
  bool codes = false;

  friend bool operator==(const Int8FilterForm&, const Int8FilterForm&) noexcept = default;
  std::int64_t runs() const noexcept { return joined ? 1 : shape.columns; }
  std::int64_t run() const noexcept { return shape.channels * (joined ? shape.columns : 1); }
  std::int64_t quads() const noexcept { return ceil_div(run(), 4); }
  /// Of depthwise filters in elements of f32, of others in bytes.
  std::int64_t panel() const noexcept {
    return shape.is_depthwise() ? shape.panel_elements() : shape.rows * runs() * quads() * 64;
  }
  bool has_quads() const noexcept {
    return shape.is_depthwise() && shape.rows == 3 && shape.columns == 3 && !codes;
  }
  std::int64_t panels() const noexcept { return shape.packed_groups() * shape.group_panels(); }
};

/// A filter in 8 bits, each output with a scale of its own: the largest magnitude of its weights
/// becomes `limit`. Codes have the scale 1. Depthwise filters keep their integers in f32. A change
/// of the layout needs another key in int8_filter_recipe().
class PackedInt8Filter {
 public:
  /// Room for it; errors: out_of_memory.
  explicit PackedInt8Filter(const Int8FilterForm& form);
  /// Of packed_bytes() that were kept. No content makes a kernel read out of bounds.
  PackedInt8Filter(const Int8FilterForm& form, PreparedCache::Bytes kept);
  /// In memory of others: packed_bytes() from a multiple of 64 on.
  PackedInt8Filter(const Int8FilterForm& form, std::byte* memory) noexcept;

  static std::size_t packed_bytes(const Int8FilterForm& form) noexcept;
  /// What was packed, or kept; nothing in memory of others.
  std::span<const std::byte> bytes() const noexcept { return bytes_.span(); }

  /// This thread's share of the panels. `w` is f32, or codes, of any strides. What is not finite
  /// counts as the largest finite weight of its output, or as 0 where it is a NaN.
  void pack(const HostView& w, int thread, int threads) noexcept;

  /// From the first output of a group on.
  const std::int8_t* weights(std::int64_t group) const noexcept {
    return reinterpret_cast<const std::int8_t*>(memory_) +
           group * form_.shape.group_panels() * form_.panel();
  }
  const float* depthwise_weights() const noexcept {
    return reinterpret_cast<const float*>(memory_);
  }
  /// Int8DepthwiseJob::quads.
  const std::int8_t* depthwise_quads() const noexcept {
    return reinterpret_cast<const std::int8_t*>(memory_ + parts_.quads);
  }
  const float* scales(std::int64_t group) const noexcept {
    return reinterpret_cast<const float*>(memory_ + parts_.scales) +
           group * form_.shape.group_panels() * 16;
  }
  /// Of an output's weights; whole numbers.
  const float* sums(std::int64_t group) const noexcept {
    return reinterpret_cast<const float*>(memory_ + parts_.sums) +
           group * form_.shape.group_panels() * 16;
  }

 private:
  /// Where the parts behind the weights begin, and where the last one ends.
  struct Parts {
    std::size_t scales, sums, quads, end;
  };
  static Parts parts_of(const Int8FilterForm& form) noexcept;

  void pack_output(const HostView& w, std::int64_t panel, std::int64_t lane,
                   std::int64_t output) noexcept;
  void pack_codes(const HostView& w, std::int64_t panel, std::int64_t lane,
                  std::int64_t output) noexcept;
  void set_weight(std::int64_t panel, std::int64_t lane, std::int64_t r, std::int64_t s,
                  std::int64_t c, float value) noexcept;
  void set_scale(std::int64_t panel, std::int64_t lane, float scale, std::int64_t sum) noexcept;

  Int8FilterForm form_;
  Parts parts_;
  KeptBytes bytes_;
  std::byte* own_ = nullptr;  // to be packed; null for kept bytes
  const std::byte* memory_ = nullptr;
};

/// Makes a PackedInt8Filter.
std::shared_ptr<const Recipe> int8_filter_recipe(const Int8FilterForm& form);

}  // namespace tenon::cpu
