#include "constraints.hpp"
#include "graph_builder.hpp"
#include "lists.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <utility>

namespace tenon::npu {

// Of a result that picks values of `input`: the input's step. A constant has its own when weights
// are bound; until then the result's range is what is known.
double GraphBuilder::picked_step(const Step& step, MapId input) const {
  return graph_.map(input).is_constant() ? step_of(step.value) : graph_.map(input).step;
}

void GraphBuilder::add_pool(const Step& step, int index) {
  Layer layer;
  Window& window = layer.window;
  const auto set = [&](const auto& pool) {
    window.kernel_h = pool.kernel[0];
    window.kernel_w = pool.kernel[1];
    window.stride_h = value_or(pool.stride, 0, window.kernel_h);
    window.stride_w = value_or(pool.stride, 1, window.kernel_w);
    set_padding(window, pool.padding);
  };
  if (const auto* max = step.op.as<MaxPool2d>()) {
    layer.kind = Layer::Kind::max_pool;
    layer.input = read(index, 0, Form::image);
    set(*max);
    // The greatest of some values has their range: no second rounding.
    layer.made = value_map(step, step.value, *dims_of(step.output.shape, Form::image),
                           picked_step(step, layer.input));
    return finish(index, std::move(layer));
  }
  layer.kind = Layer::Kind::sum_pool;
  if (const auto* average = step.op.as<AvgPool2d>()) {
    set(*average);
    layer.input =
        average->count_include_pad ? read_padded(index, window) : read(index, 0, Form::image);
    layer.made =
        value_map(step, step.value, *dims_of(step.output.shape, Form::image), step_of(step.value));
  } else {
    layer.input = read(index, 0, Form::image);
    const Dims& in = graph_.map(layer.input).dims;
    window.kernel_h = window.stride_h = in.h;
    window.kernel_w = window.stride_w = in.w;
    // A mean keeps its axes as ones or drops them: one pixel per image either way.
    layer.made = value_map(step, step.value, {in.n, 1, 1, in.c}, step_of(step.value));
  }
  if (window.kernel_h > max_pool_window || window.kernel_w > max_pool_window) {
    return add_mean(step, index, layer.input);
  }
  layer.factor = 1.0 / static_cast<double>(window.kernel_h * window.kernel_w);
  finish(index, std::move(layer));
}

// The mean of a large image is a matrix multiplication by a row of equal numbers: sums stay in 32
// bits and are rounded once, whatever the number of pixels.
void GraphBuilder::add_mean(const Step& step, int index, MapId input) {
  const Dims in = graph_.map(input).dims;
  const std::int64_t pixels = in.h * in.w;
  Layer layer;
  layer.kind = Layer::Kind::matmul;
  layer.second = input;
  layer.batch = in.n;
  layer.input = new_map(step.value + ".weights", {in.n, 1, 1, pixels}, 0);
  graph_.maps.back().fill = 1.0F / static_cast<float>(pixels);
  layer.made = value_map(step, step.value, {in.n, 1, 1, in.c}, step_of(step.value));
  finish(index, std::move(layer));
}

// Windows that sum count what lies outside of their image as zeros, so zeros around it need not be
// there. Where others read them too, a window of one pixel copies the image into them.
void GraphBuilder::add_pad(const Step& step, int index) {
  const auto& pad = *step.op.as<Pad>();
  const auto i = static_cast<std::size_t>(index);
  if (readers_pad(index)) {
    paddings_[i] = Padding{pad.before[2], pad.before[3]};
    made_[i] = read(index, 0, Form::image);
    last_maker_ = no_step;
    return;
  }
  Layer layer;
  layer.kind = Layer::Kind::sum_pool;
  layer.input = read(index, 0, Form::image);
  layer.window.top = pad.before[2];
  layer.window.left = pad.before[3];
  layer.made = value_map(step, step.value, *dims_of(step.output.shape, Form::image),
                         picked_step(step, layer.input));
  finish(index, std::move(layer));
}

// Whether all that read a padded image are windows that sum, and take it whole.
bool GraphBuilder::readers_pad(int index) const {
  const auto i = static_cast<std::size_t>(index);
  if (!options_.fuse || flow_.leaves[i]) return false;
  const auto& pad = *steps_[i].op.as<Pad>();
  for (std::size_t j = i + 1; j < steps_.size(); ++j) {
    const Step& reader = steps_[j];
    for (std::size_t operand = 0; operand < reader.inputs.size(); ++operand) {
      if (flow_.inputs[j][operand].step != index) continue;
      if (operand != 0 || reader.kind != Step::Kind::op ||
          !(reader.inputs[0] == steps_[i].output)) {
        return false;
      }
      std::int64_t most = 0;
      Window window;
      if (const auto* conv = reader.op.as<Conv2d>()) {
        most = max_conv_padding;
        set_padding(window, conv->padding);
      } else if (const auto* pool = reader.op.as<AvgPool2d>(); pool && pool->count_include_pad) {
        most = max_pool_window;
        set_padding(window, pool->padding);
      } else {
        return false;
      }
      const std::int64_t largest = std::max(
          {pad.before[2] + window.top, pad.before[3] + window.left, pad.after[2], pad.after[3]});
      if (largest > most) return false;
    }
  }
  return true;
}

// The image that a window reads; zeros around it that are not stored are added to the window's
// padding.
MapId GraphBuilder::read_padded(int index, Window& window) {
  const int origin = flow_.inputs[static_cast<std::size_t>(index)][0].step;
  const auto& padding =
      origin == no_step ? std::nullopt : paddings_[static_cast<std::size_t>(origin)];
  if (!padding) return read(index, 0, Form::image);
  window.top += padding->top;
  window.left += padding->left;
  return made_[static_cast<std::size_t>(origin)];
}

}  // namespace tenon::npu
