#pragma once

#include "gemm_peers.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace tenon::bench {

/// Prints how far products of each type are from sums in f64 of the same weights, dequantised, and
/// the same x: the largest and the mean error as a share of the results' root mean square, ours
/// and, where given, ggml's. Rows are normal numbers of which one column in a hundred is 20 times
/// as large, as language models have them. 1 and 64 rows, W [2048, 2048].
void report_accuracy(const std::vector<DType>& types,
                     const std::function<Run(const Product&)>& tenon_run,
                     const std::optional<Ggml>& ggml, int threads);

}  // namespace tenon::bench
