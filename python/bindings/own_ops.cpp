// Ops of the user's own, whose functions are Python's.

#include "at_once.hpp"
#include "bindings.hpp"
#include "graphs.hpp"
#include "op_function.hpp"

#include <tenon/error.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/program.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

constexpr std::size_t max_attributes = 8;

/// The functions of one op. Never freed: ops are known for as long as the process lives.
struct OwnFunctions {
  std::string name;
  nb::object reference;
  nb::object infer;              // None: the type of the first operand
  nb::object gradient;           // None: there is none
  std::vector<nb::object> past;  // of earlier definitions, which may be running
  std::array<std::string, max_attributes> attributes;
  std::vector<AttributeField> fields;
  OpDef def;
};

/// The attributes of any such op. `functions` says which op it is, and is not an attribute.
struct OwnAttributes {
  const OwnFunctions* functions = nullptr;
  std::array<AttributeValue, max_attributes> values{};
};
static_assert(std::is_trivially_copyable_v<OwnAttributes>);

const OwnAttributes& attributes_of(const void* op) {
  return *static_cast<const OwnAttributes*>(op);
}

template <std::size_t I>
AttributeValue get(const void* op) {
  return attributes_of(op).values[I];
}

/// Keeps the kind of the default; an integer is a real number, too.
template <std::size_t I>
bool set(void* op, const AttributeValue& value) {
  AttributeValue& held = static_cast<OwnAttributes*>(op)->values[I];
  if (auto* const real = std::get_if<double>(&held)) return assign_attribute(*real, value);
  if (held.index() != value.index()) return false;
  held = value;
  return true;
}

template <std::size_t... I>
constexpr auto accessors(std::index_sequence<I...>) {
  return std::array<AttributeField, max_attributes>{AttributeField{"", &get<I>, &set<I>}...};
}

nb::dict named_attributes(const OwnAttributes& own) {
  nb::dict named;
  for (std::size_t i = 0; i < own.functions->fields.size(); ++i) {
    named[nb::str(own.functions->attributes[i].c_str())] = from_attribute(own.values[i]);
  }
  return named;
}

/// What `infer` returned, as a type.
Shape inferred(const std::string& op, nb::handle made) {
  try {
    return to_shape(made);
  } catch (const Error& error) {
    fail(error.code(), op, fmt::format("`infer` returned no type: {}", error.message()));
  } catch (const std::exception&) {
    fail(Errc::bad_argument, op,
         fmt::format("`infer` returned {}, which is no type such as \"f32[2, 3]\"",
                     nb::cast<std::string>(nb::repr(made))));
  }
}

Shape infer(const void* op, std::span<const Shape> inputs) {
  const OwnAttributes& own = attributes_of(op);
  const PythonCall call;
  const OpTraits& traits = own.functions->def.traits;
  detail::check_objects(own.functions->name, traits, inputs, nullptr);
  if (own.functions->infer.is_none()) {
    if (inputs.empty()) {
      fail(Errc::bad_argument, own.functions->name, "an op without operands needs `infer`");
    }
    const Shape& same =
        inputs[traits.updates_input < 0 ? 0 : static_cast<std::size_t>(traits.updates_input)];
    if (is_object(same.dtype())) detail::check_objects(own.functions->name, traits, inputs, &same);
    return same.without_tags();
  }
  nb::list types;
  for (const Shape& input : inputs) types.append(nb::cast(input.without_tags()));
  const nb::object made = own.functions->infer(*types, **named_attributes(own));
  const Shape result = inferred(own.functions->name, made);
  if (is_object(result.dtype())) {
    detail::check_objects(own.functions->name, traits, inputs, &result);
  }
  if (!result.is_static() && std::ranges::all_of(inputs, &Shape::is_static)) {
    fail(Errc::bad_shape, own.functions->name,
         fmt::format("`infer` returned {} for operands whose sizes are known", to_string(result)));
  }
  return result;
}

