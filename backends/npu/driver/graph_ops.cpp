#include "constraints.hpp"
#include "graph_builder.hpp"
#include "lists.hpp"
#include "table.hpp"

#include <tenon/error.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

OpInstance activation_op(Name name) {
  if (name == "silu") return OpInstance(Silu());
  if (name == "gelu") return OpInstance(Gelu());
  if (name == "gelu_tanh") return OpInstance(GeluTanh());
  if (name == "relu") return OpInstance(Relu());
  return OpInstance(Sigmoid());
}

/// Whether an activation can still be fused into the layer's last operation.
bool takes(const Layer& layer, const Activation& activation) {
  if (!layer.posts.empty()) {
    const Post& last = layer.posts.back();
    return last.kind != Post::Kind::lut && last.activation.is_none() && activation.slope == 1;
  }
  switch (layer.kind) {
    case Layer::Kind::conv:
    case Layer::Kind::depthwise:
    case Layer::Kind::linear:
    case Layer::Kind::matmul:
      return layer.activation.is_none();
    case Layer::Kind::max_pool:
    case Layer::Kind::sum_pool:
      return layer.activation.is_none() && activation.slope == 1;
    default:
      return false;
  }
}

}  // namespace

void GraphBuilder::add_step(int index) {
  const Step& step = steps_[static_cast<std::size_t>(index)];
  if (const auto failure = failed_constraint(step)) {
    throw Error(Errc::unsupported, step.value, *failure);
  }
  if (step.kind == Step::Kind::copy) return add_copy(step, index);
  const OpInstance& op = step.op;
  if (op.as<Conv2d>()) return add_conv(step, index);
  if (op.as<Linear>()) return add_linear(step, index);
  if (op.as<Matmul>()) return add_matmul(step, index);
  if (op.as<MaxPool2d>() || op.as<AvgPool2d>() || op.as<Mean>()) return add_pool(step, index);
  if (op.as<Pad>()) return add_pad(step, index);
  if (op.as<Concat>()) return add_concat(step, index);
  if (op.as<Glu>()) return add_glu(step, index);
  if (const auto activation = activation_of(op)) return fuse_activation(step, index, *activation);
  add_pointwise(step, index);
}

void GraphBuilder::add_copy(const Step& step, int index) {
  // The copy has the same value; write_dense() decides where it is stored.
  (void)step;
  made_[static_cast<std::size_t>(index)] = read(index, 0, form_of(index, 0));
  last_maker_ = no_step;
}

void GraphBuilder::add_conv(const Step& step, int index) {
  const auto& conv = *step.op.as<Conv2d>();
  Layer layer;
  layer.kind = conv.groups > 1 ? Layer::Kind::depthwise : Layer::Kind::conv;
  layer.weights = step.inputs[1];
  if (conv.has_bias) layer.bias = step.inputs[2];
  Window& window = layer.window;
  window.kernel_h = step.inputs[1].shape[2];
  window.kernel_w = step.inputs[1].shape[3];
  window.stride_h = value_or(conv.stride, 0, 1);
  window.stride_w = value_or(conv.stride, 1, 1);
  window.dilation_h = value_or(conv.dilation, 0, 1);
  window.dilation_w = value_or(conv.dilation, 1, 1);
  set_padding(window, conv.padding);
  layer.input = read_padded(index, window);
  layer.made = result_map(step, Form::image);
  finish(index, std::move(layer));
}

void GraphBuilder::add_linear(const Step& step, int index) {
  const auto& linear = *step.op.as<Linear>();
  Layer layer;
  layer.kind = Layer::Kind::linear;
  layer.weights = step.inputs[1];
  if (linear.has_bias) layer.bias = step.inputs[2];
  Post residual;
  if (linear.has_residual) {
    residual.kind = Post::Kind::add;
    residual.other = read(index, step.inputs.size() - 1, Form::rows);
  }
  layer.input = flattened(index, 0);
  if (layer.input == no_map) layer.input = read(index, 0, Form::rows);
  layer.made = result_map(step, Form::rows);
  if (linear.has_residual) {
    // calibrate() observes the sum before the residual. Without that, its range is at most that of
    // the difference of two values whose ranges are known.
    residual.result = layer.made;
    const std::string name = product_name(step.value);
    const double step_before = options_.calibration.find(name) != nullptr
                                   ? step_of(name)
                                   : graph_.map(layer.made).step + graph_.map(residual.other).step;
    const Dims dims = graph_.map(layer.made).dims;
    layer.made = value_map(step, name, dims, step_before);
    layer.output = residual.result;
    layer.posts.push_back(std::move(residual));
  }
  finish(index, std::move(layer));
}

