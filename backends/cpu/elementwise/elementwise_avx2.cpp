#include "../simd/avx2.hpp"
#include "convert_body.hpp"
#include "elementwise_kernels.hpp"
#include "exp_f64_body.hpp"
#include "fold_body.hpp"
#include "gamma_body.hpp"
#include "row_body.hpp"
#include "typed_body.hpp"

namespace tenon::cpu::avx2 {

constinit const ElementwiseKernels elementwise{run_unary,
                                               run_binary,
                                               run_gated,
                                               run_rms_norm_row,
                                               run_layer_norm_row,
                                               run_softmax_row,
                                               run_sum_row,
                                               run_max_row,
                                               run_min_row,
                                               run_rotate_row,
                                               run_arithmetic,
                                               run_compare,
                                               run_choose,
                                               run_accumulate,
                                               run_accumulate_rows,
                                               run_log_softmax_row,
                                               run_f16_to_f32,
                                               run_f32_to_f16,
                                               run_bf16_to_f32,
                                               run_f32_to_bf16,
                                               run_unary_rows,
                                               run_quantize_codes,
                                               run_dequantize_codes,
                                               run_softmax_columns,
                                               run_log_softmax_columns,
                                               run_accumulate_columns,
                                               run_fold_rows,
                                               run_find_places,
                                               run_log_gamma,
                                               run_digamma,
                                               run_exp_f64,
                                               run_round_to_odd};

}  // namespace tenon::cpu::avx2
