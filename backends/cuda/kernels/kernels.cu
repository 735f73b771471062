// The kernels as nvcc compiles them, functions named as in entries.def: all but those of points.cu.
#include "kernels/all.hpp"
#include "kernels/define_kernel.hpp"

namespace tenon::cuda {

#define TENON_CUDA_WITHOUT_POINTS
#include "kernels/entries.def"

}  // namespace tenon::cuda
