// Attention of many queries, in tensor cores, and of few: sizes that no tile divides, grouped heads,
// positions, windows, masks, sinks, and values that nobody may see.
#include "on_device.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

struct Types {
  DType q, k;
  double allowed;
};
/// A query and a weight are rounded to the keys' type, to within u = 2^-11 of f16 and 2^-8 of bf16.
/// Of elements in [-1, 1] that shifts a score by at most u sqrt(depth), a result by twice that and
/// u; on average by far less. Results of 16 bits are rounded, too.
constexpr Types types[] = {{f16, f16, 4e-3},  {bf16, bf16, 3e-2}, {f32, f16, 1e-3},
                           {f32, bf16, 8e-3}, {bf16, f16, 2e-2},  {f16, bf16, 3e-2}};
constexpr double of_rounded = 1e-3;  ///< queries of f32, keys of f16

struct Sizes {
  std::int64_t batch, queries, keys, heads, key_heads, depth, value_depth;
};

struct Operands {
  Operands(Random& random, const Sizes& at, DType q, DType k)
      : inputs{
            random.uniform(Shape({at.batch, at.queries, at.heads, at.depth}, f32)).to(q),
            random.uniform(Shape({at.batch, at.keys, at.key_heads, at.depth}, f32)).to(k),
            random.uniform(Shape({at.batch, at.keys, at.key_heads, at.value_depth}, f32)).to(k)} {}
  std::vector<HostBuffer> with(std::initializer_list<HostBuffer> more) const {
    std::vector<HostBuffer> all = inputs;
    all.insert(all.end(), more);
    return all;
  }
  std::vector<HostBuffer> inputs;
};

HostBuffer hiding(Random& random, const Shape& shape) {
  HostBuffer mask = random.uniform(shape, -1, 1);
  const std::span<float> elements = mask.mutable_values<float>();
  for (std::size_t i = 0; i < elements.size(); i += 3) {
    elements[i] = -std::numeric_limits<float>::infinity();
  }
  return mask;
}

TEST_CASE("cuda attention: types of queries and keys", "[gpu][attention]") {
  Random random;
  for (const Types& type : types) {
    CAPTURE(name(type.q), name(type.k));
    const Operands given(random, {1, 19, 37, 2, 1, 24, 40}, type.q, type.k);
    check_on_device(Attention{.causal = true}, given.inputs, type.allowed);
    check_on_device(Attention{}, given.inputs, type.allowed);
  }
}

TEST_CASE("cuda attention: sizes that no tile divides", "[gpu][attention]") {
  Random random;
  for (const Sizes& sizes :
       {Sizes{1, 9, 9, 1, 1, 8, 8}, Sizes{1, 65, 70, 2, 1, 64, 64}, Sizes{1, 33, 50, 1, 1, 129, 17},
        Sizes{1, 16, 33, 1, 1, 5, 256}, Sizes{1, 40, 40, 2, 2, 256, 200},
        Sizes{0, 20, 20, 1, 1, 8, 8}, Sizes{1, 20, 20, 1, 1, 0, 8}, Sizes{1, 20, 20, 1, 1, 8, 0}}) {
    CAPTURE(sizes.queries, sizes.keys, sizes.depth, sizes.value_depth);
    check_on_device(Attention{.causal = true}, Operands(random, sizes, f16, f16).inputs, 4e-3);
    check_on_device(Attention{.causal = true}, Operands(random, sizes, f32, f16).inputs,
                    of_rounded);
  }
}

