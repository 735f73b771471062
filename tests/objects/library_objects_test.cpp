// The classes that the library has: Generator, KvCache, Tokenizer.
#include "core/runs.hpp"
#include "support/expect_error.hpp"

#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/program.hpp>
#include <tenon/text/objects.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

Shape scalar(DType dtype) { return Shape({}, dtype); }

Buffer index(std::int64_t value) {
  return device(HostBuffer::of<std::int64_t>(scalar(i64), {value}));
}

/// A session of what `make` records from inputs of these types.
Session session_of(const std::vector<Shape>& types,
                   const std::function<std::vector<Tensor>(std::span<const Tensor>)>& make,
                   int threads = 2) {
  Graph graph;
  const Graph::Recording recording(graph);
  std::vector<Tensor> inputs;
  for (const Shape& type : types)
    inputs.push_back(graph.input("x" + std::to_string(inputs.size()), type));
  const std::vector<Tensor> results = make(inputs);
  // By way of its text.
  return Session(parse(print(graph.program(results))), {.backends = backends("cpu", threads)});
}

template <class T>
void check_corrupt(const std::string& saved) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, saved.size() / 2, saved.size() - 1}) {
    expect_error(Errc::corrupt, [&] { T::load(saved.substr(0, size)); });
  }
  expect_error(Errc::corrupt, [&] { T::load(saved + " 1"); });
}

TEST_CASE("objects: a generator gives the numbers of MT19937, once") {
  nn::register_objects();
  nn::register_objects();
  // The standard's check value of std::mt19937: word 10000 of its default seed.
  nn::Generator reference(5489);
  reference.skip(9999);
  CHECK(reference.next_float() == static_cast<float>(4123659995u & 0xFFFFFFu) * 0x1p-24f);

  Session session = session_of({object_shape<nn::Generator>()}, [](std::span<const Tensor> in) {
    const nn::Drawn first = nn::draw_uniform(in[0], std::vector<std::int64_t>{2, 3});
    const nn::Drawn second = nn::draw_uniform(first.generator, std::vector<std::int64_t>{4}, f64);
    return std::vector<Tensor>{first.numbers, second.numbers, second.generator};
  });
  nn::Generator expected(42);
  const Buffer kept = object_buffer(nn::Generator(42));
  for (int run = 0; run < 2; ++run) {  // of a handle that is kept: the same numbers again
    const std::vector<Buffer> results = session.forward({kept});
    nn::Generator again(42);
    for (const float x : values(results[0])) CHECK(x == again.next_float());
    for (const double x : results[1].to_host().values<double>()) CHECK(x == again.next_double());
    CHECK(*object_of<nn::Generator>(results[2]) == again);
    expected = again;
  }
  CHECK(nn::Generator::load(expected.save()) == expected);
  check_corrupt<nn::Generator>(expected.save());
  const auto typed = [](nn::GeneratorUniform op) {
    return [op] { op.infer(std::vector{object_shape<nn::Generator>()}); };
  };
  expect_error(Errc::bad_shape, typed({.dims = IntList{-1}}));
  expect_error(Errc::unsupported_dtype, typed({.dtype = f16}));
  expect_error(Errc::bad_type, [] { nn::GeneratorUniform{}.infer(std::vector{scalar(f32)}); });
}

HostBuffer random_array(const Shape& shape, std::mt19937_64& engine) {
  std::vector<float> numbers(static_cast<std::size_t>(shape.elements()));
  std::normal_distribution<float> normal;
  for (float& x : numbers) x = normal(engine);
  return HostBuffer::of<float>(shape, numbers);
}

