#include "bindings.hpp"

#include <tenon/version.hpp>

#include <nanobind/stl/string.h>

namespace {

/// An interpreter without a global lock is refused where it was told not to take one for this module: the
/// objects of Python's here are not guarded by locks of their own.
void require_interpreter_lock() {
  const nanobind::module_ sys = nanobind::module_::import_("sys");
  if (!nanobind::hasattr(sys, "_is_gil_enabled")) return;
  if (nanobind::cast<bool>(sys.attr("_is_gil_enabled")())) return;
  throw nanobind::import_error(
      "tenon needs Python's global lock: start Python without PYTHON_GIL=0 and -X gil=0, so that "
      "importing "
      "tenon enables it");
}

}  // namespace

NB_MODULE(_tenon, module) {
  using namespace tenon::python;
  require_interpreter_lock();
  nanobind::set_leak_warnings(false);  // nothing in the library prints
  module.doc() = "The compiled part of tenon";
  module.attr("__version__") = std::string(tenon::version());
  bind_errors(module);
  bind_types(module);
  bind_devices(module);
  bind_arrays(module);
  bind_programs(module);
  bind_sessions(module);
  bind_graphs(module);
  bind_objects(module);
  bind_ops(module);
  bind_builders(module);
  bind_own_ops(module);
  bind_files(module);
  bind_text(module);
  bind_models(module);
  end_with_python_calls();
  forward_log_to_python();
}
