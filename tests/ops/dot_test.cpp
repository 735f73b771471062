#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/dot.hpp>

namespace tenon::testing {
namespace {

/// A naive numpy.einsum: sums over all indices of a and b that agree where their letters do. One
/// letter per axis.
HostBuffer naive_einsum(const HostBuffer& a, const std::string& a_axes, const HostBuffer& b,
                        const std::string& b_axes, const std::string& out_axes) {
  std::map<char, std::int64_t> size;
  for (std::size_t i = 0; i < a_axes.size(); ++i) size[a_axes[i]] = a.shape()[static_cast<int>(i)];
  for (std::size_t i = 0; i < b_axes.size(); ++i) size[b_axes[i]] = b.shape()[static_cast<int>(i)];
  std::vector<std::int64_t> dims;
  std::string letters;
  for (const auto& [letter, n] : size) {
    letters += letter;
    dims.push_back(n);
  }
  const auto pick = [&](std::span<const std::int64_t> index, const std::string& axes) {
    std::vector<std::int64_t> picked;
    for (const char letter : axes) picked.push_back(index[letters.find(letter)]);
    return picked;
  };
  std::vector<std::int64_t> out_dims;
  for (const char letter : out_axes) out_dims.push_back(size[letter]);
  const HostBuffer out = HostBuffer::zeros(Shape(out_dims, f64));
  for_each_index(Shape(dims, f64), [&](std::span<const std::int64_t> index) {
    std::byte* sum = out.view().at(pick(index, out_axes));
    store_double(f64, sum,
                 load_as_double(f64, sum) +
                     load_as_double(a.shape().dtype(), a.view().at(pick(index, a_axes))) *
                         load_as_double(b.shape().dtype(), b.view().at(pick(index, b_axes))));
  });
  return out;
}

void expect_einsum(const HostBuffer& got, const HostBuffer& want) {
  expect_close(got.to(f64), want, 1e-5, 1e-5);
}

TEST_CASE("dot: contracts the axis of a tag, wherever it stands") {
  ValuedGraph graph;
  const HostBuffer x = floats({{"b", 2}, {"in", 2}}, {1, 2, 3, 4});
  const HostBuffer w = floats({{"in", 2}, {"out", 3}}, {1, 0, 2, 0, 1, 3});
  const HostBuffer w_turned = floats({{"out", 3}, {"in", 2}}, {1, 0, 0, 1, 2, 3});
  const Tensor y = dot(graph.input(x), graph.input(w), "in");
  expect_type(y.shape(), "f32[b=2, out=3]");
  expect_equal(graph.value(y), {1, 2, 8, 3, 4, 18});
  expect_equal(graph.value(dot(graph.input(x), graph.input(w_turned), "in")), {1, 2, 8, 3, 4, 18});
  expect_equal(graph.value(dot(graph.input(w_turned), graph.input(x), "in")), {1, 3, 2, 4, 8, 18});
}

TEST_CASE("dot: batch axes first, then the rests, with their tags") {
  Random random;
  ValuedGraph graph;
  const HostBuffer q = random.uniform(Shape({{"b", 2}, {"s", 3}, {"h", 4}, {"d", 5}}, f32));
  const HostBuffer k = random.uniform(Shape({{"b", 2}, {"t", 6}, {"h", 4}, {"d", 5}}, f32));
  const Tensor scores = dot(graph.input(q), graph.input(k), {"d"}, {"b", "h"});
  expect_type(scores.shape(), "f32[b=2, h=4, s=3, t=6]");
  expect_einsum(graph.value(scores), naive_einsum(q, "bshd", k, "bthd", "bhst"));
}

TEST_CASE("dot: any number of axes in every role") {
  Random random;
  struct Case {
    std::string a, b, contract, batch, out;
  };
  for (const Case& c : {
           Case{"ab", "bc", "b", "", "ac"},
           Case{"a", "a", "a", "", ""},
           Case{"a", "b", "", "", "ab"},
           Case{"ab", "ab", "", "ab", "ab"},
           Case{"ab", "ba", "ab", "", ""},
           Case{"abk", "kcd", "k", "", "abcd"},
           Case{"kab", "cdk", "k", "", "abcd"},
           Case{"zabk", "kzcd", "k", "z", "zabcd"},
           Case{"zkab", "czkd", "k", "z", "zabcd"},
           Case{"aklb", "lck", "kl", "", "abc"},
           Case{"kzay", "yzkbc", "k", "yz", "yzabc"},
           Case{"za", "zbc", "", "z", "zabc"},
           Case{"zk", "zkbc", "k", "z", "zbc"},
           Case{"k", "abkc", "k", "", "abc"},
           Case{"abkc", "k", "k", "", "abc"},
       }) {
    INFO(c.a << " . " << c.b << " -> " << c.out);
    const auto array = [&](const std::string& axes) {
      std::vector<Axis> list;
      for (const char letter : axes)
        list.emplace_back(Name(std::string(1, letter)), 2 + letter % 3);
      return random.uniform(Shape(std::span<const Axis>(list), f32));
    };
    const HostBuffer a = array(c.a), b = array(c.b);
    ValuedGraph graph;
    const Tensor x = graph.input(a), y = graph.input(b);
    const auto tag = [](char letter) { return Name(std::string(1, letter)); };
    Tensor result;
    switch (c.contract.size() * 3 + c.batch.size()) {
      case 0:
        result = dot(x, y, std::initializer_list<Name>{});
        break;
      case 1:
        result = dot(x, y, {}, {tag(c.batch[0])});
        break;
      case 2:
        result = dot(x, y, {}, {tag(c.batch[0]), tag(c.batch[1])});
        break;
      case 3:
        result = dot(x, y, tag(c.contract[0]));
        break;
      case 4:
        result = dot(x, y, {tag(c.contract[0])}, {tag(c.batch[0])});
        break;
      case 5:
        result = dot(x, y, {tag(c.contract[0])}, {tag(c.batch[0]), tag(c.batch[1])});
        break;
      default:
        result = dot(x, y, {tag(c.contract[0]), tag(c.contract[1])});
        break;
    }
    std::string tags;
    for (int i = 0; i < result.rank(); ++i) tags += result.shape().tag(i).text();
    CHECK(tags == c.out);
    expect_einsum(graph.value(result), naive_einsum(a, c.a, b, c.b, c.out));
  }
}

TEST_CASE("dot: axes by index, with or without tags") {
  ValuedGraph graph;
  const HostBuffer a = floats({2, {"k", 2}}, {1, 2, 3, 4});
  const HostBuffer b = floats({{"j", 2}, 2}, {1, 0, 2, 1});
  const Tensor y = dot(graph.input(a), graph.input(b), {{"k", 0}});
  expect_type(y.shape(), "f32[2, 2]");
  expect_equal(graph.value(y), {5, 2, 11, 4});
  const Tensor pairs = dot(graph.input(a), graph.input(b), {{-1, -1}}, {{0, 0}});
  expect_type(pairs.shape(), "f32[j=2]");
  expect_equal(graph.value(pairs), {1, 10});
}

TEST_CASE("dot: sizes may be symbolic") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({{"b", symbol("B")}, {"s", symbol("S")}, {"d", 8}}, f32));
  const Tensor w = graph.input("w", Shape({{"d", 8}, {"h", 2}, {"e", 4}}, f32));
  expect_type(dot(x, w, "d").shape(), "f32[b=B, s=S, h=2, e=4]");
  const Tensor y = graph.input("y", Shape({{"b", symbol("B")}, {"t", symbol("T")}, {"d", 8}}, f32));
  expect_type(dot(x, y, {"d"}, {"b"}).shape(), "f32[b=B, s=S, t=T]");
}

