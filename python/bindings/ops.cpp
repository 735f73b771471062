// Ops as functions of Python: on arrays they run at once, on tensors of a graph they are recorded.

#include "bindings.hpp"
#include "graphs.hpp"
#include "op_function.hpp"

#include <tenon/eager.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/fill.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

/// The backends of ops on arrays in CPU memory.
const std::vector<BackendPtr>& cpu_backends() {
  static const auto* const backends = new std::vector<BackendPtr>(default_backends());
  return *backends;
}

/// Runs ops on arrays in CPU memory. An Eager runs one call at a time, so that idle ones are kept.
class CpuOps {
 public:
  static CpuOps& instance() {
    static auto* const ops = new CpuOps();  // outlives every thread of Python's
    return *ops;
  }

  Buffer run(const OpInstance& op, const std::vector<Buffer>& inputs) {
    const std::vector<EagerArray> arrays(inputs.begin(), inputs.end());
    const std::vector<EagerInput> operands(arrays.begin(), arrays.end());
    Eager eager = take();
    Buffer result;
    try {
      result = eager.run(op, operands).to_buffer();
    } catch (...) {
      put(std::move(eager));
      throw;
    }
    put(std::move(eager));
    return result;
  }

 private:
  Eager take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return Eager(nullptr, cpu_backends());
    Eager eager = std::move(idle_.back());
    idle_.pop_back();
    return eager;
  }

  void put(Eager eager) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(eager));
  }

  std::mutex mutex_;
  std::vector<Eager> idle_;
};

/// Sessions of one op each on devices, by op, attributes, types of the operands and device. A session
/// runs one call at a time, so that each entry holds those that are idle.
class DeviceOps {
 public:
  static DeviceOps& instance() {
    static auto* const ops = new DeviceOps();
    return *ops;
  }

  Buffer run(const OpInstance& op, std::vector<Buffer> inputs, Device& device) {
    const std::string key = key_of(op, inputs, device);
    std::optional<Session> session = take(key);
    if (!session) session = made(op, inputs, device);
    std::vector<Buffer> outputs = session->forward(inputs);
    put(key, std::move(*session));
    return std::move(outputs.front());
  }

 private:
  static constexpr std::size_t limit = 1024;  // entries; all are dropped beyond it

  static std::string key_of(const OpInstance& op, const std::vector<Buffer>& inputs,
                            const Device& device) {
    std::string key;
    const auto append = [&key](const auto& value) {
      const std::size_t end = key.size();
      key.resize(end + sizeof(value));
      std::memcpy(key.data() + end, &value, sizeof(value));
    };
    append(op.def());
    append(&device);
    for (const Buffer& input : inputs) {
      append(input.shape().dtype());
      append(input.shape().rank());
      for (const std::int64_t dim : input.shape().dims()) append(dim);
    }
    key.append(static_cast<const char*>(op.attributes()), op.def()->attribute_bytes);
    return key;
  }

  std::optional<Session> take(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.find(key);
    if (found == idle_.end() || found->second.empty()) return std::nullopt;
    std::optional<Session> session(std::move(found->second.back()));
    found->second.pop_back();
    return session;
  }

  void put(const std::string& key, Session session) {
    std::unordered_map<std::string, std::vector<Session>> dropped;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    if (idle_.size() >= limit) dropped.swap(idle_);
    idle_[key].push_back(std::move(session));
  }

  static Session made(const OpInstance& op, const std::vector<Buffer>& inputs, Device& device) {
    Graph graph;
    const Graph::Recording recording(graph);
    std::vector<Tensor> operands;
    for (const Buffer& input : inputs) {
      operands.push_back(graph.input("", input.shape().without_tags()));
    }
    const Tensor result =
        record(*op.def(), op.attributes(), operands, std::source_location::current());
    SessionOptions options;
    options.backends = device_backends(device.shared_from_this());
    for (const BackendPtr& backend : cpu_backends()) options.backends.push_back(backend);
    options.results_on_device = true;
    return Session(graph.program(std::span<const Tensor>(&result, 1)), std::move(options));
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::vector<Session>> idle_;
};

/// The op's result in the memory of the first operand that the CPU cannot address, or in its own.
Buffer run_at_once(const OpInstance& op, std::vector<Buffer> inputs) {
  for (const Buffer& input : inputs) {
    if (input.has_data() && !input.region().is_host()) {
      Device& device = input.region().device();
      return DeviceOps::instance().run(op, std::move(inputs), device);
    }
  }
  return CpuOps::instance().run(op, inputs);
}

/// An operand as Python gives it: a tensor of a graph, an array, or a number, which takes the type of the others.
bool is_number(nb::handle object) {
  return nb::isinstance<nb::float_>(object) || nb::isinstance<nb::int_>(object) ||
         nb::isinstance<nb::bool_>(object);
}

std::optional<DType> common_type(const std::vector<nb::handle>& operands) {
  for (const nb::handle operand : operands) {
    if (nb::isinstance<Traced>(operand)) return nb::cast<const Traced&>(operand).tensor.dtype();
    if (nb::isinstance<Buffer>(operand)) return nb::cast<const Buffer&>(operand).shape().dtype();
    if (!is_number(operand)) return to_buffer(operand).shape().dtype();
  }
  return std::nullopt;
}

}  // namespace

