// Products with weights of every type, and what caches hold, against the reference.
#include "emulated.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

const std::vector<DType> weight_types{
    f32,          f16,           bf16,          DType::q4_0,  DType::q4_1,    DType::q5_0,
    DType::q5_1,  DType::q8_0,   DType::q2_k,   DType::q3_k,  DType::q4_k,    DType::q5_k,
    DType::q6_k,  DType::iq4_nl, DType::iq4_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s,
    DType::tq1_0, DType::tq2_0,  DType::mxfp4,  DType::nvfp4, DType::q1_0,    DType::q2_0};

/// A program on the device alone, and on the reference.
constexpr const char* with_digits = "?libraries=off&digits=on";

class Case {
 public:
  Graph graph;

  Tensor input(const HostBuffer& value) {
    inputs_.push_back(value);
    return graph.input("", value.shape());
  }
  Tensor constant(const std::string& name, const HostBuffer& value) {
    weights_[name] = value.to_device(cpu_device());
    return graph.constant(name, value.shape());
  }
  std::vector<HostBuffer> run(const std::vector<Tensor>& outputs, const BackendPtr& backend) {
    Session session(graph.program(outputs), {.backends = {backend}});
    session.bind(std::make_shared<const WeightSet>(weights_));
    std::vector<Buffer> given;
    for (const HostBuffer& input : inputs_) given.push_back(input.to_device(cpu_device()));
    std::vector<HostBuffer> results;
    for (const Buffer& output : session.forward(std::move(given))) {
      results.push_back(output.to_host());
    }
    return results;
  }
  void check(const std::vector<Tensor>& outputs, double allowed = 1e-4) {
    const std::vector<HostBuffer> wanted = run(outputs, make_reference_backend({}));
    compare(run(outputs, device_backends(test_device(), {.exact = true}).at(0)), wanted, allowed);
    const auto is_code = [](const auto& weight) {
      const DType dtype = weight.second.shape().dtype();
      return is_block(dtype) && dtype != DType::q2_k && dtype != DType::q3_k;
    };
    if (!std::ranges::any_of(weights_, is_code)) return;
    INFO("rows as digits");
    compare(run(outputs, device_backends(test_device(with_digits), {.exact = true}).at(0)), wanted,
            allowed);
  }
  int launches(const std::vector<Tensor>& outputs, const BackendPtr& backend) {
    Session session(graph.program(outputs), {.backends = {backend}});
    session.bind(std::make_shared<const WeightSet>(weights_));
    int count = 0;
    std::vector<Shape> shapes;
    for (const HostBuffer& input : inputs_) shapes.push_back(input.shape());
    const std::string note = session.report(shapes).parts.at(0).notes.at(0);
    return std::sscanf(note.c_str(), "%d launches", &count) == 1 ? count : -1;
  }
  /// `outputs` on the device, where they need not be exact, against `wanted` on the reference.
  void check_rounded(const std::string& keys, const std::vector<Tensor>& outputs,
                     const std::vector<Tensor>& wanted, double allowed) {
    compare(run(outputs, device_backends(test_device(keys)).at(0)),
            run(wanted, make_reference_backend({})), allowed);
  }
  static void compare(const std::vector<HostBuffer>& got, const std::vector<HostBuffer>& wanted,
                      double allowed) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      INFO("result " << i);
      expect_close(got[i], wanted[i], allowed, allowed);
    }
  }

 private:
  std::vector<HostBuffer> inputs_;
  std::map<std::string, Buffer> weights_;
};

