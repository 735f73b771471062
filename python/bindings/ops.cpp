// Ops as functions of Python: on arrays they run at once, on tensors of a graph they are recorded.

#include "at_once.hpp"
#include "bindings.hpp"
#include "graphs.hpp"
#include "op_function.hpp"

#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/complex.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/where.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

bool is_complex_number(nb::handle object) { return PyComplex_Check(object.ptr()) != 0; }

/// Whether an operand is a number, which takes the type of the others, rather than a tensor of a graph or an array.
bool is_number(nb::handle object) {
  return nb::isinstance<nb::float_>(object) || is_complex_number(object) ||
         nb::isinstance<nb::int_>(object) || nb::isinstance<nb::bool_>(object);
}

/// A number of numpy's, such as numpy.int64(2), as one of Python's; other objects as they are.
nb::object plain_number(nb::handle object) {
  static PyObject* generic = nullptr;  // for as long as the process lives
  if (generic == nullptr) {
    const nb::dict modules = nb::borrow<nb::dict>(PyImport_GetModuleDict());
    if (!modules.contains("numpy")) return nb::borrow(object);
    generic = nb::object(modules["numpy"].attr("generic")).release().ptr();
  }
  if (PyObject_IsInstance(object.ptr(), generic) != 1) return nb::borrow(object);
  nb::object number = object.attr("item")();
  return is_number(number) ? number : nb::borrow(object);
}

std::optional<DType> common_type(std::span<const nb::handle> operands) {
  for (const nb::handle operand : operands) {
    if (nb::isinstance<Traced>(operand)) return nb::cast<const Traced&>(operand).tensor.dtype();
    if (nb::isinstance<Buffer>(operand)) return nb::cast<const Buffer&>(operand).shape().dtype();
    if (!is_number(operand)) return to_buffer(operand).shape().dtype();
  }
  return std::nullopt;
}

bool is_any_integer(DType dtype) { return is_integer(dtype) || dtype == DType::u64; }
bool is_whole(DType dtype) { return is_any_integer(dtype) || dtype == DType::boolean; }

/// Refuses a number that an integer type cannot hold, at `place` as the nearest one that it can: 300 beside u8.
template <class Number>
void require_held(DType dtype, const std::byte* place, Number number) {
  const std::int64_t held = load_as_int64(dtype, place);
  if (std::cmp_equal(held, number)) return;
  throw Error(Errc::bad_type, "ops",
              fmt::format("{0} beside an array of {1}, which holds numbers {2} {3}: cast the array "
                          "first, as by astype('{4}')",
                          number, name(dtype), std::cmp_greater(number, held) ? "up to" : "from",
                          held, dtype == DType::i64 || dtype == DType::u64 ? "f32" : "i64"));
}

/// Refuses an integer that no type holds.
void require_64_bits(nb::handle number) {
  if (std::uint64_t whole = 0; PyLong_Check(number.ptr()) == 0 || nb::try_cast(number, whole))
    return;
  if (std::int64_t whole = 0; nb::try_cast(number, whole)) return;
  throw Error(Errc::unsupported_dtype, "ops",
              "an integer of more than 64 bits: beside floating numbers, float(x) is one of them");
}

}  // namespace

std::size_t conditions(const OpDef& def) { return &def == &op_def<Where>() ? 1 : 0; }

bool store_number(nb::handle number, DType dtype, std::byte* place) {
  if (!nb::isinstance<nb::float_>(number)) {
    std::int64_t whole = 0;
    if (std::uint64_t large = 0; !nb::try_cast(number, whole) && nb::try_cast(number, large)) {
      if (dtype == DType::u64) {
        std::memcpy(place, &large, sizeof(large));
      } else {  // of integers the largest one
        store_double(dtype, place, static_cast<double>(large));
        if (is_integer(dtype)) require_held(dtype, place, large);
      }
      return true;
    }
    if (!nb::try_cast(number, whole)) return false;
    store_int64(dtype, place, whole);
    if (is_any_integer(dtype)) require_held(dtype, place, whole);
    return true;
  }
  const auto value = nb::cast<double>(number);
  const bool is_integral = std::abs(value) < 0x1p63 && std::trunc(value) == value;
  if (!is_floating(dtype) && !is_complex(dtype) && !is_integral) {
    throw Error(Errc::bad_type, "ops",
                fmt::format("{} beside an array of {}: cast the array first, as by astype('f32')",
                            value, name(dtype)));
  }
  store_double(dtype, place, value);
  if (is_any_integer(dtype)) require_held(dtype, place, static_cast<std::int64_t>(value));
  return true;
}

