// In builds without the header of cuBLASLt.
#include "driver/vendor_library.hpp"

namespace tenon::cuda {

Vendor<GemmCall> open_cublaslt() { return {nullptr, "no cuBLASLt: built without its header"}; }

}  // namespace tenon::cuda