TEST_CASE("cuda: weights of every type in products of few and many rows, tables, experts",
          "[gpu][weights]") {
  Random random;
  for (const DType dtype : weight_types) {
    CAPTURE(name(dtype));
    Case test;
    const Graph::Recording recording(test.graph);
    const HostBuffer values = random.uniform(Shape({37, 512}, f32), -0.3, 0.3);
    const Tensor w = test.constant("w", values.to(dtype));
    const Tensor bias = test.constant("bias", random.uniform(Shape({37}, f32)));
    std::vector<Tensor> results{is_block(dtype) ? dequantize(w) : cast(w, f32)};
    for (const std::int64_t rows : {1, 3, 8, 9, 70}) {
      const Tensor x = test.input(random.uniform(Shape({rows, 512}, f32)));
      results.push_back(linear(x, w, bias, linear(x, w)));
    }
    results.push_back(
        embedding(test.input(HostBuffer::of<std::int32_t>(Shape({2, 2}, i32), {36, 0, 5, 5})), w));
    const HostBuffer experts = random.uniform(Shape({4, 6, 256}, f32), -0.3, 0.3);
    const Tensor group =
        test.input(HostBuffer::of<std::int32_t>(Shape({3, 2}, i32), {3, 0, 1, 1, 2, 3}));
    results.push_back(grouped_linear(test.input(random.uniform(Shape({3, 1, 256}, f32))),
                                     test.constant("experts", experts.to(dtype)), group));
    test.check(results, 3e-4);
  }
}

/// Blocks of any codes; `d_at`: where a block has its scale.
HostBuffer random_blocks(Random& random, const Shape& shape, std::int64_t d_at) {
  HostBuffer blocks = HostBuffer::uninitialized(shape);
  const std::int64_t bytes = block_bytes(shape.dtype());
  for (std::int64_t i = 0; i < shape.bytes(); ++i) {
    // The upper byte of an f16 of about 0.02; iq1_m keeps its scale's upper four bits on top.
    const bool is_scale = i % bytes == d_at + 1;
    blocks.view().data[i] = is_scale ? std::byte{0x25} : std::byte(random.integer(0, 255));
  }
  return blocks;
}

TEST_CASE("cuda: blocks that only files have, of any codes", "[gpu][weights]") {
  struct Format {
    DType dtype;
    std::int64_t d_at;
  };
  Random random;
  for (const Format& format : {Format{DType::iq1_s, 0}, Format{DType::iq1_m, 54},
                               Format{DType::iq2_xxs, 0}, Format{DType::iq2_xs, 0}}) {
    CAPTURE(name(format.dtype));
    Case test;
    const Graph::Recording recording(test.graph);
    const Shape shape({5, 512}, format.dtype);
    const Tensor w = test.constant("w", random_blocks(random, shape, format.d_at));
    std::vector<Tensor> results{dequantize(w)};
    for (const std::int64_t rows : {2, 11}) {
      results.push_back(linear(test.input(random.uniform(Shape({rows, 512}, f32))), w));
    }
    test.check(results, 3e-4);
  }
}

TEST_CASE("cuda: rows of 16 bits in tensor cores", "[gpu][weights]") {
  Random random;
  for (const DType type : {f16, bf16}) {
    const double allowed = type == f16 ? 2e-3 : 1.2e-2;  // of a result's own rounding
    for (const DType weights : {f16, bf16, DType::q4_0, DType::q8_0, DType::q4_k, DType::q6_k}) {
      CAPTURE(name(type), name(weights));
      Case test;
      const Graph::Recording recording(test.graph);
      const Tensor w =
          test.constant("w", random.uniform(Shape({71, 256}, f32), -0.3, 0.3).to(weights));
      const Tensor bias = test.constant("bias", random.uniform(Shape({71}, f32)).to(type));
      std::vector<Tensor> results;
      for (const std::int64_t rows : {9, 70}) {
        const Tensor x = test.input(random.uniform(Shape({rows, 256}, f32)).to(type));
        const Tensor residual = test.input(random.uniform(Shape({rows, 71}, f32)).to(type));
        results.push_back(linear(x, w, bias, residual));
      }
      test.check(results, allowed);
    }
    for (const std::int64_t depth : {1, 7, 33, 100}) {
      Case test;
      const Graph::Recording recording(test.graph);
      const Tensor w = test.constant("w", random.uniform(Shape({9, depth}, f32)).to(type));
      const Tensor x = test.input(random.uniform(Shape({depth, 66}, f32)).to(type));
      test.check({linear(transpose(x), w)}, allowed);
    }
  }
}

