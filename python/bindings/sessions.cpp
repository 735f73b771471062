#include "bindings.hpp"
#include "interruptible.hpp"

#include <tenon/calibration.hpp>
#include <tenon/compare.hpp>
#include <tenon/error.hpp>
#include <tenon/profile.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

/// How Python holds weights: sessions share them.
struct PythonWeights {
  std::shared_ptr<const WeightSet> weights;
};

bool is_collection(nb::handle object) {
  return nb::isinstance<nb::dict>(object) || nb::isinstance<nb::list>(object) ||
         nb::isinstance<nb::tuple>(object);
}

/// One sample: arrays in order or by name, or the array of the only input.
std::vector<Buffer> to_sample(const Program& program, nb::handle sample) {
  const Function& main = program.main();
  std::vector<Buffer> inputs;
  if (nb::isinstance<nb::dict>(sample)) {
    const auto named = nb::borrow<nb::dict>(sample);
    for (std::size_t i = 0; i < main.parameter_count; ++i) {
      const std::string& name = main.values[i].name;
      if (!named.contains(name.c_str())) {
        throw Error(Errc::bad_input, program.name, fmt::format("no array for input '{}'", name));
      }
      inputs.push_back(to_buffer(named[name.c_str()]));
    }
  } else if (nb::hasattr(sample, "shape") && main.parameter_count == 1) {
    inputs.push_back(to_buffer(sample));
  } else {
    for (const nb::handle input : sample) inputs.push_back(to_buffer(input));
  }
  return inputs;
}

/// Whether dense arrays of one type have the same numbers; a NaN is none.
bool is_same(const HostBuffer& a, const HostBuffer& b) {
  const DType dtype = a.shape().dtype();
  if (!is_floating(dtype)) {
    return a.shape().bytes() == 0 ||
           std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.shape().bytes())) == 0;
  }
  const auto number = [dtype](const HostBuffer& array, std::int64_t i) {
    return load_as_double(dtype, array.bytes() + i * block_bytes(dtype));
  };
  for (std::int64_t i = 0; i < a.shape().elements(); ++i) {
    if (number(a, i) != number(b, i)) return false;
  }
  return true;
}

/// A list of numbers as an array of a type, which integers must hold, as they hold single numbers.
Buffer of_list(nb::handle list, DType type) {
  const bool is_real = !is_complex(type) && !is_block(type) && !is_object(type);
  const Buffer given =
      is_real ? to_buffer(list, type) : to_buffer(list);  // real ones with all their digits
  const DType from = given.shape().dtype();
  if (from == type) return given;
  const HostBuffer numbers = waited_host(given).contiguous();
  HostBuffer made = numbers.to(type).contiguous();
  const bool is_checked =
      is_integer(type) || type == DType::u64 || (type == boolean && is_floating(from));
  if (is_checked && !is_same(numbers, made.to(from).contiguous())) {
    throw Error(
        Errc::bad_type, "forward",
        fmt::format("numbers among {} that {} does not hold", to_string(numbers), name(type)));
  }
  return made.to_device(cpu_device());
}

/// The inputs of a call.
class Inputs {
 public:
  /// Positional arrays, or arrays by the names of the entry function's parameters.
  Inputs(const Program& program, const nb::args& positional, const nb::kwargs& named) {
    try {
      take(program, positional, named);
    } catch (...) {
      give_back();
      throw;
    }
  }

  /// What was donated is given back: the call has thrown. Under the interpreter's lock. Not what is used up, by a run that
  /// ended before a signal's handler raised.
  void give_back() {
    for (const auto& [i, owner] : donors_) {
      if (i < arrays.size()) nb::cast<Buffer&>(owner) = std::move(arrays[i]);
    }
  }

  std::vector<Buffer> arrays;

 private:
  void take(const Program& program, const nb::args& positional, const nb::kwargs& named) {
    const Function& main = program.main();
    for (const nb::handle array : positional) add(array, main);
    if (named.size() == 0) return;
    std::size_t used = 0;
    for (std::size_t i = arrays.size(); i < main.parameter_count; ++i, ++used) {
      const std::string& name = main.values[i].name;
      if (!named.contains(name.c_str())) {
        throw Error(Errc::bad_input, program.name, fmt::format("no array for input '{}'", name));
      }
      add(named[name.c_str()], main);
    }
    if (used != named.size()) {
      throw Error(Errc::bad_input, program.name,
                  fmt::format("{} arrays by name, of which {} are inputs without a positional one",
                              named.size(), used));
    }
  }

