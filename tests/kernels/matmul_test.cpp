#include "backends/cpu/matmul/matmul.hpp"

#include "kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::test;
using cpu::MatmulArgs;

TEST_CASE("matmul: a worked example") {
  const float a[] = {1, 2, 3, 4, 5, 6};  // [2, 3]
  const float b[] = {1, 0, 0, 1, 1, 1};  // [3, 2]
  for (const cpu::Isa isa : supported_isas()) {
    float c[4] = {};
    MatmulArgs args{
        .m = 2, .n = 2, .k = 3, .a = a, .a_row = 3, .b = b, .b_row = 2, .c = c, .c_row = 2};
    args.isa = isa;
    cpu::AlignedBuffer scratch(cpu::matmul_scratch_bytes(args));
    args.scratch = scratch.data();
    cpu::matmul(args, 0, 1);
    CAPTURE(name(isa));
    CHECK(c[0] == 4.0f);
    CHECK(c[1] == 5.0f);
    CHECK(c[2] == 10.0f);
    CHECK(c[3] == 11.0f);
  }
}

TEST_CASE("matmul: strides, batches and odd sizes against f64") {
  Random random;
  CAPTURE(random.seed());
  for (int round = 0; round < 60; ++round) {
    MatmulArgs args;
    args.batches = 1 + random.below(3);
    args.m = round % 2 == 0 ? random.below(5) : random.below(40);
    args.n = round % 6 == 0 ? 1 : round % 6 == 2 ? 1000 + random.below(100) : random.below(90);
    args.k = round % 8 == 0 ? 300 + random.below(300) : random.below(40);
    const bool a_transposed = random.below(2) != 0, b_transposed = random.below(2) != 0;
    args.a_row = a_transposed ? 1 : args.k + random.below(3);
    args.a_column = a_transposed ? args.m + random.below(3) : 1;
    args.b_row = b_transposed ? 1 : args.n + random.below(3);
    args.b_column = b_transposed ? args.k + random.below(3) : 1;
    args.a_batch = random.below(2) == 0 ? 0 : (args.m + 3) * (args.k + 3);
    args.b_batch = random.below(2) == 0 ? 0 : (args.n + 3) * (args.k + 3);
    args.c_row = args.n + (random.below(2) == 0 ? 0 : random.below(3));
    args.c_batch = args.m * args.c_row;
    const std::int64_t a_size = (args.m + 3) * (args.k + 3), b_size = (args.n + 3) * (args.k + 3);
    const auto a = random.normals(3 * a_size);
    const auto b = random.normals(3 * b_size);
    std::vector<std::int64_t> a_starts, b_starts;
    const bool is_even = random.below(3) != 0;
    for (std::int64_t z = 0; z < args.batches; ++z) {
      a_starts.push_back(is_even ? z * args.a_batch : random.below(3) * a_size);
      b_starts.push_back(is_even ? z * args.b_batch : random.below(3) * b_size);
    }
    if (!is_even) {
      args.a_starts = a_starts.data();
      args.b_starts = b_starts.data();
    }
    args.a = a.data();
    args.b = b.data();
    for (const cpu::Isa isa : supported_isas()) {
      std::vector<float> c(static_cast<std::size_t>(args.batches * args.c_batch), 7.0f);
      args.c = c.data();
      args.isa = isa;
      const int threads = 1 + random.below(4);
      cpu::AlignedBuffer scratch(cpu::matmul_scratch_bytes(args));
      args.scratch = scratch.data();
      for (int t = 0; t < threads; ++t) cpu::matmul(args, t, threads);
      double worst = 0.0;
      for (std::int64_t z = 0; z < args.batches; ++z) {
        for (std::int64_t i = 0; i < args.m; ++i) {
          for (std::int64_t j = 0; j < args.c_row; ++j) {
            const double got = static_cast<double>(
                c[static_cast<std::size_t>(z * args.c_batch + i * args.c_row + j)]);
            if (j >= args.n) {
              REQUIRE(got == 7.0);  // memory between rows is not accessed
              continue;
            }
            double sum = 0.0, magnitude = 0.0;
            for (std::int64_t k = 0; k < args.k; ++k) {
              const double p =
                  static_cast<double>(
                      a[static_cast<std::size_t>(a_starts[static_cast<std::size_t>(z)] +
                                                 i * args.a_row + k * args.a_column)]) *
                  static_cast<double>(b[static_cast<std::size_t>(
                      b_starts[static_cast<std::size_t>(z)] + k * args.b_row + j * args.b_column)]);
              sum += p;
              magnitude += std::fabs(p);
            }
            worst = std::max(worst, std::fabs(got - sum) / (0x1p-21 * magnitude + 1e-30));
          }
        }
      }
      CAPTURE(name(isa), args.m, args.n, args.k, a_transposed, b_transposed, is_even, threads);
      CHECK(worst < 1.0);
    }
  }
}

TEST_CASE(
    "matmul: a row's bits depend neither on the other rows nor on how the right operand lies") {
  Random random;
  CAPTURE(random.seed());
  constexpr std::int64_t rows = 9, depth = 333;
  const auto a = random.normals(rows * depth);
  for (const std::int64_t columns : {1, 15, 200}) {
    const auto b = random.normals(depth * columns);
    std::vector<float> turned(b.size());
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t j = 0; j < columns; ++j) {
        turned[static_cast<std::size_t>(j * depth + k)] =
            b[static_cast<std::size_t>(k * columns + j)];
      }
    }
    for (const cpu::Isa isa : supported_isas()) {
      const auto product = [&](std::int64_t first, std::int64_t count, bool is_turned) {
        MatmulArgs args;
        args.m = count;
        args.n = columns;
        args.k = depth;
        args.a = a.data() + first * depth;
        args.a_row = depth;
        args.b = is_turned ? turned.data() : b.data();
        args.b_row = is_turned ? 1 : columns;
        args.b_column = is_turned ? depth : 1;
        std::vector<float> c(static_cast<std::size_t>(count * columns));
        args.c = c.data();
        args.c_row = columns;
        args.isa = isa;
        cpu::AlignedBuffer scratch(cpu::matmul_scratch_bytes(args));
        args.scratch = scratch.data();
        cpu::matmul(args, 0, 1);
        return c;
      };
      const std::vector<float> whole = product(0, rows, false);
      CAPTURE(name(isa), columns);
      CHECK(product(0, rows, true) == whole);
      for (const std::int64_t count : {1, 2, 3, 4, 5}) {
        for (const bool is_turned : {false, true}) {
          const std::vector<float> part = product(2, count, is_turned);
          CHECK(std::equal(part.begin(), part.end(), whole.begin() + 2 * columns));
        }
      }
    }
  }
}
