#include <tenon/cost.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tenon {
namespace {

double bytes_of(const Shape& shape) { return static_cast<double>(shape.bytes()); }

/// Bytes of this many elements, which fill whole blocks.
double bytes_of(double elements, DType dtype) {
  return elements * static_cast<double>(block_bytes(dtype)) /
         static_cast<double>(block_size(dtype));
}

bool is_picked(const OpTraits& traits, std::size_t input) {
  return (traits.picked_inputs >> input & 1U) != 0;
}

}  // namespace

Cost cost_of(const Step& step) {
  const Shape& out = step.output.shape;
  if (step.kind == Step::Kind::copy) return {2 * bytes_of(out), 0};
  const OpDef& def = *step.op.def();
  std::vector<Shape> inputs;
  for (const Operand& input : step.inputs) inputs.push_back(input.shape);

  Cost cost;
  if (def.flops != nullptr) {
    cost.flops = def.flops(step.op.attributes(), inputs, out);
  } else if (def.traits.reduction && !inputs.empty()) {
    cost.flops = static_cast<double>(inputs[0].elements());
  } else if (!def.traits.view && def.traits.updates_input < 0) {
    cost.flops = static_cast<double>(out.elements());
  }
  // Of an input of which some elements are picked, at most so many: each is moved or multiplied.
  const double picked = std::max(static_cast<double>(out.elements()), cost.flops / 2);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (def.traits.updates_input == static_cast<int>(i)) continue;
    const double all = bytes_of(inputs[i]);
    cost.bytes +=
        is_picked(def.traits, i) ? std::min(all, bytes_of(picked, inputs[i].dtype())) : all;
  }
  // An update in place writes only its operand.
  cost.bytes += def.traits.updates_input >= 0 ? cost.bytes : bytes_of(out);

  if (std::isnan(cost.flops)) cost.bytes = cost.flops;
  return cost;
}

}  // namespace tenon
