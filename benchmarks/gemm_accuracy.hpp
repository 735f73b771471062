#pragma once

#include "gemm_peers.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace tenon::bench {

/// Prints the error of matrix multiplications of each type relative to sums in f64 of the same x
/// and the same dequantised weights: the largest and the mean error as a share of the results' root
/// mean square, ours and, where given, ggml's. Rows are normally distributed, with one column in a
/// hundred 20 times as large, as in language models. 1 and 64 rows, W [2048, 2048].
void report_accuracy(const std::vector<DType>& types,
                     const std::function<Run(const Product&)>& tenon_run,
                     const std::optional<Ggml>& ggml, int threads);

}  // namespace tenon::bench
