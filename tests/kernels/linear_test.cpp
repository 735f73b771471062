#include "backends/cpu/matmul/matmul.hpp"
#include "backends/cpu/matmul/matmul_kernels.hpp"
#include "backends/cpu/thread_pool.hpp"
#include "kernels/support.hpp"
#include "support/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::test;
using cpu::LinearArgs;
using cpu::RowForm;

namespace {

enum class Precision { int8, bf16, exact };

// One layer with its inputs, and y by any route.
struct LinearCase {
  Weights weights;
  cpu::PackedWeights packed_weights;
  std::int64_t rows;
  std::vector<float> x, bias, residual;
  cpu::Activation activation{};

  LinearCase(Random& random, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k)
      : weights(random_weights(random, dtype, n, k)),
        packed_weights(packed(weights)),
        rows(m),
        x(random.normals(m * k)),
        bias(random.normals(n)),
        residual(random.normals(m * n)) {}

  /// So that some int8 groups have outlier residuals.
  void add_outliers() {
    for (std::size_t i = 11; i < x.size(); i += 157) x[i] *= 25.0f;
  }

  std::vector<float> run(Precision precision, cpu::Isa isa, int threads = 1,
                         std::int64_t row_count = -1) const {
    const std::int64_t n = weights.outputs, k = weights.inputs;
    const std::int64_t m = row_count < 0 ? rows : row_count;
    std::vector<float> y(static_cast<std::size_t>(m * n), std::nanf(""));
    LinearArgs args;
    args.weights = &packed_weights;
    args.rows = m;
    args.y = y.data();
    args.y_stride = n;
    args.bias = bias.data();
    args.residual = residual.data();
    args.residual_stride = n;
    args.activation = activation;
    args.isa = isa;
    OwnedRows owned;
    if (precision == Precision::exact) {
      args.x = x.data();
      args.x_stride = k;
    } else {
      owned = prepared(x, m, k, precision == Precision::int8 ? RowForm::int8 : RowForm::bf16, isa);
      args.prepared = &owned.rows;
    }
    cpu::AlignedBuffer scratch(cpu::linear_scratch_bytes(args));
    args.scratch = scratch.data();
    for (int t = 0; t < threads; ++t) cpu::linear(args, t, threads);
    return y;
  }
};

// The largest |y - expected| over all outputs, each in units of its own bound.
//   exact, and rounding inside any kernel: 2^-20 of the sum of magnitudes
//   int8: as accurate as the f64 result with the same int8 rows
//   bf16: both factors rounded to 8 bits
double worst(const LinearCase& c, const std::vector<float>& y, Precision precision) {
  const std::int64_t n = c.weights.outputs, k = c.weights.inputs;
  OwnedRows rows;
  if (precision == Precision::int8) {
    rows = prepared(c.x, c.rows, k, RowForm::int8, cpu::Isa::portable);
  }
  std::vector<double> values(c.x.begin(), c.x.end());
  if (precision == Precision::int8) {
    for (std::int64_t m = 0; m < c.rows; ++m) {
      double* x = values.data() + m * k;
      const cpu::Int8Row row = rows.rows.row(m);
      for (std::int64_t i = 0; i < k; ++i) {
        x[i] =
            static_cast<double>(row.code(i)) * static_cast<double>(row.scales[row.step * (i / 32)]);
      }
      const cpu::OutlierResiduals residuals = rows.rows.outlier_residuals(m);
      for (std::int64_t e = 0; e < residuals.count; ++e) {
        for (std::int64_t i = 0; i < 32; ++i) {
          x[32 * residuals.groups[e] + i] +=
              static_cast<double>(residuals.row.code(32 * e + i)) *
              static_cast<double>(residuals.row.scales[residuals.row.step * e]);
        }
      }
    }
  }
  double worst = 0.0;
  for (std::int64_t m = 0; m < c.rows; ++m) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t i = 0; i < k; ++i) {
        const double x = values[static_cast<std::size_t>(m * k + i)];
        const double p =
            x * static_cast<double>(c.weights.values[static_cast<std::size_t>(j * k + i)]);
        sum += p;
        magnitude += std::fabs(p);
      }
      const double extra = static_cast<double>(c.bias[static_cast<std::size_t>(j)]) +
                           static_cast<double>(c.residual[static_cast<std::size_t>(m * n + j)]);
      const double epsilon = precision == Precision::bf16 ? 0x1p-8 : 0x1p-20;
      const double bound = epsilon * magnitude + 0x1p-20 * (std::fabs(sum) + std::fabs(extra) + 1);
      const double error =
          std::fabs(static_cast<double>(y[static_cast<std::size_t>(m * n + j)]) - sum - extra);
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity()
                                : std::max(worst, error / bound);
    }
  }
  return worst;
}

