#include "quant/fit.hpp"
#include "quant_portable_fit.hpp"

#include <tenon/error.hpp>
#include <tenon/quant.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;

namespace {

/// Types whose search takes account of importances, with the weighted errors that ggml's quantiser leaves
/// on the numbers below: python/tests/importance_oracle.py.
const std::map<DType, double> errors_of_ggml = {
    {DType::q4_0, 5.1054e-03},   {DType::q4_1, 3.0413e-03},    {DType::q5_0, 1.2780e-03},
    {DType::q5_1, 7.1653e-04},   {DType::q2_k, 3.7550e-02},    {DType::q3_k, 1.4268e-02},
    {DType::q4_k, 3.2039e-03},   {DType::q5_k, 8.5381e-04},    {DType::q6_k, 2.1648e-04},
    {DType::iq4_nl, 4.0263e-03}, {DType::iq4_xs, 4.1492e-03},  {DType::iq1_s, 1.5171e-01},
    {DType::iq1_m, 1.0158e-01},  {DType::iq2_xxs, 1.2997e-01}, {DType::iq2_xs, 4.1191e-02},
    {DType::iq2_s, 3.8140e-02},  {DType::iq3_xxs, 1.3039e-02}, {DType::iq3_s, 9.1274e-03}};

/// Types that are written whatever the importances, to the same bytes.
const std::vector<DType> indifferent = {f32,          f16,          bf16,         f64,
                                        DType::q8_0,  DType::q8_k,  DType::tq1_0, DType::tq2_0,
                                        DType::mxfp4, DType::nvfp4, DType::q1_0,  DType::q2_0};

constexpr std::size_t rows = 16, columns = 512;

struct Numbers {
  std::vector<float> importance, x;
};

/// Importances 2^0 to 2^13, and rows of sums of twelve uniform numbers: those of importance_oracle.py.
Numbers numbers() {
  std::uint32_t state = 1;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 16; };
  Numbers made{std::vector<float>(columns), std::vector<float>(rows * columns)};
  for (auto& value : made.importance) value = std::ldexp(1.0f, static_cast<int>(next() % 14));
  for (auto& value : made.x) {
    int sum = -6 * 65536;
    for (int i = 0; i < 12; ++i) sum += static_cast<int>(next());
    value = static_cast<float>(sum) / 65536.0f;
  }
  return made;
}

std::vector<float> gaussian(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(engine);
  return values;
}

/// Numbers of 10^0 to 10^4.
std::vector<float> random_importance(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> exponent(0, 4);
  std::vector<float> values(count);
  for (auto& value : values) value = std::pow(10.0f, exponent(engine));
  return values;
}

std::vector<std::byte> room(DType type, std::size_t count) {
  const auto blocks = static_cast<std::int64_t>(count) / block_size(type);
  return std::vector<std::byte>(static_cast<std::size_t>(blocks * block_bytes(type)));
}

std::vector<std::byte> quantized(DType type, const std::vector<float>& x) {
  auto blocks = room(type, x.size());
  quantize(type, x.data(), blocks.data(), static_cast<std::int64_t>(x.size()));
  return blocks;
}

std::vector<std::byte> quantized(DType type, const std::vector<float>& x,
                                 const std::vector<float>& importance) {
  auto blocks = room(type, x.size());
  quantize(type, x.data(), blocks.data(), static_cast<std::int64_t>(x.size()), importance);
  return blocks;
}

std::vector<float> dequantized(DType type, const std::vector<std::byte>& blocks) {
  const auto count =
      static_cast<std::int64_t>(blocks.size()) / block_bytes(type) * block_size(type);
  std::vector<float> values(static_cast<std::size_t>(count));
  dequantize(type, blocks.data(), values.data(), count);
  return values;
}

/// The sum of importance times squared error over that of importance times square, of elements [first, last).
double weighted_error(const std::vector<float>& x, const std::vector<float>& y,
                      const std::vector<float>& importance, std::size_t first, std::size_t last) {
  double error = 0, power = 0;
  for (std::size_t i = first; i < last; ++i) {
    const double weight = importance[i % importance.size()], value = x[i], other = y[i];
    error += weight * (value - other) * (value - other);
    power += weight * value * value;
  }
  return error / power;
}

double weighted_error(const std::vector<float>& x, const std::vector<float>& y,
                      const std::vector<float>& importance) {
  return weighted_error(x, y, importance, 0, x.size());
}

}  // namespace

