#include "passes/function_editor.hpp"
#include "passes/rewrites.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/batch_norm.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/conv_transpose2d.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::passes {
namespace {

/// The values that depend on constants alone, so that sessions compute once what is made of them.
class Constants {
 public:
  explicit Constants(const FunctionEditor& editor) : editor_(editor) {}

  bool contains(ValueId id) {
    // First those of the function as it was, each behind its operands, then what has been inserted.
    while (known_.size() < editor_.function().values.size()) {
      known_.push_back(follows(static_cast<ValueId>(known_.size())));
    }
    return known_[id];
  }

 private:
  bool follows(ValueId id) const {
    const Instruction* at = editor_.definition(id);
    if (at == nullptr || !editor_.movable(id) || !editor_.type(id)) return false;
    if (at->kind == Instruction::Kind::constant || editor_.constant_value(id)) return true;
    return at->kind == Instruction::Kind::op && !at->operands.empty() &&
           std::ranges::all_of(at->operands, [&](ValueId operand) { return known_[operand]; });
  }

  const FunctionEditor& editor_;
  std::vector<bool> known_;
};

/// A convolution or a product with a matrix, whose outputs lie along axis 1.
struct Product {
  OpInstance with_bias;
  std::vector<ValueId> operands;  ///< x, weights, perhaps a bias
  int axes_behind;                ///< of the weights, behind that of the outputs
  OpInstance view{};              ///< a squeeze of the product, as conv1d ends in; or nothing
};

std::optional<Product> product(const FunctionEditor& editor, ValueId id) {
  if (editor.uses(id) != 1 || !editor.type(id)) return std::nullopt;
  const Instruction* at = editor.definition(id);
  if (const Squeeze* squeeze = editor.made_by<Squeeze>(id)) {
    const std::optional<Shape>& whole = editor.type(at->operands[0]);
    const bool is_behind =
        whole && (squeeze->axis >= 2 || (squeeze->axis < 0 && whole->rank() + squeeze->axis >= 2));
    auto found = is_behind ? product(editor, at->operands[0]) : std::nullopt;
    if (found && found->view.def() != nullptr) return std::nullopt;
    if (found) found->view = at->op;
    return found;
  }
  if (const Conv2d* conv = editor.made_by<Conv2d>(id)) {
    Conv2d op = *conv;
    op.has_bias = true;
    return Product{OpInstance(op), at->operands, 3};
  }
  if (const ConvTranspose2d* conv = editor.made_by<ConvTranspose2d>(id)) {
    ConvTranspose2d op = *conv;
    op.has_bias = true;
    if (conv->groups != 1) return std::nullopt;
    return Product{OpInstance(op), at->operands, 2};
  }
  const Linear* linear = editor.made_by<Linear>(id);
  if (linear == nullptr || linear->has_residual || editor.type(id)->rank() != 2) return {};
  return Product{OpInstance(Linear{.has_bias = true}), at->operands, 1};
}

/// Whether instruction i is a batch_norm whose statistics and weights are constants, of a product
/// whose weights are.
bool matches(const FunctionEditor& editor, Constants& constants, std::size_t i,
             const Product& product) {
  const std::vector<ValueId>& in = editor.at(i).operands;
  const std::optional<Shape>& y = editor.type(editor.at(i).result);
  if (!y) return false;
  const auto is_fixed = [&](ValueId id) { return editor.type(id) && constants.contains(id); };
  const std::optional<Shape>& weights = editor.type(product.operands[1]);
  return weights && weights->dtype() == y->dtype() && editor.movable(product.operands[0]) &&
         std::ranges::all_of(in.begin() + 1, in.end(), is_fixed) &&
         std::ranges::all_of(product.operands.begin() + 1, product.operands.end(), is_fixed);
}

/// Computes instruction i, a batch_norm. Of 16-bit types the scaled weights and the bias are computed
/// in f32 and rounded once: errors of results are then those of the product and the norm by
/// themselves (rms 0.4 to 1.2 times as large on random layers; rounded in each op, up to 3 times).
/// A bias of f16 may overflow where the norm alone does not: that of a channel whose mean is more than 65504 deviations.
void rewrite(FunctionEditor& editor, std::size_t i, const Product& product) {
  const auto insert = [&](std::string_view name, OpInstance op, std::vector<ValueId> operands) {
    return editor.insert(i, name, std::move(op), std::move(operands));
  };
  const DType dtype = editor.type(editor.at(i).result)->dtype();
  const bool is_narrow = dtype != f32 && dtype != f64;
  const DType wide_type = is_narrow ? f32 : dtype;
  const auto wide = [&](ValueId id) {  // a bias may have another type than its product
    const bool is_wide = editor.type(id)->dtype() == wide_type;
    return is_wide ? id : insert("wide", OpInstance(Cast{.dtype = wide_type}), {id});
  };
  const auto rounded = [&](ValueId id) {
    return is_narrow ? insert("rounded", OpInstance(Cast{.dtype = dtype}), {id}) : id;
  };
  const double eps = editor.at(i).op.as<BatchNorm>()->eps;
  std::vector<ValueId> norm{editor.at(i).operands};
  for (std::size_t k = 1; k < norm.size(); ++k) norm[k] = wide(norm[k]);
  const ValueId tiny = insert("eps", OpInstance(Full{.value = eps, .dtype = wide_type}), {});
  const ValueId above = insert("above", OpInstance(Add{}), {norm[2], tiny});
  ValueId scale = insert("scale", OpInstance(Rsqrt{}), {above});
  if (norm.size() > 3) scale = insert("scale", OpInstance(Mul{}), {scale, norm[3]});

  ValueId rows = scale;
  for (int axis = 1; axis <= product.axes_behind; ++axis) {
    rows = insert("rows", OpInstance(Unsqueeze{.axis = axis}), {rows});
  }
  const ValueId weights =
      rounded(insert("scaled", OpInstance(Mul{}), {wide(product.operands[1]), rows}));

  ValueId bias = insert("centre", OpInstance(Neg{}), {norm[1]});
  if (product.operands.size() > 2) {
    bias = insert("centre", OpInstance(Add{}), {wide(product.operands[2]), bias});
  }
  bias = insert("bias", OpInstance(Mul{}), {bias, scale});
  if (norm.size() > 4) bias = insert("bias", OpInstance(Add{}), {bias, norm[4]});
  const std::vector<ValueId> operands{product.operands[0], weights, rounded(bias)};
  if (product.view.def() == nullptr) {
    editor.replace(i, product.with_bias, operands);
  } else {
    const ValueId whole = insert("product", product.with_bias, operands);
    editor.replace(i, product.view, {whole});
  }
}

}  // namespace

int rewrite_norm_of_product(Program&, FunctionEditor& editor) {
  Constants constants(editor);
  int applied = 0;
  for (std::size_t i = 0; i < editor.size(); ++i) {
    if (editor.op_at<BatchNorm>(i) == nullptr) continue;
    const auto before = product(editor, editor.at(i).operands[0]);
    if (!before || !matches(editor, constants, i, *before)) continue;
    rewrite(editor, i, *before);
    ++applied;
  }
  return applied;
}

}  // namespace tenon::passes