  void add(nb::handle array, const Function& main) {
    const std::size_t i = arrays.size();
    if (nb::isinstance<Donated>(array)) {
      const nb::object& owner = nb::cast<const Donated&>(array).owner;
      for (const auto& [other, known] : donors_) {
        if (known.is(owner)) {
          throw Error(Errc::bad_input, "forward",
                      fmt::format("inputs {} and {} are one array, donated twice", other, i));
        }
      }
      donors_.emplace_back(i, owner);
      arrays.push_back(std::exchange(nb::cast<Buffer&>(owner), Buffer()));
      return;
    }
    // Numbers and lists become what the parameter is.
    std::optional<DType> type;
    if (i < main.parameter_count && main.values[i].shape) type = main.values[i].shape->dtype();
    Buffer buffer;
    try {
      const bool is_list = nb::isinstance<nb::list>(array) || nb::isinstance<nb::tuple>(array);
      buffer = is_list && type ? of_list(array, *type) : to_operand(array, type);
    } catch (const Error& error) {
      if (error.code() != Errc::bad_argument && error.code() != Errc::unsupported_dtype &&
          error.code() != Errc::bad_type) {
        throw;
      }
      const std::string name =
          i < main.parameter_count ? fmt::format("'{}'", main.values[i].name) : std::to_string(i);
      throw Error(Errc::bad_input, "forward",
                  fmt::format("input {}: {}{}", name, error.message(),
                              main.parameter_count > 1 && is_collection(array)
                                  ? ". Arrays are given one by one, in order or by name: "
                                    "forward(*arrays), forward(**arrays)"
                                  : ""));
    }
    arrays.push_back(std::move(buffer));
  }

  std::vector<std::pair<std::size_t, nb::object>> donors_;
};

std::vector<Shape> shapes_of(nb::handle sequence) {
  std::vector<Shape> shapes;
  for (const nb::handle item : sequence) {
    shapes.push_back(nb::hasattr(item, "__dlpack__") ? to_buffer(item).shape() : to_shape(item));
  }
  return shapes;
}

nb::list transfers_of(const std::vector<PlanReport::Transfer>& transfers) {
  nb::list found;
  for (const PlanReport::Transfer& transfer : transfers) {
    nb::dict facts;
    facts["value"] = transfer.value;
    facts["from"] = transfer.from;
    facts["to"] = transfer.to;
    facts["bytes"] = transfer.bytes;
    found.append(facts);
  }
  return found;
}

nb::dict to_dict(const PlanReport& report) {
  nb::dict facts;
  facts["slab_bytes"] = report.slab_bytes;
  facts["activation_bytes"] = report.activation_bytes;
  nb::list parts;
  for (const PlanReport::Part& part : report.parts) {
    nb::dict one;
    one["backend"] = part.backend;
    one["values"] = part.values;
    one["notes"] = part.notes;
    parts.append(one);
  }
  facts["parts"] = parts;
  facts["copies"] = report.copies;
  nb::list fallbacks;
  for (const PlanReport::Fallback& fallback : report.fallbacks) {
    nb::dict one;
    one["value"] = fallback.value;
    one["op"] = fallback.op;
    one["backend"] = fallback.backend;
    one["why"] = fallback.why;
    one["bytes"] = fallback.bytes;
    fallbacks.append(one);
  }
  facts["fallbacks"] = fallbacks;
  facts["transfers"] = transfers_of(report.transfers);
  facts["weight_copies"] = transfers_of(report.weight_copies);
  nb::list computed;
  for (const PlanReport::Computed& value : report.computed) {
    nb::dict one;
    one["value"] = value.value;
    one["op"] = value.op;
    one["bytes"] = value.bytes;
    computed.append(one);
  }
  facts["computed"] = computed;
  return facts;
}

nb::list to_list(std::span<const StepTime> times) {
  nb::list found;
  for (const StepTime& time : times) {
    nb::dict facts;
    facts["values"] = time.values;
    facts["backend"] = time.backend;
    facts["wall"] = seconds(time.wall);
    facts["mem"] = seconds(time.mem);
    facts["device"] = seconds(time.device);
    facts["other"] = seconds(time.other);
    nb::list parts;
    for (const StepTime::Part& part : time.parts) {
      nb::dict one;
      one["function"] = part.function;
      one["values"] = part.values;
      one["op"] = part.op;
      one["shape"] = nb::cast(part.shape);
      one["count"] = part.count;
      one["wall"] = seconds(part.wall);
      one["bytes"] = part.bytes;
      one["flops"] = part.flops;
      parts.append(one);
    }
    facts["parts"] = parts;
    found.append(facts);
  }
  return found;
}

