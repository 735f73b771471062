// The kernels of point_entries.def, a module of their own.
#include "kernels/define_kernel.hpp"
#include "kernels/point_digits.hpp"

namespace tenon::cuda {

#include "kernels/point_entries.def"

}  // namespace tenon::cuda