TEST_CASE("cuda: two terms of bf16 keep what a result of 16 bits has", "[gpu][weights]") {
  // Small multiples of 2^-12 above 1: a single term of bf16 would lose them.
  Case test;
  const Graph::Recording recording(test.graph);
  std::vector<float> weights(32 * 32, 0.0f), values(32 * 32);
  for (std::size_t i = 0; i < 32; ++i) weights[33 * i] = 1.0f;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 1.0f + static_cast<float>(i) * 0x1p-10f;
  }
  const HostBuffer x = HostBuffer::of<float>(Shape({32, 32}, f32), values).to(f16);
  const Tensor w =
      test.constant("w", HostBuffer::of<float>(Shape({32, 32}, f32), weights).to(bf16));
  const auto got = test.run({linear(test.input(x), w)}, device_backends(test_device()).at(0));
  CHECK(std::memcmp(got[0].bytes(), x.bytes(), static_cast<std::size_t>(x.shape().bytes())) == 0);
}

/// As f32 rows are multiplied where nothing has to be exact: of bf16, with weights of bf16.
Tensor rounded(const Tensor& x) { return cast(cast(x, bf16), f32); }
Tensor rounded_weights(const Tensor& w) {
  return rounded(is_block(w.shape().dtype()) ? dequantize(w) : cast(w, f32));
}

TEST_CASE("cuda: rows and weights that are rounded to bf16", "[gpu][weights]") {
  struct Weights {
    DType dtype;
    std::int64_t columns, depth;
    std::vector<std::int64_t> rows;
  };
  Random random;
  for (const Weights& of : {Weights{f16, 131, 264, {9, 65}},
                            {bf16, 131, 520, {17, 64}},
                            {DType::q4_0, 257, 288, {16, 256}},
                            {DType::q8_0, 5, 1056, {9, 127}},
                            {DType::q4_k, 40, 2304, {9, 129}},
                            {DType::q4_k, 133, 256, {9, 16, 17, 64, 65, 129}},
                            {DType::q5_k, 129, 512, {33, 128}},
                            {DType::q6_k, 129, 768, {10, 70}}}) {
    CAPTURE(name(of.dtype), of.columns, of.depth);
    Case test;
    const Graph::Recording recording(test.graph);
    const HostBuffer values = random.uniform(Shape({of.columns, of.depth}, f32), -0.3, 0.3);
    const Tensor w = test.constant("w", values.to(of.dtype));
    const Tensor bias = test.constant("bias", random.uniform(Shape({of.columns}, f32)));
    const Tensor as_multiplied = rounded_weights(w);
    std::vector<Tensor> results, wanted;
    for (const std::int64_t rows : of.rows) {
      const Tensor x = test.input(random.uniform(Shape({rows, of.depth}, f32)));
      const Tensor residual = test.input(random.uniform(Shape({rows, of.columns}, f32)));
      results.push_back(linear(x, w, bias, residual));
      wanted.push_back(linear(rounded(x), as_multiplied, bias, residual));
    }
    const Tensor turned = test.input(random.uniform(Shape({of.depth, 3, 7}, f32)));
    const Tensor cut = test.input(random.uniform(Shape({2, 11, of.depth + 3}, f32)));
    for (const Tensor& view : {permute(turned, {2, 1, 0}), slice(cut, 2, 1, of.depth + 1)}) {
      results.push_back(linear(view, w));
      wanted.push_back(linear(rounded(view), as_multiplied));
    }
    test.check_rounded(of.depth % 512 == 0 ? "?libraries=off" : "", results, wanted, 4e-3);
  }
}

TEST_CASE("cuda: weights that a library multiplies in parts, as bf16", "[gpu][weights]") {
  Random random;
  for (const DType dtype : {f16, DType::q5_0, DType::q8_0, DType::iq4_nl, DType::mxfp4}) {
    CAPTURE(name(dtype));
    Case test;
    const Graph::Recording recording(test.graph);
    const Tensor w = test.constant("w", random.uniform(Shape({601, 96}, f32), -0.3, 0.3).to(dtype));
    const Tensor bias = test.constant("bias", random.uniform(Shape({601}, f32)));
    std::vector<Tensor> results, wanted;
    for (const std::int64_t rows : {256, 300}) {
      const Tensor x = test.input(random.uniform(Shape({rows, 96}, f32)));
      const Tensor residual = test.input(random.uniform(Shape({rows, 601}, f32)));
      results.push_back(linear(x, w, bias, residual));
      wanted.push_back(linear(rounded(x), rounded_weights(w), bias, residual));
    }
    test.check_rounded("", results, wanted, 2e-3);
  }
}

