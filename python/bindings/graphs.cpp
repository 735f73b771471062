#include "graphs.hpp"

#include <tenon/error.hpp>
#include <tenon/grad.hpp>
#include <tenon/program.hpp>

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

thread_local std::vector<std::shared_ptr<Recorder>> recorders;

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
      : recorder_(std::move(recorder)),
        layers_(tensors_of(carry), std::source_location::current()) {}

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

Traced Recorder::input(const std::string& name, const Shape& shape) {
  return {graph.input(name, shape), shared_from_this()};
}

Traced Recorder::constant(const std::string& name, const Shape& shape) {
  return {graph.constant(name, shape), shared_from_this()};
}

Traced Recorder::capture(const std::string& name, HostBuffer value) {
  const Shape shape = value.shape();
  if (!captured.emplace(name, std::move(value)).second) {
    throw Error(Errc::duplicate_name, "Graph.capture",
                fmt::format("there is a constant '{}'", name));
  }
  return constant(name, shape);
}

Traced Recorder::record(const OpInstance& op, const std::vector<Tensor>& operands) {
  const Graph::Recording recording(graph);
  return {tenon::record(*op.def(), op.attributes(), operands, std::source_location::current()),
          shared_from_this()};
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
void Recorder::leave() { recorders.pop_back(); }

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
      "grad",
      [](const Traced& loss, nb::handle parameters) {
        const Graph::Recording recording(loss.recorder->graph);
        std::vector<Traced> gradients;
        for (const Tensor& gradient : grad(loss.tensor, tensors_of(parameters))) {
          gradients.push_back({gradient, loss.recorder});
        }
        return gradients;
      },
      nb::arg("loss"), nb::arg("parameters"),
      "Gradients of a scalar with respect to tensors of its graph, recorded beside it");
}

}  // namespace tenon::python