std::vector<DType> all_types() {
  std::vector<DType> types = block_types();
  types.insert(types.end(), {DType::f32, DType::f16, DType::bf16});
  return types;
}

std::int64_t some_inputs(DType dtype, int blocks) {
  return is_block(dtype) ? blocks * block_size(dtype) : 19 * blocks;
}

}  // namespace

TEST_CASE("linear: a worked example") {
  // w = [[1, 2], [3, 4], [5, 6]], x = [[1, 1], [0, 2]]
  const float w[] = {1, 2, 3, 4, 5, 6};
  const float x[] = {1, 1, 0, 2};
  const float bias[] = {10, 20, 30};
  cpu::PackedWeights weights(DType::f32, 3, 2);
  weights.pack(reinterpret_cast<const std::byte*>(w), 0, 1);
  for (const cpu::Isa isa : supported_isas()) {
    float y[6] = {100, 0, 0, 0, 0, 200};
    LinearArgs args;
    args.weights = &weights;
    args.x = x;
    args.x_stride = 2;
    args.rows = 2;
    args.y = y;
    args.y_stride = 3;
    args.bias = bias;
    args.residual = y;  // added in place
    args.residual_stride = 3;
    args.isa = isa;
    cpu::AlignedBuffer scratch(cpu::linear_scratch_bytes(args));
    args.scratch = scratch.data();
    cpu::linear(args, 0, 1);
    CAPTURE(name(isa));
    const float expected[] = {113, 27, 41, 14, 28, 242};
    for (int i = 0; i < 6; ++i) CHECK(y[i] == expected[i]);
  }
}

TEST_CASE("linear: int8 rows against f64, every block type and level, odd sizes", "[one_thread]") {
  Random random;
  CAPTURE(random.seed());
  for (const DType dtype : block_types()) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 15, 33}) {
      const std::int64_t n = 1 + random.below(70);
      // Sometimes more than one range of unpacked weights.
      const int blocks = m == 7 && block_size(dtype) == 32 ? 37 : 1 + random.below(5);
      LinearCase c(random, dtype, m, n, some_inputs(dtype, blocks));
      c.add_outliers();
      for (const cpu::Isa isa : supported_isas()) {
        CAPTURE(name(dtype), name(isa), m, n, c.weights.inputs);
        CHECK(worst(c, c.run(Precision::int8, isa), Precision::int8) < 1.0);
      }
    }
  }
}

TEST_CASE("linear: exact against f64, every type and level, odd sizes", "[one_thread]") {
  Random random;
  CAPTURE(random.seed());
  for (const DType dtype : all_types()) {
    for (const std::int64_t m : {1, 2, 5, 14, 31}) {
      const std::int64_t n = 1 + random.below(70);
      const LinearCase c(random, dtype, m, n,
                         some_inputs(dtype, m == 5 ? 18 : 1 + random.below(4)));
      for (const cpu::Isa isa : supported_isas()) {
        CAPTURE(name(dtype), name(isa), m, n, c.weights.inputs);
        CHECK(worst(c, c.run(Precision::exact, isa), Precision::exact) < 1.0);
      }
    }
  }
}