Buffer to_operand(nb::handle object, std::optional<DType> type) {
  if (is_complex_number(object)) return to_buffer(object);
  if (!is_number(object)) return to_buffer(object);
  require_64_bits(object);
  const bool has_type = type && !is_block(*type) && !is_object(*type);
  std::int64_t whole = 0;
  const DType dtype = has_type                             ? *type
                      : nb::isinstance<nb::float_>(object) ? DType::f32
                      : nb::try_cast(object, whole)        ? DType::i64
                                                           : DType::u64;
  HostBuffer number = HostBuffer::zeros(Shape({}, dtype));
  if (!store_number(object, dtype, number.view().data)) return to_buffer(object);
  return number.to_device(cpu_device());
}

namespace {

/// An axis that counts from the end, as Python's axes may, as one that ops know; one that is out of range stays, so that
/// the op names it as it was given. False: an axis is a word, as sizes may be.
bool count_from_front(AttributeValue& value, std::string_view field, std::int64_t rank) {
  const auto from_front = [rank](std::int64_t axis) {
    return axis < 0 && axis >= -rank ? axis + rank : axis;
  };
  if (field == "axis" || field.ends_with("_axis")) {
    if (auto* axis = std::get_if<std::int64_t>(&value); axis != nullptr) *axis = from_front(*axis);
  } else if (field == "axes" || field == "order") {
    if (auto* axes = std::get_if<IntList>(&value)) {
      for (std::size_t i = 0; i < axes->size(); ++i) {
        if (is_symbol((*axes)[i])) return false;
        (*axes)[i] = from_front((*axes)[i]);
      }
    }
  }
  return true;
}

/// One op as a function.
struct OpFunction {
  /// An operand that an op may have, `bias`, and its flag, "has_bias".
  struct Optional {
    const AttributeField* flag;
    std::string name;
  };

  explicit OpFunction(const OpDef& of, bool library) : def(&of), plain(of), is_library(library) {
    for (const AttributeField& one : of.fields) {
      if (one.name.starts_with("has_")) optional.push_back({&one, std::string(one.name.substr(4))});
    }
  }

  const OpDef* def;
  OpInstance plain;  // with the defaults of its attributes
  bool is_library;   // not the user's
  std::vector<Optional> optional;

  const AttributeField* field(std::string_view name) const {
    const auto found = std::find_if(def->fields.begin(), def->fields.end(),
                                    [&](const AttributeField& one) { return one.name == name; });
    return found == def->fields.end() ? nullptr : &*found;
  }

  /// The result of a call whose attributes are named, of arrays that the op was compiled for; nothing for
  /// other calls, and for those that fail, which take the long way.
  nb::object at_once(std::span<PyObject* const> positional, nb::handle named) const noexcept try {
    const auto required =
        static_cast<std::size_t>(optional.empty() ? def->max_inputs : def->min_inputs);
    if (!is_library || positional.size() > required) return {};
    if (positional.empty() && Recorder::current() != nullptr) return {};
    if (!named.is_valid()) return run_known(plain, positional);
    std::int64_t rank = 0;
    if (!positional.empty()) {
      const nb::handle first(positional[0]);
      if (!nb::isinstance<Buffer>(first)) return {};
      rank = nb::cast<const Buffer&>(first).shape().rank();
    }
    OpInstance op = plain;
    std::vector<PyObject*> operands(positional.begin(), positional.end());
    operands.resize(required + optional.size(), nullptr);
    for (const auto& [key, value] : nb::borrow<nb::dict>(named)) {
      const std::string_view word = nb::cast<const char*>(key);
      if (const AttributeField* const found = field(word)) {
        if (found->name.starts_with("has_")) return {};
        set(op, *found, value, rank);
        continue;
      }
      const auto found = std::ranges::find(optional, word, &Optional::name);
      if (found == optional.end()) return {};
      if (value.is_none()) continue;
      found->flag->set(op.attributes(), AttributeValue(true));
      operands[required + static_cast<std::size_t>(found - optional.begin())] = value.ptr();
    }
    std::erase(operands, nullptr);
    return run_known(op, operands);
  } catch (...) {
    return {};
  }

