#include "codegen/identifiers.hpp"
#include "program/literals.hpp"

#include <tenon/codegen.hpp>
#include <tenon/error.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

using codegen_detail::cpp_string;
using codegen_detail::Identifiers;
using Kind = Instruction::Kind;

template <class Op, class Owner, class T>
constexpr bool is_inherited(const Field<Owner, T>&) noexcept {
  return !std::is_same_v<Op, Owner>;
}

/// Where an op's attributes are: members of its struct, or of the struct's base; or members beside a
/// base without any, which C++ counts as an element that a list of designators leaves out.
enum class AttributesIn : std::uint8_t { own, base, beside_base };

template <class Op>
constexpr AttributesIn attributes_in() noexcept {
  const bool has_inherited =
      Op::fields.apply([](const auto&... fields) { return (is_inherited<Op>(fields) || ...); });
  if (has_inherited) return AttributesIn::base;
  return std::is_base_of_v<UnaryOp<Op>, Op> ? AttributesIn::beside_base : AttributesIn::own;
}

struct OpStruct {
  std::string_view op;
  std::string_view name;
  AttributesIn attributes_in;
};

constexpr OpStruct op_structs[] = {
#define TENON_OP(file, id, Struct) {#id, #Struct, attributes_in<Struct>()},
#include "ops/ops.def"
#undef TENON_OP
    {"generator_uniform", "nn::GeneratorUniform", AttributesIn::own},
    {"generator_skip", "nn::GeneratorSkip", AttributesIn::own},
    {"kv_append", "nn::KvAppend", AttributesIn::own},
    {"kv_attention", "nn::KvAttention", AttributesIn::own},
    {"kv_length", "nn::KvLength", AttributesIn::own},
    {"tokenize", "text::Tokenize", AttributesIn::own},
    {"detokenize", "text::Detokenize", AttributesIn::own},
};

/// The classes of the library: the header that has them, and the namespace of their registration.
struct ClassOfObjects {
  std::string_view name, header, name_space;
};

constexpr ClassOfObjects classes_of_objects[] = {
    {"Generator", "tenon/nn/objects.hpp", "nn"},
    {"KvCache", "tenon/nn/objects.hpp", "nn"},
    {"Tokenizer", "tenon/text/objects.hpp", "text"},
};

const OpStruct* struct_of(const OpDef& def) {
  const auto* const found = std::ranges::find(op_structs, def.name, &OpStruct::op);
  return found == std::end(op_structs) ? nullptr : found;
}

std::string dtype_literal(DType dtype) {
  if (is_object(dtype)) return fmt::format("tenon::object_type(\"{}\")", name(dtype));
  return fmt::format("tenon::DType::{}", dtype == DType::boolean ? "boolean" : name(dtype));
}

std::string integer_literal(std::int64_t value) {
  if (value == std::numeric_limits<std::int64_t>::min()) return "INT64_MIN";
  return fmt::format("{}", value);
}

std::string cpp_literal(double value) {
  if (std::isnan(value)) return "std::numeric_limits<double>::quiet_NaN()";
  if (std::isinf(value)) {
    return fmt::format("{}std::numeric_limits<double>::infinity()", value < 0 ? "-" : "");
  }
  return real_literal(value);
}

std::string cpp_literal(const AttributeValue& value) {
  return std::visit(
      [](const auto& of) -> std::string {
        using T = std::decay_t<decltype(of)>;
        if constexpr (std::is_same_v<T, bool>) {
          return of ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          return integer_literal(of);
        } else if constexpr (std::is_same_v<T, double>) {
          return cpp_literal(of);
        } else if constexpr (std::is_same_v<T, DType>) {
          return dtype_literal(of);
        } else if constexpr (std::is_same_v<T, Name>) {
          return cpp_string(of.text());
        } else {
          std::vector<std::string> numbers;
          for (const std::int64_t number : of) numbers.push_back(integer_literal(number));
          return fmt::format("{{{}}}", fmt::join(numbers, ", "));
        }
      },
      value);
}

