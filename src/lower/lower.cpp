#include "lower/constant_paths.hpp"
#include "lower/flat.hpp"

#include <tenon/lowered.hpp>
#include <tenon/memory_errors.hpp>

#include <utility>

namespace tenon {
namespace {

using namespace lowering;

Operand operand(const Flat& flat, const Array& array) {
  const Storage& storage = flat.storages[flat.root(array.storage)];
  Operand result;
  result.place.kind = storage.kind;
  result.place.index = storage.index;
  result.place.offset = array.offset + storage.slab_offset;
  result.place.byte_step = array.byte_step;
  result.place.entry_step = array.entry_step;
  result.shape = array.shape;
  result.strides = array.strides;
  return result;
}

std::vector<Step> steps(const Flat& flat, std::vector<FlatStep>& flat_steps) {
  std::vector<Step> result;
  result.reserve(flat_steps.size());
  for (FlatStep& from : flat_steps) {
    Step step;
    step.kind = from.kind;
    step.op = std::move(from.op);
    for (const Array& input : from.inputs) step.inputs.push_back(operand(flat, input));
    if (from.kind != Step::Kind::loop) step.output = operand(flat, from.output);
    step.value = std::move(from.value);
    step.function = std::move(from.function);
    step.line = std::move(from.line);
    step.first = from.first;
    step.count = from.count;
    step.depth = from.depth;
    step.body = steps(flat, from.body);
    if (step.kind == Step::Kind::loop && step.body.empty()) continue;  // it leaves all as it is
    result.push_back(std::move(step));
  }
  return result;
}

Lowered lower_with(const Program& program, std::span<const Shape> inputs,
                   const ConstantTypes& types, const LowerOptions& options, bool constant_numbers) {
  MayBeConstant may_be_constant;
  if (options.splits_constant_part) {
    may_be_constant = options.may_be_constant;
    if (!may_be_constant) may_be_constant = [](const std::string&) { return true; };
  }
  Flat flat = flatten(program, inputs, types, may_be_constant, constant_numbers);
  Lowered lowered;
  share_storages(flat, options.given_up, lowered.outputs);
  lowered.slab_bytes = place_storages(flat);
  lowered.activation_bytes = flat.activation_bytes;
  lowered.steps = steps(flat, flat.steps);
  lowered.inputs = std::move(flat.inputs);
  if (flat.made.empty()) {
    lowered.constants = std::move(flat.constants);
  } else {
    split_constant_part(flat, lowered);
  }
  return lowered;
}

}  // namespace

namespace lowering {

Lowered lower_with_constant_numbers(const Program& program, std::span<const Shape> inputs,
                                    const ConstantTypes& types, const LowerOptions& options) {
  return lower_with(program, inputs, types, options, true);
}

}  // namespace lowering

Lowered lower(const Program& program, std::span<const Shape> inputs, const ConstantTypes& types,
              const LowerOptions& options) {
  return with_memory_errors("lower",
                            [&] { return lower_with(program, inputs, types, options, false); });
}

}  // namespace tenon
