#include "gemm_peers.hpp"

#include <tenon/error.hpp>

#include <map>
#include <vector>

#include <dlfcn.h>

// The part of ggml's interface (ggml.h, ggml-alloc.h, ggml-backend.h, ggml-cpu.h as of ggml 0.25)
// that one matrix multiplication needs. Everything but ggml_init_params is passed by pointer.
extern "C" {
struct ggml_init_params {
  std::size_t mem_size;
  void* mem_buffer;
  bool no_alloc;
};
}

namespace tenon::bench {
namespace {

/// As ggml's files number them.
const std::map<DType, int> type_numbers = {
    {DType::f32, 0},     {DType::f16, 1},     {DType::q4_0, 2},  {DType::q4_1, 3},
    {DType::q5_0, 6},    {DType::q5_1, 7},    {DType::q8_0, 8},  {DType::q2_k, 10},
    {DType::q3_k, 11},   {DType::q4_k, 12},   {DType::q5_k, 13}, {DType::q6_k, 14},
    {DType::iq4_nl, 20}, {DType::iq4_xs, 23}, {DType::bf16, 30},
};

void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw Error(Errc::not_found, "bench_gemm", dlerror());
  return library;
}

template <class F>
F symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) throw Error(Errc::not_found, "bench_gemm", dlerror());
  return reinterpret_cast<F>(found);
}

}  // namespace

struct Ggml::Library {
  using P = void*;
  P base, cpu;
  P (*init)(ggml_init_params);
  void (*free)(P context);
  P (*new_tensor_2d)(P context, int type, std::int64_t columns, std::int64_t rows);
  P (*mul_mat)(P context, P weights, P x);
  P (*new_graph)(P context);
  void (*build_forward_expand)(P graph, P tensor);
  P (*alloc_on)(P context, P backend);
  P (*alloc_from)(P context, P buffer_type);
  void (*buffer_free)(P buffer);
  void (*tensor_set)(P tensor, const void* data, std::size_t offset, std::size_t size);
  void (*tensor_get)(P tensor, void* data, std::size_t offset, std::size_t size);
  int (*graph_compute)(P backend, P graph);
  P (*get_device)(P backend);
  P (*registry_of)(P device);
  P (*address_of)(P registry, const char* name);
  bool (*supports)(P device, P tensor);
  P (*cpu_init)();
  void (*set_threads)(P backend, int threads);

  explicit Library(const std::string& folder)
      : base(open_library(folder + "/libggml-base.so")),
        cpu(open_library(folder + "/libggml-cpu.so")) {
    const auto find = [&]<class F>(F& to, void* library, const char* name) {
      to = symbol<F>(library, name);
    };
    find(init, base, "ggml_init");
    find(free, base, "ggml_free");
    find(new_tensor_2d, base, "ggml_new_tensor_2d");
    find(mul_mat, base, "ggml_mul_mat");
    find(new_graph, base, "ggml_new_graph");
    find(build_forward_expand, base, "ggml_build_forward_expand");
    find(alloc_on, base, "ggml_backend_alloc_ctx_tensors");
    find(alloc_from, base, "ggml_backend_alloc_ctx_tensors_from_buft");
    find(buffer_free, base, "ggml_backend_buffer_free");
    find(tensor_set, base, "ggml_backend_tensor_set");
    find(tensor_get, base, "ggml_backend_tensor_get");
    find(graph_compute, base, "ggml_backend_graph_compute");
    find(get_device, base, "ggml_backend_get_device");
    find(registry_of, base, "ggml_backend_dev_backend_reg");
    find(address_of, base, "ggml_backend_reg_get_proc_address");
    find(supports, base, "ggml_backend_dev_supports_op");
    find(cpu_init, cpu, "ggml_backend_cpu_init");
    find(set_threads, cpu, "ggml_backend_cpu_set_n_threads");
  }
};

Ggml::Ggml(const std::string& folder) : library_(std::make_shared<const Library>(folder)) {}

namespace {

struct State {
  std::vector<void*> contexts, buffers, graphs, results;
  void* backend = nullptr;
  std::size_t next = 0;
};

}  // namespace

Run Ggml::run(const Product& p) const {
  const auto number = type_numbers.find(p.dtype);
  if (number == type_numbers.end()) return {};
  const Library& g = *library_;
  const auto free_all = [library = library_](State* state) {
    for (void* buffer : state->buffers) library->buffer_free(buffer);
    for (void* context : state->contexts) library->free(context);
    delete state;
  };
  const std::shared_ptr<State> state(new State, free_all);
  static void* const backend = g.cpu_init();  // one for the process: it owns threads
  state->backend = backend;
  g.set_threads(backend, p.threads);
  const auto context = [&] {
    state->contexts.push_back(g.init({std::size_t{1} << 20, nullptr, true}));
    return state->contexts.back();
  };
  // Where the CPU backend puts weights that it repacks, best first.
  void* const device = g.get_device(backend);
  std::vector<void*> places;
  if (void* extra = g.address_of(g.registry_of(device), "ggml_backend_dev_get_extra_bufts")) {
    void** list = reinterpret_cast<void** (*)(void*)>(extra)(device);
    for (; list != nullptr && *list != nullptr; ++list) places.push_back(*list);
  }
  const std::vector<std::byte> blocks = stored(p.dtype, p.weights);

  void* const rows = context();
  void* const x = g.new_tensor_2d(rows, 0, p.inputs, p.rows);
  state->buffers.push_back(g.alloc_on(rows, backend));
  g.tensor_set(x, p.x.data(), 0, static_cast<std::size_t>(p.rows * p.inputs) * sizeof(float));
  for (int copy = 0; copy < p.copies; ++copy) {
    void* weights = nullptr;
    void* steps = context();
    void* y = nullptr;
    for (std::size_t i = 0; i <= places.size(); ++i) {
      void* const home = context();
      weights = g.new_tensor_2d(home, number->second, p.inputs, p.outputs);
      void* buffer = i < places.size() ? g.alloc_from(home, places[i]) : g.alloc_on(home, backend);
      if (buffer == nullptr) continue;
      state->buffers.push_back(buffer);
      y = g.mul_mat(steps, weights, x);
      if (i == places.size() || g.supports(device, y)) break;
    }
    g.tensor_set(weights, blocks.data(), 0, blocks.size());
    void* const graph = g.new_graph(steps);
    g.build_forward_expand(graph, y);
    state->buffers.push_back(g.alloc_on(steps, backend));
    state->graphs.push_back(graph);
    state->results.push_back(y);
  }
  return [state, library = library_, y = p.y] {
    const std::size_t copy = state->next++ % state->graphs.size();
    library->graph_compute(state->backend, state->graphs[copy]);
    if (!y.empty()) library->tensor_get(state->results[copy], y.data(), 0, y.size_bytes());
  };
}

}  // namespace tenon::bench
