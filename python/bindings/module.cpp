#include "bindings.hpp"

#include <tenon/version.hpp>

#include <nanobind/stl/string.h>

NB_MODULE(_tenon, module) {
  using namespace tenon::python;
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
  bind_ops(module);
  bind_own_ops(module);
  bind_files(module);
  bind_text(module);
  bind_models(module);
}