/// A callback of Python's for steps: called with a dict, under the interpreter's lock.
StepCallback step_callback(nb::object function) {
  if (function.is_none()) return {};
  // Released under the lock, wherever the session is destroyed.
  const std::shared_ptr<nb::object> held(
      new nb::object(std::move(function)),
      [](nb::object* object) { drop_python([object] { delete object; }); });
  return [held](const StepEvent& event) {
    const PythonCall call;
    nb::dict facts;
    facts["values"] = std::vector<std::string>(event.values.begin(), event.values.end());
    facts["op"] = nb::str(event.op.data(), event.op.size());
    facts["function"] = nb::str(event.function.data(), event.function.size());
    facts["backend"] = std::string(event.backend.name());
    const auto copies = [](std::span<const Buffer> buffers) {
      nb::list arrays;  // of their own: the run's memory is valid during the callback only
      for (const Buffer& buffer : buffers) arrays.append(nb::cast(buffer.to_host().contiguous()));
      return arrays;
    };
    facts["inputs"] = copies(event.inputs);
    facts["outputs"] = copies(event.outputs);
    (*held)(facts);
  };
}

SavedWeights saved_weights(const std::string& word) {
  if (word == "all") return SavedWeights::all;
  if (word == "digests") return SavedWeights::digests;
  if (word == "needed") return SavedWeights::needed;
  throw Error(Errc::bad_argument, "save",
              fmt::format("weights='{}' is none of 'all', 'digests', 'needed'", word));
}

/// A session reads a program's own arrays, whatever weights it is given: others under their names are
/// refused rather than left aside.
void check_own_arrays(const Program& program, nb::handle weights) {
  if (!nb::isinstance<nb::dict>(weights)) return;
  for (const auto& [name, array] : named_items(weights)) {
    const auto own = program.folded.find(name);
    if (own == program.folded.end()) continue;
    const HostBuffer given = to_host_buffer(array).contiguous(), held = own->second.contiguous();
    if (given.shape() == held.shape() &&
        (given.shape().elements() == 0 ||
         std::memcmp(given.bytes(), held.bytes(),
                     static_cast<std::size_t>(given.shape().bytes())) == 0)) {
      continue;
    }
    throw Error(Errc::bad_argument, "Session",
                fmt::format("'{}' is an array of the program itself, which sessions use; "
                            "program.with_arrays(weights) puts others in its place",
                            name));
  }
}

void bind_weights(nb::module_& module) {
  auto weights = nb::class_<PythonWeights>(
      module, "Weights", "Arrays by name, which sessions share with what they packed them into");
  weights.def("__init__", [](PythonWeights* self, nb::handle arrays) {
    new (self) PythonWeights{to_weights(arrays)};
  });
  weights.def("__len__", [](const PythonWeights& self) { return self.weights->all().size(); });
  weights.def("__contains__", [](const PythonWeights& self, const std::string& name) {
    return self.weights->find(name) != nullptr;
  });
  weights.def("__getitem__", [](const PythonWeights& self, const std::string& name) {
    if (const Buffer* found = self.weights->find(name)) return *found;
    throw nb::key_error(name.c_str());
  });
  weights.def("keys", [](const PythonWeights& self) {
    std::vector<std::string> names;
    for (const auto& [name, buffer] : self.weights->all()) names.push_back(name);
    return names;
  });
}

void bind_trace(nb::module_& module) {
  auto trace = nb::class_<Trace>(module, "Trace", "Records steps and copies as events");
  trace.def(nb::init<>());
  trace.def(
      "save",
      [](const Trace& self, const std::filesystem::path& path) {
        std::ofstream out(path);
        self.write(out);
        if (!out.flush()) throw Error(Errc::io_error, path.string(), "cannot write the trace");
      },
      "Writes a file that chrome://tracing and Perfetto open");
}

