// Layers from the names of their weights, as Hugging Face and PyTorch write them.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/exe.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/weights_view.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace testing;
using Declared = std::vector<std::pair<std::string, Shape>>;

/// An encoder-decoder layer: x attends to itself, then to what an encoder made.
template <class T = Tensor>
struct CrossLayer {
  nn::MultiHeadAttention<T> self;
  nn::MultiHeadAttention<T> cross;
  nn::FeedForward<T> wide;
  TENON_FIELDS(self, cross, wide)

  Tensor forward(const Tensor& x, const Tensor& encoded, const Tensor& mask) const
    requires std::same_as<T, Tensor>
  {
    const Tensor seen = x + self.forward(x, Tensor());
    return wide.forward(seen + cross.forward(seen, encoded, encoded, mask));
  }
};

/// Self-attention with a cache, over as many positions as the caller has.
template <class T = Tensor>
struct CachedLayer {
  nn::MultiHeadAttention<T> self;
  TENON_FIELDS(self)

  std::pair<Tensor, nn::KvCache<Tensor>> forward(const Tensor& x, const Tensor& past,
                                                 const nn::KvCache<Tensor>& cache) const {
    const Tensor layer = full(0, Shape({}, i64));
    auto made = self.forward(x, nn::Position::after(past, x), layer, cache);
    return {made.y, made.cache};
  }
};

/// Self-attention with ALiBi, and the same with the biases of every query in its mask.
template <class T = Tensor>
struct BiasedLayer {
  nn::MultiHeadAttention<T> self;
  TENON_FIELDS(self)

  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask) const {
    nn::MultiHeadAttention<T> plain = self;
    plain.max_alibi_bias = 0;
    const std::int64_t steps = x.dim(1);
    const Tensor biases = alibi_mask(alibi_slopes(self.heads, self.max_alibi_bias), steps, steps);
    return {self.forward(x, mask), plain.forward(x, mask + biases)};
  }
};

/// Self-attention in chunks, and the same with a mask of them.
template <class T = Tensor>
struct ChunkedLayer {
  nn::MultiHeadAttention<T> self;
  TENON_FIELDS(self)

  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask) const {
    nn::MultiHeadAttention<T> plain = self;
    plain.chunk = 0;
    const Tensor positions = iota(x, 1, i32);
    return {self.forward(x, positions, Tensor()), plain.forward(x, positions, mask)};
  }
};

Declared attention_weights(const std::string& name, std::int64_t width, std::int64_t from,
                           std::int64_t queries, std::int64_t keys) {
  return {{name + ".q_proj.weight", Shape({queries, width}, f32)},
          {name + ".q_proj.bias", Shape({queries}, f32)},
          {name + ".k_proj.weight", Shape({keys, from}, f32)},
          {name + ".v_proj.weight", Shape({keys, from}, f32)},
          {name + ".o_proj.weight", Shape({width, queries}, f32)}};
}

/// Row-major products and softmax in f64, for what follows.
using Rows = std::vector<std::vector<double>>;

Rows rows_of(const HostBuffer& x) {  // [..., columns]
  const std::vector<double> all = elements(x);
  const std::size_t columns = static_cast<std::size_t>(x.shape().dims().back());
  Rows rows(all.size() / columns);
  for (std::size_t i = 0; i < all.size(); ++i) rows[i / columns].push_back(all[i]);
  return rows;
}

/// x w^T + b
Rows product(const Rows& x, const Rows& w, const std::vector<double>& b = {}) {
  Rows y(x.size(), std::vector<double>(w.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < w.size(); ++j) {
      y[i][j] = b.empty() ? 0 : b[j];
      for (std::size_t k = 0; k < x[i].size(); ++k) y[i][j] += x[i][k] * w[j][k];
    }
  }
  return y;
}