  void set(OpInstance& op, const AttributeField& field, nb::handle given, std::int64_t rank) const {
    AttributeValue value;
    try {
      // A single number where a list is wanted is a list of one, of the windows of images one of two, for both axes.
      if (std::holds_alternative<IntList>(field.get(op.attributes())) &&
          nb::isinstance<nb::int_>(given)) {
        const auto number = nb::cast<std::int64_t>(given);
        value = is_of_images() ? IntList{number, number} : IntList{number};
      } else if (std::holds_alternative<DType>(field.get(op.attributes()))) {
        value = to_dtype(given);
      } else {
        value = to_attribute(given);
      }
    } catch (const std::bad_cast&) {
      refuse(field, given);
    } catch (const nb::python_error&) {  // what has __index__ or __float__, but is no number
      refuse(field, given);
    } catch (const Error& error) {
      if (error.code() != Errc::bad_type ||
          std::holds_alternative<DType>(field.get(op.attributes()))) {
        throw;
      }
      refuse(field, given);
    }
    if (!count_from_front(value, field.name, rank) || !field.set(op.attributes(), value)) {
      refuse(field, given);
    }
  }

  bool is_of_images() const { return def->name.find("2d") != std::string_view::npos; }

  [[noreturn]] void refuse(const AttributeField& field, nb::handle given) const {
    const std::string what = nb::hasattr(given, "shape")
                                 ? "an array: attributes are numbers, words, types or tuples of "
                                   "integers, and operands come before them"
                                 : nb::cast<std::string>(nb::repr(given));
    throw Error(Errc::bad_attribute, std::string(def->name),
                fmt::format("'{}' cannot be {}", field.name, what));
  }

  /// Positional arguments are operands, then attributes in the order of the op; keyword arguments are attributes,
  /// and, of an op with a flag "has_bias", the operand `bias`.
  nb::object operator()(const nb::args& positional, const nb::kwargs& named) const {
    Arguments given = arguments(positional, named);
    std::vector<nb::object> numbers;
    for (nb::handle& operand : given.operands) {
      numbers.push_back(plain_number(operand));
      operand = numbers.back();
    }
    const bool is_traced =
        std::any_of(given.operands.begin(), given.operands.end(),
                    [](nb::handle operand) { return nb::isinstance<Traced>(operand); });
    const std::size_t first = std::min(conditions(*def), given.operands.size());
    const std::optional<DType> type = common_type(std::span(given.operands).subspan(first));
    const auto type_of = [&](std::size_t i) { return i < first ? std::optional(boolean) : type; };
    OpInstance op(*def);
    const auto apply = [&](std::int64_t rank) {
      for (const AttributeField* flag : given.flags) {
        flag->set(op.attributes(), AttributeValue(true));
      }
      for (const auto& [to, value] : given.attributes) set(op, *to, value, rank);
    };
    if (is_traced || (given.operands.empty() && Recorder::current() != nullptr)) {
      const std::shared_ptr<Recorder> recorder = recorder_of(given.operands);
      std::vector<Tensor> tensors;
      for (std::size_t i = 0; i < given.operands.size(); ++i) {
        tensors.push_back(recorder->operand(given.operands[i], type_of(i)));
      }
      apply(tensors.empty() ? 0 : tensors.front().rank());
      return nb::cast(recorder->record(op, tensors));
    }
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < given.operands.size(); ++i) {
      buffers.push_back(to_operand(given.operands[i], type_of(i)));
    }
    apply(buffers.empty() ? 0 : buffers.front().shape().rank());
    Buffer result;
    {
      const nb::gil_scoped_release no_gil;
      result = run_at_once(op, std::move(buffers));
    }
    return nb::cast(std::move(result));
  }

  struct Arguments {
    std::vector<nb::handle> operands;
    std::vector<std::pair<const AttributeField*, nb::handle>> attributes;
    std::vector<const AttributeField*> flags;  // of the operands that the op may have and is given
  };

