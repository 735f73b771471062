#include "fuzz/run_program.hpp"

#include "fuzz/memory_file.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace tenon::testing {
namespace {

constexpr std::int64_t open_size = 3;
constexpr std::int64_t max_elements = 1 << 14;  // of one array
constexpr std::int64_t max_work = 1 << 25;      // multiplications, roughly

void check_code(const Error& error) {
  if (error.code() == Errc::internal) fail("an internal error");
}

/// An upper bound of what the steps compute; max_work or more where one of them is too large.
std::int64_t work_of(const std::vector<Step>& steps) {
  std::int64_t work = 0;
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::loop) {
      const std::int64_t once = work_of(step.body) + 1;
      if (once >= max_work || step.count >= max_work / once) return max_work;
      work += once * std::max<std::int64_t>(step.count, 0);
    } else {
      const std::int64_t outputs = step.output.shape.elements();
      std::int64_t inputs = 1;
      for (const Operand& input : step.inputs) {
        inputs = std::max(inputs, input.shape.elements());
      }
      if (outputs > max_elements || inputs > max_elements) return max_work;
      work += 64 + outputs * std::min<std::int64_t>(inputs, 4096);
    }
    if (work >= max_work) return max_work;
  }
  return work;
}

/// Small numbers of either sign, and of every remainder: also as indices and positions.
HostBuffer made_up(const Shape& shape) {
  HostBuffer numbers = HostBuffer::zeros(Shape(shape.dims(), f32));
  int at = 0;
  for (float& number : numbers.mutable_values<float>()) {
    number = shape.dtype() == DType::boolean ? static_cast<float>(at % 2)
             : is_floating(shape.dtype()) || is_block(shape.dtype())
                 ? static_cast<float>(at % 7) * 0.25f - 0.5f
                 : static_cast<float>(at % 3);
    ++at;
  }
  return shape.dtype() == f32 ? numbers : numbers.to(shape.dtype());
}

std::optional<std::vector<Shape>> run(const Program& program, const Lowered& lowered,
                                      const std::vector<BackendPtr>& backends,
                                      const std::map<std::string, HostBuffer>& weights) {
  try {
    std::map<std::string, Buffer> bound;
    for (const ConstantSlot& slot : lowered.constants) {
      if (slot.folded) continue;
      const auto given = weights.find(slot.name);
      bound[slot.name] = (given != weights.end() ? given->second.contiguous() : made_up(slot.shape))
                             .to_device(cpu_device());
    }
    Session session(program, {.backends = backends});
    session.bind(std::make_shared<const WeightSet>(std::move(bound)));
    std::vector<Shape> shapes;
    for (const Buffer& result : session.forward(made_up_inputs(lowered))) {
      shapes.push_back(result.shape());
    }
    return shapes;
  } catch (const Error& error) {
    check_code(error);
    return std::nullopt;
  }
}

}  // namespace

std::optional<Lowered> lower_small(const Program& program,
                                   const std::map<std::string, HostBuffer>& weights) {
  try {
    Program checked = program;
    verify(checked);
    const Function& main = checked.main();
    std::vector<Shape> inputs;
    for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
      const Value& value = main.values[i];
      if (value.kind != ValueKind::tensor || !value.shape) return std::nullopt;
      std::vector<std::int64_t> dims(value.shape->dims().begin(), value.shape->dims().end());
      for (std::int64_t& dim : dims) dim = is_static(dim) ? dim : open_size;
      inputs.emplace_back(dims, value.shape->dtype());
      if (inputs.back().elements() > max_elements) return std::nullopt;
    }
    Lowered lowered = lower(checked, inputs, [&](const std::string& name) -> std::optional<Shape> {
      const auto found = weights.find(name);
      if (found == weights.end()) return std::nullopt;
      return found->second.shape();
    });
    const bool is_large = std::ranges::any_of(lowered.constants, [](const ConstantSlot& slot) {
      return slot.shape.elements() > max_elements;
    });
    if (is_large || lowered.slab_bytes > (std::int64_t{1} << 22)) return std::nullopt;
    if (work_of(lowered.steps) >= max_work) return std::nullopt;
    return lowered;
  } catch (const Error& error) {
    check_code(error);
    return std::nullopt;
  }
}

std::vector<Buffer> made_up_inputs(const Lowered& lowered) {
  std::vector<Buffer> inputs;
  for (const InputSlot& slot : lowered.inputs) {
    inputs.push_back(made_up(slot.shape).to_device(cpu_device()));
  }
  return inputs;
}

void run_program(const Program& program, const std::map<std::string, HostBuffer>& weights) {
  register_reference_backend();
  register_cpu_backend();
  static const BackendPtr reference = make_backend("reference");
  static const BackendPtr cpu = make_backend("cpu", {.threads = 2});
  const auto lowered = lower_small(program, weights);
  if (!lowered) return;
  const auto expected = run(program, *lowered, {reference}, weights);
  const auto found = run(program, *lowered, {cpu, reference}, weights);
  if (found.has_value() != expected.has_value()) fail("only one backend runs it");
  if (found && *found != *expected) fail("results of other types");
}

}  // namespace tenon::testing