TEST_CASE("cuda: a row has the same bits in a batch of any size", "[gpu][weights]") {
  Random random;
  const HostBuffer values = random.uniform(Shape({72, 1536}, f32), -0.3, 0.3);
  const HostBuffer x = random.uniform(Shape({127, 1536}, f32));
  for (const DType dtype : {DType::q4_k, DType::q8_0}) {
    const auto product = [&](std::int64_t first, std::int64_t rows) {
      Case test;
      const Graph::Recording recording(test.graph);
      const Tensor y =
          linear(test.input(x.slice(0, first, first + rows)), test.constant("w", values.to(dtype)));
      return test.run({y}, device_backends(test_device("")).at(0)).at(0);
    };
    const HostBuffer all = product(0, 127), few = product(60, 9);
    CHECK(std::memcmp(all.bytes() + 60 * 72 * 4, few.bytes(), 9 * 72 * 4) == 0);
  }
}

TEST_CASE("cuda: layers that share rows, and rows that are overwritten", "[gpu][weights]") {
  Random random;
  for (const std::int64_t rows : {20, 260}) {  // by a kernel, and by a library
    Case test;
    const Graph::Recording recording(test.graph);
    const auto weights = [&](const char* of) {
      return test.constant(of, random.uniform(Shape({64, 64}, f32), -0.1, 0.1).to(DType::q8_0));
    };
    const Tensor a = weights("a"), b = weights("b");
    const Tensor bias = test.constant("bias", random.uniform(Shape({64}, f32)));
    Tensor x = test.input(random.uniform(Shape({rows, 64}, f32)));
    for (int i = 0; i < 3; ++i) {
      const Tensor h = x * 0.5f;
      const Tensor q = linear(h, a), k = linear(h, b, bias), v = linear(h, a, bias, q);
      x = linear(q * k + v, b, {}, x);  // in x's place
      x = linear(x, a, {}, x);
    }
    test.check_rounded("", {x}, {x}, 8e-2);
  }
}

TEST_CASE("cuda: infinities and NaNs of rows in tensor cores", "[gpu][weights]") {
  Random random;
  const float odd[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const DType type : {f16, bf16}) {
    for (const DType weights : {f16, bf16, DType::q8_0}) {
      CAPTURE(name(type), name(weights));
      Case test;
      const Graph::Recording recording(test.graph);
      HostBuffer x = random.uniform(Shape({12, 64}, f32));
      for (std::size_t i = 0; i < 3; ++i) x.mutable_values<float>()[i * 3 * 64 + 5 * i] = odd[i];
      const Tensor w =
          test.constant("w", random.uniform(Shape({10, 64}, f32), -0.3, 0.3).to(weights));
      test.check({linear(test.input(x.to(type)), w)}, type == f16 ? 2e-3 : 1.2e-2);
    }
  }
}

TEST_CASE("cuda: depths that no vector divides, and none at all", "[gpu][weights]") {
  Random random;
  for (const DType dtype : {f32, f16, bf16}) {
    for (const std::int64_t depth : {0, 1, 7, 8, 9, 33, 257}) {
      CAPTURE(name(dtype), depth);
      Case test;
      const Graph::Recording recording(test.graph);
      const Tensor w = test.constant("w", random.uniform(Shape({5, depth}, f32)).to(dtype));
      const Tensor few = test.input(random.uniform(Shape({2, depth}, f32)));
      const Tensor many = test.input(random.uniform(Shape({11, depth}, f32)));
      const Tensor turned = test.input(random.uniform(Shape({depth, 3}, f32)));
      test.check({linear(few, w), linear(many, w), linear(transpose(turned), w),
                  matmul(many, turned), matmul(transpose(turned), transpose(many))});
    }
  }
}

/// Rows of `depth` elements.
HostBuffer random_weights(Random& random, std::int64_t columns, std::int64_t depth, DType dtype) {
  return random.uniform(Shape({columns, depth}, f32), -0.3, 0.3).to(dtype);
}

