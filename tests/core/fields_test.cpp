// Structs of tensors, walked by their fields.
#include <tenon/fields.hpp>
#include <tenon/graph.hpp>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

template <class T = Tensor>
struct Dense {
  T weight;
  std::optional<T> bias;
  TENON_FIELDS(weight, bias)
};

template <class T = Tensor>
struct Stack {
  std::vector<Dense<T>> layers;
  std::array<T, 2> ends;
  std::pair<T, Dense<T>> tail;
  std::tuple<int, T> counted;
  int heads = 0;
  std::string note;
  TENON_FIELDS(layers, ends, tail, counted, heads, note)
};

template <class T = Tensor>
struct Modules {
  std::map<std::string, Dense<T>> parts;
  std::map<std::string, double> scales;
  std::vector<bool> flags;
  TENON_FIELDS(parts, scales, flags)
};

/// With members of bases.
template <class T = Tensor>
struct Derived : Dense<T> {
  std::pair<T, T> ends;
  T last;
  TENON_FIELDS(this->weight, Dense<T>::bias, std::get<0>(ends), ends.second, last)
};

Shape numbered(int size) { return Shape({size}, f32); }

Stack<Shape> sample() {
  Stack<Shape> stack;
  stack.layers = {{numbered(1), numbered(2)}, {numbered(3), std::nullopt}};
  stack.ends = {numbered(4), numbered(5)};
  stack.tail = {numbered(6), {numbered(7), std::nullopt}};
  stack.counted = {9, numbered(8)};
  stack.heads = 12;
  stack.note = "kept";
  return stack;
}

}  // namespace

TEST_CASE("Fields: visited in order under their paths") {
  std::vector<std::pair<std::string, std::int64_t>> seen;
  visit_fields(sample(), [&](const std::string& path, const Shape& leaf) {
    seen.emplace_back(path, leaf[0]);
  });
  CHECK(seen == std::vector<std::pair<std::string, std::int64_t>>{{"layers.0.weight", 1},
                                                                  {"layers.0.bias", 2},
                                                                  {"layers.1.weight", 3},
                                                                  {"ends.0", 4},
                                                                  {"ends.1", 5},
                                                                  {"tail.0", 6},
                                                                  {"tail.1.weight", 7},
                                                                  {"counted.1", 8}});
}

TEST_CASE("Fields: members of a base have their names") {
  Derived<Shape> derived;
  derived.bias = numbered(1);
  std::string names;
  visit_fields(derived, [&](const std::string& path, const Shape&) { names += path + " "; });
  CHECK(names == "weight bias get<0>(ends) ends.second last ");
}

TEST_CASE("Fields: rebinding gives the same form with other leaves") {
  static_assert(std::is_same_v<Bufferized<Dense<>>, Dense<Buffer>>);
  static_assert(std::is_same_v<rebind_t<std::vector<Dense<>>, Shape>, std::vector<Dense<Shape>>>);
  static_assert(std::is_same_v<rebind_t<std::tuple<Tensor, int>, Buffer>, std::tuple<Buffer, int>>);
  static_assert(std::is_same_v<rebind_t<const Tensor&, Buffer>, Buffer>);

  const auto mapped = map_fields<Buffer>(sample(), [](const std::string&, const Shape& shape) {
    return Buffer(shape.with_dtype(f16));
  });
  static_assert(std::is_same_v<decltype(mapped), const Stack<Buffer>>);
  REQUIRE(mapped.layers.size() == 2);
  CHECK(mapped.layers[0].bias->shape() == Shape({2}, f16));
  CHECK_FALSE(mapped.layers[1].bias.has_value());
  CHECK(mapped.tail.second.weight.shape() == Shape({7}, f16));
  CHECK(mapped.heads == 12);
  CHECK(mapped.note == "kept");
  CHECK(std::get<0>(mapped.counted) == 9);
}

TEST_CASE("Fields: a transform gives the target the source's form") {
  Stack<Shape> target = sample();
  target.layers.resize(5);
  target.layers[1].bias = numbered(99);
  Stack<Shape> source = sample();
  source.layers.pop_back();
  transform_fields(source, target,
                   [](const std::string&, const Shape& from, Shape& to) { to = from; });
  CHECK(target.layers.size() == 1);
  transform_fields(sample(), target,
                   [](const std::string&, const Shape& from, Shape& to) { to = from; });
  REQUIRE(target.layers.size() == 2);
  CHECK_FALSE(target.layers[1].bias.has_value());
}

TEST_CASE("Fields: maps by a string, and plain values beside them") {
  Modules<Shape> from;
  from.parts["b"] = {numbered(1), std::nullopt};
  from.parts["a"] = {numbered(2), numbered(3)};
  from.scales["x"] = 0.5;
  from.flags = {true, false};
  Modules<Buffer> to;
  to.parts["c"];
  std::vector<std::string> paths;
  transform_fields(from, to, [&](const std::string& path, const Shape& shape, Buffer& leaf) {
    paths.push_back(path);
    leaf = Buffer(shape);
  });
  CHECK(paths == std::vector<std::string>{"parts.a.weight", "parts.a.bias", "parts.b.weight"});
  REQUIRE(to.parts.size() == 2);
  CHECK(to.parts.at("a").bias->shape() == numbered(3));
  CHECK(to.scales == from.scales);
  CHECK(to.flags == from.flags);
  std::vector<std::string> again;
  visit_fields(to, [&](const std::string& path, const Buffer&) { again.push_back(path); });
  CHECK(again == paths);
}

TEST_CASE("Fields: paths go on from the given one, and visitors change leaves") {
  Stack<Shape> stack = sample();
  std::vector<std::string> paths;
  visit_fields(
      stack.layers,
      [&](const std::string& path, Shape& leaf) {
        paths.push_back(path);
        leaf = numbered(20);
      },
      "net");
  CHECK(paths == std::vector<std::string>{"net.0.weight", "net.0.bias", "net.1.weight"});
  CHECK(stack.layers[1].weight == numbered(20));
  CHECK(stack.ends[0] == numbered(4));
}

TEST_CASE("Fields: without leaves there is nothing to visit") {
  const std::tuple<int, std::string> plain{7, "kept"};
  std::tuple<int, std::string> copy;
  int calls = 0;
  visit_fields(plain, [&](const std::string&, const Shape&) { ++calls; });
  transform_fields(plain, copy, [&](const std::string&, const Shape&, Shape&) { ++calls; });
  CHECK(calls == 0);
  CHECK(copy == plain);
}

TEST_CASE("Fields: a leaf is its own struct") {
  int calls = 0;
  visit_fields(numbered(3), [&](const std::string& path, const Shape&) {
    CHECK(path.empty());
    ++calls;
  });
  CHECK(calls == 1);
}

}  // namespace tenon