/// `tenon::RmsNorm{.eps = 1e-05}`, `tenon::Sum{{.axes = {1}}}` or `tenon::Elu{{}, 0.5}`: without
/// attributes that are the defaults, as far as C++ allows.
std::string op_literal(const OpInstance& op) {
  const OpStruct& of = *struct_of(*op.def());
  std::vector<std::string> changed, all{"{}"};
  for (const AttributeField& field : op.def()->fields) {
    const AttributeValue value = field.get(op.attributes());
    all.push_back(cpp_literal(value));
    if (literal(value) == literal(field.get(op.def()->defaults))) continue;
    changed.push_back(fmt::format(".{} = {}", field.name, all.back()));
  }
  if (changed.empty()) return fmt::format("tenon::{}{{}}", of.name);
  switch (of.attributes_in) {
    case AttributesIn::own:
      return fmt::format("tenon::{}{{{}}}", of.name, fmt::join(changed, ", "));
    case AttributesIn::base:
      return fmt::format("tenon::{}{{{{{}}}}}", of.name, fmt::join(changed, ", "));
    case AttributesIn::beside_base:
      return fmt::format("tenon::{}{{{}}}", of.name, fmt::join(all, ", "));
  }
  return {};
}

std::string shape_literal(const Shape& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t dim : shape.dims()) {
    sizes.push_back(is_static(dim) ? integer_literal(dim)
                    : is_symbol(dim)
                        ? fmt::format("tenon::symbol({})", cpp_string(symbol_name(dim).text()))
                        : "tenon::unknown_dim");
  }
  return fmt::format("tenon::Shape({{{}}}, {})", fmt::join(sizes, ", "),
                     dtype_literal(shape.dtype()));
}

std::string tuple_of(std::size_t count) {
  const std::vector<std::string_view> arrays(count, "Array");
  return fmt::format("std::tuple<{}>", fmt::join(arrays, ", "));
}

std::string result_type(const Function& function) {
  return function.results.size() == 1 ? "Array" : tuple_of(function.results.size());
}

/// Where each value, and each item of a tuple, is used last.
class LastUses {
 public:
  explicit LastUses(const Function& function) {
    for (std::size_t i = 0; i < function.body.size(); ++i) {
      const Instruction& instruction = function.body[i];
      if (instruction.kind == Kind::constant) constants_.insert(instruction.result);
      for (const ValueId id : instruction.operands) whole_[id] = i;
      if (instruction.kind == Kind::item) {
        items_[{instruction.operands[0], instruction.index}] = i;
      } else {
        for (const ValueId id : instruction.operands) taken_whole_.insert(id);
      }
    }
    for (const ValueId id : function.results) whole_[id] = function.body.size();
  }

  bool has(ValueId id) const { return whole_.contains(id); }
  /// Whether an instruction gives a value up. Nothing is gained by giving up a weight.
  bool is_last(ValueId id, std::size_t at) const {
    return whole_.at(id) == at && !constants_.contains(id);
  }
  /// Of a tuple's item that an instruction takes out.
  bool is_last_item(const Instruction& item, std::size_t at) const {
    const ValueId tuple = item.operands[0];
    return !taken_whole_.contains(tuple) && items_.at({tuple, item.index}) == at;
  }

 private:
  std::map<ValueId, std::size_t> whole_;
  std::map<std::pair<ValueId, std::int64_t>, std::size_t> items_;
  std::set<ValueId> taken_whole_, constants_;
};

class Writer {
 public:
  Writer(const Program& program, const CodegenOptions& options)
      : program_(program), options_(options) {
    for (const Function& function : program.functions) {
      functions_.emplace(function.name, members_.take(function.name));
      for (const Value& value : function.values) note_class(value);
    }
  }

  std::string run();

 private:
  void note_class(const Value& value);
  void includes(std::initializer_list<std::string_view> headers);
  void function(const Function& function);
  void check_inputs(const Function& function);
  void instruction(const Function& function, std::size_t at, const LastUses& uses);
  std::string expression(const Function& function, std::size_t at, const LastUses& uses);
  void repeat(const Function& function, std::size_t at, const LastUses& uses);
  void results(const Function& function);
  void main();
  void mark(const SourceLine& line);
  void unmark();

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  /// A value as an operand, moved by its last use.
  std::string operand(const Function& function, std::size_t at, std::size_t position,
                      const LastUses& uses) const {
    const Instruction& instruction = function.body[at];
    const ValueId id = instruction.operands[position];
    const bool is_once = std::ranges::count(instruction.operands, id) == 1;
    const bool is_array = function.values[id].kind == ValueKind::tensor;
    return is_once && is_array && uses.is_last(id, at) ? fmt::format("std::move({})", names_[id])
                                                       : names_[id];
  }
  std::string operands(const Function& function, std::size_t at, const LastUses& uses) const {
    std::vector<std::string> list;
    for (std::size_t i = 0; i < function.body[at].operands.size(); ++i) {
      list.push_back(operand(function, at, i, uses));
    }
    return fmt::format("{}", fmt::join(list, ", "));
  }

