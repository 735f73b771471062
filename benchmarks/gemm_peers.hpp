#pragma once

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// Matrix multiplications of other libraries, which bench_gemm compares with Tenon's.
namespace tenon::bench {

/// y[rows, outputs] = x[rows, inputs] * W[outputs, inputs]^T with W of `dtype`.
struct Product {
  DType dtype = DType::f32;
  std::int64_t rows = 0, outputs = 0, inputs = 0;
  std::span<const float> x;
  std::span<const float> weights;  ///< before rounding to dtype
  bool by_output = true;           ///< whether weights are [outputs, inputs] or the transpose
  /// Copies of the weights, used in rotation, so that few rows read them from memory and not from a
  /// core's cache.
  int copies = 1;
  int threads = 1;
  std::span<float> y{};  ///< where Tenon and ggml leave results, if anybody wants them
};

/// Normal numbers, the same in every run.
std::vector<float> normals(std::int64_t count, float scale, unsigned seed = 1);

/// The weights as files store them in a type: the same blocks for everybody.
std::vector<std::byte> stored(DType dtype, std::span<const float> weights);

/// One matrix multiplication per call, with the next copy of the weights; empty where the library
/// does not support it. Owns everything it needs.
using Run = std::function<void()>;

/// f32 only; weights as the caller stores them, since its interface packs within each call. Empty
/// where it was not found when this program was built.
Run openblas_run(const Product& product);

/// f32; bf16 with x rounded before the call; i8 for DType::q8_0: a scale per output, x as bytes
/// made before the call. Weights in the layout that it chooses itself. Empty as above.
Run dnnl_run(const Product& product);
/// f32, with weights [inputs, outputs] as the caller stores them.
Run dnnl_sgemm_run(const Product& product);

/// ggml's shared libraries, opened from a folder at run time. Nothing of it is needed to build.
class Ggml {
 public:
  /// Throws tenon::Error when the folder lacks them.
  explicit Ggml(const std::string& folder);
  /// Any type that files have; weights repacked where ggml does so by itself in llama.cpp.
  Run run(const Product& product) const;

 private:
  struct Library;
  std::shared_ptr<const Library> library_;
};

}  // namespace tenon::bench
