// What builders refuse before they record an op: one call a line.
#include "support/expect_error.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops.hpp>

#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::testing {
namespace {

struct Call {
  std::string_view name;
  Errc error;
  std::function<void(Graph& graph)> call;
};

void check(const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    Graph graph;
    const Graph::Recording recording(graph);
    INFO(call.name);
    expect_error(call.error, [&] { call.call(graph); });
  }
}

/// An input of these sizes.
Tensor of(Graph& graph, std::initializer_list<std::int64_t> sizes, DType dtype = f32) {
  static int inputs = 0;
  return graph.input("x" + std::to_string(inputs++), Shape(sizes, dtype));
}
/// f32[2, 3, n, 6], n unknown.
Tensor open(Graph& graph) {
  return graph.input("open", Shape({Axis(2), Axis(3), Axis(symbol("n")), Axis(6)}, f32));
}

constexpr Errc argument = Errc::bad_argument, attribute = Errc::bad_attribute,
               dtype = Errc::unsupported_dtype, mismatch = Errc::shape_mismatch;

TEST_CASE("builders: activations, norms and losses refuse") {
  check({
      {"swiglu of an odd size", argument, [](Graph& g) { swiglu(of(g, {2, 3})); }},
      {"swiglu of an unknown size", argument, [](Graph& g) { swiglu(open(g), 2); }},
      {"celu", argument, [](Graph& g) { celu(of(g, {2}), 0); }},
      {"alibi_slopes of no head", argument, [](Graph&) { alibi_slopes(0); }},
      {"alibi_slopes without a bias", argument, [](Graph&) { alibi_slopes(4, 0); }},
      {"batch_norm of a vector", mismatch,
       [](Graph& g) { batch_norm(of(g, {3}), of(g, {3}), of(g, {3})); }},
      {"batch_norm of other channels", mismatch,
       [](Graph& g) { batch_norm(of(g, {2, 3}), of(g, {4}), of(g, {3})); }},
      {"batch_norm with a bias alone", argument,
       [](Graph& g) { batch_norm(of(g, {2, 3}), of(g, {3}), of(g, {3}), {}, of(g, {3})); }},
      {"instance_norm of a vector", mismatch, [](Graph& g) { instance_norm(of(g, {3})); }},
      {"instance_norm of unknown channels", Errc::unsupported,
       [](Graph& g) {
         instance_norm(g.input("x", Shape({Axis(2), Axis(symbol("c")), Axis(4)}, f32)));
       }},
      {"local_response_norm of a vector", mismatch,
       [](Graph& g) { local_response_norm(of(g, {3}), 3); }},
      {"cross_entropy of real labels", dtype,
       [](Graph& g) { cross_entropy(of(g, {2, 3}), of(g, {2})); }},
      {"cross_entropy of integers", dtype,
       [](Graph& g) { cross_entropy(of(g, {2, 3}, i32), of(g, {2}, i32)); }},
      {"cross_entropy of other rows", mismatch,
       [](Graph& g) { cross_entropy(of(g, {2, 3}), of(g, {3}, i64)); }},
      {"cross_entropy of a smoothing", argument,
       [](Graph& g) { cross_entropy(of(g, {2, 3}), of(g, {2}, i64), {.label_smoothing = 1.5}); }},
      {"huber_loss", argument, [](Graph& g) { huber_loss(of(g, {2}), of(g, {2}), -1); }},
      {"sum_to of another size", mismatch,
       [](Graph& g) { sum_to(of(g, {2, 3}), Shape({2, 2}, f32)); }},
      {"sum_to of a higher rank", mismatch,
       [](Graph& g) { sum_to(of(g, {3}), Shape({2, 3}, f32)); }},
  });
}

TEST_CASE("builders: pools and images refuse") {
  const PoolOptions pairs{.kernel = {2, 2}};
  check({
      {"max_pool of a kernel of another rank", attribute,
       [](Graph& g) { max_pool(of(g, {1, 2, 6, 6}), {.kernel = {2}}); }},
      {"max_pool without a kernel", attribute,
       [](Graph& g) { max_pool(of(g, {1, 2}), {.kernel = {}}); }},
      {"max_pool of a stride", attribute,
       [](Graph& g) { max_pool(of(g, {1, 2, 6, 6}), {.kernel = {2, 2}, .stride = {0, 1}}); }},
      {"max_pool of a list", attribute,
       [](Graph& g) { max_pool(of(g, {1, 2, 6, 6}), {.kernel = {2, 2}, .stride = {1}}); }},
      {"max_pool of an unknown size in ceil_mode", Errc::unsupported,
       [](Graph& g) { max_pool(open(g), {.kernel = {2, 2}, .ceil_mode = true}); }},
      {"avg_pool with a dilation", attribute,
       [](Graph& g) { avg_pool(of(g, {1, 2, 6, 6}), {.kernel = {2, 2}, .dilation = {2, 2}}); }},
      {"lp_pool of p = 0", attribute, [&](Graph& g) { lp_pool(of(g, {1, 2, 6, 6}), 0, pairs); }},
      {"lp_pool of p = inf", attribute,
       [&](Graph& g) { lp_pool(of(g, {1, 2, 6, 6}), INFINITY, pairs); }},
      {"adaptive_avg_pool without sizes", attribute,
       [](Graph& g) { adaptive_avg_pool(of(g, {1, 2, 6, 6}), {}); }},
      {"adaptive_avg_pool of size 0", attribute,
       [](Graph& g) { adaptive_avg_pool(of(g, {1, 2, 6, 6}), {0, 2}); }},
      {"adaptive_max_pool of more sizes than axes", attribute,
       [](Graph& g) { adaptive_max_pool(of(g, {6}), {2, 2}); }},
      {"adaptive_max_pool of nothing", Errc::bad_shape,
       [](Graph& g) { adaptive_max_pool(of(g, {1, 2, 0, 6}), {2, 2}); }},
      {"adaptive_max_pool of an unknown size", Errc::unsupported,
       [](Graph& g) { adaptive_max_pool(open(g), {2, 2}); }},
      {"global_max_pool of rank 2", mismatch, [](Graph& g) { global_max_pool(of(g, {1, 2})); }},
      {"pixel_shuffle of a matrix", mismatch, [](Graph& g) { pixel_shuffle(of(g, {4, 2}), 2); }},
      {"depth_to_space of another mode", attribute,
       [](Graph& g) { depth_to_space(of(g, {1, 4, 2, 2}), 2, "CDR"); }},
      {"conv3d of an unknown depth", Errc::unsupported,
       [](Graph& g) {
         conv3d(g.input("x", Shape({Axis(1), Axis(2), Axis(symbol("d")), Axis(4), Axis(4)}, f32)),
                of(g, {2, 2, 1, 1, 1}));
       }},
      {"conv_transpose3d of an output padding", attribute,
       [](Graph& g) {
         conv_transpose3d(of(g, {1, 2, 4, 4, 4}), of(g, {2, 2, 1, 1, 1}), {},
                          {.output_padding = {1, 0, -1}});
       }},
  });
}