TEST_CASE("cuda: few rows of depths around what warps share", "[gpu][weights]") {
  Random random;
  struct Size {
    std::int64_t columns, depth;
  };
  // Slices are of 1024 elements, of plain types of 1024 bytes, and eight warps share them.
  const auto sizes_of = [](DType dtype) -> std::vector<Size> {
    if (dtype == f32) return {{3, 252}, {7, 256}, {5, 260}, {33, 2052}, {2, 4364}};
    if (block_bytes(dtype) == 2) return {{3, 504}, {7, 512}, {5, 520}, {33, 4104}, {2, 8712}};
    const std::int64_t block = block_size(dtype);
    return {{3, 1024 - block}, {7, 1024},         {1, 1024 + block},
            {33, 4096},        {2, 8192 + block}, {8, 4096}};
  };
  for (const DType dtype : {f32, f16, bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                            DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k,
                            DType::q6_k, DType::iq4_xs, DType::mxfp4}) {
    for (const Size& size : sizes_of(dtype)) {
      CAPTURE(name(dtype), size.columns, size.depth);
      Case test;
      const Graph::Recording recording(test.graph);
      const Tensor w = test.constant("w", random_weights(random, size.columns, size.depth, dtype));
      const Tensor bias = test.constant("bias", random.uniform(Shape({size.columns}, f32)));
      std::vector<Tensor> results;
      for (const std::int64_t rows : {1, 2, 5}) {
        results.push_back(
            linear(test.input(random.uniform(Shape({rows, size.depth}, f32))), w, bias));
      }
      test.check(results, 1e-3);
    }
  }
}

TEST_CASE("cuda: many columns of few rows", "[gpu][weights]") {
  Random random;
  for (const std::int64_t columns : {527, 11000}) {
    Case test;
    const Graph::Recording recording(test.graph);
    const Tensor w = test.constant("w", random_weights(random, columns, 64, DType::q8_0));
    test.check({linear(test.input(random.uniform(Shape({1, 64}, f32))), w),
                linear(test.input(random.uniform(Shape({3, 64}, f32))), w)},
               3e-4);
  }
}

TEST_CASE("cuda: a row's product has the same bits beside others, and of any columns",
          "[gpu][weights]") {
  Random random;
  for (const DType dtype : {f32, bf16, DType::q4_0, DType::q4_k, DType::q5_1, DType::q6_k}) {
    CAPTURE(name(dtype));
    const std::int64_t depth = dtype == f32 ? 2560 : dtype == bf16 ? 5120 : 10240;
    const HostBuffer x = random.uniform(Shape({8, depth}, f32));
    const HostBuffer w = random_weights(random, 21, depth, dtype);
    for (const char* const keys : {"?libraries=off", with_digits}) {
      const auto product = [&](const HostBuffer& rows, const HostBuffer& weights) {
        Case test;
        const Graph::Recording recording(test.graph);
        const Tensor y = linear(test.input(rows), test.constant("w", weights));
        return test.run({y}, device_backends(test_device(keys)).at(0)).at(0);
      };
      const HostBuffer all = product(x, w), one = product(x.slice(0, 5, 6), w);
      const HostBuffer some = product(x.slice(0, 5, 7), w.slice(0, 0, 4));
      CHECK(std::memcmp(all.bytes() + 5 * one.shape().bytes(), one.bytes(),
                        static_cast<std::size_t>(one.shape().bytes())) == 0);
      CHECK(std::memcmp(some.bytes(), one.bytes(), 4 * sizeof(float)) == 0);
    }
  }
}