  const Program& program_;
  const CodegenOptions& options_;
  Identifiers members_;                           // of the class
  std::map<std::string, std::string> functions_;  // to C++
  std::vector<std::string> names_;                // of the function's values
  Identifiers locals_;
  std::set<std::string_view> object_headers_, object_name_spaces_;  // of its classes
  std::string name_space_;
  std::string text_;
  struct Mark {
    std::ptrdiff_t code_line;  // from 0: of the code, where the lines of the text begin
    std::ptrdiff_t text_line;
  };
  std::optional<Mark> marked_;
};

/// Notes what has the class of a value that is an object.
void Writer::note_class(const Value& value) {
  if (!value.shape || !is_object(value.shape->dtype())) return;
  const auto* const found =
      std::ranges::find(classes_of_objects, name(value.shape->dtype()), &ClassOfObjects::name);
  if (found == std::end(classes_of_objects)) {
    throw Error(Errc::unsupported, value.name,
                fmt::format("{} is no class of the library's own", to_string(*value.shape)));
  }
  object_headers_.insert(found->header);
  object_name_spaces_.insert(found->name_space);
}

std::string Writer::run() {
  name_space_ = codegen_detail::namespace_of(program_.name);
  line("// The program {}, op by op. Written by `tenon codegen`{}.", cpp_string(program_.name),
       options_.text_file.empty() ? "" : fmt::format(" from {}", options_.text_file));
  line("// A value that is moved is used for the last time: its memory is freed, or written to.");
  if (!options_.with_main) line("#pragma once");
  includes({"tenon/eager.hpp", "tenon/ops.hpp"});
  for (const std::string_view header : object_headers_) line("#include <{}>", header);
  if (options_.with_main) {
    includes({"tenon/backends/cpu.hpp", "tenon/backends/reference.hpp", "tenon/io/load.hpp",
              "tenon/io/save.hpp"});
    includes({"cstdio", "exception", "map", "memory", "string", "vector"});
  }
  includes({"cstdint", "limits", "tuple", "utility"});
  line("\nnamespace {} {{\n", name_space_);
  line("using Array = tenon::EagerArray;\nusing Scope = tenon::EagerScope;\n");
  line("class Model {{\n public:");
  line("  /// `eager` has the weights.");
  line("  explicit Model(tenon::Eager eager) : eager_(std::move(eager)) {{}}");
  for (const Function& each : program_.functions) function(each);
  line("\n private:\n  tenon::Eager eager_;\n}};\n\n}}  // namespace {}", name_space_);
  if (options_.with_main) main();
  return std::move(text_);
}

void Writer::includes(std::initializer_list<std::string_view> headers) {
  line("");
  for (const std::string_view header : headers) line("#include <{}>", header);
}

/// The next line of code comes from a line of the text.
void Writer::mark(const SourceLine& from) {
  if (options_.text_file.empty() || from.line <= 0) return;
  const auto here = std::ranges::count(text_, '\n');
  if (!marked_ || marked_->text_line + (here - marked_->code_line) != from.line) {
    line("#line {} {}", from.line, cpp_string(options_.text_file));
    marked_ = Mark{here + 1, from.line};
  }
}

/// The next line of code comes from no line of the text.
void Writer::unmark() {
  if (!marked_) return;
  const auto next = 2 + std::ranges::count(text_, '\n');
  line("#line {} {}", next, cpp_string(options_.output_file));
  marked_.reset();
}

void Writer::function(const Function& function) {
  names_.clear();
  locals_ = members_;
  for (const Value& value : function.values) names_.push_back(locals_.take(value.name));
  const LastUses uses(function);
  std::vector<std::string> parameters;
  for (ValueId id = 0; id < function.parameter_count; ++id) {
    const bool is_scope = function.values[id].kind == ValueKind::scope;
    parameters.push_back(fmt::format("{}{} {}", uses.has(id) ? "" : "[[maybe_unused]] ",
                                     is_scope ? "Scope" : "Array", names_[id]));
  }
  line("\n  {} {}({}) {{", result_type(function), functions_.at(function.name),
       fmt::join(parameters, ", "));
  if (function.name == program_.entry) check_inputs(function);
  for (std::size_t i = 0; i < function.body.size(); ++i) instruction(function, i, uses);
  unmark();
  results(function);
  line("  }}");
}