TEST_CASE("linear: an activation gives the bits that it gives on the sums") {
  Random random;
  CAPTURE(random.seed());
  const auto check = [&](DType dtype, Precision precision, cpu::Isa isa, std::int64_t m) {
    CAPTURE(name(dtype), name(isa), m);
    LinearCase c(random, dtype, m, 16 + random.below(70), 64);
    std::vector<float> sums = c.run(precision, isa);
    c.activation = {cpu::unary_rows_kernel(), cpu::Unary::leaky_relu, {0.25f, 0}};
    cpu::unary(cpu::Unary::leaky_relu, sums.data(), sums.data(),
               static_cast<std::int64_t>(sums.size()), {0.25f, 0});
    CHECK(c.run(precision, isa) == sums);
    CHECK(c.run(precision, isa, 3) == sums);
  };
  for (const cpu::Isa isa : supported_isas()) {
    for (const std::int64_t m : {1, 3, 13, 40}) {
      check(DType::f32, Precision::exact, isa, m);
      check(DType::bf16, Precision::exact, isa, m);
      check(DType::q8_0, Precision::int8, isa, m);
      if (isa == cpu::Isa::amx) check(DType::q8_0, Precision::bf16, isa, m);
    }
  }
}

TEST_CASE("linear: exact with more elements than are copied at once, residual in place",
          "[one_thread]") {
  Random random;
  CAPTURE(random.seed());
  testing::EveryThird third;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_0}) {
    if (third.skips()) continue;
    const LinearCase c(random, dtype, 90, 40, 32 * 219);
    for (const cpu::Isa isa : supported_isas()) {
      const std::vector<float> apart = c.run(Precision::exact, isa);
      CAPTURE(name(dtype), name(isa));
      CHECK(worst(c, apart, Precision::exact) < 1.0);
      std::vector<float> y = c.residual;
      LinearArgs args;
      args.weights = &c.packed_weights;
      args.rows = c.rows;
      args.x = c.x.data();
      args.x_stride = c.weights.inputs;
      args.y = y.data();
      args.y_stride = 40;
      args.bias = c.bias.data();
      args.residual = y.data();
      args.residual_stride = 40;
      args.isa = isa;
      cpu::AlignedBuffer scratch(cpu::linear_scratch_bytes(args));
      args.scratch = scratch.data();
      for (int t = 0; t < 3; ++t) cpu::linear(args, t, 3);
      CHECK(y == apart);
    }
  }
}

TEST_CASE("linear: bf16 tiles against f64, every type that has them, odd sizes", "[amx]") {
  if (!cpu::supports(cpu::Isa::amx)) {
    WARN("SKIPPED: this machine has no AMX");
    return;
  }
  Random random;
  CAPTURE(random.seed());
  for (const DType dtype : all_types()) {
    if (dtype == DType::f32) continue;
    for (const std::int64_t m : {1, 16, 17, 32, 77, 300}) {
      const std::int64_t n = 1 + random.below(70);
      const int blocks = m == 17 ? 18 : 1 + random.below(4);
      const LinearCase c(random, dtype, m, n,
                         is_block(dtype) ? some_inputs(dtype, blocks) : 32 * blocks);
      CAPTURE(name(dtype), m, n, c.weights.inputs);
      CHECK(worst(c, c.run(Precision::bf16, cpu::Isa::amx), Precision::bf16) < 1.0);
    }
  }
}

TEST_CASE("linear: int8 rows are close to the result of the unrounded rows") {
  Random random;
  CAPTURE(random.seed());
  for (const DType dtype : block_types()) {
    const LinearCase c(random, dtype, 6, 48, 512);
    const std::vector<float> fast = c.run(Precision::int8, cpu::active_isa());
    const std::vector<float> exact = c.run(Precision::exact, cpu::active_isa());
    double noise = 0.0, signal = 0.0;
    for (std::size_t i = 0; i < fast.size(); ++i) {
      const std::size_t n = i % 48;
      const double extra = static_cast<double>(c.bias[n]) + static_cast<double>(c.residual[i]);
      const double difference = static_cast<double>(fast[i]) - static_cast<double>(exact[i]);
      noise += difference * difference;
      signal += std::pow(static_cast<double>(exact[i]) - extra, 2);
    }
    CAPTURE(name(dtype));
    // Rounding to steps of max / 127: about 0.6 % of a normal number's deviation.
    CHECK(std::sqrt(noise / signal) < 0.012);
  }
}

