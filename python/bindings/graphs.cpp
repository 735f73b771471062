#include "graphs.hpp"

#include <tenon/call.hpp>
#include <tenon/derivatives.hpp>
#include <tenon/error.hpp>
#include <tenon/grad.hpp>
#include <tenon/program.hpp>
#include <tenon/repeat.hpp>

#include <bit>
#include <map>
#include <optional>
#include <source_location>

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

thread_local std::vector<std::shared_ptr<Recorder>> recorders;

/// (file, line) of the Python that is running outside of this package; nothing where there is none.
std::optional<std::pair<std::string, unsigned>> python_line() {
  static auto& package = *new std::string();  // under the interpreter's lock
  if (package.empty()) {
    const auto file = nb::cast<std::string>(nb::module_::import_("tenon").attr("__file__"));
    package = file.substr(0, file.find_last_of("/\\") + 1);
  }
  auto* const running = reinterpret_cast<PyObject*>(PyEval_GetFrame());
  for (nb::object frame = nb::borrow(running); frame.is_valid() && !frame.is_none();
       frame = frame.attr("f_back")) {
    auto file = nb::cast<std::string>(frame.attr("f_code").attr("co_filename"));
    if (file.starts_with(package) || file.starts_with("<frozen ")) continue;
    const nb::object line = frame.attr("f_lineno");  // may be None
    return std::pair(std::move(file), line.is_none() ? 0U : nb::cast<unsigned>(line));
  }
  return std::nullopt;
}

std::vector<Tensor> tensors_of(nb::handle sequence) {
  std::vector<Tensor> tensors;
  if (nb::isinstance<Traced>(sequence)) return {nb::cast<const Traced&>(sequence).tensor};
  for (const nb::handle item : sequence) tensors.push_back(nb::cast<const Traced&>(item).tensor);
  return tensors;
}

/// RepeatRecorder with the graph that its tensors belong to.
class Layers {
 public:
  Layers(const nb::handle carry, std::shared_ptr<Recorder> recorder)
      : recorder_(std::move(recorder)), layers_(tensors_of(carry), recorder_->location()) {}

  nb::tuple begin(nb::handle weights) {
    const RepeatRecorder::Frame frame = layers_.begin(tensors_of(weights));
    nb::list carry;
    for (const Tensor& tensor : frame.carry) carry.append(nb::cast(Traced{tensor, recorder_}));
    return nb::make_tuple(carry, Traced{frame.index, recorder_});
  }
  void end(nb::handle results, std::int64_t times, std::int64_t condition) {
    layers_.end(tensors_of(results), times, condition);
  }
  nb::list finish() {
    nb::list results;
    for (const Tensor& tensor : layers_.finish()) {
      results.append(nb::cast(Traced{tensor, recorder_}));
    }
    return results;
  }

 private:
  std::shared_ptr<Recorder> recorder_;
  RepeatRecorder layers_;
};

}  // namespace

std::source_location Recorder::location() {
  const auto from = place ? place : python_line();
  if (!from) return std::source_location::current();
#if defined(__GLIBCXX__) || defined(_LIBCPP_VERSION)
  static_assert(sizeof(std::source_location) == sizeof(const Line*));
  const auto [at, is_new] = lines_.try_emplace(*from);
  if (is_new) at->second = {at->first.first.c_str(), "", at->first.second, 0};
  return std::bit_cast<std::source_location>(static_cast<const Line*>(&at->second));
#else
  return std::source_location::current();
#endif
}

Traced Recorder::input(const std::string& name, const Shape& shape) {
  return {graph.input(name, shape, location()), shared_from_this()};
}

Traced Recorder::constant(const std::string& name, const Shape& shape) {
  if (captured.contains(name)) {
    throw Error(Errc::duplicate_name, "Graph.constant",
                fmt::format("'{}' is an array that the program has", name));
  }
  Traced made{graph.constant(name, shape, location()), shared_from_this()};
  weights_.insert(name);
  return made;
}

Traced Recorder::capture(const std::string& name, HostBuffer value) {
  if (captured.contains(name) || weights_.contains(name)) {
    throw Error(Errc::duplicate_name, "Graph.capture",
                fmt::format("there is a constant '{}'", name));
  }
  Traced made{graph.constant(name, value.shape(), location()), shared_from_this()};
  captured.emplace(name, std::move(value));
  return made;
}

