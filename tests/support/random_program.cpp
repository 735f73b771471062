#include "support/random_program.hpp"

#include "support/rounds.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/fill.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <optional>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

constexpr std::int64_t max_elements = 512;

std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

/// Small changes of the input can change the output by much, or by a step.
bool is_smooth(const OpDef& def) {
  static constexpr std::string_view rough =
      " floor ceil trunc round sign remainder fmod pow tan eq ne lt le gt ge argmax argmin "
      "topk is_nan is_inf is_finite log log2 log1p reciprocal div rsqrt exp exp2 expm1 prod "
      "cumsum asin acos logical_not logical_and logical_or logical_xor sinh cosh acosh "
      "atanh erfinv lgamma digamma polygamma atan2 random_bits max_pool2d_backward "
      "non_max_suppression scatter quantize dequantize quantize_linear cast argsort "
      "searchsorted cumprod cholesky triangular_solve solve det slogdet eigh svd lu qr ";
  const std::string word = fmt::format(" {} ", def.name);
  return rough.find(word) == std::string_view::npos;
}

}  // namespace

std::uint64_t fuzz_seed(std::uint64_t fallback) { return number_from("TENON_TEST_SEED", fallback); }
int fuzz_rounds(int fallback) {
  const auto count = static_cast<std::uint64_t>(rounds(fallback));
  return static_cast<int>(number_from("TENON_TEST_ROUNDS", count));
}

std::int64_t RandomProgram::integer(std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
}

bool RandomProgram::chance(double probability) {
  return std::bernoulli_distribution(probability)(engine_);
}

double RandomProgram::real() {
  if (options_.smooth) return std::uniform_real_distribution<double>(0.1, 1.5)(engine_);
  switch (integer(0, 9)) {
    case 0:
      return std::bit_cast<double>(engine_());  // anything: NaN, infinities, denormals
    case 1:
      return -0.0;
    case 2:
      return 1e-5;
    case 3:
      return static_cast<double>(integer(-3, 3));
    default:
      return std::uniform_real_distribution<double>(-3, 3)(engine_);
  }
}

DType RandomProgram::dtype(DType usual) {
  if (chance(options_.smooth ? 0.95 : 0.6)) return usual;
  return static_cast<DType>(integer(0, static_cast<int>(DType::f64)));
}

Shape RandomProgram::shape(DType type) {
  static constexpr std::int64_t sizes[] = {1, 2, 3, 4, 4, 4, 5};
  std::vector<std::int64_t> dims(static_cast<std::size_t>(integer(0, 4)));
  for (std::int64_t& dim : dims) dim = sizes[integer(0, std::ssize(sizes) - 1)];
  if (!options_.smooth && !dims.empty() && chance(0.03)) dims[0] = 0;
  return {dims, type};
}

std::string RandomProgram::text() {
  static constexpr std::string_view parts[] = {
      "weight",           ".", "layer", "\"", "\\", "\n", "\x01", "é", "重",
      "\xF0\x9F\xA6\x86", "7", " ",     "#",  "'",  "\r", "\t",   "="};
  std::string result = "w";
  for (std::int64_t i = integer(0, 6); i > 0; --i)
    result += parts[integer(0, std::ssize(parts) - 1)];
  return result;
}

/// One function in the making.
class RandomProgram::Body {
 public:
  Body(RandomProgram& random, std::string name) : random_(random) {
    function.name = std::move(name);
  }

  ValueId parameter(ValueKind kind, std::optional<Shape> shape) {
    function.parameter_count = static_cast<std::uint32_t>(function.values.size() + 1);
    return function.add_value({fmt::format("p{}", function.values.size()), kind, std::move(shape)});
  }

  ValueId add(Instruction instruction, ValueKind kind, std::optional<Shape> shape,
              std::string_view name = {}) {
    const std::size_t number = function.values.size();
    const ValueId id = function.add_value(
        {fmt::format("{}{}", name.empty() ? "v" : name, number), kind, std::move(shape)});
    instruction.result = id;
    function.body.push_back(std::move(instruction));
    return id;
  }

