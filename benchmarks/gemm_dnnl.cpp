#include "gemm_peers.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#ifdef TENON_HAS_DNNL
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace tenon::bench {

#ifdef TENON_HAS_DNNL

namespace {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

struct State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul product;
  dnnl::memory x, y;
  std::vector<dnnl::memory> weights;
  std::size_t next = 0;
};

dnnl::memory reordered(State& state, dnnl::memory from, const dnnl::memory::desc& to) {
  dnnl::memory result(to, state.engine);
  dnnl::reorder(from, result).execute(state.stream, from, result);
  state.stream.wait();
  return result;
}

dnnl::memory plain(State& state, std::span<const float> values, const dnnl::memory::dims& dims,
                   Tag tag) {
  dnnl::memory memory({dims, Type::f32, tag}, state.engine);
  std::copy(values.begin(), values.end(), static_cast<float*>(memory.get_data_handle()));
  return memory;
}

/// Scaled so that the largest becomes 127. One scale for all: where scales go changes no time.
std::vector<float> to_bytes(std::span<const float> values, std::size_t count) {
  float most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::fabs(values[i]));
  std::vector<float> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = std::nearbyint(values[i] * 127 / most);
  return bytes;
}

}  // namespace

Run dnnl_run(const Product& p) {
  if (p.dtype != DType::f32 && p.dtype != DType::bf16 && p.dtype != DType::q8_0) return {};
  omp_set_num_threads(p.threads);
  const bool bytes = p.dtype == DType::q8_0;
  const Type type = bytes ? Type::s8 : p.dtype == DType::bf16 ? Type::bf16 : Type::f32;
  auto state = std::make_shared<State>();
  const dnnl::memory::dims x_dims{p.rows, p.inputs}, w_dims{p.inputs, p.outputs},
      y_dims{p.rows, p.outputs};
  dnnl::primitive_attr attributes;
  if (bytes) {
    attributes.set_output_scales(2, std::vector<float>(static_cast<std::size_t>(p.outputs), 0.01f));
  }
  try {
    const dnnl::matmul::primitive_desc chosen(
        dnnl::matmul::desc({x_dims, type, Tag::ab}, {w_dims, type, Tag::any},
                           {y_dims, Type::f32, Tag::ab}),
        attributes, state->engine);
    state->product = dnnl::matmul(chosen);
    const auto count = static_cast<std::size_t>(p.rows * p.inputs);
    std::vector<float> x(p.x.begin(), p.x.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<float> w(p.weights.begin(), p.weights.end());
    if (bytes) {
      x = to_bytes(x, x.size());
      w = to_bytes(w, w.size());
    }
    state->x = reordered(*state, plain(*state, x, x_dims, Tag::ab), {x_dims, type, Tag::ab});
    state->y = dnnl::memory({y_dims, Type::f32, Tag::ab}, state->engine);
    const dnnl::memory file = plain(*state, w, w_dims, Tag::ba);
    for (int i = 0; i < p.copies; ++i) {
      state->weights.push_back(reordered(*state, file, chosen.weights_desc()));
    }
  } catch (const dnnl::error&) {
    return {};  // not supported by this machine, or by this version
  }
  return [state] {
    state->product.execute(
        state->stream, {{DNNL_ARG_SRC, state->x},
                        {DNNL_ARG_WEIGHTS, state->weights[state->next++ % state->weights.size()]},
                        {DNNL_ARG_DST, state->y}});
    state->stream.wait();
  };
}

Run dnnl_sgemm_run(const Product& p) {
  omp_set_num_threads(p.threads);
  auto y = std::make_shared<std::vector<float>>(static_cast<std::size_t>(p.rows * p.outputs));
  return [y, p] {
    dnnl_sgemm('N', 'N', p.rows, p.outputs, p.inputs, 1.0f, p.x.data(), p.inputs, p.weights.data(),
               p.outputs, 0.0f, y->data(), p.outputs);
  };
}

#else

Run dnnl_run(const Product&) { return {}; }
Run dnnl_sgemm_run(const Product&) { return {}; }

#endif

}  // namespace tenon::bench