TEST_CASE("objects: a cache that grows attends as the op does", "[random]") {
  nn::register_objects();
  const std::uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 engine(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  };
  for (int round = 0; round < 10; ++round) {
    const std::int64_t batch = pick(1, 3), heads = pick(1, 3), group = pick(1, 3),
                       layer = pick(0, 1);
    const std::int64_t size = pick(1, 20), value_size = pick(1, 20);
    Buffer cache = object_buffer(nn::GrowingCache(2));
    HostBuffer keys = HostBuffer::zeros(Shape({batch, 0, heads, size}, f32));
    HostBuffer values = HostBuffer::zeros(Shape({batch, 0, heads, value_size}, f32));
    for (const std::int64_t steps : {pick(0, 5), std::int64_t{1}, pick(1, 4)}) {
      const Shape q_type({batch, steps, heads * group, size}, f32);
      const Shape k_type({batch, steps, heads, size}, f32),
          v_type({batch, steps, heads, value_size}, f32);
      Session session = session_of(
          {object_shape<nn::GrowingCache>(), scalar(i64), q_type, k_type, v_type, keys.shape(),
           values.shape()},
          [&](std::span<const Tensor> in) {
            const Tensor longer = nn::kv_append(in[0], in[1], in[3], in[4]);
            const Tensor all_keys = concat({in[5], in[3]}, 1),
                         all_values = concat({in[6], in[4]}, 1);
            return std::vector<Tensor>{
                longer,
                nn::kv_attention(longer, in[1], in[2], {.value_size = value_size}),
                nn::kv_length(longer, in[1]),
                attention(in[2], all_keys, all_values, {.causal = true}),
                all_keys,
                all_values};
          },
          static_cast<int>(pick(1, 4)));
      std::vector<Buffer> results = session.forward(
          std::vector<Buffer>{std::move(cache), index(layer), device(random_array(q_type, engine)),
                              device(random_array(k_type, engine)),
                              device(random_array(v_type, engine)), device(keys), device(values)});
      cache = results[0];
      keys = results[4].to_host();
      values = results[5].to_host();
      CHECK(load_as_int64(i64, results[2].host_view().data) == keys.shape()[1]);
      const std::vector<float> got = testing::values(results[1]),
                               want = testing::values(results[3]);
      REQUIRE(got.size() == want.size());
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - want[i]) < 2e-5f);
    }
    const auto grown = object_of<nn::GrowingCache>(cache);
    CHECK(grown->length(1 - layer) == 0);
    const std::string saved = grown->save();
    CHECK(nn::GrowingCache::load(saved).save() == saved);
    check_corrupt<nn::GrowingCache>(saved);
    // Any byte of it: an error, or another cache.
    for (int i = 0; i < 50; ++i) {
      std::string damaged = saved;
      damaged[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(saved.size()) - 1))] ^=
          static_cast<char>(1 << pick(0, 7));
      try {
        nn::GrowingCache::load(damaged);
      } catch (const Error& error) {
        CHECK(error.code() == Errc::corrupt);
      }
    }
  }
}