void reference(const void* op, std::span<const HostView> inputs, const HostView& output) {
  const OwnAttributes& own = attributes_of(op);
  const PythonCall call;
  nb::list arrays;
  for (const HostView& input : inputs) {
    if (is_object(input.shape.dtype())) {
      arrays.append(operand_object(input));
      continue;
    }
    // Copies: the function may keep them.
    const HostBuffer view = HostBuffer::borrow(input.data, input.shape, input.strides);
    arrays.append(nb::cast(view.contiguous()).attr("numpy")());
  }
  const nb::object result = own.functions->reference(*arrays, **named_attributes(own));
  const Shape& want = output.shape;
  if (is_object(want.dtype())) {
    return update_operand(inputs[static_cast<std::size_t>(own.functions->def.traits.updates_input)],
                          output, result);
  }
  const HostBuffer made = to_host_buffer(result);
  if (!std::ranges::equal(made.shape().dims(), want.dims())) {
    fail(Errc::shape_mismatch, own.functions->name,
         fmt::format("the function returned {} for {}", to_string(made.shape()), to_string(want)));
  }
  // numpy computes in f64 where Python's numbers take part: a floating result is rounded, others are not changed.
  const bool is_rounded = is_floating(made.shape().dtype()) && is_floating(want.dtype());
  if (made.shape().dtype() != want.dtype() && !is_rounded) {
    fail(Errc::bad_type, own.functions->name,
         fmt::format("the function returned {} for {}", to_string(made.shape()), to_string(want)));
  }
  copy_elements((made.shape().dtype() == want.dtype() ? made : made.to(want.dtype())).view(),
                output);
}

/// Records in the active graph what a program of plain ops computes of these tensors.
std::vector<Tensor> recorded(const OwnFunctions& own, const Program& program,
                             std::vector<Tensor> arguments) {
  const Function& main = program.main();
  std::vector<Tensor> values = std::move(arguments);
  values.resize(main.values.size());
  for (const Instruction& instruction : main.body) {
    if (instruction.kind != Instruction::Kind::op) {
      fail(Errc::unsupported, own.name,
           "its gradient uses something else than ops, such as an array or a loop");
    }
    std::vector<Tensor> operands;
    for (const ValueId id : instruction.operands) operands.push_back(values[id]);
    values[instruction.result] =
        record(*instruction.op.def(), instruction.op.attributes(), operands, {});
  }
  std::vector<Tensor> results;
  for (const ValueId id : main.results) results.push_back(values[id]);
  return results;
}

/// Python's function is run on tensors of a graph of its own, since the one that records may be no
/// graph of Python's.
std::vector<Tensor> gradient(const void* op, const Backward& at) {
  const OwnAttributes& own = attributes_of(op);
  const PythonCall call;
  std::vector<Tensor> arguments(at.inputs.begin(), at.inputs.end());
  arguments.push_back(at.output);
  arguments.push_back(at.upstream);
  const auto recorder = std::make_shared<Recorder>(Graph::default_budget_bytes);
  nb::list given;
  for (const Tensor& argument : arguments) {
    given.append(nb::cast(recorder->input("", argument.shape())));
  }
  nb::object made;
  recorder->enter();
  try {
    made = own.functions->gradient(*given, **named_attributes(own));
  } catch (...) {
    recorder->leave_all();
    throw;
  }
  recorder->leave_all();
  if (nb::isinstance<Traced>(made) || made.is_none()) made = nb::make_tuple(made);
  const auto list = nb::cast<std::vector<nb::object>>(made);
  if (list.size() != at.inputs.size()) {
    fail(Errc::bad_argument, own.functions->name,
         fmt::format("its gradient returned {} values for {} operands", list.size(),
                     at.inputs.size()));
  }
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].is_none()) continue;
    results.push_back(recorder->operand(list[i], at.inputs[i].dtype()));
    const Shape &got = results.back().shape(), &want = at.inputs[i].shape();
    if (!(got == want)) {
      fail(Errc::shape_mismatch, own.functions->name,
           fmt::format("the gradient of operand {} is {}, not {}", i, to_string(got),
                       to_string(want)));
    }
  }
  if (results.empty()) return std::vector<Tensor>(list.size());
  const Program program = recorder->graph.program(results, "gradient");
  const std::vector<Tensor> outer = recorded(*own.functions, program, std::move(arguments));
  std::vector<Tensor> gradients(list.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_none()) gradients[i] = outer[next++];
  }
  return gradients;
}