std::string Recorder::free_name() const {
  std::string name;
  std::size_t number = captured.size();
  do {
    name = fmt::format("captured{}", number++);
  } while (captured.contains(name) || weights_.contains(name));
  return name;
}

Traced Recorder::record(const OpInstance& op, const std::vector<Tensor>& operands) {
  const Graph::Recording recording(graph);
  return {tenon::record(*op.def(), op.attributes(), operands, location()), shared_from_this()};
}

Program Recorder::program(const std::vector<Tensor>& outputs, const std::string& name) {
  Program program = graph.program(outputs, name);
  program.entry = name;
  for (const Function& function : program.functions) {
    for (const Instruction& instruction : function.body) {
      if (instruction.kind != Instruction::Kind::constant) continue;
      if (const auto found = captured.find(instruction.text); found != captured.end()) {
        program.folded.insert(*found);
      }
    }
  }
  return program;
}

Recorder* Recorder::current() { return recorders.empty() ? nullptr : recorders.back().get(); }
void Recorder::enter() { recorders.push_back(shared_from_this()); }
void Recorder::leave() {
  if (current() != this) {
    throw Error(Errc::call_order, "Graph",
                "left where it is not the graph that was entered last on this thread");
  }
  recorders.pop_back();
}
void Recorder::leave_all() noexcept {
  const auto is_this = [this](const auto& one) { return one.get() == this; };
  const auto from = std::ranges::find_if(recorders, is_this);
  recorders.erase(from, recorders.end());
}