TEST_CASE("linear: the same bits on any number of threads and for any number of rows") {
  Random random;
  CAPTURE(random.seed());
  testing::EveryThird third;
  for (const DType dtype : all_types()) {
    if (third.skips()) continue;
    const std::int64_t n = 100, k = some_inputs(dtype, 2);
    LinearCase c(random, dtype, 300, n, k);
    c.add_outliers();
    for (const cpu::Isa isa : supported_isas()) {
      for (const Precision precision : {Precision::int8, Precision::exact, Precision::bf16}) {
        if (precision != Precision::exact && !is_block(dtype)) continue;
        if (precision == Precision::bf16 && isa != cpu::Isa::amx) continue;
        CAPTURE(name(dtype), name(isa), static_cast<int>(precision));
        const std::vector<float> all = c.run(precision, isa);
        CHECK(c.run(precision, isa, 2) == all);
        CHECK(c.run(precision, isa, 7) == all);
        CHECK(c.run(precision, isa, 64) == all);
        for (const std::int64_t m : {1, 2, 3, 4, 6, 13, 16, 17, 37}) {
          const std::vector<float> some = c.run(precision, isa, 1, m);
          CHECK(std::equal(some.begin(), some.end(), all.begin()));
        }
      }
    }
  }
}

TEST_CASE("linear: 16-bit weights by tiles, the same bits on any number of threads and of rows",
          "[amx]") {
  if (!cpu::supports(cpu::Isa::amx)) {
    WARN("SKIPPED: this machine has no AMX");
    return;
  }
  Random random;
  CAPTURE(random.seed());
  for (const DType dtype : {DType::f16, DType::bf16}) {
    // Few elements of k, and so many that rows are split into several ranges.
    for (const std::int64_t k : {96, 6176}) {
      const LinearCase c(random, dtype, 300, 72, k);
      CAPTURE(name(dtype), k);
      const std::vector<float> all = c.run(Precision::bf16, cpu::Isa::amx);
      for (const int threads : {2, 7}) {
        CHECK(c.run(Precision::bf16, cpu::Isa::amx, threads) == all);
      }
      for (const std::int64_t m : {1, 5, 16, 17, 37, 130}) {
        const std::vector<float> some = c.run(Precision::bf16, cpu::Isa::amx, 2, m);
        CHECK(std::equal(some.begin(), some.end(), all.begin()));
      }
    }
  }
}

TEST_CASE("linear: levels with fused multiply-add agree bit for bit on int8 rows") {
  Random random;
  CAPTURE(random.seed());
  for (const DType dtype : block_types()) {
    LinearCase c(random, dtype, 9, 50, some_inputs(dtype, 3));
    c.add_outliers();
    std::vector<float> first;
    for (const cpu::Isa isa : supported_isas()) {
      if (isa == cpu::Isa::portable) continue;
      const std::vector<float> y = c.run(Precision::int8, isa);
      if (first.empty()) first = y;
      CAPTURE(name(dtype), name(isa));
      CHECK(y == first);
    }
  }
}

TEST_CASE("linear: sums of the largest codes do not saturate") {
  // Every byte of a block but its f16 scales at one extreme, activations of one size and sign.
  Random random;
  CAPTURE(random.seed());
  for (const DType dtype : block_types()) {
    for (const int fill : {0x7F, 0xFF, 0x80, 0x81, 0x00}) {
      LinearCase c(random, dtype, 5, 16, block_size(dtype));
      c.weights = filled_weights(random, dtype, 16, block_size(dtype), fill);
      c.packed_weights = packed(c.weights);
      for (const float sign : {1.0f, -1.0f}) {
        for (float& x : c.x) x = sign;
        for (const cpu::Isa isa : supported_isas()) {
          CAPTURE(name(dtype), name(isa), fill, sign);
          CHECK(worst(c, c.run(Precision::int8, isa), Precision::int8) < 1.0);
        }
      }
    }
  }
}

