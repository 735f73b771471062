#include "passes/function_editor.hpp"

#include <tenon/calibration.hpp>
#include <tenon/ops.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::quant {
namespace {

using passes::FunctionEditor;
using Kind = Instruction::Kind;

/// The numbers that codes of a type stand for.
struct CodeRange {
  double min = 0, max = 0;
  double step = 0;

  Range range() const { return {min, max, std::max(std::abs(min), std::abs(max))}; }
  /// Whether the codes reach as far to both sides, but for the one code more below.
  bool is_symmetric() const { return std::abs(min + max) <= step; }
};

/// Weights of which the values matter: codes, and the numbers that are computed with them.
bool is_of_codes(const Shape& shape) {
  return shape.dtype() == DType::i8 || shape.dtype() == DType::u8 || shape.dtype() == DType::i32 ||
         (shape.dtype() == DType::f32 && shape.rank() <= 1);
}

class Dequantizer {
 public:
  Dequantizer(const Program& program, const WeightSet& weights) : program_(unroll(program)) {
    lend(weights);
    verify(program_);
  }

  CalibratedProgram run() {
    fold();
    widen_products();
    fold();
    note_ranges();
    drop_roundings();
    remove_dead_code(main());
    share_common_subexpressions(program_, main());
    spread_ranges();
    for (const std::string& name : lent_) program_.folded.erase(name);
    verify(program_);
    return {std::move(program_), std::move(table_)};
  }

 private:
  Function& main() { return *program_.find(program_.entry); }

  /// Gives constants their types, and folding those that it may read, until the end.
  void lend(const WeightSet& weights) {
    for (const Instruction& at : main().body) {
      if (at.kind != Kind::constant || program_.folded.contains(at.text)) continue;
      const Buffer* weight = weights.find(at.text);
      if (weight == nullptr) continue;
      std::optional<Shape>& type = main().values[at.result].shape;
      if (!type) type = weight->shape();
      if (!is_of_codes(weight->shape())) continue;
      program_.folded.emplace(at.text, weights.on_host(at.text).to_host());
      lent_.push_back(at.text);
    }
  }

  void fold() {
    fold_constants(program_, main(), std::numeric_limits<std::int64_t>::max());
    remove_dead_code(main());
    verify(program_);
  }

  /// Products of codes as products of f32, whose weights have the scale of the sums.
  void widen_products() {
    FunctionEditor editor(main(), passes::is_called(program_, main()));
    for (const auto match : {&Dequantizer::biased_product, &Dequantizer::product}) {
      for (std::size_t i = 0; i < editor.size(); ++i) {
        if (const auto found = match(editor, editor.at(i))) widen(editor, i, *found);
      }
    }
    editor.finish();
  }

  /// conv2d_integer or matmul_integer by constant weights, of which nothing else reads the sums.
  struct Product {
    Instruction sums;
    ValueId weights = 0;          ///< the constant: [O, ...] or, of matmul_integer, perhaps [K, O]
    bool is_transposed = true;    ///< it has the outputs first
    ValueId scale = 0;            ///< of the sums
    std::optional<ValueId> bias;  ///< the constant that is added to each output's sums
    bool is_scaled = false;       ///< the bias is f32, not in units of the sums

    bool is_conv() const { return sums.op.as<Conv2dInteger>() != nullptr; }
  };

  /// add(dequantize_linear(sums, scale), bias)
  static std::optional<Product> biased_product(const FunctionEditor& editor,
                                               const Instruction& at) {
    if (at.kind != Kind::op || at.op.as<Add>() == nullptr) return std::nullopt;
    const ValueId scaled = at.operands[0], bias = at.operands[1];
    if (editor.uses(scaled) != 1 || editor.definition(scaled) == nullptr) return std::nullopt;
    std::optional<Product> found = product(editor, *editor.definition(scaled));
    if (!found || found->bias || !is_bias(editor, *found, bias)) return std::nullopt;
    if (editor.type(bias)->dtype() != DType::f32) return std::nullopt;
    found->bias = bias;
    found->is_scaled = true;
    return found;
  }