/// Attention of one batch row: a group of query heads shares each key head.
Rows attended(const Rows& q, const Rows& k, const Rows& v, std::size_t heads, std::size_t kv_heads,
              const Rows& mask) {
  const std::size_t size = q[0].size() / heads, group = heads / kv_heads;
  Rows y(q.size(), std::vector<double>(q[0].size()));
  for (std::size_t i = 0; i < q.size(); ++i) {
    for (std::size_t h = 0; h < heads; ++h) {
      std::vector<double> p(k.size());
      for (std::size_t t = 0; t < k.size(); ++t) {
        double score = 0;
        for (std::size_t d = 0; d < size; ++d)
          score += q[i][h * size + d] * k[t][h / group * size + d];
        p[t] = score / std::sqrt(static_cast<double>(size)) + (mask.empty() ? 0 : mask[i][t]);
      }
      double sum = 0;
      for (const double largest = std::ranges::max(p); double& weight : p) {
        weight = std::exp(weight - largest);
        sum += weight;
      }
      for (std::size_t t = 0; t < k.size(); ++t) {
        for (std::size_t d = 0; d < size; ++d) {
          y[i][h * size + d] += p[t] / sum * v[t][h / group * size + d];
        }
      }
    }
  }
  return y;
}

TEST_CASE("nn: a cache is filled in pieces of any length") {
  register_cpu_backend();
  const Declared declared = attention_weights("self", 6, 6, 8, 4);
  const WeightsView view("model.safetensors", declared);
  CachedLayer<> model{nn::MultiHeadAttention<>::init(view["self"], 2)};
  model.self.options.causal = true;
  model.self.rope = Rope{};
  model.self.max_alibi_bias = 2;
  Random random;  // prints its seed
  const auto weights = map_fields<Buffer>(model, [&](const std::string&, const Tensor& t) {
    return device(random.uniform(t.shape()));
  });
  const auto shapes = nn::kv_cache_shape(1, 2, 1, 9, 4, f32);
  auto run =
      compile<&CachedLayer<>::forward>(
          model, {Shape({2, symbol("S"), 6}, f32), Shape({2}, i32), shapes}, CompileOptions{})
          .bind(weights);
  const HostBuffer x = random.uniform(Shape({2, 9, 6}, f32));
  const auto after = [](std::int32_t past) {
    return device(HostBuffer::of<std::int32_t>(Shape({2}, i32), {past, past}));
  };
  const auto empty_cache = [&] {
    return map_fields<Buffer>(
        shapes, [](const std::string&, const Shape& s) { return device(HostBuffer::zeros(s)); });
  };
  const HostBuffer whole = run(device(x), after(0), empty_cache()).first.to_host();
  nn::KvCache<Buffer> cache = empty_cache();
  std::int64_t past = 0;
  for (const std::int64_t length : {4, 1, 3, 1}) {
    auto [y, next] = run(device(x.slice(1, past, past + length).contiguous()),
                         after(static_cast<std::int32_t>(past)), std::move(cache));
    cache = std::move(next);
    expect_close(y.to_host(), whole.slice(1, past, past + length).contiguous(), 1e-5, 1e-5);
    past += length;
  }
}

TEST_CASE("nn: queries see the keys of their own chunk only, with a cache and without") {
  register_cpu_backend();
  const Declared declared = attention_weights("self", 6, 6, 8, 4);
  const WeightsView view("model.safetensors", declared);
  ChunkedLayer<> model{nn::MultiHeadAttention<>::init(view["self"], 2)};
  model.self.options.causal = true;
  model.self.rope = Rope{};
  model.self.chunk = 4;
  model.self.rotated_eps = 1e-5;
  model.self.temperature = {.scale = 0.5, .length = 3, .offset = 1};
  Random random;  // prints its seed
  const auto weights = map_fields<Buffer>(model, [&](const std::string&, const Tensor& t) {
    return device(random.uniform(t.shape()));
  });
  constexpr std::int64_t steps = 10, chunk = 4;
  HostBuffer mask = HostBuffer::zeros(Shape({steps, steps}, f32));
  const auto places = mask.mutable_values<float>();
  for (std::int64_t i = 0; i < steps; ++i) {
    for (std::int64_t j = 0; j < steps; ++j) {
      if (i / chunk != j / chunk) places[static_cast<std::size_t>(i * steps + j)] = -INFINITY;
    }
  }
  const HostBuffer x = random.uniform(Shape({2, steps, 6}, f32));
  auto at_once =
      compile<&ChunkedLayer<>::forward>(model, {x.shape(), mask.shape()}, CompileOptions{})
          .bind(weights);
  const auto [chunked, masked] = at_once(device(x), device(mask));
  expect_close(chunked.to_host(), masked.to_host(), 1e-5, 1e-5);

  const auto shapes = nn::kv_cache_shape(1, 2, 1, steps, 4, f32);
  CachedLayer<> cached{model.self};
  auto run =
      compile<&CachedLayer<>::forward>(
          cached, {Shape({2, symbol("S"), 6}, f32), Shape({2}, i32), shapes}, CompileOptions{})
          .bind(CachedLayer<Buffer>{weights.self});
  nn::KvCache<Buffer> cache = map_fields<Buffer>(
      shapes, [](const std::string&, const Shape& s) { return device(HostBuffer::zeros(s)); });
  std::int64_t past = 0;
  for (const std::int64_t length : {3, 1, 5, 1}) {
    const auto first = static_cast<std::int32_t>(past);
    auto [y, next] = run(device(x.slice(1, past, past + length).contiguous()),
                         device(HostBuffer::of<std::int32_t>(Shape({2}, i32), {first, first})),
                         std::move(cache));
    cache = std::move(next);
    expect_close(y.to_host(), masked.to_host().slice(1, past, past + length).contiguous(), 1e-5,
                 1e-5);
    past += length;
  }
}