/// A layer of a language model, as far as rows and their digits go: which launches there are.
TEST_CASE("cuda: what makes rows makes their digits, and weights of a type are one launch",
          "[gpu][weights]") {
  Random random;
  for (const std::int64_t rows : {1, 5}) {
    for (const DType dtype : {DType::q4_k, DType::q8_0}) {
      CAPTURE(rows, name(dtype));
      Case test;
      const Graph::Recording recording(test.graph);
      const auto weight = [&](const char* name, std::int64_t columns, std::int64_t depth,
                              DType of) {
        return test.constant(name, random_weights(random, columns, depth, of));
      };
      const auto bias = [&](const char* name, std::int64_t columns) {
        return test.constant(name, random.uniform(Shape({columns}, f32)));
      };
      const Tensor x = test.input(random.uniform(Shape({rows, 512}, f32)));
      const Tensor y = rms_norm(x, bias("norm", 512));
      const Tensor q = linear(y, weight("q", 512, 512, dtype), bias("q bias", 512));
      const Tensor k = linear(y, weight("k", 67, 512, dtype));
      const Tensor v = linear(y, weight("v", 40, 512, DType::q6_k), bias("v bias", 40));
      const Tensor sum = linear(q, weight("o", 512, 512, dtype), {}, x);
      const Tensor z = rms_norm(sum, bias("norm 2", 512));
      const Tensor gate = linear(z, weight("gate", 768, 512, dtype), bias("gate bias", 768));
      const Tensor up = linear(z, weight("up", 768, 512, dtype), bias("up bias", 768));
      const Tensor down = linear(glu(gate, up), weight("down", 512, 768, dtype), {}, sum);
      test.check({k, v, down}, 1e-3);
      // Two norms, q and k, v, digits of q, o, gate and up, glu, down.
      CHECK(test.launches({k, v, down}, device_backends(test_device(with_digits)).at(0)) == 9);
    }
  }
}

TEST_CASE("cuda: few rows that lie anywhere, of any type", "[gpu][weights]") {
  Random random;
  for (const DType weights : {f32, f16, DType::q4_k, DType::q8_0}) {
    for (const DType type : {f32, f16, bf16}) {
      CAPTURE(name(weights), name(type));
      Case test;
      const Graph::Recording recording(test.graph);
      const Tensor w = test.constant("w", random_weights(random, 9, 512, weights));
      const HostBuffer values = random.uniform(Shape({4, 515}, f32)).to(type);
      const Tensor x = test.input(values);
      const Tensor turned = test.input(random.uniform(Shape({512, 3}, f32)).to(type));
      std::vector<Tensor> results;
      for (const std::int64_t begin : {0, 1, 2, 3}) {
        const Tensor part = slice(x, 1, begin, begin + 512);
        results.push_back(linear(part, w));
        results.push_back(linear(slice(part, 0, 2, 3), w));
      }
      results.push_back(linear(transpose(turned), w));
      results.push_back(linear(slice(transpose(turned), 0, 1, 2), w));
      test.check(results, type == f32 ? 3e-4 : type == f16 ? 2e-3 : 1.2e-2);
    }
  }
  // Weights that begin, and whose rows begin, elsewhere than at multiples of 16 bytes.
  for (const DType weights : {f32, f16, bf16}) {
    CAPTURE(name(weights));
    Case test;
    const Graph::Recording recording(test.graph);
    const Tensor w = test.input(random.uniform(Shape({19, 603}, f32), -0.3, 0.3).to(weights));
    std::vector<Tensor> results;
    for (const std::int64_t rows : {1, 3}) {
      const Tensor x = test.input(random.uniform(Shape({rows, 603}, f32)));
      results.push_back(linear(x, w));
      results.push_back(linear(slice(x, 1, 0, 600), slice(w, 1, 1, 601)));
      results.push_back(linear(x, slice(w, 0, 3, 4)));
    }
    test.check(results, 3e-4);
  }
}

TEST_CASE("cuda: infinities and NaNs of few rows", "[gpu][weights]") {
  Random random;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {f16, DType::q4_0, DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k}) {
    CAPTURE(name(dtype));
    Case test;
    const Graph::Recording recording(test.graph);
    HostBuffer x = random.uniform(Shape({4, 512}, f32));
    x.mutable_values<float>()[17] = infinity;
    x.mutable_values<float>()[512 + 300] = -infinity;
    x.mutable_values<float>()[2 * 512 + 5] = std::numeric_limits<float>::quiet_NaN();
    const Tensor w = test.constant("w", random_weights(random, 11, 512, dtype));
    const Tensor rows = test.input(x);
    test.check({linear(rows, w), linear(slice(rows, 0, 0, 1), w), linear(slice(rows, 0, 3, 4), w)},
               3e-4);
  }
}