/// Sessions as they are made, saved, loaded and shown.
void bind_making(nb::class_<Session>& session) {
  session.def(
      "__init__",
      [](Session* self, const std::variant<Program, std::string>& given, nb::handle arrays,
         nb::handle backends, int threads, bool exact, bool forbid_fallback, bool results_on_device,
         std::size_t plan_limit) {
        const auto* const text = std::get_if<std::string>(&given);
        const Program program = text != nullptr ? parse(*text) : std::get<Program>(given);
        BackendOptions options;
        options.threads = threads;
        options.exact = exact;
        check_own_arrays(program, arrays);
        Session made(program, SessionOptions{.backends = to_backends(backends, options),
                                             .plan_limit = plan_limit,
                                             .forbid_fallback = forbid_fallback,
                                             .results_on_device = results_on_device});
        if (const auto set = to_weights(arrays)) made.bind(set);
        new (self) Session(std::move(made));
      },
      nb::arg("program"), nb::arg("weights") = nb::none(), nb::arg("backends") = nb::none(),
      nb::kw_only(), nb::arg("threads") = 0, nb::arg("exact") = false,
      nb::arg("forbid_fallback") = false, nb::arg("results_on_device") = false,
      nb::arg("plan_limit") = 32,
      "`program`: one, or its text. `backends`: None for the CPU, a device or its URL "
      "(\"npu://sim\"), backends or names in "
      "order of priority");
  session.def_static(
      "load",
      [](const std::filesystem::path& path, nb::handle backends, nb::handle arrays) {
        std::vector<BackendPtr> chosen;  // none: those that it was saved on
        if (!backends.is_none()) chosen = to_backends(backends, {}, true);
        return Session::load(path, std::move(chosen), to_weights(arrays));
      },
      nb::arg("path"), nb::arg("backends") = nb::none(), nb::arg("weights") = nb::none(),
      "A saved session, on backends of the same names; None: those that it was saved on, where "
      "they "
      "are of no device");
  session.def(
      "save",
      [](const Session& self, const std::filesystem::path& path, const std::string& kept,
         bool prepared) {
        const SavedWeights which = saved_weights(kept);
        const nb::gil_scoped_release no_gil;
        self.save(path, {.weights = which, .prepared = prepared});
      },
      nb::arg("path"), nb::arg("weights") = "all", nb::arg("prepared") = false,
      "Writes program, plans and weights (\"all\", \"digests\" or \"needed\") to one file");
  session.def("__repr__", [](const Session& self) {
    std::string backends;
    for (const BackendPtr& backend : self.backends()) {
      backends += fmt::format("{}{}", backends.empty() ? "" : ", ", backend->name());
    }
    return fmt::format("Session of '{}' on {}", self.program().name, backends);
  });
  session.def_prop_ro("program", [](const Session& self) { return self.program(); });
  session.def_prop_ro("backends", [](const Session& self) {
    std::vector<std::string> names;
    for (const BackendPtr& backend : self.backends()) names.emplace_back(backend->name());
    return names;
  });
  session.def(
      "bind",
      [](Session& self, nb::handle arrays) {
        check_own_arrays(self.program(), arrays);
        self.bind(to_weights(arrays));
      },
      nb::arg("weights"));
  session.def(
      "fork", [](const Session& self) { return self.fork(); },
      "A session with its own activations and the same plans and weights, for another thread");
  session.def("view", &Session::view, nb::arg("first"), nb::arg("last"),
              "A session that runs only ops [first, last)");
}

