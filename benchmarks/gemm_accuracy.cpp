#include "gemm_accuracy.hpp"

#include <tenon/quant.hpp>

#include <algorithm>
#include <cmath>
#include <thread>

#include <fmt/format.h>

namespace tenon::bench {
namespace {

constexpr std::int64_t outputs = 2048, inputs = 2048, max_rows = 64;

std::vector<float> rows_with_outliers() {
  std::vector<float> x = normals(max_rows * inputs, 1.0f, 2);
  for (std::size_t row = 0; row < max_rows; ++row) {
    for (std::size_t column = 0; column < inputs; column += 100) x[row * inputs + column] *= 20;
  }
  return x;
}

/// What blocks of the type hold after rounding.
std::vector<float> rounded(DType dtype, const std::vector<float>& weights) {
  std::vector<float> result(weights.size());
  dequantize(dtype, stored(dtype, weights).data(), result.data(),
             static_cast<std::int64_t>(weights.size()));
  return result;
}

std::vector<double> reference(const std::vector<float>& x, const std::vector<float>& weights,
                              std::int64_t rows) {
  std::vector<double> y;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t n = 0; n < outputs; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < inputs; ++k) {
        sum += static_cast<double>(x[static_cast<std::size_t>(row * inputs + k)]) *
               static_cast<double>(weights[static_cast<std::size_t>(n * inputs + k)]);
      }
      y.push_back(sum);
    }
  }
  return y;
}

struct Errors {
  double largest = 0, mean = 0;
};

Errors errors(const std::vector<float>& got, const std::vector<double>& want) {
  Errors result;
  double squares = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    result.largest = std::max(result.largest, error);
    result.mean += error;
    squares += want[i] * want[i];
  }
  const auto count = static_cast<double>(want.size());
  const double scale = std::sqrt(squares / count);
  return {result.largest / scale, result.mean / count / scale};
}

}  // namespace

void report_accuracy(const std::vector<DType>& types,
                     const std::function<Run(const Product&)>& tenon_run,
                     const std::optional<Ggml>& ggml, int threads) {
  fmt::print("{:7} {:>5} {:>12} {:>12}{}\n", "type", "rows", "largest", "mean",
             ggml ? fmt::format(" {:>12} {:>12}", "ggml's", "mean") : "");
  const std::vector<float> weights = normals(outputs * inputs, 0.02f, 1), x = rows_with_outliers();
  for (const DType dtype : types) {
    const std::vector<float> held = rounded(dtype, weights);
    for (const std::int64_t rows : {std::int64_t{1}, max_rows}) {
      const std::vector<double> want = reference(x, held, rows);
      std::vector<float> y(want.size());
      const std::span some(x.data(), static_cast<std::size_t>(rows * inputs));
      Product product{dtype, rows, outputs, inputs, some, weights};
      product.threads = threads;
      product.y = y;
      tenon_run(product)();
      const Errors ours = errors(y, want);
      fmt::print("{:7} {:5} {:12.2e} {:12.2e}", name(dtype), rows, ours.largest, ours.mean);
      if (ggml) {
        std::ranges::fill(y, 0.0f);
        // ggml configures tiles once per thread and assumes afterwards that they are; we release
        // them after each matrix multiplication.
        std::thread(ggml->run(product)).join();
        const Errors theirs = errors(y, want);
        fmt::print(" {:12.2e} {:12.2e}", theirs.largest, theirs.mean);
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace tenon::bench