  Arguments arguments(const nb::args& positional, const nb::kwargs& named) const {
    // Operands that an op may have, in the order of its flags; by position they follow the others.
    std::vector<std::pair<const AttributeField*, nb::handle>> may_have;
    bool names_flags = false;  // the caller sets them, and gives operands in their order
    for (const Optional& one : optional) {
      names_flags = names_flags || named.contains(std::string(one.flag->name).c_str());
      const bool is_given = named.contains(one.name.c_str());
      may_have.emplace_back(one.flag,
                            is_given ? nb::handle(named[one.name.c_str()]) : nb::handle(Py_None));
    }
    const auto required = static_cast<std::size_t>(
        names_flags || may_have.empty() ? def->max_inputs : def->min_inputs);
    Arguments given;
    std::size_t position = 0, attribute = 0, left_out = 0;
    for (const nb::handle argument : positional) {
      if (position < required) {
        if (argument.is_none()) {
          left_out = position + 1;
        } else if (left_out != 0) {
          throw Error(Errc::bad_argument, std::string(def->name),
                      fmt::format("operand {} is None, and operand {} after it is given", left_out,
                                  position + 1));
        } else {
          given.operands.push_back(argument);
        }
      } else if (!names_flags && position - required < may_have.size()) {
        auto& [flag, operand] = may_have[position - required];
        if (!operand.is_none()) {
          throw Error(Errc::bad_argument, std::string(def->name),
                      fmt::format("'{}' is given twice", flag->name.substr(4)));
        }
        operand = argument;
      } else if (attribute < def->fields.size()) {
        given.attributes.emplace_back(&def->fields[attribute++], argument);
      } else {
        throw Error(Errc::bad_argument, std::string(def->name), "too many arguments");
      }
      ++position;
    }
    for (const auto& [flag, operand] : may_have) {
      if (operand.is_none()) continue;
      given.operands.push_back(operand);
      given.flags.push_back(flag);
    }
    for (const auto& [key, value] : named) {
      const auto name = nb::cast<std::string>(key);
      if (const AttributeField* found = field(name)) {
        given.attributes.emplace_back(found, value);
      } else if (field("has_" + name) == nullptr) {
        throw Error(Errc::bad_attribute, std::string(def->name),
                    fmt::format("no attribute '{}'{}", name, attribute_names()));
      }
    }
    return given;
  }

  /// "; it has axis and k", of the attributes and of the operands that the op may have.
  std::string attribute_names() const {
    std::vector<std::string> names;
    for (const AttributeField& known : def->fields) {
      names.emplace_back(known.name.starts_with("has_") ? known.name.substr(4) : known.name);
    }
    return names.empty() ? "; it has none" : fmt::format("; it has {}", fmt::join(names, ", "));
  }

  static std::shared_ptr<Recorder> recorder_of(const std::vector<nb::handle>& operands) {
    for (const nb::handle operand : operands) {
      if (nb::isinstance<Traced>(operand)) return nb::cast<const Traced&>(operand).recorder;
    }
    return Recorder::current()->shared_from_this();
  }

  std::string signature() const {
    std::string text(def->name);
    text += def->min_inputs == def->max_inputs
                ? fmt::format("({} operands", def->max_inputs)
                : fmt::format("({} to {} operands", def->min_inputs, def->max_inputs);
    for (const AttributeField& one : def->fields) {
      text += fmt::format(", {}={}", one.name,
                          nb::cast<std::string>(nb::repr(from_attribute(one.get(def->defaults)))));
    }
    return text + ")";
  }
};

/// The ops that were known when the module was made: registered ones are the user's.
const std::set<const OpDef*>& library_ops() {
  static const auto* const ops = [] {
    const std::vector<const OpDef*> known = all_ops();
    return new std::set<const OpDef*>(known.begin(), known.end());
  }();
  return *ops;
}

}  // namespace

Tensor Recorder::operand(nb::handle object, std::optional<DType> type) {
  if (nb::isinstance<Traced>(object)) return nb::cast<const Traced&>(object).tensor;
  const Buffer buffer = to_operand(object, type);
  if (is_number(object)) {
    const HostBuffer number = waited_host(buffer);
    const DType dtype = number.shape().dtype();
    if (is_complex_number(object)) {
      complex64 value{};
      std::memcpy(&value, number.bytes(), sizeof(value));
      const Graph::Recording recording(graph);
      return make_complex(full(value.real, Shape({}, f32), location()),
                          full(value.imag, Shape({}, f32), location()), location());
    }
    const double value = load_as_double(dtype, number.bytes());
    const bool is_exact = !is_whole(dtype) || std::abs(value) < 9e15;
    if (is_exact) {
      const Graph::Recording recording(graph);
      return full(value, Shape({}, dtype), location());
    }
  }
  // Arrays become constants of the program.
  return capture(free_name(), waited_host(buffer)).tensor;
}

