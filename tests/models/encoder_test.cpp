// What sentence encoders give: see also real_models_test.cpp.
#include "support/expect_error.hpp"

#include <tenon/models/encoder.hpp>

#include <catch2/catch.hpp>

namespace tenon {

TEST_CASE("similarity: of rows that there are") {
  const HostBuffer rows = HostBuffer::of<float>(Shape({2, 2}, f32), {1, 0, 0.6f, 0.8f});
  CHECK(models::similarity(rows, 0, 1) == Approx(0.6));
  CHECK(models::similarity(rows, 1, 1) == Approx(1));
  testing::expect_error(Errc::out_of_range, [&] { models::similarity(rows, 0, 2); });
  testing::expect_error(Errc::out_of_range, [&] { models::similarity(rows, -1, 0); });
  testing::expect_error(Errc::bad_shape, [&] { models::similarity(rows.reshape({4}), 0, 1); });
  testing::expect_error(Errc::bad_type, [&] { models::similarity(rows.to(f64), 0, 1); });
}

}  // namespace tenon