TEST_CASE("quant by importance: errors beside ggml's") {
  const auto [importance, x] = numbers();
  for (const auto& [type, theirs] : errors_of_ggml) {
    const double ours =
        weighted_error(x, dequantized(type, quantized(type, x, importance)), importance);
    INFO(name(type) << " " << ours << ", ggml " << theirs);
    CHECK(ours < theirs);
    CHECK(ours > 0.2 * theirs);  // no bound that says nothing
  }
}

TEST_CASE("quant by importance: errors beside those without") {
  const auto x = gaussian(rows * columns, 3);
  const auto importance = random_importance(columns, 4);
  for (const auto& [type, unused] : errors_of_ggml) {
    if (!is_quantizable(type)) continue;
    const auto plain = dequantized(type, quantized(type, x));
    const auto ours = dequantized(type, quantized(type, x, importance));
    for (std::size_t row = 0; row < rows; ++row) {
      INFO(name(type) << " row " << row);
      const std::size_t first = row * columns, last = first + columns;
      CHECK(weighted_error(x, ours, importance, first, last) <
            0.9 * weighted_error(x, plain, importance, first, last));
    }
  }
}

TEST_CASE("quant by importance: equal ones cost nothing") {
  const auto x = gaussian(rows * columns, 5);
  const std::vector<float> ones(columns, 1.0f);
  for (const auto& [type, unused] : errors_of_ggml) {
    if (!is_quantizable(type)) continue;
    INFO(name(type));
    CHECK(weighted_error(x, dequantized(type, quantized(type, x, ones)), ones) <=
          1.000001 * weighted_error(x, dequantized(type, quantized(type, x)), ones));
  }
}

TEST_CASE("quant by importance: types that are written with it only") {
  // The roots of the mean squared error over the mean square, a few per cent above what is reached.
  const std::map<DType, double> bounds = {
      {DType::iq1_s, 0.51}, {DType::iq1_m, 0.46}, {DType::iq2_xxs, 0.345}, {DType::iq2_xs, 0.295}};
  const auto x = gaussian(1 << 14, 7);
  const std::vector<float> ones(256, 1.0f);
  for (const auto& [type, bound] : bounds) {
    CHECK(!is_quantizable(type));
    CHECK(is_quantizable_by_importance(type));
    for (const float scale : {1.0f, -1e-2f, 40.0f}) {
      auto scaled = x;
      for (auto& value : scaled) value *= scale;
      const double error =
          std::sqrt(weighted_error(scaled, dequantized(type, quantized(type, scaled, ones)), ones));
      INFO(name(type) << " times " << scale << ": " << error);
      CHECK(error < bound);
      CHECK(error > 0.8 * bound);
    }
  }
}

TEST_CASE("quant by importance: types that take no account of it") {
  const auto x = gaussian(1024, 9);
  for (const auto type : indifferent) {
    INFO(name(type));
    CHECK(is_quantizable_by_importance(type));
    CHECK(quantized(type, x, random_importance(256, 10)) == quantized(type, x));
  }
}

TEST_CASE("quant by importance: only ratios within a block matter") {
  const auto x = gaussian(1024, 11);
  const auto importance = random_importance(512, 12);
  for (const auto& [type, unused] : errors_of_ggml) {
    INFO(name(type));
    const auto blocks = quantized(type, x, importance);
    for (const float factor : {0x1p-60f, 0x1p80f}) {
      auto scaled = importance;
      for (auto& value : scaled) value *= factor;
      CHECK(quantized(type, x, scaled) == blocks);
    }
  }
}

TEST_CASE("quant by importance: zeros") {
  const auto x = gaussian(1024, 13);
  const std::vector<float> none(256, 0.0f), ones(256, 1.0f);
  auto every_other = random_importance(256, 14);
  for (std::size_t i = 0; i < 256; i += 2) every_other[i] = 0;
  auto half = ones;  // the whole of some sub-blocks
  std::fill_n(half.begin(), 128, 0.0f);
  for (const auto& [type, unused] : errors_of_ggml) {
    INFO(name(type));
    CHECK(quantized(type, x, none) ==
          (is_quantizable(type) ? quantized(type, x) : quantized(type, x, ones)));
    const auto some = dequantized(type, quantized(type, x, every_other));
    CHECK(std::ranges::all_of(some, [](float value) { return std::isfinite(value); }));
    CHECK(weighted_error(x, some, every_other) < weighted_error(x, some, ones));
    const auto rest = dequantized(type, quantized(type, x, half));
    CHECK(weighted_error(x, rest, ones) < 0.5);
    for (const float value :
         dequantized(type, quantized(type, std::vector<float>(512, 0.0f), ones))) {
      REQUIRE(value == 0.0f);
    }
  }
}