TEST_CASE("builders: transforms, complex numbers, products and choices refuse") {
  check({
      {"view_as_real of real numbers", dtype, [](Graph& g) { view_as_real(of(g, {2, 2})); }},
      {"view_as_complex of f64", dtype, [](Graph& g) { view_as_complex(of(g, {2, 2}, f64)); }},
      {"rfft to f16", dtype, [](Graph& g) { rfft(of(g, {8}), -1, f16); }},
      {"rfft to f64 of f32", dtype, [](Graph& g) { rfft(of(g, {8}), -1, f64); }},
      {"hann_window of no sample", argument, [](Graph&) { hann_window(0); }},
      {"hamming_window of integers", argument, [](Graph&) { hamming_window(4, true, i32); }},
      {"stft of a window of rank 2", argument,
       [](Graph& g) { stft(of(g, {20}), of(g, {4, 1}), 2); }},
      {"stft of an unknown size", argument,
       [](Graph& g) { stft(g.input("x", Shape({Axis(symbol("n"))}, f32)), of(g, {4}), 2); }},
      {"stft of a hop of 0", argument, [](Graph& g) { stft(of(g, {20}), of(g, {4}), 0); }},
      {"stft of too few samples", argument,
       [](Graph& g) { stft(of(g, {3}), of(g, {4}), 2, false); }},
      {"stft of too few samples to mirror", argument,
       [](Graph& g) { stft(of(g, {4}), of(g, {8}), 2); }},
      {"mel_filters of none", argument, [](Graph&) { mel_filters(0, 8, 16000); }},
      {"mel_filters that run backwards", argument,
       [](Graph&) { mel_filters(4, 8, 16000, 4000, 3000); }},
      {"log_mel_spectrogram of f64", argument,
       [](Graph& g) { log_mel_spectrogram(of(g, {1600}, f64)); }},
      {"kron of rank 5", Errc::bad_shape,
       [](Graph& g) { kron(of(g, {1, 1, 1, 1, 2}), of(g, {2})); }},
      {"diagonal of an unknown size", argument, [](Graph& g) { diagonal(open(g), 0, 2, 3); }},
      {"gather_nd of batch axes beyond the rank", argument,
       [](Graph& g) { gather_nd(of(g, {2, 3}), of(g, {2, 1}, i64), 2); }},
      {"gather_nd of too many axes", mismatch,
       [](Graph& g) { gather_nd(of(g, {2, 3}), of(g, {4, 3}, i64)); }},
      {"gather_nd of other batches", mismatch,
       [](Graph& g) { gather_nd(of(g, {2, 3}), of(g, {4, 1}, i64), 1); }},
      {"gather_nd of an unknown number of axes", mismatch,
       [](Graph& g) {
         gather_nd(of(g, {2, 3}), g.input("i", Shape({4, Axis(symbol("n"))}, i64)));
       }},
      {"random_uniform of a size that nothing has", argument,
       [](Graph&) { random_uniform(random_key(1), Shape({Axis(symbol("n"))}, f32)); }},
      {"random_multinomial without replacement of unknown weights", argument,
       [](Graph& g) {
         random_multinomial(random_key(1), g.input("w", Shape({2, Axis(symbol("n"))}, f32)), 2);
       }},
      {"unique of a negative capacity", argument, [](Graph& g) { unique(open(g), -4); }},
  });
}

TEST_CASE("builders: the types of what few tests call") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor key = random_key(1);
  const auto is = [](const Tensor& y, const Shape& shape) {
    INFO(to_string(y.shape()));
    CHECK(y.shape() == shape);
  };
  is(random_bits(key, std::vector<std::int64_t>{3, 4}), Shape({3, 4}, u32));
  is(random_bernoulli(key, Shape({2, 3}, boolean), of(graph, {3})), Shape({2, 3}, boolean));
  is(non_max_suppression(of(graph, {1, 9, 4}), of(graph, {1, 2, 9}), {.capacity = 5}),
     Shape({5, 3}, i64));
  is(pages_of(of(graph, {2, 7, 3, 4, 8}, f16), of(graph, {}, i64)), Shape({7, 4, 3, 8}, f16));
  const Tensor z = view_as_complex(of(graph, {5, 2}));
  is(z.real(), Shape({5}, f32));
  is(z.imag(), Shape({5}, f32));
  is(z.conj(), Shape({5}, c64));
  is(complex_like(z, {1, -2}), Shape({}, c64));
}

}  // namespace
}  // namespace tenon::testing