void Writer::check_inputs(const Function& function) {
  std::vector<std::string> parameters;
  for (ValueId id = 0; id < function.parameter_count; ++id) {
    const Value& value = function.values[id];
    if (value.shape) {
      parameters.push_back(fmt::format("{{{}, {}, {}}}", cpp_string(value.name),
                                       shape_literal(*value.shape), names_[id]));
    }
  }
  if (parameters.empty()) return;
  line("    eager_.check({}, {{{}}});", cpp_string(function.name),
       fmt::join(parameters, ",\n                  "));
}

void Writer::instruction(const Function& function, std::size_t at, const LastUses& uses) {
  const Instruction& instruction = function.body[at];
  const Value& value = function.values[instruction.result];
  mark(instruction.line);
  if (instruction.kind == Kind::repeat) return repeat(function, at, uses);
  const std::string_view type = value.kind == ValueKind::tensor  ? "Array"
                                : value.kind == ValueKind::scope ? "Scope"
                                                                 : "auto";
  line("    {} {} = {};{}", type, names_[instruction.result], expression(function, at, uses),
       value.shape ? fmt::format("  // {}", to_string(value.shape->without_tags())) : "");
}

std::string Writer::expression(const Function& function, std::size_t at, const LastUses& uses) {
  const Instruction& instruction = function.body[at];
  switch (instruction.kind) {
    case Kind::op: {
      if (struct_of(*instruction.op.def()) == nullptr) {
        const SourceLine& from = instruction.line;
        throw Error(
            Errc::unsupported,
            from.file.empty() ? function.name
            : from.line == 0  ? from.file
                              : fmt::format("{}:{}", from.file, from.line),
            fmt::format("'{}', of '{}', is no op of the library's own: its struct is not "
                        "known",
                        function.values[instruction.result].name, instruction.op.def()->name));
      }
      const bool has_operands = !instruction.operands.empty();
      return fmt::format("eager_.run({}{}{})", op_literal(instruction.op), has_operands ? ", " : "",
                         operands(function, at, uses));
    }
    case Kind::constant:
      if (const auto& shape = function.values[instruction.result].shape;
          shape && is_object(shape->dtype())) {
        const std::string name = cpp_string(instruction.text);
        return fmt::format("eager_.object({}, {})",
                           instruction.operands.empty()
                               ? name
                               : fmt::format("{}.name({})", names_[instruction.operands[0]], name),
                           dtype_literal(shape->dtype()));
      }
      return instruction.operands.empty()
                 ? fmt::format("eager_.weight({})", cpp_string(instruction.text))
                 : fmt::format("eager_.weight({}, {})", names_[instruction.operands[0]],
                               cpp_string(instruction.text));
    case Kind::scope:
      return instruction.operands.empty()
                 ? fmt::format("Scope{{{}}}", cpp_string(instruction.text))
                 : fmt::format("{}.inner({})", names_[instruction.operands[0]],
                               cpp_string(instruction.text));
    case Kind::pack:
      return fmt::format("{}({})", tuple_of(instruction.operands.size()),
                         operands(function, at, uses));
    case Kind::item: {
      const std::string taken =
          fmt::format("std::get<{}>({})", instruction.index, names_[instruction.operands[0]]);
      return uses.is_last_item(instruction, at) ? fmt::format("std::move({})", taken) : taken;
    }
    case Kind::call:
      return fmt::format("{}({})", functions_.at(instruction.function),
                         operands(function, at, uses));
    case Kind::repeat:
      break;
  }
  throw Error(Errc::internal, function.name, "an instruction of no kind");
}