nb::object op_function(const OpDef& def) {
  return nb::cast(OpFunction(def, library_ops().contains(&def)));
}

namespace {

/// Calls the method that parses every kind of arguments, and raises what is wrong with them.
PyObject* call_long_way(PyObject* function, PyObject* positional, PyObject* named) {
  static PyObject* const name = PyUnicode_InternFromString("_call");
  PyObject* const method = PyObject_GetAttr(function, name);
  if (method == nullptr) return nullptr;
  PyObject* const result = PyObject_Call(method, positional, named);
  Py_DECREF(method);
  return result;
}

/// tp_call of an Op.
PyObject* call(PyObject* self, PyObject* positional, PyObject* named) {
  std::array<PyObject*, 8> operands;
  const Py_ssize_t count = PyTuple_Size(positional);
  if (count <= static_cast<Py_ssize_t>(operands.size())) {
    const std::span list = std::span(operands).first(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      list[static_cast<std::size_t>(i)] = PyTuple_GetItem(positional, i);
    }
    if (nb::object result = nb::inst_ptr<OpFunction>(self)->at_once(list, nb::handle(named));
        result.is_valid()) {
      return result.release().ptr();
    }
  }
  return call_long_way(self, positional, named);
}

/// An operator of Python's: the op that it calls.
struct Operator {
  const OpFunction* function;
  PyObject* object;

  explicit Operator(const char* name) {
    nb::object made = op_function(*find_op(name));
    function = nb::inst_ptr<OpFunction>(made);
    object = made.release().ptr();  // for as long as the process lives
  }

  template <class... Operands>
  PyObject* operator()(Operands*... operands) const {
    const std::array list{operands...};
    if (nb::object result = function->at_once(list, nb::handle()); result.is_valid()) {
      return result.release().ptr();
    }
    PyObject* const positional = PyTuple_Pack(static_cast<Py_ssize_t>(list.size()), operands...);
    if (positional == nullptr) return nullptr;
    PyObject* const result = call_long_way(object, positional, nullptr);
    Py_DECREF(positional);
    return result;
  }
};

/// A function of tenon/_functions.py.
PyObject* call_function(const char* name, PyObject* a, PyObject* b) {
  PyObject* const module = PyImport_ImportModule("tenon._functions");
  if (module == nullptr) return nullptr;
  PyObject* const function = PyObject_GetAttrString(module, name);
  Py_DECREF(module);
  if (function == nullptr) return nullptr;
  PyObject* const result = PyObject_CallFunctionObjArgs(function, a, b, nullptr);
  Py_DECREF(function);
  return result;
}

/// An op's name as a template argument.
template <std::size_t size>
struct OpName {
  consteval OpName(const char (&name)[size]) {  // NOLINT(google-explicit-constructor)
    std::copy_n(name, size, text);
  }
  char text[size]{};
};

template <OpName name>
const Operator& operator_of() {
  static const auto* const made = new Operator(name.text);
  return *made;
}

/// The element type of an array or a tensor of ours; nothing for other operands.
std::optional<DType> type_of_array(PyObject* object) {
  // Of an object whose __init__ has not run there is nothing to read; the op says so.
  const nb::handle handle(object);
  const auto is = [&](nb::handle type) {
    return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type.ptr())) != 0 &&
           nb::inst_ready(handle);
  };
  static const nb::handle buffer = nb::type<Buffer>(), tensor = nb::type<Traced>(),
                          host = nb::type<HostBuffer>();
  if (is(buffer)) return nb::inst_ptr<Buffer>(handle)->shape().dtype();
  if (is(tensor)) return nb::inst_ptr<Traced>(handle)->tensor.dtype();
  if (is(host)) return nb::inst_ptr<HostBuffer>(handle)->shape().dtype();
  return std::nullopt;
}