void GraphBuilder::add_matmul(const Step& step, int index) {
  Layer layer;
  layer.kind = Layer::Kind::matmul;
  layer.input = read(index, 0, Form::rows);
  layer.second = read(index, 1, Form::rows);
  const Shape& a = step.inputs[0].shape;
  for (int axis = 0; axis + 2 < a.rank(); ++axis) layer.batch *= a[axis];
  layer.made = result_map(step, Form::rows);
  finish(index, std::move(layer));
}

void GraphBuilder::fuse_activation(const Step& step, int index, const Activation& activation) {
  const Form form = form_of(index, 0);
  if (can_follow(index, 0, form) && takes(graph_.layers.back(), activation)) {
    Layer& layer = graph_.layers.back();
    const Dims dims = graph_.map(layer.output).dims;
    const bool keeps_step = layer.posts.empty() && layer.keeps_step();
    const MapId result = value_map(
        step, step.value, dims, keeps_step ? graph_.map(layer.output).step : step_of(step.value));
    if (layer.posts.empty()) {
      layer.activation = activation;
      layer.made = result;
    } else {
      layer.posts.back().activation = activation;
      layer.posts.back().result = result;
    }
    layer.output = result;
    layer.values.push_back(step.value);
    layer.step = index;
    finish_posts(index);
    return;
  }
  Layer& layer = carrier(index, 0, form, graph_.layers.size());
  Post post;
  post.kind = Post::Kind::rescale;
  post.activation = activation;
  post.result = value_map(step, step.value, graph_.map(layer.output).dims, step_of(step.value));
  layer.posts.push_back(std::move(post));
  finish_posts(index);
}

void GraphBuilder::add_pointwise(const Step& step, int index) {
  if (is_table_op(step.op)) {
    Layer& layer = carrier(index, 0, form_of(index, 0), graph_.layers.size());
    Post post;
    post.kind = Post::Kind::lut;
    post.function = step.op;
    post.result = value_map(step, step.value, graph_.map(layer.output).dims, step_of(step.value));
    layer.posts.push_back(std::move(post));
    finish_posts(index);
    return;
  }
  // Of two operands, the work is fused into the layer of the one just computed, so that it stays on
  // chip.
  const auto carries = [&](std::size_t i) {
    return step.inputs[i].shape == step.output.shape &&
           step.inputs[i].place.kind != Place::Kind::constant;
  };
  // A value per channel is broadcast along the channels of the result, whatever the form of its
  // operand.
  const bool spreads = std::ranges::any_of(step.inputs, [&](const Operand& x) {
    return x.place.kind != Place::Kind::constant && !(x.shape == step.output.shape);
  });
  const auto form_with = [&](std::size_t i) {
    if (!spreads) return form_of(index, i);
    return step.output.shape.rank() == 4 ? Form::image : Form::rows;
  };
  const auto follows = [&](std::size_t i) { return can_follow(index, i, form_with(i)); };
  const bool second = carries(1) && (!carries(0) || (follows(1) && !follows(0)));
  const std::size_t a = second ? 1 : 0, b = second ? 0 : 1;
  const Form form = form_with(a);
  const std::size_t layers_before = graph_.layers.size();
  Post post;
  post.other = read_spread(index, b, form, post.spread);
  const Dims dims = *dims_of(step.output.shape, form);
  post.result = value_map(step, step.value, dims, step_of(step.value));
  if (step.op.as<Mul>() != nullptr || step.op.as<Div>() != nullptr) {
    post.kind = Post::Kind::mul;
    if (step.op.as<Div>() != nullptr) {
      graph_.maps[static_cast<std::size_t>(post.other)].reciprocal = true;
    }
  } else if (step.op.as<Maximum>() != nullptr) {
    post.kind = Post::Kind::max;
  } else {
    post.kind = Post::Kind::add;
    if (step.op.as<Sub>() != nullptr) (second ? post.first_sign : post.sign) = -1;
  }
  carrier(index, a, form, layers_before).posts.push_back(std::move(post));
  finish_posts(index);
}

void GraphBuilder::add_glu(const Step& step, int index) {
  const Form form = form_of(index, 0);
  const std::size_t layers_before = graph_.layers.size();
  Post product;
  product.kind = Post::Kind::mul;
  product.other = read_spread(index, 1, form, product.spread);
  const Dims dims = *dims_of(step.output.shape, form);
  product.result = value_map(step, step.value, dims, step_of(step.value));
  Layer& layer = carrier(index, 0, form, layers_before);
  Post gate;
  gate.kind = Post::Kind::lut;
  gate.function = activation_op(step.op.as<Glu>()->activation);
  gate.result = new_map(step.value + ".gate", dims,
                        table_step(table_values(gate.function, graph_.map(layer.output).step)));
  layer.posts.push_back(std::move(gate));
  layer.posts.push_back(std::move(product));
  finish_posts(index);
}

}  // namespace tenon::npu