/// What runs a session, or tells how it would run.
void bind_runs(nb::class_<Session>& session) {
  session.def(
      "forward",
      [](Session& self, const nb::args& arrays, const nb::kwargs& named) {
        Inputs inputs(self.program(), arrays, named);
        try {
          return interruptible(&self, [&](const Interrupt& interrupt) {
            return self.forward(std::move(inputs.arrays), interrupt);
          });
        } catch (...) {
          inputs.give_back();
          throw;
        }
      },
      "Runs the program on arrays in the order of its parameters, or by their names; returns a "
      "list of buffers. The memory of an array given as x.donate() may be overwritten");
  session.def(
      "submit",
      [](Session& self, const nb::args& arrays, const nb::kwargs& named) {
        Inputs inputs(self.program(), arrays, named);
        try {
          const nb::gil_scoped_release no_gil;
          return self.submit(std::move(inputs.arrays));
        } catch (...) {
          inputs.give_back();
          throw;
        }
      },
      "As forward(), but returns at once: the buffers become ready");
  session.def(
      "step_to",
      [](Session& self, const std::string& value, const nb::args& arrays) {
        Inputs inputs(self.program(), arrays, nb::kwargs());
        try {
          const nb::gil_scoped_release no_gil;
          return self.step_to(value, inputs.arrays);  // which reuses no input
        } catch (...) {
          inputs.give_back();
          throw;
        }
      },
      nb::arg("value"), nb::arg("arrays"),
      "Runs up to and including the op that computes `value`, and returns it. Arrays are given to "
      "the first call");
  session.def(
      "prepare",
      [](Session& self, const nb::args& types) {
        const std::vector<Shape> shapes = shapes_of(types);
        const nb::gil_scoped_release no_gil;
        self.prepare(shapes);
      },
      "Plans and packs for inputs of these types, or like these arrays");
  session.def(
      "report",
      [](Session& self, const nb::args& types) {
        const std::vector<Shape> shapes = shapes_of(types);
        return to_dict(self.report(shapes));
      },
      "The plan for inputs of these types: memory, parts, copies, fallbacks");
  session.def(
      "explain",
      [](Session& self, const std::string& value, const nb::args& types) {
        const std::vector<Shape> shapes = shapes_of(types);
        return self.explain(value, shapes);
      },
      nb::arg("value"), nb::arg("types"),
      "Which backends take the op that computes `value`, and why others refuse it");
}

/// What shows and measures runs.
void bind_watching(nb::class_<Session>& session) {
  session.def("set_merge", &Session::set_merge, nb::arg("merge"),
              "Whether backends may run adjacent steps as one");
  session.def("set_log_io", &Session::set_log_io, nb::arg("log_io"));
  session.def("set_log_time", &Session::set_log_time, nb::arg("log_time"));
  session.def("set_dump_outputs", &Session::set_dump_outputs, nb::arg("folder"),
              nb::arg("format") = "");
  session.def(
      "set_pre_callback",
      [](Session& self, nb::object function) {
        self.set_pre_callback(step_callback(std::move(function)));
      },
      nb::arg("function").none(),
      "Called before each step with a dict: values, op, backend, inputs, outputs");
  session.def(
      "set_post_callback",
      [](Session& self, nb::object function) {
        self.set_post_callback(step_callback(std::move(function)));
      },
      nb::arg("function").none(),
      "Called after each step with a dict: values, op, backend, inputs, outputs");
  session.def("set_trace", &Session::set_trace, nb::arg("trace"));
  session.def(
      "set_timeout",
      [](Session& self, std::optional<double> timeout) {
        self.set_interrupt(to_interrupt(timeout));
      },
      nb::arg("seconds").none(),
      "Calls that are not done so many seconds from now raise EndedEarlyError; None: no limit");
  session.def("enable_time_profile", &Session::enable_time_profile, nb::arg("enable") = true);
  session.def("apply", &Session::apply, "Fixes the options");
  session.def(
      "step_times", [](const Session& self) { return to_list(self.step_times()); },
      "Times of the last run's steps in seconds, with enable_time_profile()");
  session.def(
      "profile_table",
      [](const Session& self) {
        Profile profile;
        profile.add(self.step_times());
        return profile.table();
      },
      "The same as a table");
  session.def_prop_ro(
      "total_time", [](const Session& self) { return seconds(self.total_time()); },
      "Wall time of the last run in seconds");
}

