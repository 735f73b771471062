#pragma once

#include "../task.hpp"
#include "convolution_kernels.hpp"
#include "filter.hpp"
#include "merged_conv2d.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

namespace tenon::cpu {

/// A convolution as its tasks see it: operands, sizes and epilogue.
struct Convolution {
  /// `inputs`: of the merged op.
  Convolution(const MergedConv2d& merged, std::span<const Operand> inputs, const Operand& output);
  /// A step of Conv2d, MergedConv2d or QuantizedConv2d.
  static Convolution of(const Step& step);

  Conv2d op;
  Operand x, w, y;
  std::optional<Operand> bias, residual;
  FilterShape filter{};
  WindowAxis rows{}, columns{};
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  std::optional<Unary> activation;  ///< an activation that is not a limit
  UnaryParameters parameters;
};

/// The task of a convolution in f32.
std::unique_ptr<Task> make_convolution(const Convolution& conv, Compiler& compiler);

/// Applies `conv.activation` to a part of the output, in place.
void activate(const Convolution& conv, const Image<float>& y, const Part& part) noexcept;

/// The packed filter at run time: packed at bind, or in every run where it is not a constant.
class FilterSource {
 public:
  FilterSource(const Convolution& conv, Compiler& compiler, FilterForm form = FilterForm::taps);
  const float* at(const TaskContext& context) const noexcept {
    return packed_ ? context.constant<PackedFilter>(*packed_).elements()
                   : reinterpret_cast<const float*>(context.scratch(offset_));
  }

 private:
  std::optional<PreparedIndex> packed_;
  std::int64_t offset_ = 0;  // in scratch memory
};

}  // namespace tenon::cpu