TEST_CASE("nn: ALiBi beside a mask, causal or not") {
  register_cpu_backend();
  const Declared declared = attention_weights("self", 6, 6, 12, 4);
  const WeightsView view("model.safetensors", declared);
  BiasedLayer<> model{nn::MultiHeadAttention<>::init(view["self"], 3)};
  model.self.max_alibi_bias = 3;
  Random random;  // prints its seed
  const auto weights = map_fields<Buffer>(model, [&](const std::string&, const Tensor& t) {
    return device(random.uniform(t.shape()));
  });
  for (const bool causal : {true, false}) {
    model.self.options.causal = causal;
    auto run = compile<&BiasedLayer<>::forward>(model, {Shape({2, 7, 6}, f32), Shape({7, 7}, f32)},
                                                CompileOptions{})
                   .bind(weights);
    const auto [got, want] = run(device(random.uniform(Shape({2, 7, 6}, f32))),
                                 device(random.uniform(Shape({7, 7}, f32))));
    expect_close(got.to_host(), want.to_host(), 1e-5, 1e-5);
  }
}

TEST_CASE("nn: attention to others, by the names of Hugging Face") {
  register_cpu_backend();
  constexpr std::int64_t width = 6, from = 5, heads = 4, size = 3, kv_heads = 2, inner = 7;
  Declared declared = attention_weights("self_attn", width, width, heads * size, kv_heads * size);
  for (auto& entry : attention_weights("cross_attn", width, from, heads * size, kv_heads * size)) {
    declared.push_back(std::move(entry));
  }
  declared.emplace_back("mlp.up_proj.weight", Shape({inner, width}, f32));
  declared.emplace_back("mlp.down_proj.weight", Shape({width, inner}, f32));
  const WeightsView view("model.safetensors", declared);
  CrossLayer<> model{nn::MultiHeadAttention<>::init(view["self_attn"], heads),
                     nn::MultiHeadAttention<>::init(view["cross_attn"], heads),
                     nn::FeedForward<>::init(view["mlp"], "relu")};
  CHECK(model.cross.kv_heads == kv_heads);
  CHECK(model.cross.head_dim == size);
  CHECK_FALSE(model.wide.gate.has_value());

  Random random;  // prints its seed
  std::map<std::string, HostBuffer> arrays;
  // Small weights: scores of hundreds would lose the digits that are compared.
  for (const auto& [name, shape] : declared) arrays.emplace(name, random.uniform(shape, -0.7, 0.7));
  const auto weights = map_fields<Buffer>(model, [&](const std::string&, const Tensor& t) {
    return device(arrays.at(std::string(t.name())));
  });
  auto run = compile<&CrossLayer<>::forward>(
                 model,
                 {Shape({1, 3, width}, f32), Shape({1, symbol("T"), from}, f32),
                  Shape({3, symbol("T")}, f32)},
                 CompileOptions{})
                 .bind(weights);

  for (const std::int64_t others : {1, 4, 9}) {
    const HostBuffer x = random.uniform(Shape({1, 3, width}, f32)),
                     encoded = random.uniform(Shape({1, others, from}, f32)),
                     mask = random.uniform(Shape({3, others}, f32), -2, 2);
    const auto part = [&](const std::string& name, const Rows& queries, const Rows& keys,
                          const Rows& bias) {
      const auto w = [&](const char* projection) { return rows_of(arrays.at(name + projection)); };
      const Rows mixed = attended(
          product(queries, w(".q_proj.weight"), elements(arrays.at(name + ".q_proj.bias"))),
          product(keys, w(".k_proj.weight")), product(keys, w(".v_proj.weight")), heads, kv_heads,
          bias);
      Rows y = product(mixed, w(".o_proj.weight"));
      for (std::size_t i = 0; i < y.size(); ++i) {
        for (std::size_t j = 0; j < y[i].size(); ++j) y[i][j] += queries[i][j];
      }
      return y;
    };
    const Rows rows = rows_of(x);
    Rows hidden = product(
        part("cross_attn", part("self_attn", rows, rows, {}), rows_of(encoded), rows_of(mask)),
        rows_of(arrays.at("mlp.up_proj.weight")));
    for (auto& row : hidden) {
      for (double& v : row) v = std::max(v, 0.0);
    }
    std::vector<double> want;
    for (const auto& row : product(hidden, rows_of(arrays.at("mlp.down_proj.weight")))) {
      want.insert(want.end(), row.begin(), row.end());
    }
    const std::vector<float> got = values(run(device(x), device(encoded), device(mask)));
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      CHECK(got[i] == Approx(want[i]).epsilon(1e-4).margin(1e-4));
  }
}

