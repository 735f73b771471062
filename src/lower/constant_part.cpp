// What a program computes from constants alone: found while it is flattened, split off afterwards.
#include "base/digest.hpp"
#include "lower/constant_paths.hpp"
#include "lower/flat.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::lowering {
namespace {

constexpr std::int64_t small_bytes = std::int64_t{1} << 16;
constexpr std::int64_t max_growth = 2;
constexpr std::int64_t max_made = 8192;  // of steps: beyond it, runs compute what they read

/// Whether an op gives other numbers for codes of 8 bits or less.
bool decodes(DType from, DType to) {
  const bool is_code = is_block(from) || from == i8 || from == u8;
  return is_code && from != to;
}

/// Whether what `made` computes from weights is worth its memory.
bool is_small(const Flat& flat, const MadeConstant& made) {
  std::int64_t bytes = 0;
  for (const std::uint32_t source : made.sources) bytes += flat.constants[source].shape.bytes();
  return made.shape.bytes() <= std::max(small_bytes, max_growth * bytes);
}

/// A name that says how the constant is computed. Names of constants may be any text: their length stands before them.
std::string name_of(const Flat& flat, const MadeConstant& made) {
  std::string text = to_string(made.op);
  for (const Operand& input : made.inputs) {
    const auto rank = static_cast<std::size_t>(input.shape.rank());
    const ConstantSlot& slot = flat.constants[input.place.index];
    text += fmt::format("\n{} {} {} at {} {} by {}", slot.computed ? "computed" : "named",
                        slot.name.size(), slot.name, input.place.offset, to_string(input.shape),
                        fmt::join(std::span(input.strides).first(rank), ","));
  }
  return fmt::format("{} {}", made.op.def()->name, digest_of(text));
}

/// The constant that an op makes in one iteration of the loops around it.
MadeConstant made_in(const Flat& flat, const FlatStep& step, const LoopSteps& iteration) {
  MadeConstant made{.op = step.op,
                    .inputs = {},
                    .shape = step.output.shape,
                    .value = step.value,
                    .function = step.function,
                    .line = step.line,
                    .path = step.path};
  for (const Array& input : step.inputs) {
    const Storage& storage = flat.storages[input.storage];
    const Place place{.kind = Place::Kind::constant,
                      .index = storage.index,
                      .offset = input.offset,
                      .byte_step = input.byte_step,
                      .entry_step = input.entry_step};
    Operand operand{{.kind = Place::Kind::constant,
                     .index = static_cast<std::uint32_t>(place.entry_in(iteration)),
                     .offset = place.offset_in(iteration)},
                    input.shape,
                    input.strides};
    if (storage.kind == Place::Kind::constant) {
      const ConstantSlot& slot = flat.constants[operand.place.index];
      if (slot.computed) {
        const auto& sources = flat.made[*slot.computed].sources;
        made.sources.insert(sources.begin(), sources.end());
      } else {
        made.sources.insert(operand.place.index);
      }
    }
    made.inputs.push_back(std::move(operand));
  }
  return made;
}

void add_made(Flat& flat, MadeConstant made, std::vector<ConstantSlot>& slots) {
  const bool folded = std::ranges::any_of(
      made.inputs, [&](const Operand& input) { return flat.constants[input.place.index].folded; });
  slots.push_back({name_of(flat, made), made.shape, folded, flat.made.size()});
  flat.made.push_back(std::move(made));
}

void renumber(std::vector<Step>& steps, std::span<const std::uint32_t> numbers) {
  for (Step& step : steps) {
    renumber(step.body, numbers);
    for (Operand& input : step.inputs) {
      if (input.place.kind == Place::Kind::constant) input.place.index = numbers[input.place.index];
    }
  }
}

/// The steps that make `wanted`, each of them an output.
class Maker {
 public:
  explicit Maker(const Flat& flat)
      : flat_(flat), leaves_(flat.constants.size(), none), outputs_(flat.made.size(), none) {}

  std::size_t output_of(std::size_t made) {
    if (outputs_[made] != none) return outputs_[made];
    const MadeConstant& constant = flat_.made[made];
    Step step;
    step.op = constant.op;
    step.value = constant.value;
    step.function = constant.function;
    step.line = constant.line;
    for (const Operand& input : constant.inputs) {
      step.inputs.push_back(input);
      step.inputs.back().place = source_of(input.place);
    }
    const std::size_t output = part_.outputs.size();
    step.output = {{.kind = Place::Kind::output, .index = static_cast<std::uint32_t>(output)},
                   constant.shape,
                   dense_strides(constant.shape)};
    part_.outputs.push_back({constant.shape, std::nullopt});
    part_.steps.push_back(std::move(step));
    outputs_[made] = output;
    return output;
  }

  Lowered take() { return std::move(part_); }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  Place source_of(Place place) {
    const ConstantSlot& slot = flat_.constants[place.index];
    if (slot.computed) {
      place.kind = Place::Kind::output;
      place.index = static_cast<std::uint32_t>(output_of(*slot.computed));
      return place;
    }
    std::size_t& leaf = leaves_[place.index];
    if (leaf == none) {
      leaf = part_.constants.size();
      part_.constants.push_back(slot);
    }
    place.index = static_cast<std::uint32_t>(leaf);
    return place;
  }

  const Flat& flat_;
  std::vector<std::size_t> leaves_, outputs_;  // numbers in the part, or none
  Lowered part_;
};

}  // namespace