/// Whether an object of another library, or a list, may have integers or booleans.
bool is_list_or_whole(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object) || PyRange_Check(object)) return true;
  const nb::handle handle(object);
  if (!nb::hasattr(handle, "dtype")) return false;
  const nb::object dtype = handle.attr("dtype");
  if (!nb::hasattr(dtype, "kind")) return true;  // not numpy's: the longer way finds out
  const nb::object kind = dtype.attr("kind");
  return nb::isinstance<nb::str>(kind) &&
         std::string_view("biu").find(nb::borrow<nb::str>(kind).c_str()) != std::string_view::npos;
}

/// Whether an operator needs its operands of one type first (tenon._functions.common): beside arrays of integers or
/// booleans, numbers that are none of those, and arrays of another type. Of floating types, one type is the caller's.
bool is_mixed(PyObject* a, PyObject* b) {
  const std::optional<DType> left = type_of_array(a), right = type_of_array(b);
  if (left && right) return *left != *right && (is_whole(*left) || is_whole(*right));
  if (!left && !right) return false;
  const DType type = left ? *left : *right;
  PyObject* const other = left ? b : a;
  if (PyFloat_Check(other)) return is_whole(type);
  if (PyLong_Check(other)) return type == DType::boolean && !PyBool_Check(other);
  if (PyComplex_Check(other) != 0) return false;
  return is_whole(type) || is_list_or_whole(other);
}

/// Whether Python is to find another meaning of an operator: beside what is neither a number nor an array.
bool is_foreign(PyObject* object) {
  if (object == Py_None || PyUnicode_Check(object) || PyBytes_Check(object) ||
      PyDict_Check(object) || PyType_Check(object)) {
    return true;
  }
  if (type_of_array(object) || PyLong_Check(object) || PyFloat_Check(object) ||
      PySequence_Check(object) != 0 || PyObject_CheckBuffer(object) != 0) {
    return false;
  }
  const nb::handle other(object);
  return std::ranges::none_of(std::array{"__dlpack__", "__array__", "__array_interface__",
                                         "__complex__", "__float__", "__index__"},
                              [&](const char* name) { return nb::hasattr(other, name); });
}

template <OpName name>
PyObject* unary(PyObject* x) {
  return operator_of<name>()(x);
}

bool is_boolean(PyObject* object) {
  return PyBool_Check(object) || type_of_array(object) == DType::boolean;
}

/// The op, or the other one of two booleans.
template <OpName name, OpName of_booleans>
PyObject* applied(PyObject* a, PyObject* b) {
  if constexpr (std::string_view(name.text) != std::string_view(of_booleans.text)) {
    if (is_boolean(a) && is_boolean(b)) return operator_of<of_booleans>()(a, b);
  }
  return operator_of<name>()(a, b);
}

template <OpName name, OpName of_booleans = name>
PyObject* binary(PyObject* a, PyObject* b) {
  if (is_foreign(a) || is_foreign(b)) Py_RETURN_NOTIMPLEMENTED;
  if (is_mixed(a, b)) {
    PyObject* const pair = call_function("common", a, b);
    if (pair == nullptr) return nullptr;
    PyObject* const result =
        applied<name, of_booleans>(PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
    Py_DECREF(pair);
    return result;
  }
  return applied<name, of_booleans>(a, b);
}

/// Of integers and booleans f32, as numpy, PyTorch and JAX have it; `//` is the whole quotient.
PyObject* quotient(PyObject* a, PyObject* b) {
  if (is_foreign(a) || is_foreign(b)) Py_RETURN_NOTIMPLEMENTED;
  const std::optional<DType> left = type_of_array(a), right = type_of_array(b);
  if ((left && is_whole(*left)) || (right && is_whole(*right))) {
    return call_function("true_divide", a, b);
  }
  return binary<"div">(a, b);
}

PyObject* whole_quotient(PyObject* a, PyObject* b) {
  if (is_foreign(a) || is_foreign(b)) Py_RETURN_NOTIMPLEMENTED;
  return call_function("floor_divide", a, b);
}

PyObject* itself(PyObject* x) { return Py_NewRef(x); }

PyObject* absolute(PyObject* x) { return is_boolean(x) ? itself(x) : unary<"abs">(x); }

/// Of booleans as numbers, as numpy has it.
template <OpName name>
PyObject* of_numbers(PyObject* a, PyObject* b) {
  if (!is_boolean(a) || !is_boolean(b)) return binary<name>(a, b);
  PyObject* const pair = call_function("booleans_as_numbers", a, b);
  if (pair == nullptr) return nullptr;
  PyObject* const result = binary<name>(PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
  Py_DECREF(pair);
  return result;
}

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return of_numbers<"pow">(a, b);
}

/// On which side of what an array's type of integers holds an integer lies: -1 or 1; else 0.
int side_of(PyObject* array, PyObject* number) {
  const std::optional<DType> type = type_of_array(array);
  if (!type || !is_any_integer(*type) || !PyLong_Check(number) || PyBool_Check(number)) return 0;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  std::uint64_t large = 0;
  if (overflow != 0) {
    return *type == DType::u64 && nb::try_cast(nb::handle(number), large) ? 0 : overflow;
  }
  std::array<std::byte, 8> nearest{};
  store_int64(*type, nearest.data(), value);
  const std::int64_t held = load_as_int64(*type, nearest.data());
  return value > held ? 1 : value < held ? -1 : 0;
}

PyObject* compare(PyObject* a, PyObject* b, int how) {
  if (const int side = side_of(a, b); side != 0) {  // what is true of all elements, or of none
    const bool is_true =
        how == Py_NE || (side > 0 ? how == Py_LT || how == Py_LE : how == Py_GT || how == Py_GE);
    return is_true ? binary<"eq">(a, a) : binary<"ne">(a, a);
  }
  switch (how) {
    case Py_LT:
      return binary<"lt">(a, b);
    case Py_LE:
      return binary<"le">(a, b);
    case Py_EQ:
      return binary<"eq">(a, b);
    case Py_NE:
      return binary<"ne">(a, b);
    case Py_GT:
      return binary<"gt">(a, b);
    default:
      return binary<"ge">(a, b);
  }
}

template <class Function>
void* address(Function* function) noexcept {
  return reinterpret_cast<void*>(function);
}

}  // namespace