TEST_CASE("cuda: a cache of q8_0 has the CPU's codes, and attention reads it", "[gpu][weights]") {
  Random random;
  for (const std::int64_t position : {0, 5, 11}) {
    Case test;
    const Graph::Recording recording(test.graph);
    const HostBuffer old = random.uniform(Shape({2, 2, 2, 16, 64}, f32)).to(DType::q8_0);
    const Tensor x = test.input(random.uniform(Shape({2, 5, 2, 64}, f32)));
    const Tensor at = test.input(
        HostBuffer::of<std::int32_t>(Shape({}, i32), {static_cast<std::int32_t>(position)}));
    const Tensor layer = test.input(HostBuffer::of<std::int64_t>(Shape({}, i64), {1}));
    const Tensor cache = cache_update(test.input(old), layer, x, at);
    const auto got = test.run({cache}, device_backends(test_device(), {.exact = true}).at(0));
    const auto wanted = test.run({cache}, make_reference_backend({}));
    CHECK(std::memcmp(got[0].bytes(), wanted[0].bytes(),
                      static_cast<std::size_t>(old.shape().bytes())) == 0);
  }
  for (const DType dtype : {f32, f16, bf16, DType::q8_0}) {
    CAPTURE(name(dtype));
    Case test;
    const Graph::Recording recording(test.graph);
    const Tensor q = test.input(random.uniform(Shape({2, 3, 4, 64}, f32)));
    const Tensor k = test.input(random.uniform(Shape({2, 150, 2, 64}, f32)).to(dtype));
    const Tensor v = test.input(random.uniform(Shape({2, 150, 2, 96}, f32)).to(dtype));
    const Tensor rows = test.input(HostBuffer::of<std::int32_t>(Shape({2}, i32), {147, 40}));
    const Tensor sinks = test.input(random.uniform(Shape({4}, f32)));
    test.check({attention(q, k, v, {.causal = true}),
                attention(q, k, v, {.causal = true, .window = 37}),
                attention(q, k, v, {.causal = true, .softcap = 2.5}, rows, {}, sinks),
                attention(q, k, v, {.window = 60}, rows)});
  }
}

/// What a layer does with heads before attention: rotated queries, and the caches.
struct HeadsCase {
  DType heads, cache;
  bool has_table;
  std::int32_t position;
  bool shows_keys = false;  ///< rotated keys are a result, too
};
std::vector<HostBuffer> run_heads(const HeadsCase& at, const BackendPtr& backend,
                                  std::vector<std::string>& notes) {
  Random random(5);
  Graph graph;
  const Graph::Recording recording(graph);
  std::vector<HostBuffer> given;
  const auto input = [&](const HostBuffer& value) {
    given.push_back(value);
    return graph.input("", value.shape());
  };
  const Shape cache = at.has_table ? Shape({2, 5, 2, 4, 32}, f32) : Shape({2, 2, 2, 12, 32}, f32);
  const Tensor keys = input(random.uniform(cache).to(at.cache));
  const Tensor values = input(random.uniform(cache).to(at.cache));
  const Tensor q = input(random.uniform(Shape({2, 3, 4, 32}, f32)).to(at.heads));
  const Tensor k = input(random.uniform(Shape({2, 3, 2, 32}, f32)).to(at.heads));
  const Tensor v = input(random.uniform(Shape({2, 3, 2, 32}, f32)).to(at.heads));
  const Tensor layer = input(HostBuffer::of<std::int64_t>(Shape({}, i64), {1}));
  const Tensor rows = input(HostBuffer::of<std::int32_t>(Shape({2}, i32), {at.position, 2}));
  const Tensor places =
      input(HostBuffer::of<std::int32_t>(Shape({2, 3}, i32), {7, 8, 9, 2, 3, 400}));
  Tensor table;
  if (at.has_table) {
    table = input(HostBuffer::of<std::int32_t>(Shape({2, 3}, i32), {4, 1, 0, 3, 2, -1}));
  }
  const Rope options{.dims = 24, .interleaved = at.has_table};
  const Tensor rotated = rope(q, places, options), rotated_keys = rope(k, places, options);
  std::vector<Tensor> outputs{rotated, cache_update(keys, layer, rotated_keys, rows, table),
                              cache_update(values, layer, v, rows, table)};
  if (at.shows_keys) outputs.push_back(rotated_keys);
  Session session(graph.program(outputs), {.backends = {backend}});
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
  std::vector<Buffer> buffers;
  std::vector<Shape> shapes;
  for (const HostBuffer& value : given) {
    buffers.push_back(value.to_device(cpu_device()));
    shapes.push_back(value.shape());
  }
  std::vector<HostBuffer> results;
  for (const Buffer& output : session.forward(std::move(buffers))) {
    results.push_back(output.to_host());
  }
  for (const PlanReport::Part& part : session.report(shapes).parts) {
    notes.insert(notes.end(), part.notes.begin(), part.notes.end());
  }
  return results;
}

