#pragma once

#include <tenon/lowered.hpp>
#include <tenon/op.hpp>
#include <tenon/ops/integer_product.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// A conv2d_integer, or a matmul_integer as a convolution of images of one pixel, with what follows
/// its sums: y = round(limit(float(sums + bias) * factor + added) / scale) + zero point, each part
/// of which may be missing. Made by cpu::merge_integer_products, never by a program; no op of the
/// registry.
///
/// Inputs   x, w, their zero points as many as there are, then the operands of the stages in order;
///          those are one number, or one for each output
/// Output   i32 without a factor, f32 without a last rounding, else i8 or u8
/// Numerics the bits of the steps that it stands for
struct IntegerProduct {
  enum class Kind : std::uint8_t {
    bias,    ///< i32 = i32 + operand
    factor,  ///< f32 = i32 * operand
    add,     ///< f32 = f32 + operand
    limit,   ///< f32 = f32 within [low, high]
    round,   ///< codes = f32 / operand + zero point, if there is one; the last
  };
  struct Stage {
    Kind kind;
    bool has_zero;  ///< of `round`: a second operand
    float low, high;
  };
  static constexpr int max_stages = 8;
  /// Of kinds `add` and `limit`.
  static constexpr int max_f32_stages = 4;

  static constexpr std::string_view name = "integer_product";
  static constexpr int min_inputs = 2, max_inputs = 16;
  Conv2dInteger conv;
  int zero_points = 0;
  int stage_count = 0;
  Stage stages[max_stages]{};
  static constexpr auto fields = FieldList{};

  std::span<const Stage> all_stages() const noexcept {
    return {stages, static_cast<std::size_t>(stage_count)};
  }
  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(IntegerProduct);

namespace cpu {

/// Why the kernels do not take a step of Conv2dInteger or MatmulInteger; nothing if they do.
std::optional<std::string> refuses_integer_product(const Step& step);

/// Such a step as one of IntegerProduct without stages; one of IntegerProduct as it is.
Step as_integer_product(const Step& step);

/// `notes` gains a line for each product of f32 whose operands dequantize_linear makes.
void note_dequantized_products(std::span<const Step> steps, std::span<const Operand> leaves,
                               std::vector<std::string>& notes);

/// Merges products with the steps that alone read their sums and finish them, such as
/// dequantize_linear, an addition, relu and quantize_linear. `notes` gains a line for each product.
void merge_integer_products(std::vector<Step>& steps, std::span<const Operand> leaves,
                            std::vector<std::string>& notes);

}  // namespace cpu
}  // namespace tenon
