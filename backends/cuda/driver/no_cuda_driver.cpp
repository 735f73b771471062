// In builds without the CUDA toolkit.
#include "driver/driver.hpp"

#include <tenon/error.hpp>

namespace tenon::cuda {

DriverPtr open_cuda_driver(int /*index*/) {
  throw Error(Errc::device_unavailable, "cuda",
              "this library was built without the CUDA toolkit, so it has no kernels for devices");
}

}  // namespace tenon::cuda