TEST_CASE("cuda attention: positions, windows, soft caps, masks and sinks", "[gpu][attention]") {
  Random random;
  const Operands given(random, {2, 12, 50, 2, 1, 16, 16}, f32, f16);
  const HostBuffer rows = HostBuffer::of<std::int32_t>(Shape({2}, i32), {3, 38});
  const HostBuffer one = HostBuffer::of<std::int32_t>(Shape({}, i32), {0});
  const HostBuffer sinks =
      HostBuffer::of<float>(Shape({2}, f32), {0.5f, -std::numeric_limits<float>::infinity()});
  const auto check = [&](const Attention& op, std::initializer_list<HostBuffer> more) {
    check_on_device(op, given.with(more), of_rounded);
  };
  check({.causal = true, .has_position = true}, {rows});
  check({.causal = false, .has_position = true}, {one});
  check({.causal = true, .window = 5, .has_position = true}, {rows});
  check({.causal = false, .window = 7, .has_position = true}, {rows});
  check({.causal = true, .window = 200}, {});
  check({.causal = true, .scale = 0.3, .softcap = 1.5}, {});
  check({.causal = true, .scale = -0.3}, {});
  check({.causal = true, .has_sinks = true}, {sinks});
  check({.has_mask = true}, {hiding(random, Shape({2, 2, 12, 50}, f32))});
  check({.causal = true, .has_mask = true}, {hiding(random, Shape({12, 50}, f32))});
  check({.causal = true, .softcap = 3, .has_position = true, .has_mask = true, .has_sinks = true},
        {rows, hiding(random, Shape({2, 1, 50}, f32)), sinks});
  // Rows that see nothing are zeros.
  HostBuffer all = HostBuffer::zeros(Shape({12, 50}, f32));
  for (float& element : all.mutable_values<float>()) {
    element = -std::numeric_limits<float>::infinity();
  }
  check({.has_mask = true}, {all});
  // Finite numbers hide nothing, however low they are: such rows weigh all keys alike.
  constexpr float lowest = std::numeric_limits<float>::lowest();
  for (float& element : all.mutable_values<float>()) element = lowest;
  check({.has_mask = true}, {all});
  check({.softcap = 3, .has_mask = true, .has_sinks = true},
        {all, HostBuffer::of<float>(Shape({2}, f32), {0.5f, lowest})});
}

TEST_CASE("cuda attention: keys in pages give the bits of keys in a row", "[gpu][attention]") {
  Random random;
  for (const DType dtype : {f32, f16, bf16, DType::q8_0}) {
    for (const std::int64_t queries : {1, 20}) {
      const std::int64_t pages = 21, page_size = 29, keys = 20 * page_size;
      CAPTURE(name(dtype), queries);
      const Operands given(random, {2, queries, keys, 2, 1, 32, 32}, f32, dtype);
      const auto attended = [&](const HostBuffer& k, const HostBuffer& v, bool has_table) {
        std::vector<std::int32_t> entries;  // each row's pages from its end on
        for (int i = 0; i < 40; ++i) entries.push_back(i == 39 ? 7777 : 20 - i % 20);
        std::vector<HostBuffer> inputs{
            given.inputs[0], k, v,
            HostBuffer::of<std::int32_t>(Shape({2}, i32),
                                         {static_cast<std::int32_t>(keys - queries),
                                          static_cast<std::int32_t>(keys - page_size - queries)})};
        if (has_table) inputs.push_back(HostBuffer::of<std::int32_t>(Shape({2, 20}, i32), entries));
        const OpCase one{
            .name = "attention",
            .op = OpInstance(Attention{
                .causal = true, .window = 573, .has_position = true, .has_table = has_table}),
            .inputs = inputs,
            .output = {}};
        return run_case(one, device_backends(test_device()), Order::dense);
      };
      // The rows share the pages of row 0, of which page 0 of the pool is none.
      const auto row_bytes = static_cast<std::size_t>(given.inputs[1].shape().bytes() / 2);
      const auto pool = [&](const HostBuffer& rows) {
        HostBuffer all = HostBuffer::zeros(Shape({pages, page_size, 1, 32}, dtype));
        const std::size_t page_bytes = row_bytes / 20;
        for (std::size_t i = 0; i < 20; ++i) {
          std::memcpy(all.view().data + (20 - i) * page_bytes, rows.bytes() + i * page_bytes,
                      page_bytes);
        }
        return all;
      };
      const auto twice = [&](const HostBuffer& rows) {
        HostBuffer both = HostBuffer::zeros(rows.shape());
        std::memcpy(both.view().data, rows.bytes(), row_bytes);
        std::memcpy(both.view().data + row_bytes, rows.bytes(), row_bytes);
        return both;
      };
      const HostBuffer &k = given.inputs[1], &v = given.inputs[2];
      const HostBuffer in_row = attended(twice(k), twice(v), false);
      const HostBuffer in_pages = attended(pool(k), pool(v), true);
      CHECK(std::memcmp(in_row.bytes(), in_pages.bytes(),
                        static_cast<std::size_t>(in_row.shape().bytes())) == 0);
    }
  }
}

