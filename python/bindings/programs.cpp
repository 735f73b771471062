#include "bindings.hpp"

#include <tenon/codegen.hpp>
#include <tenon/draw.hpp>
#include <tenon/error.hpp>
#include <tenon/grad.hpp>
#include <tenon/io/network.hpp>
#include <tenon/optimize.hpp>
#include <tenon/program.hpp>
#include <tenon/program_view.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

nb::list parameters_of(const Function& function) {
  nb::list parameters;
  for (std::uint32_t i = 0; i < function.parameter_count; ++i) {
    const Value& value = function.values[i];
    parameters.append(nb::make_tuple(value.name, nb::cast(value.shape)));
  }
  return parameters;
}

const Function& function_of(const Program& program, const std::optional<std::string>& name) {
  if (!name) return program.main();
  if (const Function* function = program.find(*name)) return *function;
  throw Error(Errc::bad_reference, program.name, fmt::format("no function '{}'", *name));
}

void name_results(Program& named, const std::vector<std::string>& names) {
  Program program = named;
  for (Function& function : program.functions) {
    if (function.name != program.main().name) continue;
    std::set<std::string> taken;
    for (const Value& value : function.values) taken.insert(value.name);
    for (std::size_t i = 0; i < std::min(names.size(), function.results.size()); ++i) {
      const ValueId id = function.results[i];
      const bool is_first = std::find(function.results.begin(), function.results.end(), id) ==
                            function.results.begin() + static_cast<std::ptrdiff_t>(i);
      if (id < function.parameter_count || !is_first || !taken.insert(names[i]).second) continue;
      function.values[id].name = names[i];
    }
  }
  verify(program);
  named = std::move(program);
}

std::map<std::string, nb::object> weights_of(std::map<std::string, HostBuffer>&& weights) {
  std::map<std::string, nb::object> named;
  for (auto& [name, weight] : weights) named.emplace(name, nb::cast(std::move(weight)));
  return named;
}

}  // namespace