Buffer to_operand(nb::handle object, std::optional<DType> type) {
  const bool is_whole = is_number(object) && !nb::isinstance<nb::float_>(object);
  std::int64_t whole = 0;
  if (!is_number(object) || (is_whole && !nb::try_cast(object, whole))) return to_buffer(object);
  const DType dtype = type && !is_block(*type) ? *type : is_whole ? DType::i64 : DType::f32;
  HostBuffer number = HostBuffer::zeros(Shape({}, dtype));
  if (is_whole) {
    store_int64(dtype, number.view().data, whole);
  } else {
    const auto value = nb::cast<double>(object);
    if (!is_floating(dtype) && value != static_cast<double>(static_cast<std::int64_t>(value))) {
      throw Error(
          Errc::bad_type, "ops",
          fmt::format("{} beside an array of {}: cast the array first", value, name(dtype)));
    }
    store_double(dtype, number.view().data, value);
  }
  return number.to_device(cpu_device());
}

namespace {

/// An axis that counts from the end, as Python's axes may, as one that ops know.
void count_from_front(AttributeValue& value, std::string_view field, std::int64_t rank) {
  if (field == "axis" || field.ends_with("_axis")) {
    if (auto* axis = std::get_if<std::int64_t>(&value); axis != nullptr && *axis < 0) *axis += rank;
  } else if (field == "axes" || field == "order") {
    if (auto* axes = std::get_if<IntList>(&value)) {
      for (std::size_t i = 0; i < axes->size(); ++i) {
        if ((*axes)[i] < 0) (*axes)[i] += rank;
      }
    }
  }
}

/// One op as a function.
struct OpFunction {
  const OpDef* def;

  const AttributeField* field(std::string_view name) const {
    const auto found = std::find_if(def->fields.begin(), def->fields.end(),
                                    [&](const AttributeField& one) { return one.name == name; });
    return found == def->fields.end() ? nullptr : &*found;
  }

  void set(OpInstance& op, const AttributeField& field, nb::handle given, std::int64_t rank) const {
    AttributeValue value;
    // A single number where a list is wanted is a list of one; an empty tuple is an empty list.
    if (std::holds_alternative<IntList>(field.get(op.attributes())) &&
        nb::isinstance<nb::int_>(given)) {
      value = IntList{nb::cast<std::int64_t>(given)};
    } else if (std::holds_alternative<DType>(field.get(op.attributes()))) {
      value = to_dtype(given);
    } else {
      value = to_attribute(given);
    }
    count_from_front(value, field.name, rank);
    if (!field.set(op.attributes(), value)) {
      throw Error(
          Errc::bad_attribute, std::string(def->name),
          fmt::format("'{}' cannot be {}", field.name, nb::cast<std::string>(nb::repr(given))));
    }
  }

  /// Positional arguments are operands, then attributes in the order of the op; keyword arguments are attributes,
  /// and, of an op with a flag "has_bias", the operand `bias`.
  nb::object operator()(const nb::args& positional, const nb::kwargs& named) const {
    const Arguments given = arguments(positional, named);
    const bool is_traced =
        std::any_of(given.operands.begin(), given.operands.end(),
                    [](nb::handle operand) { return nb::isinstance<Traced>(operand); });
    const std::optional<DType> type = common_type(given.operands);
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
      for (const nb::handle operand : given.operands) {
        tensors.push_back(recorder->operand(operand, type));
      }
      apply(tensors.empty() ? 0 : tensors.front().rank());
      return nb::cast(recorder->record(op, tensors));
    }
    std::vector<Buffer> buffers;
    for (const nb::handle operand : given.operands) buffers.push_back(to_operand(operand, type));
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
    std::vector<std::pair<const AttributeField*, nb::handle>> optional;
    bool names_flags = false;  // the caller sets them, and gives operands in their order
    for (const AttributeField& one : def->fields) {
      if (!one.name.starts_with("has_")) continue;
      const std::string operand(one.name.substr(4));
      names_flags = names_flags || named.contains(std::string(one.name).c_str());
      const bool is_given = named.contains(operand.c_str());
      optional.emplace_back(&one,
                            is_given ? nb::handle(named[operand.c_str()]) : nb::handle(Py_None));
    }
    const auto required = static_cast<std::size_t>(
        names_flags || optional.empty() ? def->max_inputs : def->min_inputs);
    Arguments given;
    std::size_t position = 0, attribute = 0;
    for (const nb::handle argument : positional) {
      if (position < required) {
        if (!argument.is_none()) given.operands.push_back(argument);
      } else if (!names_flags && position - required < optional.size()) {
        auto& [flag, operand] = optional[position - required];
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
    for (const auto& [flag, operand] : optional) {
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
                    fmt::format("no attribute '{}'", name));
      }
    }
    return given;
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

}  // namespace

Tensor Recorder::operand(nb::handle object, std::optional<DType> type) {
  if (nb::isinstance<Traced>(object)) return nb::cast<const Traced&>(object).tensor;
  const Buffer buffer = to_operand(object, type);
  if (is_number(object)) {
    const HostBuffer number = buffer.to_host();
    const DType dtype = number.shape().dtype();
    const double value = load_as_double(dtype, number.bytes());
    const bool is_exact = !is_integer(dtype) || std::abs(value) < 9e15;
    if (is_exact) {
      const Graph::Recording recording(graph);
      return full(value, Shape({}, dtype));
    }
  }
  // Arrays become constants of the program.
  const std::string name = fmt::format("captured{}", captured.size());
  captured.emplace(name, buffer.to_host());
  return graph.constant(name, buffer.shape());
}

nb::object op_function(const OpDef& def) { return nb::cast(OpFunction{&def}); }

void bind_ops(nb::module_& module) {
  auto function = nb::class_<OpFunction>(
      module, "Op", "An op as a function: of arrays, or of tensors of a graph");
  function.def("__call__", &OpFunction::operator());
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
          functions[nb::str(def->name.data(), def->name.size())] = nb::cast(OpFunction{def});
        }
        return functions;
      },
      "Every op by name");
}

}  // namespace tenon::python