TEST_CASE("cuda attention: a page that a row sees must exist", "[gpu][attention]") {
  Random random;
  for (const std::int64_t queries : {1, 20}) {
    const auto attend = [&](std::int32_t past, std::vector<std::int32_t> entries) {
      const OpCase one{.name = "attention",
                       .op = OpInstance(Attention{
                           .causal = true, .window = 9, .has_position = true, .has_table = true}),
                       .inputs = {random.uniform(Shape({1, queries, 1, 8}, f32)),
                                  random.uniform(Shape({2, 8, 1, 8}, f32)).to(f16),
                                  random.uniform(Shape({2, 8, 1, 8}, f32)).to(f16),
                                  HostBuffer::of<std::int32_t>(Shape({1}, i32), {past}),
                                  HostBuffer::of<std::int32_t>(Shape({1, 6}, i32), entries)},
                       .output = {}};
      run_case(one, device_backends(test_device()), Order::dense);
    };
    attend(27, {-1, -1, 1, 1, 0, 0});
    for (const std::int32_t page : {-1, 2, 1 << 30}) {
      expect_error(Errc::out_of_range, [&] { attend(27, {0, 0, page, 1, 0, 0}); });
      expect_error(Errc::out_of_range, [&] { attend(27, {0, 0, 1, page, 0, 0}); });
    }
  }
}

TEST_CASE("cuda attention: large and tiny queries keep their precision", "[gpu][attention]") {
  Random random;
  for (const float factor : {3e6f, 2e-9f}) {
    CAPTURE(factor);
    Operands given(random, {1, 18, 30, 1, 1, 32, 8}, f32, f16);
    for (float& element : given.inputs[0].mutable_values<float>()) element *= factor;
    check_on_device(Attention{.scale = 0.2 / factor}, given.inputs, of_rounded);
  }
}

TEST_CASE("cuda attention: scores may be of any size", "[gpu][attention]") {
  Random random;
  for (const DType dtype : {f16, bf16}) {
    const Operands given(random, {1, 40, 70, 1, 1, 16, 8}, dtype, dtype);
    for (const double scale : {1e-30, 1e9, 1e12}) {
      CAPTURE(scale);
      check_on_device(Attention{.causal = true, .scale = scale}, given.inputs,
                      dtype == f16 ? 4e-3 : 3e-2);
    }
  }
}

TEST_CASE("cuda attention: many small weights add up", "[gpu][attention]") {
  // Of each 2^-25 or so, which f16 would round to 0: beside a weight of 1 whose value is 0.
  for (const DType dtype : {f16, bf16}) {
    const std::int64_t keys = 600;
    HostBuffer k = HostBuffer::zeros(Shape({1, keys, 1, 8}, f32));
    HostBuffer v = HostBuffer::zeros(Shape({1, keys, 1, 8}, f32));
    k.mutable_values<float>()[0] = 17.5f;
    for (float& element : v.mutable_values<float>().subspan(8)) element = 6e4f;
    HostBuffer q = HostBuffer::zeros(Shape({1, 9, 1, 8}, f32));
    for (float& element : q.mutable_values<float>()) element = 1;
    check_on_device(Attention{.scale = 1}, {q.to(dtype), k.to(dtype), v.to(dtype)}, 8e-3);
  }
}

TEST_CASE("cuda attention: several tiles of queries and keys", "[gpu][attention]") {
  Random random;
  for (const Sizes& sizes : {Sizes{1, 140, 150, 2, 1, 72, 40}, Sizes{1, 70, 90, 1, 1, 136, 144}}) {
    CAPTURE(sizes.depth);
    const Operands given(random, sizes, f32, f16);
    check_on_device(Attention{.causal = true, .window = 21}, given.inputs, of_rounded);
    check_on_device(Attention{.window = 40}, given.inputs, of_rounded);
  }
}

TEST_CASE("cuda attention: a weight of 0 hides infinities and NaNs", "[gpu][attention]") {
  Random random;
  constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity()};
  for (const DType dtype : {f16, bf16}) {
    const Operands given(random, {1, 20, 45, 2, 1, 16, 24}, dtype, dtype);
    HostBuffer values = given.inputs[2].to(f32);
    const std::span<float> elements = values.mutable_values<float>();
    for (std::size_t key = 0; key < 45; key += 3) {
      for (std::size_t d = key % 5; d < 24; d += 5) elements[key * 24 + d] = odd[d % 3];
    }
    HostBuffer mask = HostBuffer::zeros(Shape({45}, f32));
    const std::span<float> hidden = mask.mutable_values<float>();
    for (std::size_t key = 0; key < 45; ++key) {
      hidden[key] = key % 3 == 0 ? -std::numeric_limits<float>::infinity() : 0;
    }
    const std::vector<HostBuffer> inputs{given.inputs[0], given.inputs[1], values.to(dtype), mask};
    check_on_device(Attention{.has_mask = true}, inputs, 2e-2);
    // Seen, they are in every query that sees them: those at the end of a causal one.
    check_on_device(Attention{.causal = true}, {inputs[0], inputs[1], inputs[2]}, 2e-2);
  }
}

