#include "quantize.hpp"

#include "../convolution/filter.hpp"
#include "../convolution/steps.hpp"
#include "../task.hpp"
#include "int8_kernels.hpp"
#include "lower/value_uses.hpp"
#include "quantized_conv2d.hpp"
#include "quantized_mean.hpp"

#include <tenon/ops/linear.hpp>
#include <tenon/ops/pool2d.hpp>
#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon::cpu {

using namespace lowering;
namespace {

/// Codes for a range; 0 is one of them exactly. Nothing for a range without extent.
std::optional<Codes> codes_of(const quant::Range& range) {
  if (!range.is_finite()) return std::nullopt;
  const double limit = range.threshold > 0 ? range.threshold : 0;
  const double low = std::clamp(range.min, -limit, 0.0), high = std::clamp(range.max, 0.0, limit);
  const auto scale = static_cast<float>((high - low) / 255);
  if (!std::isnormal(scale)) return std::nullopt;
  return Codes{scale, static_cast<std::int32_t>(std::lround(-low / static_cast<double>(scale)))};
}

/// The step that wrote the value of an operand: the last of `steps` that writes any of it, if it
/// wrote all.
const Step* writer_of(std::span<const Step> steps, const Operand& operand) {
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (steps[i].kind == Step::Kind::loop) return nullptr;
    if (!overlap(steps[i].output, operand)) continue;
    const ByteRange wrote = byte_range(steps[i].output), read = byte_range(operand);
    return wrote.begin <= read.begin && read.end <= wrote.end ? &steps[i] : nullptr;
  }
  return nullptr;
}

/// Rows of f32 times a matrix of f32, with at most a bias.
bool is_plain_linear(const Step& step) {
  const auto* op = step.op.as<Linear>();
  if (op == nullptr || op->has_residual) return false;
  const auto is_matrix = [](const Operand& operand) {
    return operand.shape.rank() == 2 && operand.shape.dtype() == DType::f32;
  };
  return is_matrix(step.inputs[0]) && is_matrix(step.inputs[1]) && is_matrix(step.output);
}

class Quantizer {
 public:
  Quantizer(std::vector<Step>& steps, std::span<const Operand> leaves, const Lowered& program,
            std::span<const Step> original, const quant::CalibrationTable& table)
      : steps_(steps),
        program_(program),
        original_(original),
        table_(table),
        values_(trace_values(steps, leaves)),
        codes_(steps.size()),
        convolutions_(steps.size()) {}