TEST_CASE("dot: errors show both operands, their tags and the line") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({{"b", 2}, {"d", 3}}, f32));
  const Tensor w = graph.input("w", Shape({{"d", 4}, {"b", 5}}, f32));
  const std::string text = expect_error(Errc::shape_mismatch, [&] { dot(x, w, "d"); });
  CHECK(text.find("a f32[b=2, d=3], b f32[d=4, b=5]") != std::string::npos);
  CHECK(text.find("dot_test.cpp:") != std::string::npos);
  expect_error(Errc::axis_out_of_range, [&] { dot(x, w, "e"); });
  expect_error(Errc::axis_out_of_range, [&] { dot(x, w, {{2, 0}}); });
  expect_error(Errc::bad_argument, [&] { dot(x, x, {"d", "d"}); });
  expect_error(Errc::shape_mismatch, [&] { dot(x, x, "d"); });  // two axes b
  const Tensor square = graph.input("square", Shape({{"p", 2}, {"q", 2}}, f32));
  expect_error(Errc::shape_mismatch, [&] { dot(square, square, {}, {{"p", "q"}}); });
  const Tensor plain = graph.input("plain", Shape({2, 2}, f32));
  expect_error(Errc::bad_argument, [&] { dot(plain, plain, {{0, 0}}, {{0, 1}}); });
  const Tensor wide = graph.input("wide", Shape({1, 1, 1, 1, 3}, f32));
  expect_error(Errc::bad_shape, [&] { dot(wide, wide, std::initializer_list<Name>{}); });
}

}  // namespace
}  // namespace tenon::testing
