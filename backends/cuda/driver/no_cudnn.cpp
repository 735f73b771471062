// In builds without the headers of cuDNN.
#include "driver/vendor_library.hpp"

namespace tenon::cuda {

Vendor<ConvolutionCall> open_cudnn() { return {nullptr, "no cuDNN: built without its headers"}; }

}  // namespace tenon::cuda
