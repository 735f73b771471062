#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/integer_product.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/quantize_linear.hpp>
#include <tenon/ops/reshape.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tenon::passes {
namespace {

/// A value that dequantize_linear makes of codes.
struct Dequantized {
  ValueId codes, scale;
  std::optional<ValueId> zero;
  std::int64_t axis;
};

std::optional<Dequantized> dequantized(const FunctionEditor& editor, ValueId id) {
  const DequantizeLinear* op = editor.made_by<DequantizeLinear>(id);
  if (op == nullptr) return std::nullopt;
  const std::vector<ValueId>& in = editor.definition(id)->operands;
  for (const ValueId operand : in) {
    if (!editor.type(operand) || !editor.movable(operand)) return std::nullopt;
  }
  const DType dtype = editor.type(in[0])->dtype();
  if (dtype != DType::i8 && dtype != DType::u8) return std::nullopt;
  Dequantized found{in[0], in[1], std::nullopt, op->axis};
  if (in.size() > 2) found.zero = in[2];
  return found;
}

/// Whether scale and zero point are one number each, or run along `axis`, if there is one.
bool scales_along(const FunctionEditor& editor, const Dequantized& value,
                  std::optional<std::int64_t> axis) {
  const auto fits = [&](ValueId id) {
    const Shape& shape = *editor.type(id);
    const bool is_one = shape.rank() == 0 || (shape.rank() == 1 && shape[0] == 1);
    return is_one || (axis && value.axis == *axis);
  };
  return fits(value.scale) && (!value.zero || fits(*value.zero));
}

/// Sums of so many products of codes do not wrap.
bool fits_in_sums(std::int64_t products) {
  constexpr std::int64_t most = ((std::int64_t{1} << 31) - 1) / (255 * 255);
  return is_static(products) && products <= most;
}

/// A product that may be computed in integers.
struct Product {
  Dequantized x, w;
  OpInstance integers;
  std::int64_t axis;  ///< of the result, along which its outputs lie
  bool transposes = false;
  std::optional<ValueId> bias;
};

std::optional<Product> convolution(const FunctionEditor& editor, const Instruction& at) {
  const Conv2d* conv = at.kind == Instruction::Kind::op ? at.op.as<Conv2d>() : nullptr;
  if (conv == nullptr) return std::nullopt;
  const auto x = dequantized(editor, at.operands[0]), w = dequantized(editor, at.operands[1]);
  if (!x || !w || !scales_along(editor, *x, {}) || !scales_along(editor, *w, 0)) return {};
  const Shape& filter = *editor.type(w->codes);
  if (!filter.is_static() || !fits_in_sums(filter[1] * filter[2] * filter[3])) return std::nullopt;
  const Conv2dInteger integers{.stride = conv->stride,
                               .padding = conv->padding,
                               .dilation = conv->dilation,
                               .groups = conv->groups};
  Product product{*x, *w, OpInstance(integers), 1, false, {}};
  if (conv->has_bias) product.bias = at.operands[2];
  return product;
}

std::optional<Product> linear(const FunctionEditor& editor, const Instruction& at) {
  const Linear* op = at.kind == Instruction::Kind::op ? at.op.as<Linear>() : nullptr;
  if (op == nullptr || op->has_residual) return std::nullopt;
  const auto x = dequantized(editor, at.operands[0]), w = dequantized(editor, at.operands[1]);
  if (!x || !w || !scales_along(editor, *x, {}) || !scales_along(editor, *w, 0)) return {};
  if (!fits_in_sums((*editor.type(w->codes))[1])) return std::nullopt;
  Product product{*x, *w, OpInstance(MatmulInteger{}), editor.type(x->codes)->rank() - 1, true, {}};
  if (op->has_bias) product.bias = at.operands[2];
  return product;
}

std::optional<Product> matmul(const FunctionEditor& editor, const Instruction& at) {
  if (at.kind != Instruction::Kind::op || at.op.as<Matmul>() == nullptr) return std::nullopt;
  const auto a = dequantized(editor, at.operands[0]), b = dequantized(editor, at.operands[1]);
  const std::optional<Shape>& y = editor.type(at.result);
  if (!a || !b || !y) return std::nullopt;
  const Shape& right = *editor.type(b->codes);
  // Scales of columns need columns.
  const auto columns = right.rank() == 2 ? std::optional<std::int64_t>(1) : std::nullopt;
  if (!scales_along(editor, *a, {}) || !scales_along(editor, *b, columns)) return std::nullopt;
  const Shape& left = *editor.type(a->codes);
  if (!fits_in_sums(left[left.rank() - 1])) return std::nullopt;
  return Product{*a, *b, OpInstance(MatmulInteger{}), y->rank() - 1, false, {}};
}

/// A bias of f32 that is known to have one number for each output.
bool can_add(const FunctionEditor& editor, const Product& product) {
  if (!product.bias) return true;
  const std::optional<Shape>& bias = editor.type(*product.bias);
  return bias && bias->dtype() == DType::f32 && bias->is_static();
}

/// Computes instruction i.
void rewrite(FunctionEditor& editor, std::size_t i, const Product& product) {
  const auto insert = [&](std::string_view name, OpInstance op, std::vector<ValueId> operands) {
    return editor.insert(i, name, std::move(op), std::move(operands));
  };
  std::vector<ValueId> operands{product.x.codes, product.w.codes};
  if (product.transposes) {
    operands[1] = insert("columns", OpInstance(Permute{.order = {1, 0}}), {product.w.codes});
  }
  if (product.x.zero) {
    operands.push_back(*product.x.zero);
  } else if (product.w.zero) {
    const Full none{.dims = {}, .dtype = editor.type(product.x.codes)->dtype()};
    operands.push_back(insert("zero", OpInstance(none), {}));
  }
  if (product.w.zero) operands.push_back(*product.w.zero);
  const ValueId sums = insert("sums", product.integers, operands);
  const ValueId scale = insert("scale", OpInstance(Mul{}), {product.x.scale, product.w.scale});
  const OpInstance dequantize(DequantizeLinear{.axis = product.axis});
  if (!product.bias) {
    editor.replace(i, dequantize, {sums, scale});
    return;
  }
  const ValueId scaled = insert("scaled", dequantize, {sums, scale});
  ValueId bias = *product.bias;
  if (product.integers.as<Conv2dInteger>() != nullptr) {
    const Reshape planes{.dims = {(*editor.type(bias))[0], 1, 1}};
    bias = insert("planes", OpInstance(planes), {bias});
  }
  editor.replace(i, OpInstance(Add{}), {scaled, bias});
}

}  // namespace

int rewrite_integer_product(Program&, FunctionEditor& editor) {
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    std::optional<Product> product = convolution(editor, editor.at(i));
    if (!product) product = linear(editor, editor.at(i));
    if (!product) product = matmul(editor, editor.at(i));
    if (!product || !can_add(editor, *product)) continue;
    rewrite(editor, i, *product);
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