void bind_graphs(nb::module_& module) {
  auto tensor = nb::class_<Traced>(
      module, "Tensor", "A value of a graph: its type and the op that computes it, without data",
      nb::type_slots(operator_slots()));
  tensor.def_prop_ro("shape", [](const Traced& self) { return to_tuple(self.tensor.shape()); });
  tensor.def_prop_ro("type", [](const Traced& self) { return self.tensor.shape(); });
  tensor.def_prop_ro("dtype", [](const Traced& self) { return from_dtype(self.tensor.dtype()); });
  tensor.def_prop_ro("ndim", [](const Traced& self) { return self.tensor.rank(); });
  tensor.def_prop_ro("op", [](const Traced& self) { return std::string(self.tensor.op()); });
  tensor.def_prop_ro("name", [](const Traced& self) { return std::string(self.tensor.name()); });
  tensor.def_prop_ro("graph", [](const Traced& self) { return self.recorder; });
  tensor.def("__bool__", [](const Traced& self) -> bool {
    throw nb::type_error(fmt::format("a {} of a graph has no value while it is recorded, so that "
                                     "Python cannot branch on it: use "
                                     "where(), cond() or while_loop()",
                                     to_string(self.tensor.shape()))
                             .c_str());
  });
  tensor.def("__repr__", [](const Traced& self) {
    return fmt::format("Tensor {} of {}", to_string(self.tensor.shape()), self.tensor.op());
  });

  auto graph = nb::class_<Recorder>(module, "Graph", "Records ops on its tensors as a program");
  graph.def(
      nb::new_([](std::size_t budget_bytes) { return std::make_shared<Recorder>(budget_bytes); }),
      nb::arg("budget_bytes") = Graph::default_budget_bytes);
  graph.def(
      "input",
      [](Recorder& self, const std::string& name, nb::handle type) {
        return self.input(name, to_shape(type));
      },
      nb::arg("name"), nb::arg("type"), "A value that each run is given");
  graph.def(
      "constant",
      [](Recorder& self, const std::string& name, nb::handle type) {
        return self.constant(name, to_shape(type));
      },
      nb::arg("name"), nb::arg("type"), "A weight, bound by name before the first run");
  graph.def(
      "capture",
      [](Recorder& self, const std::string& name, nb::handle value) {
        return self.capture(name, to_host_buffer(value));
      },
      nb::arg("name"), nb::arg("value"), "A constant that is part of the program");
  graph.def(
      "program",
      [](Recorder& self, nb::handle outputs, const std::string& name) {
        return self.program(tensors_of(outputs), name);
      },
      nb::arg("outputs"), nb::arg("name") = "forward", "The program that returns these tensors");
  graph.def("__enter__", [](Recorder& self) {
    self.enter();
    return self.shared_from_this();
  });
  graph.def("__exit__", [](Recorder& self, const nb::args&) { self.leave(); });
  graph.def_rw("place", &Recorder::place, nb::arg().none(),
               "(file, line) that errors name of what is recorded from now on; None: the line of "
               "Python that records it");
  graph.def_prop_ro("used_bytes", [](const Recorder& self) { return self.graph.used(); });

  module.def("_current_graph", []() -> std::shared_ptr<Recorder> {
    Recorder* const current = Recorder::current();
    return current == nullptr ? nullptr : current->shared_from_this();
  });

  auto layers = nb::class_<Layers>(module, "_Layers");
  layers.def("__init__", [](Layers* self, nb::handle carry, std::shared_ptr<Recorder> recorder) {
    new (self) Layers(carry, std::move(recorder));
  });
  layers.def("begin", &Layers::begin);
  layers.def("end", &Layers::end, nb::arg("results"), nb::arg("times") = 1,
             nb::arg("condition") = -1);
  layers.def("finish", &Layers::finish);
  module.def(
      "_zeros_of_type",
      [](const Traced& x, std::optional<std::int64_t> count) {
        const Graph::Recording recording(x.recorder->graph);
        return Traced{detail::zeros_of_type(x.tensor, count, x.recorder->location()), x.recorder};
      },
      nb::arg("x"), nb::arg("count") = nb::none());

  module.def(
      "_call",
      [](const std::shared_ptr<Recorder>& recorder, const Program& program, nb::handle inputs,
         const nb::dict& weights) {
        std::map<std::string, Tensor> named;
        for (const auto& [name, weight] : weights) {
          named.emplace(nb::cast<std::string>(name), nb::cast<const Traced&>(weight).tensor);
        }
        nb::list results;
        for (const Tensor& result :
             call(recorder->graph, program, tensors_of(inputs), named, recorder->location())) {
          results.append(nb::cast(Traced{result, recorder}));
        }
        return results;
      },
      nb::arg("graph"), nb::arg("program"), nb::arg("inputs"), nb::arg("weights"));

  struct CheckpointedRegion {
    std::optional<detail::CheckpointedRegion> region;
  };
  nb::class_<CheckpointedRegion>(module, "_CheckpointedRegion")
      .def(nb::init<>())
      .def("__enter__", [](CheckpointedRegion& self) { self.region.emplace(); })
      .def("__exit__", [](CheckpointedRegion& self, const nb::args&) { self.region.reset(); });

  module.def(
      "grad",
      [](nb::handle of, nb::handle parameters, bool allow_unused) {
        if (!nb::isinstance<Traced>(of)) {
          throw nb::type_error(
              "grad(): the loss is no tensor that is being recorded. Gradients are recorded beside "
              "it: call grad() in a function that export() runs, or make them of a program, "
              "export(loss, ...).gradient([names])");
        }
        const auto& loss = nb::cast<const Traced&>(of);
        const Graph::Recording recording(loss.recorder->graph);
        const std::source_location where = loss.recorder->location();
        const std::vector<Tensor> wanted = tensors_of(parameters);
        std::vector<Tensor> found;
        if (!allow_unused) {
          found = grad(loss.tensor, wanted, where);
        } else if (const Shape& type = loss.tensor.shape(); type.rank() > 0) {
          found = grad(loss.tensor, wanted, where);  // which says what is wrong with it
        } else {
          const Tensor one = scalar_like(loss.tensor, 1, where);
          found = detail::grad_or_zeros({&loss.tensor, 1}, {&one, 1}, wanted, where);
        }
        std::vector<Traced> gradients;
        for (const Tensor& gradient : found) gradients.push_back({gradient, loss.recorder});
        return gradients;
      },
      nb::arg("loss"), nb::arg("parameters"), nb::arg("allow_unused") = false,
      "Gradients of a scalar with respect to tensors of its graph, recorded beside it. "
      "`allow_unused`: zeros for those that it does not depend on, where it is an error otherwise");
}

}  // namespace tenon::python