std::uint32_t constant_of_fill(Flat& flat, StorageId id) {
  const auto found = flat.fill_constants.find(id);
  if (found != flat.fill_constants.end()) return found->second;
  const auto number = static_cast<std::uint32_t>(flat.constants.size());
  add_made(flat, flat.fills.at(id), flat.constants);
  flat.fill_constants.emplace(id, number);
  return number;
}

std::vector<ConstantSlot> make_constants(Flat& flat, const FlatStep& step,
                                         std::span<const std::int64_t> counts,
                                         LoopSteps& entry_step) {
  if (step.inputs.empty() || step.op.def()->traits.updates_input >= 0) return {};
  LoopSteps runs;  // by loop: different operands in so many iterations
  runs.fill(1);
  bool reads_constant = false;
  for (const Array& input : step.inputs) {
    const bool is_constant = flat.storages[input.storage].kind == Place::Kind::constant;
    if (!is_constant && !flat.fills.contains(input.storage)) return {};
    if (decodes(input.shape.dtype(), step.output.shape.dtype())) return {};
    if (is_object(input.shape.dtype())) return {};  // results are told apart by sources, as bytes
    reads_constant = reads_constant || is_constant;
    for (std::size_t d = 0; d < counts.size(); ++d) {
      if (input.entry_step[d] != 0 || input.byte_step[d] != 0) runs[d] = counts[d];
    }
  }
  if (!reads_constant) return {};
  // The constants are in the order of the iterations: that of the innermost loop changes fastest.
  LoopSteps strides{};
  std::int64_t total = 1;
  const std::int64_t left = max_made - std::ssize(flat.made);
  for (std::size_t d = runs.size(); d-- > 0;) {
    if (runs[d] == 0 || runs[d] > left / total) return {};
    strides[d] = total;
    if (runs[d] != 1) entry_step[d] = total;
    total *= runs[d];
  }
  if (!is_small(flat, made_in(flat, step, {}))) return {};
  std::vector<ConstantSlot> slots;
  for (std::int64_t number = 0; number < total; ++number) {
    LoopSteps iteration;
    for (std::size_t d = 0; d < runs.size(); ++d) iteration[d] = number / strides[d] % runs[d];
    MadeConstant made = made_in(flat, step, iteration);
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const StorageId id = step.inputs[i].storage;
      if (flat.fills.contains(id)) made.inputs[i].place.index = constant_of_fill(flat, id);
    }
    add_made(flat, std::move(made), slots);
  }
  return slots;
}

void drop_unread_fills(const Flat& flat, std::vector<FlatStep>& steps) {
  for (FlatStep& step : steps) drop_unread_fills(flat, step.body);
  std::erase_if(steps, [&](const FlatStep& step) {
    return step.kind == Step::Kind::op && flat.fill_constants.contains(step.output.storage) &&
           flat.storages[step.output.storage].reads.empty();
  });
}

void split_constant_part(const Flat& flat, Lowered& lowered) {
  std::vector<std::uint32_t> numbers(flat.constants.size());
  std::vector<ConstantSlot> used;
  Maker maker(flat);
  for (const std::size_t constant : constants_read(lowered, lowered.steps)) {
    numbers[constant] = static_cast<std::uint32_t>(used.size());
    ConstantSlot& slot = used.emplace_back(flat.constants[constant]);
    if (slot.computed) slot.computed = maker.output_of(*slot.computed);
  }
  renumber(lowered.steps, numbers);
  lowered.constants = std::move(used);
  Lowered part = maker.take();
  if (!part.steps.empty()) lowered.constant_part = std::make_shared<const Lowered>(std::move(part));
}

std::optional<std::set<std::string>> constant_paths(const Program& program,
                                                    std::span<const Shape> inputs,
                                                    const ConstantTypes& types) {
  try {
    std::set<std::string> paths;
    const Flat flat = flatten(program, inputs, types, [](const std::string&) { return true; });
    for (const MadeConstant& made : flat.made) paths.insert(made.path);
    return paths;
  } catch (const Error&) {
    return std::nullopt;  // such as loops too deep inside each other
  }
}

}  // namespace tenon::lowering

namespace tenon {

Lowered part_for(const Lowered& constant_part, std::span<const std::size_t> outputs) {
  // Step i makes output i.
  const std::size_t count = constant_part.steps.size();
  std::vector<bool> is_needed(count), is_wanted(count);
  for (const std::size_t output : outputs) is_needed[output] = is_wanted[output] = true;
  for (std::size_t i = count; i-- > 0;) {
    for (const Operand& input : constant_part.steps[i].inputs) {
      if (is_needed[i] && input.place.kind == Place::Kind::output)
        is_needed[input.place.index] = true;
    }
  }
  Lowered part;
  part.constants = constant_part.constants;
  std::vector<std::uint32_t> numbers(count);
  const auto number = [&](bool wanted) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_needed[i] || is_wanted[i] != wanted) continue;
      numbers[i] = static_cast<std::uint32_t>(part.outputs.size());
      part.outputs.push_back(constant_part.outputs[i]);
    }
  };
  number(true);
  number(false);
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_needed[i]) continue;
    Step& step = part.steps.emplace_back(constant_part.steps[i]);
    step.output.place.index = numbers[i];
    for (Operand& input : step.inputs) {
      if (input.place.kind == Place::Kind::output) input.place.index = numbers[input.place.index];
    }
  }
  return part;
}

}  // namespace tenon