TEST_CASE("objects: what a saved cache takes in memory is in proportion to its bytes") {
  const std::string magic = nn::GrowingCache(0).save().substr(0, 8);
  const auto saved = [&](std::int64_t layers, const std::array<std::int64_t, 5>& layer) {
    std::string bytes = magic;
    const auto add = [&](const void* from, std::size_t size) {
      bytes.append(static_cast<const char*>(from), size);
    };
    add(&layers, sizeof layers);
    for (std::int64_t i = 0; i < layers; ++i) add(layer.data(), sizeof layer);
    return bytes;
  };
  // Rows of no numbers: each layer alone has no more pairs than the file has bytes.
  expect_error(Errc::corrupt, [&] { nn::GrowingCache::load(saved(1000, {40'000, 1, 0, 0, 1})); });
  const std::string few = saved(3, {2, 3, 0, 0, 1});
  CHECK(nn::GrowingCache::load(few).save() == few);
  // Layers without positions.
  const std::string empty = saved(2, {1'000'000, 1'000'000, 4, 4, 0});
  nn::GrowingCache cache = nn::GrowingCache::load(empty);
  CHECK(cache.save() == empty);
  const HostBuffer rows = HostBuffer::zeros(Shape({1, 2, 2, 3}, f32));
  cache.append(0, rows.view(), rows.view());
  CHECK(cache.length(0) == 2);
}

TEST_CASE("objects: a cache says what does not fit") {
  nn::register_objects();
  expect_error(Errc::bad_argument, [] { nn::GrowingCache(-1); });
  nn::GrowingCache cache(1);
  const HostBuffer rows = HostBuffer::zeros(Shape({1, 2, 2, 3}, f32));
  const HostBuffer other = HostBuffer::zeros(Shape({1, 2, 1, 3}, f32));
  cache.append(0, rows.view(), rows.view());
  expect_error(Errc::shape_mismatch, [&] { cache.append(0, other.view(), other.view()); });
  expect_error(Errc::out_of_range, [&] { cache.append(1, rows.view(), rows.view()); });
  expect_error(Errc::out_of_range, [&] { cache.length(-1); });
  const HostBuffer queries = HostBuffer::zeros(Shape({1, 3, 2, 3}, f32));
  expect_error(Errc::shape_mismatch, [&] {  // three queries, two positions
    cache.attend(0, queries.view(), 1, queries.view(), 0, 2);
  });
  const Shape type = object_shape<nn::GrowingCache>();
  const Shape number = scalar(i64);
  expect_error(Errc::bad_type, [&] { nn::KvLength{}.infer(std::vector{number, number}); });
  expect_error(Errc::shape_mismatch, [&] { nn::KvLength{}.infer(std::vector{type, scalar(i32)}); });
  expect_error(Errc::shape_mismatch, [&] {
    nn::KvAppend{}.infer(std::vector{type, number, rows.shape(), other.shape()});
  });
  expect_error(Errc::shape_mismatch,
               [&] { nn::KvAttention{}.infer(std::vector{type, number, Shape({1, 2, 3}, f32)}); });
  expect_error(Errc::bad_attribute, [&] {
    nn::KvAttention{.value_size = -1}.infer(std::vector{type, number, rows.shape()});
  });
}

constexpr std::string_view words = R"({
  "added_tokens": [], "normalizer": null, "post_processor": null, "decoder": null,
  "pre_tokenizer": {"type": "Whitespace"},
  "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "hello": 1, "world": 2, "of": 3}}
})";

using text::text_buffer;

TEST_CASE("objects: a tokenizer is a constant of a program, text goes in and comes out") {
  text::register_objects();
  text::register_objects();
  const Program program = parse(
      "# tenon 1.0\nfrom __future__ import annotations\nfrom tenon.ir import *\n"
      "module(\"words\", opset=1)\n\n"
      "def forward(text: u8[N]):\n"
      "    t0: Tokenizer = const(\"tokenizer\")\n"
      "    ids: i32[6] = tokenize(t0, text, capacity=6)\n"
      "    back: u8[24] = detokenize(t0, ids, capacity=24)\n"
      "    return ids, back\n");
  const Buffer json = text_buffer(words);
  Session session(program, {.backends = backends("cpu")});
  session.bind(
      std::make_shared<const WeightSet>(std::map<std::string, Buffer>{{"tokenizer", json}}));
  for (const std::string_view text : {"hello world of what", "", "of of of of of of"}) {
    const std::vector<Buffer> results = session.forward({text_buffer(text)});
    const text::Tokenizer tokenizer = text::Tokenizer::from_json_text(words);
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    const std::string spelled = tokenizer.decode(ids);
    ids.resize(6, -1);
    CHECK(std::ranges::equal(results[0].to_host().values<std::int32_t>(), ids));
    CHECK(text::text_of(results[1]) == spelled);
  }
  expect_error(Errc::bad_type, [] { text::text_of(index(1)); });
  expect_error(Errc::out_of_range, [&] { session.forward({text_buffer("of of of of of of of")}); });
  expect_error(Errc::out_of_range,
               [&] { session.forward({text_buffer("world world world world world")}); });

  const Buffer loaded = load_object(object_type<text::TokenizerObject>(), json.to_host());
  CHECK(same_bits(save_object(loaded), json.to_host()));
  const text::TokenizerObject without(text::Tokenizer::from_json_text(words));
  expect_error(Errc::unsupported, [&] { save_object(object_buffer(without)); });
  const Shape type = object_shape<text::TokenizerObject>();
  expect_error(Errc::shape_mismatch, [&] { text::Tokenize{}.infer(std::vector{type, type}); });
  expect_error(Errc::bad_type, [&] { text::Tokenize{}.infer(std::vector{Shape({2}, u8), type}); });
  expect_error(Errc::shape_mismatch,
               [&] { text::Detokenize{}.infer(std::vector{type, Shape({2}, u8)}); });
  expect_error(Errc::bad_attribute,
               [&] { text::Tokenize{.capacity = -1}.infer(std::vector{type, Shape({2}, u8)}); });
}

}  // namespace
}  // namespace tenon::testing
