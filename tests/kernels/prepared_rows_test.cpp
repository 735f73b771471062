#include "backends/cpu/matmul/matmul_kernels.hpp"
#include "kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::test;
using cpu::RowForm;

namespace {

/// Everything the int8 form holds of a row, in order of k.
std::vector<double> numbers_of(const cpu::PreparedRows& rows, std::int64_t index) {
  const cpu::Int8Row row = rows.row(index);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < rows.inputs(); ++i) numbers.push_back(row.code(i));
  for (std::int64_t i = 0; i < rows.inputs() / 16; ++i) {
    const std::int64_t at = row.step * i;
    numbers.push_back(static_cast<double>(row.half_sums[at]));
    numbers.push_back(row.negative_half_sums[at]);
    if (i >= rows.inputs() / 32) continue;
    numbers.push_back(static_cast<double>(row.scales[at]));
    numbers.push_back(static_cast<double>(row.sums[at]));
    numbers.push_back(row.negative_sums[at]);
  }
  return numbers;
}

}  // namespace

TEST_CASE("int8 rows: codes, scales and sums of a worked example") {
  // One group whose largest magnitude is 127: the codes are the rounded numbers.
  std::vector<float> x(32, 0.0f);
  x[0] = -127.0f;
  x[1] = 2.5f;  // ties to even
  x[2] = 3.5f;
  x[31] = 10.4f;
  for (const cpu::Isa isa : supported_isas()) {
    CAPTURE(name(isa));
    const OwnedRows q = prepared(x, 1, 32, RowForm::int8, isa);
    CHECK(q.rows.row(0).scales[0] == 1.0f);
    CHECK(q.rows.row(0).codes[0] == -127);
    CHECK(q.rows.row(0).codes[1] == 2);
    CHECK(q.rows.row(0).codes[2] == 4);
    CHECK(q.rows.row(0).codes[31] == 10);
    CHECK(q.rows.row(0).sums[0] == -111.0f);
    CHECK(q.rows.row(0).negative_sums[0] == 111);
    CHECK(q.rows.row(0).half_sums[0] == -121.0f);
    CHECK(q.rows.row(0).half_sums[1] == 10.0f);
    CHECK(q.rows.row(0).negative_half_sums[1] == -10);
  }
}

TEST_CASE("int8 rows: an outlier's group gets a residual of what its codes leave over") {
  // Sixteen groups of ones; the third holds a 127, so that its steps are 1 and a 1.25 leaves 0.25.
  std::vector<float> x(512, 1.0f);
  x[70] = -127.0f;
  x[71] = 1.25f;
  x[95] = 0.75f;
  for (const cpu::Isa isa : supported_isas()) {
    CAPTURE(name(isa));
    const OwnedRows q = prepared(x, 1, 512, RowForm::int8, isa);
    const cpu::OutlierResiduals residuals = q.rows.outlier_residuals(0);
    REQUIRE(residuals.count == 1);
    CHECK(residuals.groups[0] == 2);
    CHECK(residuals.row.scales[0] == 1.0f / 254);
    CHECK(residuals.row.code(6) == 0);
    CHECK(residuals.row.code(7) == 64);  // 0.25 * 254 = 63.5
    CHECK(residuals.row.code(31) == -64);
    CHECK(residuals.row.sums[0] == 0.0f);
    CHECK(residuals.row.negative_half_sums[0] == -64);
    CHECK(residuals.row.half_sums[1] == -64.0f / 254);
  }
}