  /// An op, if it takes these operands.
  std::optional<ValueId> add_op(OpInstance op, std::vector<ValueId> operands) {
    std::vector<Shape> inputs;
    for (const ValueId id : operands) inputs.push_back(*function.values[id].shape);
    const OpDef& def = *op.def();
    std::optional<Shape> shape;
    try {
      shape = def.infer(op.attributes(), inputs).without_tags();
      if (shape->elements() > max_elements) return std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
    Instruction instruction;
    instruction.op = std::move(op);
    instruction.operands = std::move(operands);
    return add(std::move(instruction), ValueKind::tensor, shape);
  }

  bool usable(ValueId id) const {
    return function.values[id].kind == ValueKind::tensor &&
           std::ranges::find(consumed_, id) == consumed_.end();
  }

  /// A random tensor; the newest are the most probable, so that chains form.
  std::optional<ValueId> pick(const std::optional<Shape>& wanted = {}) {
    std::vector<ValueId> found;
    for (ValueId id = 0; id < function.values.size(); ++id) {
      if (usable(id) && (!wanted || *function.values[id].shape == *wanted)) found.push_back(id);
    }
    if (found.empty()) return std::nullopt;
    const auto last = std::ssize(found) - 1;
    const std::int64_t back = random_.chance(0.5)
                                  ? random_.integer(0, std::min<std::int64_t>(last, 2))
                                  : random_.integer(0, last);
    return found[static_cast<std::size_t>(last - back)];
  }

  void constant() {
    Instruction instruction;
    instruction.kind = Instruction::Kind::constant;
    // No other function's: a name has one shape.
    instruction.text = random_.text() + fmt::format("{}.{}", function.name, function.values.size());
    add(std::move(instruction), ValueKind::tensor, random_.shape(random_.options_.dtype));
  }

  bool random_op();
  void finish();

  Function function;

 private:
  void set_attributes(OpInstance& op);

  RandomProgram& random_;
  std::vector<ValueId> consumed_;
};

void RandomProgram::Body::set_attributes(OpInstance& op) {
  static constexpr std::string_view words[] = {"silu", "relu",      "linear",      "neox",
                                               "none", "gelu_tanh", "odd \"word\""};
  for (const AttributeField& field : op.def()->fields) {
    if (random_.chance(0.3)) continue;
    AttributeValue value = field.get(op.attributes());
    if (std::holds_alternative<std::int64_t>(value)) {
      value = random_.integer(-1, 4);
    } else if (std::holds_alternative<double>(value)) {
      value = random_.real();
    } else if (std::holds_alternative<bool>(value)) {
      value = random_.chance(0.5);
    } else if (std::holds_alternative<Name>(value)) {
      value = Name(words[random_.integer(0, std::ssize(words) - 1)]);
    } else if (std::holds_alternative<DType>(value)) {
      value = random_.dtype(random_.options_.dtype);
    } else {
      IntList list;
      for (std::int64_t i = random_.integer(0, 4); i > 0; --i)
        list.push_back(random_.integer(0, 4));
      value = list;
    }
    field.set(op.attributes(), value);
  }
}

bool RandomProgram::Body::random_op() {
  const std::vector<const OpDef*> ops = all_ops();
  const OpDef& def = *ops[static_cast<std::size_t>(random_.integer(0, std::ssize(ops) - 1))];
  if (random_.options_.smooth && !is_smooth(def)) return false;
  OpInstance op(def);
  for (int attempt = 0; attempt < 20; ++attempt) {
    op = OpInstance(def);
    set_attributes(op);
    std::vector<ValueId> operands;
    const int most = std::max(def.min_inputs, std::min(def.max_inputs, 5));
    for (std::int64_t n = random_.integer(def.min_inputs, most); n > 0; --n) {
      // The same type as the one before is what most ops want.
      std::optional<Shape> like;
      if (!operands.empty() && random_.chance(0.5)) like = function.values[operands.back()].shape;
      const std::optional<ValueId> operand = pick(like);
      if (!operand) return false;
      operands.push_back(*operand);
    }
    // An update takes over the storage of a parameter that nothing else reads: the rest is for the
    // tests that are about updates.
    if (def.traits.updates_input >= 0) return false;
    if (add_op(op, operands)) return true;
  }
  return false;
}

void RandomProgram::Body::finish() {
  // Everything that nothing reads is a result, so that no rewrite goes unseen; some of the rest
  // too.
  std::vector<bool> read(function.values.size());
  for (const Instruction& instruction : function.body) {
    for (const ValueId id : instruction.operands) read[id] = true;
  }
  for (ValueId id = function.parameter_count; id < function.values.size(); ++id) {
    if (usable(id) && (!read[id] || random_.chance(0.1))) function.results.push_back(id);
  }
  if (function.results.empty()) function.results.push_back(pick().value());
}

Program RandomProgram::make(const RandomProgramOptions& options) {
  options_ = options;
  Program program;
  program.name = text();
  if (chance(0.3)) program.weights_file = text();
  std::vector<std::size_t> carried;  // of each callee

  for (int c = 0; c < options.callees; ++c) {
    Body body(*this, fmt::format("block{}", c));
    const std::int64_t carry = integer(1, 2);
    for (std::int64_t k = 0; k < carry; ++k)
      body.parameter(ValueKind::tensor, shape(options.dtype));
    body.parameter(ValueKind::tensor, Shape({}, i64));
    const ValueId scope = body.parameter(ValueKind::scope, std::nullopt);
    body.parameter(ValueKind::tensor, shape(dtype(options.dtype)));
    for (int i = 0; i < options.instructions / 2; ++i) {
      if (chance(0.15)) {
        body.constant();
        if (chance(0.7)) body.function.body.back().operands = {scope};
      } else {
        body.random_op();
      }
    }
    for (std::int64_t k = 0; k < carry; ++k) {
      body.function.results.push_back(
          body.pick(body.function.values[static_cast<std::size_t>(k)].shape).value());
    }
    carried.push_back(static_cast<std::size_t>(carry));
    program.functions.push_back(std::move(body.function));
  }

  Body body(*this, "forward");
  for (std::int64_t k = integer(1, 3); k > 0; --k)
    body.parameter(ValueKind::tensor, shape(dtype(options.dtype)));
  for (int c = 0; c < options.callees; ++c) {
    for (std::uint32_t k = 0; k < program.functions[static_cast<std::size_t>(c)].parameter_count;
         ++k) {
      const Value& parameter = program.functions[static_cast<std::size_t>(c)].values[k];
      if (parameter.kind == ValueKind::tensor) body.parameter(ValueKind::tensor, parameter.shape);
    }
  }
  for (int i = 0; i < options.instructions; ++i) {
    if (options.callees > 0 && chance(0.25)) {
      const auto c = static_cast<std::size_t>(integer(0, options.callees - 1));
      const Function& callee = program.functions[c];
      const bool loop = chance(0.5);
      std::vector<ValueId> arguments;
      Instruction scope;
      scope.kind = Instruction::Kind::scope;
      scope.text = text();
      const ValueId prefix = body.add(std::move(scope), ValueKind::scope, std::nullopt, "s");
      for (std::size_t k = 0; k < callee.parameter_count; ++k) {
        arguments.push_back(callee.values[k].kind == ValueKind::scope
                                ? prefix
                                : body.pick(callee.values[k].shape).value());
      }
      Instruction instruction;
      instruction.function = callee.name;
      if (loop) {
        Instruction pack;
        pack.kind = Instruction::Kind::pack;
        pack.operands.assign(arguments.begin(),
                             arguments.begin() + static_cast<std::ptrdiff_t>(carried[c]));
        instruction.kind = Instruction::Kind::repeat;
        instruction.count = integer(0, 3);
        instruction.first = chance(0.5) ? integer(0, 2) : 0;
        instruction.operands = {body.add(std::move(pack), ValueKind::tuple, std::nullopt, "t"),
                                prefix};
        instruction.operands.insert(instruction.operands.end(),
                                    arguments.begin() + static_cast<std::ptrdiff_t>(carried[c]) + 2,
                                    arguments.end());
      } else {
        instruction.kind = Instruction::Kind::call;
        instruction.operands = arguments;
      }
      const bool single = !loop && callee.results.size() == 1;
      const ValueId result =
          body.add(std::move(instruction), single ? ValueKind::tensor : ValueKind::tuple,
                   single ? callee.values[callee.results[0]].shape : std::nullopt, "r");
      for (std::size_t k = 0; !single && k < callee.results.size(); ++k) {
        Instruction item;
        item.kind = Instruction::Kind::item;
        item.index = static_cast<std::int64_t>(k);
        item.operands = {result};
        body.add(std::move(item), ValueKind::tensor, callee.values[callee.results[k]].shape);
      }
    } else if (chance(0.1)) {
      body.constant();
    } else if (chance(0.1)) {
      body.add_op(OpInstance(Full{.value = real(), .dims = {}, .dtype = options.dtype}), {});
    } else {
      for (int attempt = 0; attempt < 30 && !body.random_op(); ++attempt) {
      }
    }
  }
  body.finish();
  program.functions.push_back(std::move(body.function));
  verify(program);
  return program;
}

HostBuffer RandomProgram::value(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  for (float& value : values) value = std::uniform_real_distribution<float>(-2, 2)(engine_);
  return HostBuffer::of<float>(shape.with_dtype(f32), std::span<const float>(values))
      .to(shape.dtype());
}

std::vector<HostBuffer> RandomProgram::inputs(const Program& program) {
  std::vector<HostBuffer> result;
  const Function& main = program.main();
  for (std::uint32_t k = 0; k < main.parameter_count; ++k)
    result.push_back(value(*main.values[k].shape));
  return result;
}

}  // namespace tenon::testing