/// What is kept of the values of runs.
void bind_recording(nb::module_& module) {
  module.def(
      "calibrate",
      [](const Program& program, nb::handle arrays, nb::handle samples, bool per_channel) {
        std::vector<std::vector<HostBuffer>> all;
        for (const nb::handle sample : samples) {
          std::vector<HostBuffer> inputs;
          for (const Buffer& input : to_sample(program, sample))
            inputs.push_back(waited_host(input));
          all.push_back(std::move(inputs));
        }
        const std::shared_ptr<const WeightSet> set =
            arrays.is_none() ? std::make_shared<const WeightSet>(std::map<std::string, Buffer>())
                             : to_weights(arrays);
        const nb::gil_scoped_release no_gil;
        return quant::calibrate(program, *set, all, {.observer = {}, .per_channel = per_channel})
            .to_text();
      },
      nb::arg("program"), nb::arg("weights").none(), nb::arg("samples"),
      nb::arg("per_channel") = false,
      "The ranges of a program's values over samples, as text: for Backend(calibration=...). Each "
      "sample is a sequence of inputs, a dict of them, or the array of the only input");

  module.def(
      "record_activations",
      [](const Session& self, nb::handle inputs, const std::vector<std::string>& names) {
        const std::vector<Buffer> buffers = to_sample(self.program(), inputs);
        RecordedValues recorded;
        {
          const nb::gil_scoped_release no_gil;
          recorded = record_activations(self.fork(), buffers, names);
        }
        nb::dict arrays;
        for (auto& [name, array] : recorded)
          arrays[nb::str(name.c_str())] = nb::cast(std::move(array));
        return arrays;
      },
      nb::arg("session"), nb::arg("inputs"), nb::arg("names") = std::vector<std::string>(),
      "Runs once; the arrays of these values (\"add3\", \"layer[3]\"), or of every step, by name");
  module.def(
      "compare_activations",
      [](const Session& self, nb::handle inputs, nb::handle recorded, double relative,
         double absolute) {
        const std::vector<Buffer> buffers = to_sample(self.program(), inputs);
        RecordedValues wanted;
        for (const auto& [name, array] : named_items(recorded)) {
          wanted.emplace(name, to_host_buffer(array));
        }
        Comparison comparison;
        {
          const nb::gil_scoped_release no_gil;
          comparison = compare_activations(self.fork(), buffers, wanted, {absolute, relative});
        }
        return comparison;
      },
      nb::arg("session"), nb::arg("inputs"), nb::arg("recorded"), nb::kw_only(),
      nb::arg("relative") = 1e-3, nb::arg("absolute") = 0,
      "Runs once, and compares values with recorded ones, as another framework computed them");
}

void bind_comparison(nb::module_& module) {
  auto comparison =
      nb::class_<Comparison>(module, "Comparison", "Values of a program beside recorded ones");
  comparison.def_prop_ro(
      "values",
      [](const Comparison& self) {
        nb::list values;
        for (const ValueDifference& one : self.values) {
          nb::dict facts;
          facts["name"] = one.name;
          facts["value"] = one.value;
          facts["op"] = one.op;
          facts["max"] = one.difference.max;
          facts["mean"] = one.difference.mean;
          facts["p50"] = one.difference.p50;
          facts["p90"] = one.difference.p90;
          facts["p99"] = one.difference.p99;
          facts["largest"] = one.difference.scale;
          facts["within"] = one.is_within;
          values.append(facts);
        }
        return values;
      },
      "One dict per value, in the order that they are computed");
  comparison.def_prop_ro(
      "unknown", [](const Comparison& self) { return self.unknown; },
      "Recorded names that no step computes");
  comparison.def_prop_ro(
      "first",
      [](const Comparison& self) -> std::optional<std::string> {
        const ValueDifference* const first = self.first();
        return first == nullptr ? std::nullopt : std::optional(first->name);
      },
      "The name of the first value that is out of tolerance; None where every one is within");
  comparison.def("__str__", [](const Comparison& self) { return self.table(); });
}

}  // namespace

std::chrono::nanoseconds to_limit(double timeout) {
  constexpr double longest = 30 * 365.0 * 24 * 3600;  // what a clock of nanoseconds can still add
  if (std::isnan(timeout))
    throw Error(Errc::bad_argument, "timeout", "nan is no number of seconds");
  const double seconds = std::clamp(timeout, -longest, longest);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

Interrupt to_interrupt(std::optional<double> timeout) {
  Interrupt interrupt;
  if (timeout) interrupt.deadline = std::chrono::steady_clock::now() + to_limit(*timeout);
  return interrupt;
}

std::shared_ptr<const WeightSet> to_weights(nb::handle object) {
  if (object.is_none()) return nullptr;
  if (nb::isinstance<PythonWeights>(object)) return nb::cast<PythonWeights&>(object).weights;
  if (nb::isinstance<nb::str>(object) || nb::hasattr(object, "__fspath__")) {
    return to_weights(nb::module_::import_("tenon").attr("open")(object));
  }
  return std::make_shared<const WeightSet>(to_named_buffers(object));
}

void bind_sessions(nb::module_& module) {
  bind_weights(module);
  bind_trace(module);
  auto session = nb::class_<Session>(module, "Session",
                                     "A program bound to backends and weights, ready to run. One "
                                     "thread at a time; fork() for more");
  bind_making(session);
  bind_runs(session);
  bind_watching(session);
  bind_recording(module);
  bind_comparison(module);
}

}  // namespace tenon::python