TEST_CASE("int8 rows: outlier residuals take three quarters of the error off rows with outliers") {
  Random random;
  CAPTURE(random.seed());
  const std::int64_t inputs = 1024;
  std::vector<float> x = random.normals(inputs);
  for (const std::size_t at : {5u, 300u, 301u, 900u}) x[at] = 80.0f;
  const OwnedRows q = prepared(x, 1, inputs, RowForm::int8, cpu::Isa::portable);
  double first = 0, both = 0;
  std::vector<double> left(static_cast<std::size_t>(inputs));
  for (std::int64_t i = 0; i < inputs; ++i) {
    const auto at = static_cast<std::size_t>(i);
    left[at] = static_cast<double>(x[at]) - static_cast<double>(q.rows.row(0).codes[i]) *
                                                static_cast<double>(q.rows.row(0).scales[i / 32]);
    first += left[at] * left[at];
  }
  const cpu::OutlierResiduals residuals = q.rows.outlier_residuals(0);
  for (std::int64_t e = 0; e < residuals.count; ++e) {
    for (std::int64_t i = 0; i < 32; ++i) {
      left[static_cast<std::size_t>(32 * residuals.groups[e] + i)] -=
          static_cast<double>(residuals.row.code(32 * e + i)) *
          static_cast<double>(residuals.row.scales[residuals.row.step * e]);
    }
  }
  for (const double e : left) both += e * e;
  CHECK(both < first / 4);
}

TEST_CASE("int8 rows: every level and number of threads gives the same bits") {
  Random random;
  CAPTURE(random.seed());
  // Groups that are quantised eight at once, and some that are left.
  const std::int64_t rows = 17, inputs = 32 * 19;
  std::vector<float> x = random.normals(rows * inputs, 3.0f);
  x[40] = 1e30f;
  for (int i = 0; i < 32; ++i) x[static_cast<std::size_t>(inputs + i)] = 0.0f;
  for (int i = 0; i < 32; ++i) x[static_cast<std::size_t>(2 * inputs + i)] *= 1e-38f;
  const OwnedRows expected = prepared(x, rows, inputs, RowForm::int8, cpu::Isa::portable);
  for (const cpu::Isa isa : supported_isas()) {
    for (const int threads : {1, 2, 5, 16}) {
      CAPTURE(name(isa), threads);
      const OwnedRows q = prepared(x, rows, inputs, RowForm::int8, isa, threads);
      for (std::int64_t r = 0; r < rows; ++r) {
        CHECK(numbers_of(q.rows, r) == numbers_of(expected.rows, r));
      }
    }
  }
}

TEST_CASE("int8 rows: what is not finite stays not finite") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const std::int64_t inputs = 32 * 10;
    std::vector<float> x(static_cast<std::size_t>(inputs), 1.0f);
    x[5] = x[32 * 9 + 5] = bad;
    for (const cpu::Isa isa : supported_isas()) {
      CAPTURE(name(isa), bad);
      const OwnedRows q = prepared(x, 1, inputs, RowForm::int8, isa);
      const cpu::Int8Row row = q.rows.row(0);
      for (const std::int64_t g : {0, 9}) {
        CHECK_FALSE(std::isfinite(row.scales[g]));
        CHECK_FALSE(std::isfinite(row.sums[g]));
        CHECK(row.code(32 * g) == 1);
        CHECK(row.negative_sums[g] == -32);
      }
      for (std::int64_t g = 1; g < 9; ++g) CHECK(row.scales[g] == 1.0f / 127.0f);
    }
  }
}

TEST_CASE("bf16 rows: tiles of 16 rows by 32 elements, padded with zeros", "[amx]") {
  if (!cpu::supports(cpu::Isa::amx)) {
    WARN("SKIPPED: this machine has no AMX");
    return;
  }
  Random random;
  CAPTURE(random.seed());
  const std::int64_t rows = 21, inputs = 64;
  const std::vector<float> x = random.normals(rows * inputs);
  const OwnedRows q = prepared(x, rows, inputs, RowForm::bf16, cpu::Isa::amx, 2);
  for (std::int64_t r = 0; r < 32; ++r) {
    for (std::int64_t k = 0; k < inputs; ++k) {
      const std::uint16_t expected =
          r < rows ? to_bfloat16(x[static_cast<std::size_t>(r * inputs + k)]).bits : 0;
      REQUIRE(q.rows.tile(r / 16, k / 32)[r % 16 * 32 + k % 32] == expected);
    }
  }
}