  void run(std::vector<std::string>& notes) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].kind != Step::Kind::op) continue;
      if (is_convolution(steps_[i])) consider(i, notes);
      if (is_plain_linear(steps_[i])) consider_linear(i, notes);
    }
    choose_values();
    for (std::size_t i = 0; i < steps_.size(); ++i) rewrite(i);
  }

 private:
  void consider(std::size_t i, std::vector<std::string>& notes) {
    Codes x;
    if (const auto why = why_not(i, x)) {
      notes.push_back(fmt::format("{}: f32, {}", steps_[i].value, *why));
      return;
    }
    QuantizedConv2d op;
    if (const auto* merged = steps_[i].op.as<MergedConv2d>()) {
      op.merged = *merged;
    } else {
      op.merged.conv = *steps_[i].op.as<Conv2d>();
    }
    op.x = x;
    convolutions_[i] = op;
    notes.push_back(fmt::format("{}: int8", steps_[i].value));
  }

  /// A linear layer of rows is a convolution of images of one pixel. One whose rows have no range
  /// stays as it is.
  void consider_linear(std::size_t i, std::vector<std::string>& notes) {
    const Step linear = steps_[i];
    QuantizedConv2d op;
    op.merged.conv.has_bias = linear.op.as<Linear>()->has_bias;
    steps_[i].op = OpInstance(op.merged);
    for (Operand* operand : {&steps_[i].inputs[0], &steps_[i].inputs[1], &steps_[i].output}) {
      *operand = as_pixels(*operand);
    }
    if (why_not(i, op.x)) {
      steps_[i] = linear;
      return;
    }
    convolutions_[i] = op;
    notes.push_back(fmt::format("{}: int8", linear.value));
  }

  /// [N, K] as [N, K, 1, 1].
  static Operand as_pixels(const Operand& rows) {
    Operand image = rows;
    image.shape = Shape({rows.shape[0], rows.shape[1], 1, 1}, rows.shape.dtype());
    image.strides = {rows.strides[0], rows.strides[1], rows.strides[0], rows.strides[0]};
    return image;
  }

  std::optional<std::string> why_not(std::size_t i, Codes& x) const {
    const Step& step = steps_[i];
    if (needs_f32(step)) return "an operand is not f32";
    const Operand& w = step.inputs[1];
    if (w.place.kind != Place::Kind::constant || w.place.offset != 0 ||
        w.place.entry_step != LoopSteps{} || w.place.byte_step != LoopSteps{} ||
        !w.is_contiguous()) {
      return "its filter is no constant as it lies in its file";
    }
    const auto* merged = step.op.as<MergedConv2d>();
    const Conv2d& conv = merged != nullptr ? merged->conv : *step.op.as<Conv2d>();
    const FilterShape filter{w.shape[0], w.shape[1], w.shape[2], w.shape[3], conv.groups};
    if (step.output.shape.elements() == 0) return "it is empty";
    if (filter.is_depthwise() && filter.rows * filter.columns > max_int8_taps) {
      return "it has too many taps";
    }
    if (!filter.is_depthwise() && filter.groups > 1 && filter.channels % 4 != 0) {
      return "the channels of a group are no multiple of 4";
    }
    // Sums have to fit in 32 bits.
    constexpr std::int64_t max_products = (std::int64_t{1} << 31) / (255 * 127) - 1;
    if (filter.channels * filter.rows * filter.columns > max_products) return "it sums too much";
    const std::optional<std::string> name = name_of(i);
    if (!name) return "nobody knows what its image is called";
    const quant::ValueRange* range = table_.find(*name);
    if (range == nullptr) return fmt::format("'{}' has no range", *name);
    const std::optional<Codes> codes = codes_of(range->tensor);
    if (!codes) return fmt::format("the range of '{}' is empty", *name);
    x = *codes;
    return std::nullopt;
  }

  /// What a convolution's image is called in the program.
  std::optional<std::string> name_of(std::size_t i) const {
    const Operand& x = steps_[i].inputs[0];
    const std::span<const Step> own(steps_);
    const Step* writer = nullptr;
    if (is_written(own.first(i), x)) {
      writer = writer_of(own.first(i), x);
    } else {
      const std::span<const Step> all(program_.steps);
      if (original_.empty() || original_.data() < all.data() ||
          original_.data() >= all.data() + all.size()) {
        return std::nullopt;  // inside a loop
      }
      const std::span<const Step> before =
          all.first(static_cast<std::size_t>(original_.data() - all.data()));
      writer = writer_of(before, x);
      if (writer == nullptr && x.place.kind == Place::Kind::input && !is_written(before, x)) {
        return program_.inputs[x.place.index].name;
      }
    }
    if (writer == nullptr) return std::nullopt;
    return quant::value_name(*writer);
  }

  static bool is_written(std::span<const Step> steps, const Operand& operand) {
    return std::ranges::any_of(
        steps, [&](const Step& step) { return writes_to(step, access_of(operand)); });
  }

  /// Which values hold codes: first all candidates, then fewer until they are consistent.
  void choose_values() {
    for (std::size_t v = 0; v < steps_.size(); ++v) {
      if (may_hold_codes(v)) {
        const quant::ValueRange* range = table_.find(quant::value_name(steps_[v]));
        if (range != nullptr) codes_[v] = codes_of(range->tensor);
      }
      if (steps_[v].op.as<MaxPool2d>() != nullptr) {
        const std::optional<std::size_t> maker = maker_of(v, 0);
        codes_[v] = maker && may_hold_codes(v) ? codes_[*maker] : std::nullopt;
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t v = 0; v < steps_.size(); ++v) {
        if (!codes_[v] || goes_together(v)) continue;
        codes_[v].reset();
        changed = true;
      }
    }
  }

  bool may_hold_codes(std::size_t v) const {
    const Step& step = steps_[v];
    const bool is_made = convolutions_[v]
                             ? !has_function(*convolutions_[v])
                             : step.kind == Step::Kind::op && step.op.as<MaxPool2d>() != nullptr;
    return is_made && values_[v].is_private && step.output.shape.rank() == image_rank &&
           step.output.is_contiguous();
  }
  /// An activation that is no limit is computed on f32 results.
  static bool has_function(const QuantizedConv2d& op) {
    return op.merged.has_activation && op.merged.activation != Unary::relu &&
           op.merged.activation != Unary::relu6 && op.merged.activation != Unary::clamp;
  }

  bool goes_together(std::size_t v) const {
    const Step& step = steps_[v];
    if (step.op.as<MaxPool2d>() != nullptr) {
      const std::optional<std::size_t> maker = maker_of(v, 0);
      if (!maker || !codes_[*maker]) return false;
    }
    // A result that overlaps the residual is written while that is read.
    if (convolutions_[v] && convolutions_[v]->merged.has_residual &&
        overlap(step.output, step.inputs.back())) {
      const std::optional<std::size_t> maker = maker_of(v, step.inputs.size() - 1);
      if (!maker || !codes_[*maker]) return false;
    }
    return std::ranges::all_of(values_[v].uses,
                               [&](const WrittenValue::Use& use) { return reads_codes(use); });
  }

  bool reads_codes(const WrittenValue::Use& use) const {
    const Step& step = steps_[use.step];
    if (step.op.as<MaxPool2d>() != nullptr) return codes_[use.step].has_value();
    if (folds_image<Mean>(step)) return true;
    if (!convolutions_[use.step]) return false;
    if (use.input == 0) return true;
    const bool is_residual =
        convolutions_[use.step]->merged.has_residual && use.input + 1 == step.inputs.size();
    return is_residual &&
           (codes_[use.step].has_value() || !overlap(step.output, step.inputs.back()));
  }

  /// The step whose value an input reads, where it reads all of it.
  std::optional<std::size_t> maker_of(std::size_t step, std::size_t input) const {
    for (std::size_t v = 0; v < step; ++v) {
      for (const WrittenValue::Use& use : values_[v].uses) {
        if (use.step == step && use.input == input) return v;
      }
    }
    return std::nullopt;
  }

  void rewrite(std::size_t v) {
    if (codes_[v]) {
      hold_codes(steps_[v].output);
      for (const WrittenValue::Use& use : values_[v].uses) {
        hold_codes(steps_[use.step].inputs[use.input]);
        if (const auto* mean = steps_[use.step].op.as<Mean>()) {
          steps_[use.step].op = OpInstance(QuantizedMean{*mean, *codes_[v]});
          continue;
        }
        if (!convolutions_[use.step]) continue;
        (use.input == 0 ? convolutions_[use.step]->x : convolutions_[use.step]->residual) =
            *codes_[v];
      }
      if (convolutions_[v]) convolutions_[v]->y = *codes_[v];
    }
    // Its images come from earlier steps, which have been decided.
    if (convolutions_[v]) steps_[v].op = OpInstance(*convolutions_[v]);
  }
  static void hold_codes(Operand& image) {
    image.shape = image.shape.with_dtype(DType::u8);
    image.strides = dense_strides(image.shape);
  }

  std::vector<Step>& steps_;
  const Lowered& program_;
  std::span<const Step> original_;
  const quant::CalibrationTable& table_;
  std::vector<WrittenValue> values_;
  std::vector<std::optional<Codes>> codes_;  // of what a step writes
  std::vector<std::optional<QuantizedConv2d>> convolutions_;
};

}  // namespace

void quantize_convolutions(std::vector<Step>& steps, std::span<const Operand> leaves,
                           const Lowered& program, std::span<const Step> original,
                           const quant::CalibrationTable& table, std::vector<std::string>& notes) {
  Quantizer(steps, leaves, program, original, table).run(notes);
}

}  // namespace tenon::cpu