TEST_CASE("cuda attention: a query's bits depend neither on the batch nor on the chunk",
          "[gpu][attention]") {
  Random random;
  Operands given(random, {2, 160, 160, 2, 1, 32, 32}, f32, f16);
  // A value that the last queries see must not change those before.
  HostBuffer values = given.inputs[2].to(f32);
  values.mutable_values<float>()[(160 + 151) * 32 + 3] = std::numeric_limits<float>::infinity();
  given.inputs[2] = values.to(f16);
  const HostBuffer &q = given.inputs[0], &k = given.inputs[1], &v = given.inputs[2];
  for (const std::int64_t window : {0, 45}) {
    const auto attended = [&](std::int64_t first, std::int64_t count) {
      const OpCase one{
          .name = "attention",
          .op = OpInstance(Attention{.causal = true, .window = window, .has_position = true}),
          .inputs = {q.slice(0, 1, 2).slice(1, first, first + count), k.slice(0, 1, 2),
                     v.slice(0, 1, 2),
                     HostBuffer::of<std::int32_t>(Shape({}, i32),
                                                  {static_cast<std::int32_t>(first)})},
          .output = {}};
      return run_case(one, device_backends(test_device()), Order::dense);
    };
    const HostBuffer whole = attended(0, 160);
    for (const std::int64_t first : {0, 13, 37, 70, 127, 142}) {
      CAPTURE(window, first);
      const HostBuffer part = attended(first, 10);
      CHECK(std::memcmp(part.bytes(), whole.bytes() + first * 2 * 32 * 4,
                        static_cast<std::size_t>(part.shape().bytes())) == 0);
    }
  }
}

TEST_CASE("cuda attention: few queries of any heads", "[gpu][attention]") {
  Random random;
  const std::vector<Sizes> all{
      {1, 1, 31, 1, 1, 8, 8},      {2, 1, 32, 3, 1, 80, 80},  {1, 2, 33, 4, 1, 96, 40},
      {1, 8, 65, 8, 1, 192, 192},  {1, 1, 100, 5, 1, 5, 256}, {1, 3, 97, 8, 8, 64, 64},
      {1, 1, 130, 14, 2, 256, 12}, {1, 1, 64, 4, 2, 0, 8},    {1, 1, 64, 4, 2, 8, 0}};
  constexpr DType keys[] = {f32, f16, bf16};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Sizes& at = all[i];
    CAPTURE(at.queries, at.keys, at.heads, at.key_heads, at.depth, at.value_depth);
    check_on_device(Attention{.causal = true}, Operands(random, at, f32, keys[i % 3]).inputs, 2e-5);
    check_on_device(Attention{}, Operands(random, at, bf16, keys[(i + 1) % 3]).inputs, 1e-2);
  }
  for (const Sizes& at : {Sizes{1, 1, 70, 6, 2, 64, 128}, Sizes{1, 2, 33, 3, 1, 160, 32}}) {
    check_on_device(Attention{.causal = true}, Operands(random, at, f16, DType::q8_0).inputs, 2e-3);
  }
}

TEST_CASE("cuda attention: few queries with positions, windows, masks and sinks",
          "[gpu][attention]") {
  Random random;
  const Operands given(random, {3, 2, 170, 6, 2, 24, 24}, f32, f16);
  const HostBuffer rows = HostBuffer::of<std::int32_t>(Shape({3}, i32), {0, 31, 168});
  const HostBuffer sinks = random.uniform(Shape({6}, f32));
  const auto check = [&](const Attention& op, std::initializer_list<HostBuffer> more) {
    check_on_device(op, given.with(more), 2e-5);
  };
  check({.causal = true, .has_position = true}, {rows});
  check({.has_position = true}, {rows});
  check({.causal = true, .window = 40, .has_position = true}, {rows});
  check({.window = 7, .scale = 0.3, .has_position = true}, {rows});
  check({.causal = true, .softcap = 1.5, .has_position = true, .has_sinks = true}, {rows, sinks});
  check({.causal = true, .has_position = true, .has_mask = true, .has_sinks = true},
        {rows, hiding(random, Shape({3, 6, 2, 170}, f32)), sinks});
  HostBuffer all = HostBuffer::zeros(Shape({170}, f32));
  for (float& element : all.mutable_values<float>()) {
    element = -std::numeric_limits<float>::infinity();
  }
  check({.has_mask = true, .has_sinks = true}, {all, sinks});
}