TEST_CASE("nn: heads that do not divide the weights' rows") {
  const Declared declared = attention_weights("a", 6, 6, 12, 8);
  const WeightsView view("model.safetensors", declared);
  for (const std::int64_t heads : {0, -1, 5, 24}) {
    INFO(heads);
    const std::string what = expect_error(
        Errc::shape_mismatch, [&] { nn::MultiHeadAttention<>::init(view["a"], heads); });
    CHECK(contains(what, "'a.q_proj.weight' of model.safetensors has 12 rows"));
  }
  // 4 heads of 3 numbers each: the keys have 8.
  CHECK(contains(
      expect_error(Errc::shape_mismatch, [&] { nn::MultiHeadAttention<>::init(view["a"], 4); }),
      "'a.k_proj.weight' of model.safetensors has 8 rows, which 3 does not divide"));
}

/// Recurrent layers from zeros, beside the same from a state that is given.
template <class T = Tensor>
struct FromZeros {
  nn::Lstm<T> lstm;
  nn::Gru<T> gru;
  nn::Rnn<T> rnn;
  TENON_FIELDS(lstm, gru, rnn)

  std::vector<Tensor> forward(const Tensor& x, const Tensor& state) const
    requires std::same_as<T, Tensor>
  {
    return {lstm.forward(x).outputs, lstm.forward(x, nn::LstmState<Tensor>{state, state}).outputs,
            gru.forward(x).outputs,  gru.forward(x, state).outputs,
            rnn.forward(x).outputs,  rnn.forward(x, state).outputs};
  }
};

bool same_values(const std::vector<Buffer>& a, const std::vector<Buffer>& b) {
  return std::ranges::equal(
      a, b, {}, [](const Buffer& one) { return values(one); },
      [](const Buffer& one) { return values(one); });
}

TEST_CASE("nn: recurrent layers begin with zeros, for any number of steps and rows") {
  register_cpu_backend();
  constexpr std::int64_t width = 3, in = 2, steps = 4;
  Declared declared;
  for (const auto& [name, gates] :
       {std::pair("lstm", 4), std::pair("gru", 3), std::pair("rnn", 1)}) {
    declared.emplace_back(std::string(name) + ".weight_ih_l0", Shape({gates * width, in}, f32));
    declared.emplace_back(std::string(name) + ".weight_hh_l0", Shape({gates * width, width}, f32));
    declared.emplace_back(std::string(name) + ".bias_hh_l0", Shape({gates * width}, f32));
  }
  const WeightsView view("model.safetensors", declared);
  const FromZeros<> model{nn::Lstm<>::init(view["lstm"]), nn::Gru<>::init(view["gru"]),
                          nn::Rnn<>::init(view["rnn"])};
  Random random;  // prints its seed
  const auto weights = map_fields<Buffer>(model, [&](const std::string&, const Tensor& t) {
    return device(random.uniform(t.shape(), -1, 1));
  });
  const Axis open_steps = symbol("T"), open_batch = symbol("B");
  for (const Axis number_of_steps : {Axis(steps), open_steps}) {
    const std::vector<std::int64_t> lengths = is_static(number_of_steps.size)
                                                  ? std::vector{steps}
                                                  : std::vector<std::int64_t>{1, 4, 7, 0};
    auto run =
        compile<&FromZeros<>::forward>(
            model, {Shape({number_of_steps, open_batch, in}, f32), Shape({open_batch, width}, f32)},
            CompileOptions{})
            .bind(weights);
    for (const std::int64_t length : lengths) {
      for (const std::int64_t batch : {1, 5}) {
        const Buffer x = device(random.uniform(Shape({length, batch, in}, f32)));
        const Buffer zeros = device(HostBuffer::zeros(Shape({batch, width}, f32)));
        const auto y = run(x, zeros);
        auto same_length =
            compile<&FromZeros<>::forward>(model, {x.shape(), zeros.shape()}, CompileOptions{})
                .bind(weights);
        if (length > 0) CHECK(same_values(y, same_length(x, zeros)));
        for (std::size_t i = 0; i < y.size(); i += 2) {
          CHECK(y[i].shape() == Shape({length, batch, width}, f32));
          const std::vector<float> all = values(y[i]);
          CHECK(all == values(y[i + 1]));
          CHECK(std::ranges::any_of(all, [](float v) { return v != 0; }) == (length > 0));
        }
      }
    }
  }
}