  /// dequantize_linear(sums, scale) or dequantize_linear(add(sums, bias), scale)
  static std::optional<Product> product(const FunctionEditor& editor, const Instruction& at) {
    if (at.kind != Kind::op || at.op.as<DequantizeLinear>() == nullptr) return std::nullopt;
    if (at.operands.size() != 2 || editor.uses(at.operands[0]) != 1) return std::nullopt;
    ValueId id = at.operands[0];
    std::optional<ValueId> bias;
    if (editor.made_by<Add>(id) != nullptr) {
      bias = editor.definition(id)->operands[1];
      id = editor.definition(id)->operands[0];
      if (editor.uses(id) != 1) return std::nullopt;
    }
    const bool is_conv = editor.made_by<Conv2dInteger>(id) != nullptr;
    if (!is_conv && editor.made_by<MatmulInteger>(id) == nullptr) return std::nullopt;
    Product found{*editor.definition(id), 0, is_conv, at.operands[1], {}, false};
    found.weights = found.sums.operands[1];
    if (const auto* permute = editor.made_by<Permute>(found.weights); permute && !is_conv) {
      if (permute->order != IntList{1, 0}) return std::nullopt;
      found.is_transposed = true;
      found.weights = editor.definition(found.weights)->operands[0];
    }
    if (!is_constant(editor, found.weights) || editor.type(found.weights)->rank() < 2) return {};
    if (bias && !is_bias(editor, found, *bias)) return std::nullopt;
    found.bias = bias;
    for (const ValueId operand : found.sums.operands) {
      if (!editor.type(operand) || !editor.movable(operand)) return std::nullopt;
    }
    return found;
  }

  static std::int64_t outputs_of(const FunctionEditor& editor, const Product& product) {
    return (*editor.type(product.weights))[product.is_transposed ? 0 : 1];
  }

  /// Whether a value is a constant that has a number for each output, as an addition broadcasts it.
  static bool is_bias(const FunctionEditor& editor, const Product& product, ValueId id) {
    const std::optional<Shape>& type = editor.type(id);
    const std::int64_t outputs = outputs_of(editor, product);
    const int axis = product.is_conv() ? 3 : 1;  // from the end
    return is_constant(editor, behind_views(editor, id)) && type && type->is_static() &&
           type->rank() >= axis && (*type)[type->rank() - axis] == outputs &&
           type->elements() == outputs;
  }

  static bool is_view(const Instruction& at) {
    return at.kind == Kind::op && at.op.def()->traits.view;
  }
  static ValueId behind_views(const FunctionEditor& editor, ValueId id) {
    const Instruction* at = editor.definition(id);
    while (at != nullptr && is_view(*at)) {
      id = at->operands[0];
      at = editor.definition(id);
    }
    return id;
  }
  static bool is_constant(const FunctionEditor& editor, ValueId id) {
    const Instruction* at = editor.definition(id);
    return at != nullptr && at->kind == Kind::constant && editor.type(id).has_value();
  }

  /// Computes instruction i.
  static void widen(FunctionEditor& editor, std::size_t i, const Product& product) {
    const auto insert = [&](std::string_view name, OpInstance op, std::vector<ValueId> operands) {
      return editor.insert(i, name, std::move(op), std::move(operands));
    };
    const std::vector<ValueId>& in = product.sums.operands;
    ValueId weight_scale = product.scale, code_scale = 0;
    if (editor.made_by<QuantizeLinear>(in[0]) != nullptr) {
      // The scale by which the codes were made, so that both roundings can go.
      code_scale = editor.definition(in[0])->operands[1];
      weight_scale = insert("w_scale", OpInstance(Div{}), {product.scale, code_scale});
    } else {
      code_scale = insert("one", OpInstance(Full{.value = 1}), {});
    }
    std::vector<ValueId> codes{in[0], code_scale}, weights{product.weights, weight_scale};
    if (in.size() > 2) codes.push_back(in[2]);
    if (in.size() > 3) weights.push_back(in[3]);
    const std::int64_t axis = product.is_transposed ? 0 : 1;
    std::vector<ValueId> operands{insert("wide", OpInstance(DequantizeLinear{}), codes),
                                  insert("w", OpInstance(DequantizeLinear{.axis = axis}), weights)};
    if (!product.is_transposed) {
      operands[1] = insert("columns", OpInstance(Permute{.order = {1, 0}}), {operands[1]});
    }
    if (product.bias) {
      const OpInstance row(Reshape{.dims = {outputs_of(editor, product)}});
      ValueId bias = insert("row", row, {*product.bias});
      if (!product.is_scaled) {
        bias = insert("bias", OpInstance(DequantizeLinear{.axis = 0}), {bias, product.scale});
      }
      operands.push_back(bias);
    }
    const bool has_bias = product.bias.has_value();
    if (const auto* conv = product.sums.op.as<Conv2dInteger>()) {
      const Conv2d wide{.stride = conv->stride,
                        .padding = conv->padding,
                        .dilation = conv->dilation,
                        .groups = conv->groups,
                        .has_bias = has_bias};
      editor.replace(i, OpInstance(wide), operands);
    } else {
      editor.replace(i, OpInstance(Linear{.has_bias = has_bias}), operands);
    }
  }

