#include "convolution.hpp"

#include "../tasks/windows.hpp"
#include "steps.hpp"

#include <memory>

namespace tenon::cpu {
namespace {

/// Packs a filter that is not a constant, in every run.
class PackTask final : public Task {
 public:
  PackTask(const Operand& w, const FilterShape& shape, std::int64_t offset)
      : w_(w), shape_(shape), offset_(offset) {}
  void run(const TaskContext& context) const noexcept override {
    pack_filter(shape_, context.frame.view(w_), reinterpret_cast<float*>(context.scratch(offset_)),
                context.worker.thread, context.worker.threads);
  }

 private:
  Operand w_;
  FilterShape shape_;
  std::int64_t offset_;
};

}  // namespace

Convolution::Convolution(const MergedConv2d& merged, std::span<const Operand> inputs,
                         const Operand& output)
    : op(merged.conv), x(inputs[0]), w(inputs[1]), y(output) {
  if (op.has_bias) bias = inputs[2];
  if (merged.has_residual) residual = inputs.back();
  filter = {w.shape[0], w.shape[1], w.shape[2], w.shape[3], op.groups};
  const auto axis = [&](int i) {
    return window_axis(static_cast<std::size_t>(i), x.shape[2 + i], y.shape[2 + i], w.shape[2 + i],
                       op.stride, 1, op.padding, op.dilation);
  };
  rows = axis(0);
  columns = axis(1);
  if (!merged.has_activation) return;
  if (merged.activation == Unary::relu) {
    low = 0;
  } else if (merged.activation == Unary::relu6) {
    low = 0;
    high = 6;
  } else if (merged.activation == Unary::clamp) {
    low = merged.parameters.p;
    high = merged.parameters.q;
  } else {
    activation = merged.activation;
    parameters = merged.parameters;
  }
}

Convolution Convolution::of(const Step& step) {
  if (const MergedConv2d* merged = merged_part(step)) return {*merged, step.inputs, step.output};
  MergedConv2d alone;
  alone.conv = *step.op.as<Conv2d>();
  return {alone, step.inputs, step.output};
}

FilterSource::FilterSource(const Convolution& conv, Compiler& compiler, FilterForm form) {
  FilterShape shape = conv.filter;
  shape.form = form;
  if (conv.w.place.kind == Place::Kind::constant) {
    packed_ = compiler.prepare(conv.w, filter_recipe(shape));
    return;
  }
  // No convolution of a program: forms differ by the bias.
  Conv2d meaning;
  meaning.groups = conv.op.groups;
  meaning.has_bias = form == FilterForm::winograd;
  const Operand reads[] = {conv.w};
  offset_ = compiler.shared_table(
      OpInstance(meaning), reads, shape.packed_elements() * 4,
      [&](std::int64_t offset) { return std::make_unique<PackTask>(conv.w, shape, offset); });
}

void activate(const Convolution& conv, const Image<float>& y, const Part& part) noexcept {
  const std::int64_t channels = part.last_channel - part.first_channel;
  const std::int64_t columns = part.last_column - part.first_column;
  const auto apply = [&conv](float* at, std::int64_t count) {
    unary(*conv.activation, at, at, count, conv.parameters);
  };
  for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
    float* line =
        y.at + row * y.row + part.first_column * y.column + part.first_channel * y.channel;
    if (y.channel != 1 && y.column == 1) {
      for (std::int64_t c = 0; c < channels; ++c) apply(line + c * y.channel, columns);
    } else if (y.channel != 1) {
      for (std::int64_t i = 0; i < channels * columns; ++i) {
        apply(line + i / columns * y.channel + i % columns * y.column, 1);
      }
    } else if (y.column == channels) {
      apply(line, columns * channels);
    } else {
      for (std::int64_t j = 0; j < columns; ++j) apply(line + j * y.column, channels);
    }
  }
}

}  // namespace tenon::cpu