TEST_CASE("nn: recurrent layers of a graph that no one records") {
  Graph graph;
  Declared declared{{"gru.weight_ih_l0", Shape({9, 2}, f32)},
                    {"gru.weight_hh_l0", Shape({9, 3}, f32)}};
  const WeightsView view("model.safetensors", declared);
  const auto gru = nn::Gru<>::init(view["gru"]);
  const nn::Gru<> recorded = map_fields<Tensor>(gru, [&](const std::string& path, const Tensor& t) {
    return t.is_empty() ? Tensor() : graph.constant(path, t.shape());
  });
  const Tensor x = graph.input("x", Shape({4, 2, 2}, f32));
  CHECK(recorded.forward(x).outputs.shape() == Shape({4, 2, 3}, f32));
}

template <class T = Tensor>
struct Volumes {
  nn::Conv3d<T> down;
  nn::ConvTranspose3d<T> up;
  nn::ConvTranspose1d<T> line;
  TENON_FIELDS(down, up, line)

  std::vector<Tensor> forward(const Tensor& volume, const Tensor& row) const
    requires std::same_as<T, Tensor>
  {
    return {down.forward(volume), up.forward(volume), line.forward(row)};
  }
};

TEST_CASE("nn: Conv3d, ConvTranspose3d and ConvTranspose1d are their ops") {
  register_cpu_backend();
  const Declared declared = {{"down.weight", Shape({3, 2, 2, 2, 2}, f32)},
                             {"down.bias", Shape({3}, f32)},
                             {"up.weight", Shape({2, 1, 2, 2, 2}, f32)},
                             {"line.weight", Shape({2, 2, 3}, f32)},
                             {"line.bias", Shape({2}, f32)}};
  const WeightsView view("model.safetensors", declared);
  const Volumes<> model{nn::Conv3d<>::init(view["down"]),
                        nn::ConvTranspose3d<>::init(view["up"], {.stride = {2, 2, 2}}),
                        nn::ConvTranspose1d<>::init(view["line"], {.stride = 2})};
  const auto one = [](const Shape& shape) {
    const auto count = static_cast<std::size_t>(shape.elements());
    return device(HostBuffer::of<float>(shape, std::vector<float>(count, 1.0f)));
  };
  const auto ones = map_fields<Buffer>(
      model, [&](const std::string&, const Tensor& t) { return one(t.shape()); });
  const Shape volume({1, 2, 2, 2, 3}, f32), row({1, 2, 3}, f32);
  auto run = compile<&Volumes<>::forward>(model, {volume, row}, CompileOptions{}).bind(ones);
  const auto y = run(one(volume), one(row));
  CHECK(values(y[0]) == std::vector<float>(3 * 1 * 1 * 2, 2 * 8 + 1));  // 16 ones and the bias
  CHECK(values(y[1]) == std::vector<float>(1 * 4 * 4 * 6, 2));  // each element once per channel
  CHECK(values(y[2]) == std::vector<float>({3, 3, 5, 3, 5, 3, 3, 3, 3, 5, 3, 5, 3,
                                            3}));  // windows of 3 overlap by 1
}

}  // namespace
}  // namespace tenon