  /// One number that is known.
  std::optional<double> number(const FunctionEditor& editor, ValueId id) const {
    const Instruction* at = editor.definition(id);
    if (const auto value = editor.constant_value(id)) return value;
    if (at == nullptr || at->kind != Kind::constant) return std::nullopt;
    const auto found = program_.folded.find(at->text);
    if (found == program_.folded.end() || found->second.shape().elements() != 1) return {};
    return load_as_double(found->second.shape().dtype(), found->second.bytes());
  }

  /// What `codes` stand for, which the quantize_linear or dequantize_linear `at` makes or reads.
  std::optional<CodeRange> code_range(const FunctionEditor& editor, const Instruction& at,
                                      ValueId codes) const {
    if (!editor.type(codes)) return std::nullopt;
    const DType dtype = editor.type(codes)->dtype();
    if (dtype != DType::i8 && dtype != DType::u8) return std::nullopt;
    const auto scale = number(editor, at.operands[1]);
    const auto zero = at.operands.size() > 2 ? number(editor, at.operands[2]) : 0.0;
    if (!scale || !zero || !std::isfinite(*scale) || *scale < 0) return std::nullopt;
    const double low = dtype == DType::i8 ? -128 : 0;
    return CodeRange{(low - *zero) * *scale, (low + 255 - *zero) * *scale, *scale};
  }

  void set_range(ValueId id, const Range& range) {
    ValueRange& known = table_.values[main().values[id].name];
    if (range.threshold > known.tensor.threshold) known.tensor = range;
  }
  const ValueRange* range_of(ValueId id) { return table_.find(main().values[id].name); }

  void note_ranges() {
    const FunctionEditor editor(main(), passes::is_called(program_, main()));
    for (const Instruction& at : main().body) {
      if (at.kind != Kind::op) continue;
      if (at.op.as<QuantizeLinear>() != nullptr) {
        const auto codes = code_range(editor, at, at.result);
        if (codes) set_range(at.operands[0], codes->range());
      } else if (at.op.as<DequantizeLinear>() != nullptr) {
        const auto codes = code_range(editor, at, at.operands[0]);
        if (codes) set_range(at.result, codes->range());
      }
    }
  }

  /// dequantize_linear(quantize_linear(x)) as x, within the limits of the codes.
  void drop_roundings() {
    FunctionEditor editor(main(), passes::is_called(program_, main()));
    for (std::size_t i = 0; i < editor.size(); ++i) {
      if (editor.op_at<DequantizeLinear>(i) == nullptr) continue;
      const Instruction& back = editor.at(i);
      if (editor.made_by<QuantizeLinear>(back.operands[0]) == nullptr) continue;
      const Instruction& there = *editor.definition(back.operands[0]);
      const ValueId x = there.operands[0];
      if (!editor.movable(x) || !editor.movable(back.result)) continue;
      const auto codes = code_range(editor, there, there.result);
      const auto same = code_range(editor, back, there.result);
      if (!codes || !same || codes->min != same->min || codes->max != same->max) continue;
      const bool is_positive =
          editor.made_by<Relu>(x) != nullptr || editor.made_by<Relu6>(x) != nullptr;
      if (codes->is_symmetric() || (codes->min == 0 && is_positive)) {
        editor.forward(back.result, x);
      } else if (codes->min == 0) {
        editor.replace(i, OpInstance(Relu{}), {x});
      } else {
        editor.replace(i, OpInstance(Clamp{.min = codes->min, .max = codes->max}), {x});
      }
    }
  }

  /// From values to those that ops with the same numbers make of them, and back.
  void spread_ranges() {
    for (bool changes = true; changes;) {
      changes = false;
      for (const Instruction& at : main().body) {
        if (at.kind != Kind::op || at.operands.empty() || !keeps_numbers(at)) continue;
        const ValueRange *from = range_of(at.operands[0]), *to = range_of(at.result);
        if ((from == nullptr) == (to == nullptr)) continue;
        set_range(from == nullptr ? at.operands[0] : at.result,
                  (from == nullptr ? to : from)->tensor);
        changes = true;
      }
    }
  }

  /// Whether results lie in the range of the first operand, or in the positive part of it.
  static bool keeps_numbers(const Instruction& at) {
    return is_view(at) || at.op.as<Relu>() || at.op.as<Relu6>() || at.op.as<Clamp>() ||
           at.op.as<MaxPool2d>() || at.op.as<AvgPool2d>() || at.op.as<Mean>() || at.op.as<Max>() ||
           at.op.as<Min>();
  }

  Program program_;
  CalibrationTable table_;
  std::vector<std::string> lent_;
};

}  // namespace

CalibratedProgram dequantized(const Program& program, const WeightSet& weights) {
  return Dequantizer(program, weights).run();
}

}  // namespace tenon::quant