void bind_programs(nb::module_& module) {
  auto program = nb::class_<Program>(
      module, "Program", "Functions of instructions, which str() shows as text that parse() reads");
  program.def(
      "__init__",
      [](Program* self, const std::string& text, const std::string& file) {
        new (self) Program(parse(text, file));
      },
      nb::arg("text"), nb::arg("file") = "program");
  program.def_prop_rw(
      "name", [](const Program& self) { return self.name; },
      [](Program& self, std::string name) { self.name = std::move(name); });
  program.def_prop_ro("entry", [](const Program& self) { return self.entry; });
  program.def_prop_ro("functions", [](const Program& self) {
    std::vector<std::string> names;
    for (const Function& function : self.functions) names.push_back(function.name);
    return names;
  });
  program.def(
      "parameters",
      [](const Program& self, const std::optional<std::string>& function) {
        return parameters_of(function_of(self, function));
      },
      nb::arg("function").none() = nb::none(), "(name, type) of each parameter");
  program.def(
      "results",
      [](const Program& self, const std::optional<std::string>& function) {
        const Function& found = function_of(self, function);
        nb::list results;
        for (const ValueId id : found.results) {
          results.append(nb::make_tuple(found.values[id].name, nb::cast(found.values[id].shape)));
        }
        return results;
      },
      nb::arg("function").none() = nb::none(), "(name, type) of each result");
  program.def("name_results", &name_results, nb::arg("names"),
              "Gives the results these names, but for those that are parameters, returned twice, "
              "or whose new name "
              "is taken");
  program.def("constants", &constant_names, "Names of the constants, those of every repetition");
  program.def_prop_ro(
      "folded",
      [](const Program& self) {
        auto folded = self.folded;
        return weights_of(std::move(folded));
      },
      "Constants that are part of the program, by name");
  program.def(
      "with_arrays",
      [](const Program& self, nb::handle arrays) {
        Program copy = self;
        for (const auto& [name, array] : named_items(arrays)) {
          const auto own = copy.folded.find(name);
          if (own == copy.folded.end()) {
            throw Error(Errc::bad_reference, "with_arrays",
                        fmt::format("the program has no array '{}'", name));
          }
          HostBuffer value = to_host_buffer(array);
          if (!(value.shape() == own->second.shape())) {
            throw Error(Errc::shape_mismatch, "with_arrays",
                        fmt::format("'{}' is {}, the program's is {}", name,
                                    to_string(value.shape()), to_string(own->second.shape())));
          }
          own->second = std::move(value);
        }
        return copy;
      },
      nb::arg("arrays"),
      "The program with other arrays in the place of some of its own (`folded`)");
  program.def(
      "verify",
      [](const Program& self) {
        Program copy = self;
        verify(copy);
        return copy;
      },
      "The program with every type that follows; raises the first error");
  program.def(
      "optimized",
      [](const Program& self) {
        Program copy = self;
        verify(copy);
        nb::dict applied;
        for (const auto& [pass, count] : optimize(copy).applied) {
          applied[nb::str(pass.c_str())] = count;
        }
        return nb::make_tuple(std::move(copy), applied);
      },
      "(the optimised program, how often each pass applied)");
  program.def(
      "unrolled", [](const Program& self) { return unroll(self); },
      "The same program without repetitions and calls");
  program.def("op_names", &op_names, "The values of all ops of the unrolled program, in order");
  program.def("extract", &extract, nb::arg("first"), nb::arg("last"),
              "Ops [first, last) of the unrolled program as a program of their own");
  program.def(
      "gradient",
      [](const Program& self, const std::vector<std::string>& names) {
        return gradient(self, names);
      },
      nb::arg("names"),
      "The program that also returns the gradients of its first result with respect to these "
      "values");
  program.def(
      "codegen",
      [](const Program& self, bool with_main) {
        Program copy = self;
        copy.folded.clear();  // weights to the code, by name
        return codegen(copy, {.with_main = with_main});
      },
      nb::arg("with_main") = false,
      "C++ source that computes the program; its constants, `folded` among them, are weights");
  program.def("to_dot", &to_dot, "As a Graphviz digraph");
  program.def("to_svg", &to_svg, "As a picture");
  program.def("_repr_svg_", &to_svg);
  program.def("__str__", [](const Program& self) { return print(self); });
  program.def("__repr__", [](const Program& self) {
    return fmt::format("Program '{}', {} functions", self.name, self.functions.size());
  });
  program.def("__eq__", [](const Program& self, nb::handle other) {
    return nb::isinstance<Program>(other) && same_program(self, nb::cast<const Program&>(other));
  });
  program.def("__getstate__", [](const Program& self) {
    auto folded = self.folded;
    return nb::make_tuple(print(self), weights_of(std::move(folded)));
  });
  program.def("__setstate__", [](Program& self, const nb::tuple& state) {
    new (&self) Program(parse(nb::cast<std::string>(state[0])));
    for (const auto& [name, weight] : nb::cast<std::map<std::string, nb::object>>(state[1])) {
      self.folded.emplace(name, to_host_buffer(weight));
    }
  });

  module.def(
      "parse", [](const std::string& text, const std::string& file) { return parse(text, file); },
      nb::arg("text"), nb::arg("file") = "program", "The program of a text");
  module.def(
      "check",
      [](const std::string& text, const std::string& file) {
        ParseResult parsed = parse_all(text, file);
        std::vector<Diagnostic> errors = std::move(parsed.errors);
        if (errors.empty()) errors = check_program(parsed.program);
        nb::list found;
        for (const Diagnostic& error : errors) {
          nb::dict facts;
          const std::string_view code = spelling(error.code);
          facts["code"] = nb::str(code.data(), code.size());
          facts["line"] = error.line.line;
          facts["column"] = error.line.column;
          facts["message"] = error.message;
          found.append(facts);
        }
        return found;
      },
      nb::arg("text"), nb::arg("file") = "program",
      "Every error of a text: code, line, column, message");
  module.def(
      "load_network",
      [](const std::filesystem::path& json, const std::optional<std::filesystem::path>& raw) {
        io::Network network = io::load_network(json, raw.value_or(std::filesystem::path()));
        auto weights = weights_of(std::move(network.weights));
        return nb::make_tuple(std::move(network.program), std::move(weights));
      },
      nb::arg("json"), nb::arg("raw").none() = nb::none(),
      "(program, weights by name) of a JSON and RAW pair");
  module.def(
      "save_network",
      [](const Program& self, const nb::handle weights, const std::filesystem::path& json,
         const std::filesystem::path& raw) {
        io::Network network{self, {}};
        for (const auto& [name, array] : named_items(weights)) {
          network.weights.emplace(name, to_host_buffer(array));
        }
        const nb::gil_scoped_release no_gil;
        io::save_network(network, json, raw);
      },
      nb::arg("program"), nb::arg("weights"), nb::arg("json"), nb::arg("raw"));
}

}  // namespace tenon::python
