#pragma once

#include "../../integer_math.hpp"
#include "../../matmul/aligned_buffer.hpp"
#include "../filter.hpp"

#include <tenon/host_view.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

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
/// becomes `limit`. Codes have the scale 1. Depthwise filters keep their integers in f32.
class PackedInt8Filter {
 public:
  /// Room for it; errors: out_of_memory.
  explicit PackedInt8Filter(const Int8FilterForm& form);
  /// In memory of others: `bytes_for` bytes from a multiple of 64 on.
  PackedInt8Filter(const Int8FilterForm& form, std::byte* memory) noexcept;
  static std::int64_t bytes_for(const Int8FilterForm& form) noexcept;

  /// This thread's share of the panels. `w` is f32, or codes, of any strides. What is not finite
  /// counts as the largest finite weight of its output, or as 0 where it is a NaN.
  void pack(const HostView& w, int thread, int threads) noexcept;

  /// From the first output of a group on.
  const std::int8_t* weights(std::int64_t group) const noexcept {
    return reinterpret_cast<const std::int8_t*>(weights_) +
           group * form_.shape.group_panels() * form_.panel();
  }
  const float* depthwise_weights() const noexcept {
    return reinterpret_cast<const float*>(weights_);
  }
  /// Int8DepthwiseJob::quads.
  const std::int8_t* depthwise_quads() const noexcept {
    return reinterpret_cast<const std::int8_t*>(quads_);
  }
  const float* scales(std::int64_t group) const noexcept {
    return reinterpret_cast<const float*>(scales_) + group * form_.shape.group_panels() * 16;
  }
  /// Of an output's weights; whole numbers.
  const float* sums(std::int64_t group) const noexcept {
    return reinterpret_cast<const float*>(sums_) + group * form_.shape.group_panels() * 16;
  }

 private:
  /// Where in the memory each part begins.
  struct Places {
    std::int64_t scales, sums, quads, end;
  };
  static Places places_of(const Int8FilterForm& form) noexcept;
  void lie_in(std::byte* memory) noexcept;

  void pack_output(const HostView& w, std::int64_t panel, std::int64_t lane,
                   std::int64_t output) noexcept;
  void pack_codes(const HostView& w, std::int64_t panel, std::int64_t lane,
                  std::int64_t output) noexcept;
  void set_weight(std::int64_t panel, std::int64_t lane, std::int64_t r, std::int64_t s,
                  std::int64_t c, float value) noexcept;
  void set_scale(std::int64_t panel, std::int64_t lane, float scale, std::int64_t sum) noexcept;

  Int8FilterForm form_;
  AlignedBuffer owned_;
  std::byte *weights_ = nullptr, *scales_ = nullptr, *sums_ = nullptr, *quads_ = nullptr;
};

/// Makes a PackedInt8Filter.
std::shared_ptr<const Recipe> int8_filter_recipe(const Int8FilterForm& form);

}  // namespace tenon::cpu
