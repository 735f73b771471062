#include "support/expect_error.hpp"

#include <tenon/eigen.hpp>

#include <array>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {

using testing::expect_error;

TEST_CASE("eigen: a matrix multiplication on the arrays' own bytes") {
  const HostBuffer w = HostBuffer::of<float>(Shape({2, 3}, f32), {1, 2, 3, 4, 5, 6});
  const HostBuffer x = HostBuffer::of<float>(Shape({3}, f32), {1, 0, -1});
  HostBuffer y = HostBuffer::zeros(Shape({2}, f32));
  as_mutable_vector<float>(y) = as_matrix<float>(w) * as_vector<float>(x);
  CHECK(y.at({0}) == -2);
  CHECK(y.at({1}) == -2);
  CHECK(as_matrix<float>(w).data() == w.values<float>().data());
}

TEST_CASE("eigen: strided arrays, read and written") {
  HostBuffer array = HostBuffer::of<double>(Shape({2, 3}, f64), {1, 2, 3, 4, 5, 6});
  const std::array<int, 2> transposed{1, 0};
  const HostBuffer t = array.permute(transposed);
  CHECK(as_matrix<double>(t).rows() == 3);
  CHECK(as_matrix<double>(t)(2, 0) == 3);
  CHECK(as_matrix<double>(t).sum() == 21);
  HostBuffer column = array.slice(1, 1, 2);
  as_mutable_array<double>(column) += 10;
  CHECK(array.at({0, 1}) == 12);
  CHECK(array.at({1, 1}) == 15);
  CHECK(array.at({1, 2}) == 6);
}

TEST_CASE("eigen: halves") {
  const HostBuffer array = HostBuffer::of<float>(Shape({1, 2}, f32), {1.5f, -2});
  const HostBuffer halves = array.to(f16), bfloats = array.to(bf16);
  CHECK(static_cast<float>(as_matrix<Eigen::half>(halves)(0, 1)) == -2);
  CHECK(static_cast<float>(as_matrix<Eigen::bfloat16>(bfloats)(0, 0)) == 1.5f);
}

TEST_CASE("eigen: what cannot be mapped") {
  HostBuffer array = HostBuffer::zeros(Shape({2, 3}, f32));
  expect_error(Errc::bad_type, [&] { as_matrix<double>(array); });
  expect_error(Errc::bad_shape, [&] { as_vector<float>(array); });
  expect_error(Errc::bad_shape, [] { as_matrix<float>(HostBuffer::zeros(Shape({2}, f32))); });
  alignas(8) std::array<std::byte, 64> bytes{};
  const Shape vector({3}, f32);
  expect_error(Errc::bad_argument, [&] {
    as_vector<float>(HostBuffer::borrow(bytes.data() + 8, vector, Strides{-4}));
  });
  expect_error(Errc::bad_argument,
               [&] { as_vector<float>(HostBuffer::borrow(bytes.data(), vector, Strides{6})); });
  expect_error(Errc::bad_argument,
               [&] { as_vector<float>(HostBuffer::borrow(bytes.data() + 2, vector)); });
  HostBuffer mapped = HostBuffer::mapped(bytes.data(), vector, std::make_shared<int>(0));
  CHECK(as_vector<float>(mapped).size() == 3);
  expect_error(Errc::bad_argument, [&] { as_mutable_vector<float>(mapped); });
}

}  // namespace tenon
