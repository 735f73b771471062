#include "ops/gradient.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/glu.hpp>

#include <array>
#include <source_location>
#include <string_view>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(glu, Glu);

namespace {

using Activation = double (*)(double) noexcept;

struct NamedActivation {
  std::string_view word;
  Activation function;
};

constexpr NamedActivation activations[] = {
    {"silu", Silu::of}, {"gelu", Gelu::of},       {"gelu_tanh", GeluTanh::of},
    {"relu", Relu::of}, {"sigmoid", Sigmoid::of},
};

Activation find_activation(Name word) {
  for (const NamedActivation& activation : activations) {
    if (activation.word == word.text()) return activation.function;
  }
  fail(Errc::bad_attribute, Glu::name,
       fmt::format("activation '{}' is none of silu, gelu, gelu_tanh, relu, sigmoid", word.text()));
}

}  // namespace

Shape Glu::infer(std::span<const Shape> in) const {
  find_activation(activation);  // C1
  constexpr std::array<std::string_view, 2> names{"gate", "up"};
  const std::string operands = operands_text(names, in);
  require_floating(name, in[0]);  // C2
  require_floating(name, in[1]);
  if (in[0].rank() != in[1].rank() || in[0].dtype() != in[1].dtype()) {  // C3
    fail(Errc::shape_mismatch, name, fmt::format("gate and up differ: {}", operands));
  }
  std::vector<Axis> axes;
  for (int i = 0; i < in[0].rank(); ++i) {
    axes.push_back(common_axis(name, in[0], i, in[1], i, fmt::format("axis {}", i), operands));
  }
  require_distinct_tags(name, axes, operands);
  return {std::span<const Axis>(axes), in[0].dtype()};
}

void Glu::reference(std::span<const HostView> in, const HostView& out) const {
  const Activation function = find_activation(activation);
  const DType dtype = out.shape.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    const double gate = load_as_double(dtype, in[0].at(index));
    const double up = load_as_double(dtype, in[1].at(index));
    store_double(dtype, out.at(index), function(gate) * up);
  });
}

std::vector<Tensor> Glu::gradient(const Backward& at) const {
  const Tensor &gate = at.inputs[0], &up = at.inputs[1];
  const OpDef& def = *find_op(activation.text());
  const Tensor activated = record(def, def.defaults, {&gate, 1}, std::source_location::current());
  const Tensor upstream = at.upstream * up;
  return {def.gradient(def.defaults, {{&gate, 1}, activated, upstream})[0],
          at.upstream * activated};
}

Tensor glu(const Tensor& gate, const Tensor& up, Name activation,
           const std::source_location& where) {
  return record(Glu{.activation = activation}, {gate, up}, where);
}

}  // namespace tenon