TEST_CASE("quant by importance: one huge column") {
  const auto x = gaussian(4096, 15);
  std::vector<float> importance(256, 1.0f);
  importance[77] = 1e30f;
  for (const auto& [type, unused] : errors_of_ggml) {
    const auto y = dequantized(type, quantized(type, x, importance));
    INFO(name(type));
    CHECK(std::ranges::all_of(y, [](float value) { return std::isfinite(value); }));
    CHECK(weighted_error(x, y, importance) < 1e-3);
  }
}

TEST_CASE("quant by importance: infinities, NaN and the ends of f32") {
  for (const auto& [type, unused] : errors_of_ggml) {
    INFO(name(type));
    const auto block = static_cast<std::size_t>(block_size(type));
    const auto importance = random_importance(block, 16);
    auto x = gaussian(3 * block, 17);
    const auto clean = dequantized(type, quantized(type, x, importance));
    for (const float special :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      x[2 * block - 1] = special;
      const auto marked = dequantized(type, quantized(type, x, importance));
      for (std::size_t i = 0; i < 3 * block; ++i) {
        REQUIRE((i / block == 1 ? std::isnan(marked[i]) : marked[i] == clean[i]));
      }
    }
    auto small = gaussian(block, 18);
    for (auto& value : small) value *= 1e-38f;
    for (const float value : dequantized(type, quantized(type, small, importance))) {
      REQUIRE(std::fabs(value) < 1e-36f);
    }
    for (auto& value : small) value = value * 1e38f * 5e37f;
    quantized(type, small, importance);
  }
}

TEST_CASE("quant by importance: columns repeat row by row") {
  const auto x = gaussian(2 * columns, 19);
  const auto importance = random_importance(columns, 20);
  auto repeated = importance;
  repeated.insert(repeated.end(), importance.begin(), importance.end());
  for (const auto& [type, unused] : errors_of_ggml) {
    INFO(name(type));
    CHECK(quantized(type, x, importance) == quantized(type, x, repeated));
  }
}

TEST_CASE("quant by importance: refused calls") {
  const std::vector<float> x(512), ones(512, 1.0f);
  std::vector<std::byte> blocks(4096);
  const auto code_of = [&](DType type, std::int64_t count, std::span<const float> importance) {
    try {
      quantize(type, x.data(), blocks.data(), count, importance);
    } catch (const Error& error) {
      return error.code();
    }
    return Errc::internal;
  };
  const std::span<const float> all = ones;
  CHECK(!is_quantizable_by_importance(i8));
  CHECK(code_of(i8, 32, all.first(32)) == Errc::unsupported_dtype);
  CHECK(code_of(DType::q4_k, 32, all.first(32)) == Errc::bad_argument);
  CHECK(code_of(DType::q4_0, -32, all.first(32)) == Errc::bad_argument);
  CHECK(code_of(DType::q4_0, 64, {}) == Errc::bad_argument);
  CHECK(code_of(DType::q4_0, 64, all.first(48)) == Errc::bad_argument);
  CHECK(code_of(DType::q4_0, 96, all.first(64)) == Errc::bad_argument);
  CHECK(code_of(DType::q4_k, 512, all.first(32)) == Errc::bad_argument);
  for (const float wrong :
       {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto importance = ones;
    importance[300] = wrong;
    CHECK(code_of(DType::q4_k, 512, importance) == Errc::bad_argument);
    CHECK(code_of(f16, 512, importance) == Errc::bad_argument);
  }
  quantize(DType::q4_k, nullptr, nullptr, 0, ones);
}

TEST_CASE("quant: scales are the same with and without AVX2") {
  const auto x = gaussian(32 * 64, 21);
  const auto importance = random_importance(x.size(), 22);
  const auto same = [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  };
  for (const bool with_importance : {false, true}) {
    for (std::size_t i = 0; i < x.size(); i += 32) {
      const quant::Elements in{{x.data() + i, 32},
                               with_importance ? importance.data() + i : nullptr};
      const quant::Affine pair = quant::fit_affine(in, 15);
      const PortableFit other = portable_fit(in.x, in.importance);
      CHECK(same(quant::fit_scale(in, -8, 7), other.scale));
      CHECK(same(quant::squared_error(in, 0.25, -8, 7), other.scale_error));
      CHECK(same(pair.scale, other.affine_scale));
      CHECK(same(pair.min, other.affine_min));
      CHECK(same(quant::squared_error(in, pair, 15), other.affine_error));
      CHECK(same(quant::code_sums(in, pair, 15).xq, other.code_sum));
    }
  }
}
