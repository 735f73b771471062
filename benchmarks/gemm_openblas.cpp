#include "gemm_peers.hpp"

#include <vector>

#ifdef TENON_HAS_OPENBLAS
#include <cblas-openblas.h>
#endif

namespace tenon::bench {

#ifdef TENON_HAS_OPENBLAS

Run openblas_run(const Product& p) {
  if (p.dtype != DType::f32) return {};
  openblas_set_num_threads(p.threads);
  struct State {
    std::vector<std::vector<float>> weights;
    std::vector<float> y;
    std::size_t next = 0;
  };
  auto state = std::make_shared<State>();
  for (int i = 0; i < p.copies; ++i)
    state->weights.emplace_back(p.weights.begin(), p.weights.end());
  state->y.resize(static_cast<std::size_t>(p.rows * p.outputs));
  return [state, x = p.x, by_output = p.by_output, m = static_cast<int>(p.rows),
          n = static_cast<int>(p.outputs), k = static_cast<int>(p.inputs)] {
    const float* w = state->weights[state->next++ % state->weights.size()].data();
    if (m == 1) {
      cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, w, k, x.data(), 1, 0.0f, state->y.data(),
                  1);
    } else {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, by_output ? CblasTrans : CblasNoTrans, m, n, k, 1.0f,
                  x.data(), k, w, by_output ? k : n, 0.0f, state->y.data(), n);
    }
  };
}

#else

Run openblas_run(const Product&) { return {}; }

#endif

}  // namespace tenon::bench
