#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/reshape.hpp>

#include <array>
#include <limits>
#include <vector>

namespace tenon::testing {
namespace {

TEST_CASE("reshape: the same elements in row-major order") {
  const HostBuffer x = ints({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostBuffer y = apply(Reshape{.dims = {3, -1}}, {x});
  expect_type(y.shape(), "i32[3, 2]");
  expect_equal(y, {1, 2, 3, 4, 5, 6});
  expect_type(apply(Reshape{.dims = {}}, {ints({1, 1}, {4})}).shape(), "i32[]");
  expect_type(apply(Reshape{.dims = {0, 5}}, {floats({3, 0}, {})}).shape(), "f32[0, 5]");
  expect_type(apply(Reshape{.dims = {-1, 3}}, {floats({0, 3}, {})}).shape(), "f32[0, 3]");
}

/// Whether a view of `in` under these sizes exists; then its strides, in elements.
std::vector<std::int64_t> strides_of(const HostBuffer& in, const Shape& out) {
  ViewPlacement placement;
  if (!Reshape{}.view(in.view(), out, placement)) return {};
  std::vector<std::int64_t> strides;
  for (int i = 0; i < out.rank(); ++i) {
    strides.push_back(placement.strides[static_cast<std::size_t>(i)] / block_bytes(out.dtype()));
  }
  return strides;
}

TEST_CASE("reshape: a view wherever strides can say it") {
  const HostBuffer x = HostBuffer::zeros(Shape({4, 6, 8}, f32));
  using Strides = std::vector<std::int64_t>;
  CHECK(strides_of(x, Shape({24, 8}, f32)) == Strides{8, 1});
  const HostBuffer columns = x.slice(2, 0, 4);  // rows of 4 in rows of 8
  CHECK(strides_of(columns, Shape({24, 4}, f32)) == Strides{8, 1});
  CHECK(strides_of(columns, Shape({4, 3, 2, 2, 2}, f32)) == Strides{48, 16, 8, 2, 1});
  CHECK(strides_of(columns, Shape({96}, f32)).empty());
  CHECK(strides_of(columns, Shape({24, 2, 1, 2}, f32)) == Strides{8, 2, 1, 1});
  CHECK(strides_of(columns, Shape({12, 8}, f32)).empty());
  const HostBuffer turned = x.permute(std::array{1, 0, 2});
  CHECK(strides_of(turned, Shape({6, 4, 2, 4}, f32)) == Strides{8, 48, 4, 1});
  CHECK(strides_of(turned, Shape({24, 8}, f32)).empty());
}

TEST_CASE("reshape: sizes that are not known yet") {
  const Shape x({symbol("S"), 64}, f32);
  expect_type(infer(Reshape{.dims = {-1, 8, 8}}, {x}), "f32[S, 8, 8]");
  expect_type(infer(Reshape{.dims = {-1, 32}}, {x}), "f32[_, 32]");
  expect_type(infer(Reshape{.dims = {5, 64}}, {x}), "f32[5, 64]");
  expect_type(infer(Reshape{.dims = {-1}}, {Shape({symbol("A"), symbol("B")}, f32)}), "f32[_]");
}

TEST_CASE("reshape: block types keep their innermost size") {
  expect_type(infer(Reshape{.dims = {2, 3, 64}}, {Shape({6, 64}, DType::q8_0)}), "q8_0[2, 3, 64]");
  expect_type(
      apply(Reshape{.dims = {4, 32}}, {HostBuffer::zeros(Shape({2, 2, 32}, DType::q4_0))}).shape(),
      "q4_0[4, 32]");
}

TEST_CASE("reshape: C1 sizes") {
  expect_error(Errc::bad_shape, [] { infer(Reshape{.dims = {-1, -1}}, {Shape({4}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Reshape{.dims = {-2, -2}}, {Shape({4}, f32)}); });
  constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  expect_error(Errc::bad_shape, [] { infer(Reshape{.dims = {lowest}}, {Shape({4}, f32)}); });
}
TEST_CASE("reshape: C2 element counts differ; the text has both shapes") {
  const std::string text = expect_error(
      Errc::bad_shape, [] { infer(Reshape{.dims = {3, 2}}, {Shape({{"d", 4}}, f32)}); });
  CHECK(text.find("f32[d=4]") != std::string::npos);
  CHECK(text.find("[3, 2]") != std::string::npos);
  expect_error(Errc::bad_shape, [] { infer(Reshape{.dims = {3, -1}}, {Shape({4}, f32)}); });
  expect_error(Errc::shape_overflow, [] {
    infer(Reshape{.dims = {std::int64_t{1} << 40, std::int64_t{1} << 40}}, {Shape({4}, f32)});
  });
}
TEST_CASE("reshape: C3 -1 beside a size of 0") {
  expect_error(Errc::bad_shape, [] { infer(Reshape{.dims = {-1, 0}}, {Shape({0, 3}, f32)}); });
}
TEST_CASE("reshape: C4 blocks") {
  expect_error(Errc::bad_shape,
               [] { infer(Reshape{.dims = {4, 32}}, {Shape({2, 64}, DType::q8_0)}); });
}

TEST_CASE("reshape: builders, with and without tags") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({4}, {1, 2, 3, 4}));
  expect_type(reshape(x, {{"a", 2}, {"b", -1}}).shape(), "f32[a=2, b=2]");
  expect_type(reshape(x, std::vector<std::int64_t>{1, 4}).shape(), "f32[1, 4]");
  expect_equal(graph.value(reshape(x, {2, 2})), {1, 2, 3, 4});
  expect_error(Errc::bad_shape, [&] { reshape(x, {{"a", 2}, {"a", 2}}); });
  expect_error(Errc::limit_exceeded, [&] { reshape(x, {1, 1, 1, 1, 1, 1, 1, 1, 4}); });
}

TEST_CASE("reshape: to the sizes of an array, which may be open") {
  expect_equal(apply(Reshape{}, {ints({2, 2}, {1, 2, 3, 4}), floats({4, 1}, {0, 0, 0, 0})}),
               {1, 2, 3, 4});
  const std::int64_t s = symbol("S");
  expect_type(infer(Reshape{}, {Shape({s, 4}, f32), Shape({2, s, 2}, i32)}), "f32[2, S, 2]");
  expect_error(Errc::bad_shape, [] { infer(Reshape{}, {Shape({6}, f32), Shape({4}, f32)}); });
  expect_error(Errc::bad_shape,
               [] { infer(Reshape{}, {Shape({2, 32}, DType::q8_0), Shape({64}, f32)}); });
  expect_error(Errc::bad_attribute,
               [] { infer(Reshape{.dims = {4}}, {Shape({4}, f32), Shape({4}, f32)}); });
}

}  // namespace
}  // namespace tenon::testing
