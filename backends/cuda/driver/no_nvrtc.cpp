// In builds without the header of NVRTC.
#include "driver/kernel_compiler.hpp"

namespace tenon::cuda {

FoundCompiler open_nvrtc(int /*capability*/) {
  return {nullptr, "no NVRTC: built without its header"};
}

}  // namespace tenon::cuda