void Writer::repeat(const Function& function, std::size_t at, const LastUses& uses) {
  const Instruction& instruction = function.body[at];
  const Function& callee = *program_.find(instruction.function);
  const ValueId carry = instruction.operands[0];
  const std::string& carried = names_[instruction.result];
  const std::string index = locals_.take("i");
  const bool is_last =
      uses.is_last(carry, at) && std::ranges::count(instruction.operands, carry) == 1;
  line("    auto {} = {};", carried,
       is_last ? fmt::format("std::move({})", names_[carry]) : names_[carry]);
  mark(instruction.line);
  line("    for (std::int64_t {0} = {1}; {0} < {2}{3}; ++{0}) {{", index, instruction.first,
       instruction.first + instruction.count,
       instruction.condition < 0
           ? ""
           : fmt::format(" && std::get<{}>({}).to_int() != 0", instruction.condition, carried));
  std::vector<std::string> arguments;
  for (std::size_t i = 0; i < callee.results.size(); ++i) {
    arguments.push_back(fmt::format("std::move(std::get<{}>({}))", i, carried));
  }
  arguments.push_back(fmt::format("Array({})", index));
  arguments.push_back(fmt::format("{}.at({})", names_[instruction.operands[1]], index));
  for (std::size_t i = 2; i < instruction.operands.size(); ++i) {
    arguments.push_back(names_[instruction.operands[i]]);
  }
  mark(instruction.line);
  line("      {} = {}({});",
       callee.results.size() == 1 ? fmt::format("std::get<0>({})", carried) : carried,
       functions_.at(callee.name), fmt::join(arguments, ", "));
  mark(instruction.line);
  line("    }}");
}

void Writer::results(const Function& function) {
  if (function.results.size() == 1) return line("    return {};", names_[function.results[0]]);
  std::vector<std::string> values;
  for (const ValueId id : function.results) {
    const bool is_once = std::ranges::count(function.results, id) == 1;
    values.push_back(is_once ? fmt::format("std::move({})", names_[id]) : names_[id]);
  }
  line("    return {{{}}};", fmt::join(values, ", "));
}

void Writer::main() {
  const Function& entry = program_.main();
  std::vector<std::string> arguments;
  for (ValueId id = 0; id < entry.parameter_count; ++id) {
    const std::string name = cpp_string(entry.values[id].name);
    const std::optional<Shape>& shape = entry.values[id].shape;
    if (shape && is_object(shape->dtype())) {
      arguments.push_back(fmt::format("Array(tenon::load_object({}, inputs.at({}).data()))",
                                      dtype_literal(shape->dtype()), name));
      continue;
    }
    arguments.push_back(fmt::format("Array(inputs.at({}).data().to_device(cpu))", name));
  }
  std::vector<std::string> saved;
  for (std::size_t i = 0; i < entry.results.size(); ++i) {
    const auto result = entry.results.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(entry.results.begin(), result, *result) != result) continue;  // returned twice
    const std::string of =
        entry.results.size() == 1 ? "results" : fmt::format("std::get<{}>(results)", i);
    const Value& value = entry.values[*result];
    const bool is_saved_object = value.shape && is_object(value.shape->dtype());
    saved.push_back(
        fmt::format(fmt::runtime(is_saved_object ? "{{{}, tenon::save_object({}.to_buffer())}}"
                                                 : "{{{}, {}.to_buffer().to_host()}}"),
                    cpp_string(value.name), of));
  }
  std::string registrations;
  for (const std::string_view name_space : object_name_spaces_) {
    registrations += fmt::format("  tenon::{}::register_objects();\n", name_space);
  }
  line(R"(
int main(int count, char** arguments) try {{
  using {0}::Array;
  if (count != 3 && count != 4) {{
    std::fprintf(stderr, "usage: %s INPUTS RESULTS [WEIGHTS]\n", arguments[0]);
    return 2;
  }}
  tenon::register_cpu_backend();
  tenon::register_reference_backend();
{4}  const tenon::DevicePtr cpu = tenon::cpu_device();
  std::map<std::string, tenon::Buffer> weights;
  if (count == 4) weights = tenon::io::load_buffers(tenon::io::open(arguments[3]), cpu);
  {0}::Model model{{tenon::Eager(std::make_shared<const tenon::WeightSet>(std::move(weights)))}};
  const tenon::io::File inputs = tenon::io::open(arguments[1]);
  const auto results = model.{1}({2});
  const std::vector<tenon::io::NamedTensor> named = {{{3}}};
  tenon::io::save_safetensors(arguments[2], named);
  return 0;
}} catch (const std::exception& error) {{
  std::fprintf(stderr, "%s: %s\n", arguments[0], error.what());
  return 1;
}})",
       name_space_, functions_.at(entry.name), fmt::join(arguments, ",\n                    "),
       fmt::join(saved, ",\n      "), registrations);
}

}  // namespace

std::string codegen(const Program& program, const CodegenOptions& options) {
  if (!program.folded.empty()) {
    throw Error(Errc::unsupported, program.name,
                fmt::format("'{}' is a constant that was folded, whose bytes are in no file",
                            program.folded.begin()->first));
  }
  Program checked = program;
  verify(checked);
  return Writer(checked, options).run();
}

}  // namespace tenon