/// The ops made so far, by name. Used under the interpreter's lock.
std::map<std::string, OwnFunctions*, std::less<>>& made_ops() {
  static std::map<std::string, OwnFunctions*, std::less<>> ops;
  return ops;
}

/// Whether an op is called and printed as a new definition says: other functions may take its place.
bool has_form(const OwnFunctions& own, int min_operands, int max_operands, const OpTraits& traits,
              const nb::dict& attributes) {
  if (own.def.min_inputs != min_operands || own.def.max_inputs != max_operands ||
      own.def.traits.updates_input != traits.updates_input ||
      own.def.traits.takes_objects != traits.takes_objects ||
      own.fields.size() != attributes.size()) {
    return false;
  }
  const auto& defaults = *static_cast<const OwnAttributes*>(own.def.defaults);
  std::size_t i = 0;
  for (const auto& [key, value] : attributes) {
    if (nb::cast<std::string>(key) != own.attributes[i]) return false;
    if (to_attribute(value) != defaults.values[i]) return false;
    ++i;
  }
  return true;
}

void replace_functions(OwnFunctions& own, nb::object function, nb::object infer_function,
                       nb::object gradient_function) {
  for (nb::object* const past : {&own.reference, &own.infer, &own.gradient}) {
    own.past.push_back(std::move(*past));
  }
  own.reference = std::move(function);
  own.infer = std::move(infer_function);
  own.gradient = std::move(gradient_function);
  own.def.gradient = own.gradient.is_none() ? nullptr : &gradient;
  forget_compiled_ops();
}

}  // namespace

void bind_own_ops(nb::module_& module) {
  module.def(
      "_make_op",
      [](std::string name, nb::object function, nb::object infer_function,
         nb::object gradient_function, int min_operands, int max_operands, bool takes_objects,
         int updates, const nb::dict& attributes) {
        if (updates < -1 || updates >= max_operands) {
          throw Error(Errc::bad_argument, name,
                      fmt::format("it has no operand {} to update", updates));
        }
        const OpTraits traits{.updates_input = updates, .takes_objects = takes_objects};
        if (attributes.size() > max_attributes) {
          throw Error(Errc::limit_exceeded, name,
                      fmt::format("{} attributes, and an op of Python's has at most {}",
                                  attributes.size(), max_attributes));
        }
        if (const auto found = made_ops().find(name);
            found != made_ops().end() &&
            has_form(*found->second, min_operands, max_operands, traits, attributes)) {
          replace_functions(*found->second, std::move(function), std::move(infer_function),
                            std::move(gradient_function));
          return op_function(found->second->def);
        }
        // On the heap: OpDef refers to it, and it is never freed.
        auto* const own = new OwnFunctions{std::move(name),
                                           std::move(function),
                                           std::move(infer_function),
                                           std::move(gradient_function),
                                           {},
                                           {},
                                           {},
                                           {}};
        auto* const defaults = new OwnAttributes{own, {}};
        constexpr auto access = accessors(std::make_index_sequence<max_attributes>());
        for (const auto& [key, value] : attributes) {
          const std::size_t i = own->fields.size();
          own->attributes[i] = nb::cast<std::string>(key);
          defaults->values[i] = to_attribute(value);
          own->fields.push_back({own->attributes[i], access[i].get, access[i].set});
        }
        own->def.name = own->name;
        own->def.traits = traits;
        own->def.min_inputs = min_operands;
        own->def.max_inputs = max_operands;
        own->def.attribute_bytes = sizeof(OwnAttributes);
        own->def.defaults = defaults;
        own->def.fields = own->fields;
        own->def.infer = &infer;
        own->def.reference = &reference;
        if (!own->gradient.is_none()) own->def.gradient = &gradient;
        register_op(own->def);
        made_ops().emplace(own->name, own);
        return op_function(own->def);
      },
      nb::arg("name"), nb::arg("function"), nb::arg("infer").none(), nb::arg("gradient").none(),
      nb::arg("min_operands"), nb::arg("max_operands"), nb::arg("takes_objects"),
      nb::arg("updates"), nb::arg("attributes"));
}

}  // namespace tenon::python
