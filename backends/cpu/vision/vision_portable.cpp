// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "vision_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const VisionKernels vision{run_fold_rows,  run_fold_row,  run_take_greater,
                                     run_mix_row,    run_unmix_row, run_mix_rows,
                                     run_add_scaled, run_scale_row, run_add_moments};

}  // namespace tenon::cpu::portable