TEST_CASE("linear: empty sizes") {
  for (const cpu::Isa isa : supported_isas()) {
    CAPTURE(name(isa));
    Random random;
    const LinearCase no_inputs(random, DType::q4_1, 3, 20, 0);
    const std::vector<float> y = no_inputs.run(Precision::int8, isa);
    const std::vector<float> exact = no_inputs.run(Precision::exact, isa);
    for (std::size_t i = 0; i < y.size(); ++i) {
      CHECK(y[i] == no_inputs.bias[i % 20] + no_inputs.residual[i]);
      CHECK(exact[i] == y[i]);
    }
    CHECK(LinearCase(random, DType::q8_0, 0, 20, 32).run(Precision::int8, isa).empty());
    CHECK(LinearCase(random, DType::q8_0, 4, 0, 32).run(Precision::int8, isa, 3).empty());
    CHECK(LinearCase(random, DType::f32, 4, 0, 5).run(Precision::exact, isa).empty());
  }
}

TEST_CASE("linear: a NaN in a row spoils that row only") {
  Random random;
  CAPTURE(random.seed());
  LinearCase c(random, DType::q5_0, 3, 20, 64);
  c.x[64 + 7] = std::nanf("");
  for (const cpu::Isa isa : supported_isas()) {
    for (const Precision precision : {Precision::int8, Precision::exact}) {
      CAPTURE(name(isa));
      const std::vector<float> y = c.run(precision, isa);
      for (std::size_t n = 0; n < 20; ++n) {
        CHECK(std::isfinite(y[n]));
        CHECK(std::isnan(y[20 + n]));
        CHECK(std::isfinite(y[40 + n]));
      }
    }
  }
}

TEST_CASE("linear: items in any order, several layers in one region") {
  Random random;
  CAPTURE(random.seed());
  const LinearCase a(random, DType::q4_1, 40, 90, 128);
  LinearCase b(random, DType::q8_0, 40, 70, 128);
  b.x = a.x;
  cpu::ThreadPool pool(3);
  for (const cpu::Isa isa : supported_isas()) {
    std::vector<float> ya(40 * 90), yb(40 * 70);
    const RowForm form = *cpu::PreparedRows::form_for(DType::q8_0, 40, 64, isa);
    cpu::AlignedBuffer memory(cpu::PreparedRows::size_bytes(form, 40, 128));
    const cpu::PreparedRows rows(form, 40, 128, memory.data(), isa);
    LinearArgs la;
    la.weights = &a.packed_weights;
    la.prepared = &rows;
    la.rows = 40;
    la.y = ya.data();
    la.y_stride = 90;
    la.bias = a.bias.data();
    la.residual = a.residual.data();
    la.residual_stride = 90;
    la.isa = isa;
    LinearArgs lb = la;
    lb.weights = &b.packed_weights;
    lb.y = yb.data();
    lb.y_stride = 70;
    lb.bias = b.bias.data();
    lb.residual = b.residual.data();
    lb.residual_stride = 70;
    pool.run([&](cpu::Worker& w) {
      cpu::prepare_rows(a.x.data(), 128, rows, w.thread, w.threads, isa);
      if (!w.sync()) return;
      w.share(cpu::linear_items(la), 1,
              [&](std::int64_t begin, std::int64_t end) { cpu::linear_range(la, begin, end); });
      cpu::linear(lb, w.thread, w.threads);
    });
    CAPTURE(name(isa));
    const Precision precision = form == RowForm::bf16 ? Precision::bf16 : Precision::int8;
    CHECK(ya == a.run(precision, isa));
    CHECK(yb == b.run(precision, isa));
  }
}