TEST_CASE("cuda: rope of queries and keys and the updates of caches", "[gpu][weights]") {
  const BackendPtr device = device_backends(test_device(), {.exact = true}).at(0);
  for (const HeadsCase& at :
       {HeadsCase{f32, f16, false, 9}, HeadsCase{f32, f32, true, 5}, HeadsCase{f16, bf16, true, 0},
        HeadsCase{bf16, f32, false, 1}, HeadsCase{f32, DType::q8_0, false, 9},
        HeadsCase{f16, f16, true, 4, true}}) {
    CAPTURE(name(at.heads), name(at.cache), at.has_table, at.position);
    std::vector<std::string> notes, none;
    const auto got = run_heads(at, device, notes);
    const auto wanted = run_heads(at, make_reference_backend({}), none);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      expect_close(got[i].to(f32), wanted[i].to(f32), 1e-2, 1e-2);
    }
    // q8_0 is stored in blocks, whose elements no thread of a rope has.
    const bool is_apart = at.cache == DType::q8_0 || at.shows_keys;
    CHECK(notes.at(0).starts_with(is_apart ? "4 launches" : "1 launches"));
  }
  for (const bool has_table : {false, true}) {
    std::vector<std::string> notes;
    const std::string what = expect_error(
        Errc::out_of_range, [&] { run_heads({f32, f16, has_table, 10}, device, notes); });
    CHECK(what.find("cache_update") != std::string::npos);
  }
}

TEST_CASE("cuda: few queries whose keys are shared by blocks", "[gpu][weights]") {
  Random random;
  for (const std::int64_t keys : {512, 513, 1300}) {
    for (const DType dtype : {f32, DType::q8_0}) {
      CAPTURE(keys, name(dtype));
      Case test;
      const Graph::Recording recording(test.graph);
      const Tensor q = test.input(random.uniform(Shape({2, 2, 2, 32}, f32)));
      const Tensor k = test.input(random.uniform(Shape({2, keys, 1, 32}, f32)).to(dtype));
      const Tensor v = test.input(random.uniform(Shape({2, keys, 1, 32}, f32)).to(dtype));
      const auto last = static_cast<std::int32_t>(keys - 2);
      const Tensor rows = test.input(HostBuffer::of<std::int32_t>(Shape({2}, i32), {last, 3}));
      const Tensor sinks = test.input(random.uniform(Shape({2}, f32)));
      std::vector<float> hidden(static_cast<std::size_t>(keys),
                                -std::numeric_limits<float>::infinity());
      const Tensor mask = test.input(HostBuffer::of<float>(Shape({1, 1, 1, keys}, f32), hidden));
      test.check({attention(q, k, v, {.causal = true}), attention(q, k, v, {.window = 70}, rows),
                  attention(q, k, v, {.causal = true, .softcap = 2.5}, rows, {}, sinks),
                  attention(q, k, v, {}, {}, mask)});
    }
  }
}

TEST_CASE("cuda: a row's attention has the same bits in any batch", "[gpu][weights]") {
  Random random;
  const HostBuffer q = random.uniform(Shape({3, 1, 2, 32}, f32));
  const HostBuffer k = random.uniform(Shape({3, 1100, 2, 32}, f32));
  const auto attended = [&](const HostBuffer& queries, const HostBuffer& keys) {
    Case test;
    const Graph::Recording recording(test.graph);
    const Tensor given = test.input(keys);
    const Tensor y = attention(test.input(queries), given, given, {.causal = true});
    return test.run({y}, device_backends(test_device()).at(0)).at(0);
  };
  const HostBuffer all = attended(q, k), last = attended(q.slice(0, 2, 3), k.slice(0, 2, 3));
  CHECK(std::memcmp(all.bytes() + 2 * last.shape().bytes(), last.bytes(),
                    static_cast<std::size_t>(last.shape().bytes())) == 0);
}

}  // namespace
}  // namespace tenon::testing
