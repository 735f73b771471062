// What compiles generated kernels for the emulated device: the host's compiler.
#pragma once

#include "driver/kernel_compiler.hpp"

#include <functional>
#include <string>

namespace tenon::testing {

/// Of the process, since a test opens many devices.
struct HostCompilerState {
  int compiled = 0;           ///< texts, so far
  std::string version = "1";  ///< as if it were another compiler
  bool fails = false;
  bool gives_no_image = false;                        ///< but bytes that do not load
  std::function<void(const std::string& text)> seen;  ///< is called with every text, if it is set
};
HostCompilerState& host_compiler_state();

/// For cuda::set_emulated_compiler.
cuda::FoundCompiler open_host_compiler();

}  // namespace tenon::testing
