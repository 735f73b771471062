// Ops of the user's own, whose functions are Python's.

#include "bindings.hpp"
#include "op_function.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace tenon::python {
namespace {

constexpr std::size_t max_attributes = 8;

/// The functions of one op. Never freed: ops are known for as long as the process lives.
struct OwnFunctions {
  std::string name;
  nb::object reference;
  nb::object infer;  // None: the type of the first operand
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
  if (std::holds_alternative<double>(held) && std::holds_alternative<std::int64_t>(value)) {
    held = static_cast<double>(std::get<std::int64_t>(value));
    return true;
  }
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

Shape infer(const void* op, std::span<const Shape> inputs) {
  const OwnAttributes& own = attributes_of(op);
  const nb::gil_scoped_acquire gil;
  if (own.functions->infer.is_none()) {
    if (inputs.empty()) {
      fail(Errc::bad_argument, own.functions->name, "an op without operands needs `infer`");
    }
    return inputs[0].without_tags();
  }
  nb::list types;
  for (const Shape& input : inputs) types.append(nb::cast(input.without_tags()));
  return to_shape(own.functions->infer(*types, **named_attributes(own)));
}

void reference(const void* op, std::span<const HostView> inputs, const HostView& output) {
  const OwnAttributes& own = attributes_of(op);
  const nb::gil_scoped_acquire gil;
  nb::list arrays;
  for (const HostView& input : inputs) {
    // Copies: the function may keep them.
    const HostBuffer view = HostBuffer::borrow(input.data, input.shape, input.strides);
    arrays.append(nb::cast(view.contiguous()).attr("numpy")());
  }
  const HostBuffer made =
      to_host_buffer(own.functions->reference(*arrays, **named_attributes(own)));
  const Shape& want = output.shape;
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

}  // namespace

void bind_own_ops(nb::module_& module) {
  module.def(
      "_make_op",
      [](std::string name, nb::object function, nb::object infer_function, int min_operands,
         int max_operands, const nb::dict& attributes) {
        if (attributes.size() > max_attributes) {
          throw Error(Errc::limit_exceeded, name,
                      fmt::format("{} attributes, and an op of Python's has at most {}",
                                  attributes.size(), max_attributes));
        }
        // On the heap: OpDef refers to it, and it is never freed.
        auto* const own = new OwnFunctions{
            std::move(name), std::move(function), std::move(infer_function), {}, {}, {}};
        auto* const defaults = new OwnAttributes{own, {}};
        constexpr auto access = accessors(std::make_index_sequence<max_attributes>());
        for (const auto& [key, value] : attributes) {
          const std::size_t i = own->fields.size();
          own->attributes[i] = nb::cast<std::string>(key);
          defaults->values[i] = to_attribute(value);
          own->fields.push_back({own->attributes[i], access[i].get, access[i].set});
        }
        own->def.name = own->name;
        own->def.min_inputs = min_operands;
        own->def.max_inputs = max_operands;
        own->def.attribute_bytes = sizeof(OwnAttributes);
        own->def.defaults = defaults;
        own->def.fields = own->fields;
        own->def.infer = &infer;
        own->def.reference = &reference;
        register_op(own->def);
        return op_function(own->def);
      },
      nb::arg("name"), nb::arg("function"), nb::arg("infer").none(), nb::arg("min_operands"),
      nb::arg("max_operands"), nb::arg("attributes"));
}

}  // namespace tenon::python