/// Query `first` and those behind it, of row 0, among the first `keys` keys.
HostBuffer attended_queries(const Operands& all, std::int64_t first, std::int64_t count,
                            std::int64_t keys) {
  const OpCase one{
      .name = "attention",
      .op = OpInstance(Attention{.causal = true, .has_position = true}),
      .inputs = {all.inputs[0].slice(1, first, first + count), all.inputs[1].slice(1, 0, keys),
                 all.inputs[2].slice(1, 0, keys),
                 HostBuffer::of<std::int32_t>(Shape({}, i32), {static_cast<std::int32_t>(first)})},
      .output = {}};
  return run_case(one, device_backends(test_device()), Order::dense);
}

TEST_CASE("cuda attention: few queries have the same bits in a larger cache and one by one",
          "[gpu][attention]") {
  Random random;
  const Operands given(random, {1, 2200, 2200, 2, 1, 8, 8}, f32, bf16);
  constexpr std::int64_t row_bytes = 2 * 8 * 4;
  for (const std::int64_t first : {0, 30, 63, 2046, 2105}) {  // above 2048 keys in shares of 64
    const HostBuffer four = attended_queries(given, first, 4, 2200);
    for (std::int64_t i = 0; i < 4; ++i) {
      const HostBuffer alone = attended_queries(given, first + i, 1, first + i + 1);
      CHECK(std::memcmp(alone.bytes(), four.bytes() + i * row_bytes, row_bytes) == 0);
    }
  }
}

TEST_CASE("cuda attention: few queries do not see what has no weight", "[gpu][attention]") {
  Random random;
  Operands given(random, {1, 1, 200, 4, 1, 16, 16}, f32, f32);
  const std::span<float> values = given.inputs[2].mutable_values<float>();
  HostBuffer mask = HostBuffer::zeros(Shape({200}, f32));
  for (std::size_t key = 0; key < 200; key += 3) {
    values[key * 16 + key % 16] = key % 2 == 0 ? std::numeric_limits<float>::infinity()
                                               : std::numeric_limits<float>::quiet_NaN();
    mask.mutable_values<float>()[key] = -std::numeric_limits<float>::infinity();
  }
  check_on_device(Attention{.has_mask = true}, given.with({mask}), 2e-6);
  check_on_device(Attention{}, given.inputs, 2e-6);
}

TEST_CASE("cuda attention: runs with shared keys leave nothing behind", "[gpu][attention]") {
  Random random;
  const Operands given(random, {1, 1, 150, 3, 1, 32, 32}, f32, f16);
  Graph graph;
  const Graph::Recording recording(graph);
  std::vector<Tensor> inputs;
  for (const HostBuffer& input : given.inputs) {
    inputs.push_back(graph.input("", input.shape()));
  }
  const Tensor position = graph.input("", Shape({}, i32));
  const Tensor y =
      add(attention(inputs[0], inputs[1], inputs[2], {.causal = true}, position), inputs[0]);
  Session session(graph.program(std::vector<Tensor>{y}),
                  {.backends = device_backends(test_device())});
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
  const auto run = [&](std::int32_t at) {
    std::vector<Buffer> buffers;
    for (const HostBuffer& input : given.inputs) buffers.push_back(input.to_device(cpu_device()));
    buffers.push_back(HostBuffer::of<std::int32_t>(Shape({}, i32), {at}).to_device(cpu_device()));
    return session.forward(buffers).at(0).to_host();
  };
  const HostBuffer first = run(149);
  run(3);
  expect_error(Errc::out_of_range, [&] { run(150); });
  run(40);
  const HostBuffer again = run(149);
  CHECK(std::memcmp(first.bytes(), again.bytes(),
                    static_cast<std::size_t>(first.shape().bytes())) == 0);
}

TEST_CASE("cuda attention: exact sessions and keys of f32 are computed in f32",
          "[gpu][attention]") {
  Random random;
  const Operands given(random, {1, 20, 30, 1, 1, 32, 32}, f32, bf16);
  const auto run = [&](bool is_exact) {
    const OpCase one{
        .name = "attention", .op = OpInstance(Attention{}), .inputs = given.inputs, .output = {}};
    return run_case(one, device_backends(test_device(), {.exact = is_exact}), Order::dense);
  };
  const HostBuffer exact = run(true), fast = run(false);
  CHECK(std::memcmp(exact.bytes(), fast.bytes(), static_cast<std::size_t>(exact.shape().bytes())) !=
        0);
  check_op(OpInstance(Attention{}), given.inputs, 2e-6, {.exact = true});
  check_on_device(Attention{}, Operands(random, {1, 20, 30, 1, 1, 32, 32}, f32, f32).inputs, 2e-6);
}

}  // namespace
}  // namespace tenon::testing
