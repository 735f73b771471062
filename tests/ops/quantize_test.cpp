#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/quantize.hpp>

#include <vector>

namespace tenon::testing {
namespace {

HostBuffer ramp() {
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<float>(i % 32 - 16);
  return HostBuffer::of<float>(Shape({2, 32}, f32), std::span<const float>(values));
}

TEST_CASE("quantize: there and back") {
  const HostBuffer blocks = apply(Quantize{.dtype = DType::q8_0}, {ramp()});
  expect_type(blocks.shape(), "q8_0[2, 32]");
  expect_close(apply(Dequantize{}, {blocks}), ramp(), 16.0 / 127 / 2 + 1e-3, 0);
}

TEST_CASE("quantize: the bytes that quant.hpp gives, for every block type") {
  Random random;
  for (const DType dtype :
       {DType::q4_0,   DType::q4_1,  DType::q5_0,    DType::q5_1,  DType::q8_0,  DType::q2_k,
        DType::q3_k,   DType::q4_k,  DType::q5_k,    DType::q6_k,  DType::q8_k,  DType::iq4_nl,
        DType::iq4_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s, DType::tq1_0, DType::tq2_0,
        DType::mxfp4,  DType::nvfp4, DType::q1_0,    DType::q2_0}) {
    INFO(name(dtype));
    const HostBuffer x = random.uniform(Shape({3, 256}, f32));
    const HostBuffer y = apply(Quantize{.dtype = dtype}, {x});
    std::vector<std::byte> bytes(static_cast<std::size_t>(y.shape().bytes()));
    quantize(dtype, x.values<float>().data(), bytes.data(), 3 * 256);
    CHECK(std::equal(bytes.begin(), bytes.end(), y.bytes()));
    std::vector<float> decoded(3 * 256);
    dequantize(dtype, bytes.data(), decoded.data(), 3 * 256);
    expect_close(apply(Dequantize{}, {y}),
                 HostBuffer::of<float>(Shape({3, 256}, f32), std::span<const float>(decoded)), 0,
                 0);
  }
}

TEST_CASE("dequantize: to other floating types") {
  const HostBuffer blocks = ramp().to(DType::q8_0);
  for (const DType dtype : {f16, bf16, f64}) {
    const HostBuffer y = apply(Dequantize{.dtype = dtype}, {blocks});
    CHECK(y.shape().dtype() == dtype);
    expect_close(y, blocks.to(f32).to(dtype), 0, 0);
  }
}

TEST_CASE("quantize: sizes of zero") {
  const HostBuffer none = apply(Quantize{.dtype = DType::q4_0}, {floats({0, 32}, {})});
  expect_type(none.shape(), "q4_0[0, 32]");
  expect_type(apply(Dequantize{}, {none}).shape(), "f32[0, 32]");
  expect_type(apply(Quantize{.dtype = DType::q4_0}, {floats({2, 0}, {})}).shape(), "q4_0[2, 0]");
}

TEST_CASE("quantize: tags and symbols pass through") {
  expect_type(infer(Quantize{}, {Shape({{"n", symbol("N")}, {"k", 64}}, f32)}), "q8_0[n=N, k=64]");
  expect_type(infer(Dequantize{}, {Shape({{"n", 3}, {"k", 64}}, DType::q4_0)}), "f32[n=3, k=64]");
}

TEST_CASE("quantize: C1 no block type") {
  expect_error(Errc::bad_attribute, [] { infer(Quantize{.dtype = f16}, {Shape({32}, f32)}); });
}

TEST_CASE("quantize: C2 x not f32") {
  expect_error(Errc::unsupported_dtype, [] { infer(Quantize{}, {Shape({32}, f16)}); });
}

TEST_CASE("quantize: C3 a scalar") {
  expect_error(Errc::shape_mismatch, [] { infer(Quantize{}, {Shape({}, f32)}); });
}

TEST_CASE("quantize: C4 rows that are no whole blocks") {
  expect_error(Errc::bad_shape, [] { infer(Quantize{}, {Shape({2, 33}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Quantize{.dtype = DType::q4_k}, {Shape({32}, f32)}); });
}

TEST_CASE("dequantize: C1 result not floating, C2 x of a plain type") {
  expect_error(Errc::bad_attribute,
               [] { infer(Dequantize{.dtype = i32}, {Shape({32}, DType::q8_0)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Dequantize{}, {Shape({32}, f32)}); });
}

}  // namespace

TEST_CASE("quantize: C5 types that take an importance matrix") {
  for (const DType dtype : {DType::iq1_s, DType::iq1_m, DType::iq2_xxs, DType::iq2_xs}) {
    expect_error(Errc::unsupported_dtype,
                 [&] { infer(Quantize{.dtype = dtype}, {Shape({256}, f32)}); });
  }
}

}  // namespace tenon::testing