const PyType_Slot* operator_slots() {
  static const PyType_Slot slots[] = {
      {Py_nb_add, address(&binary<"add", "logical_or">)},
      {Py_nb_subtract, address(&binary<"sub">)},
      {Py_nb_multiply, address(&binary<"mul", "logical_and">)},
      {Py_nb_true_divide, address(&quotient)},
      {Py_nb_floor_divide, address(&whole_quotient)},
      {Py_nb_matrix_multiply, address(&binary<"matmul">)},
      {Py_nb_remainder, address(&of_numbers<"remainder">)},
      {Py_nb_lshift, address(&of_numbers<"shift_left">)},
      {Py_nb_rshift, address(&of_numbers<"shift_right">)},
      {Py_nb_power, address(&power)},
      {Py_nb_negative, address(&unary<"neg">)},
      {Py_nb_positive, address(&itself)},
      {Py_nb_absolute, address(&absolute)},
      {Py_tp_richcompare, address(&compare)},
      {0, nullptr},
  };
  return slots;
}

void bind_ops(nb::module_& module) {
  static const PyType_Slot slots[] = {{Py_tp_call, address(&call)}, {0, nullptr}};
  auto function = nb::class_<OpFunction>(module, "Op",
                                         "An op as a function: of arrays, or of tensors of a graph",
                                         nb::type_slots(slots));
  function.def("_call", &OpFunction::operator());
  function.def_prop_ro("name", [](const OpFunction& self) { return std::string(self.def->name); });
  function.def_prop_ro("min_operands", [](const OpFunction& self) { return self.def->min_inputs; });
  function.def_prop_ro("max_operands", [](const OpFunction& self) { return self.def->max_inputs; });
  function.def_prop_ro("has_gradient",
                       [](const OpFunction& self) { return self.def->gradient != nullptr; });
  function.def_prop_ro(
      "attributes",
      [](const OpFunction& self) {
        nb::dict defaults;
        for (const AttributeField& one : self.def->fields) {
          defaults[nb::str(one.name.data(), one.name.size())] =
              from_attribute(one.get(self.def->defaults));
        }
        return defaults;
      },
      "Defaults of the attributes by name");
  function.def("__repr__", [](const OpFunction& self) { return self.signature(); });
  module.def(
      "all_ops",
      [] {
        nb::dict functions;
        for (const OpDef* def : all_ops()) {
          functions[nb::str(def->name.data(), def->name.size())] = op_function(*def);
        }
        return functions;
      },
      "Every op by name");
}

}  // namespace tenon::python
