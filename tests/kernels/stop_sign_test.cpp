// Long work on one lane or matrix asks whether it is to end, and ends early in working memory of its
// own, whatever it has done by then.
#include "backends/cpu/linear_algebra/factor_kernels.hpp"
#include "backends/cpu/tasks/radix_sort.hpp"
#include "support/call_text.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/tenon.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::cpu;

namespace {

int asked = 0, due_after = 0;

bool is_enough(const Interrupt&) noexcept { return ++asked > due_after; }

std::vector<double> random_numbers(std::int64_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> result(static_cast<std::size_t>(count));
  for (double& x : result) x = uniform(random);
  return result;
}

using Numbers = std::vector<double>;

/// Factorises a, of n rows. Results that are not in a's place are returned. The room has n numbers more than
/// the kernels ask for.
using Factorise = Numbers (*)(std::int64_t n, MatrixRows a, const FactorRoom& room);

Numbers run_cholesky(std::int64_t n, MatrixRows a, const FactorRoom& room) {
  factor_kernels().cholesky(n, a, room);
  return {};
}
Numbers run_lu(std::int64_t n, MatrixRows a, const FactorRoom& room) {
  auto* const rows = reinterpret_cast<std::int64_t*>(room.numbers);
  factor_kernels().lu(n, a, rows, room.from(n));
  for (std::int64_t i = 0; i < n; ++i) REQUIRE((rows[i] >= 0 && rows[i] < n));
  return {};
}
Numbers run_qr(std::int64_t n, MatrixRows a, const FactorRoom& room) {
  Numbers q(static_cast<std::size_t>(n * n));
  factor_kernels().qr(n, n, a, {q.data(), n}, room);
  return q;
}
Numbers run_solve(std::int64_t n, MatrixRows a, const FactorRoom& room) {
  Numbers b = random_numbers(n * n);
  factor_kernels().solve(n, n, a.at, n, 1, true, false, {b.data(), n}, room);
  return b;
}

}  // namespace

TEST_CASE("stop signs: factorisations end where they are asked to") {
  const std::int64_t n = 300;
  const Interrupt interrupt;
  for (const Factorise factorise : {run_cholesky, run_lu, run_qr, run_solve}) {
    Numbers matrix = random_numbers(n * n);
    for (std::int64_t i = 0; i < n; ++i) matrix[static_cast<std::size_t>(i * n + i)] += 2.0 * n;
    Numbers numbers(static_cast<std::size_t>(factor_kernels().room(n, n) + n));
    const auto run = [&](int after) {
      std::pair<Numbers, Numbers> result(matrix, {});
      asked = 0;
      due_after = after;
      result.second =
          factorise(n, {result.first.data(), n}, {numbers.data(), {&interrupt, is_enough}});
      return result;
    };
    const auto whole = run(1 << 30);
    const int all = asked;
    CHECK(all >= 5);
    for (int after = 0; after < all; after += 1 + all / 10) {
      const bool is_whole = run(after) == whole;
      CHECK_FALSE(is_whole);
    }
    const bool is_whole = run(all) == whole;
    CHECK(is_whole);
  }
}

TEST_CASE("stop signs: a sort ends between parts of a million entries") {
  using S = Sorted<float, true>;
  const std::int64_t count = (std::int64_t{3} << 20) + 5;
  std::vector<S::Entry> entries(static_cast<std::size_t>(count)), room(entries.size());
  std::mt19937 random(11);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i] = S::make(static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(i));
  }
  const std::vector<S::Entry> given = entries;
  const Interrupt late{.deadline = std::chrono::steady_clock::now()};
  CHECK(sort_entries<S>(entries.data(), room.data(), count, &late) == entries.data());
  CHECK(entries == given);
  const Interrupt never{.deadline = std::chrono::steady_clock::time_point::max()};
  const S::Entry* const sorted = sort_entries<S>(entries.data(), room.data(), count, &never);
  CHECK(std::is_sorted(sorted, sorted + count, S::is_before));
}

TEST_CASE("stop signs: sessions end at any moment of a long step, and work on") {
  register_cpu_backend();
  testing::Random random;
  testing::EveryThird some;
  for (const char* call :
       {"lu(f64[400, 400])", "qr(f32[500, 300])", "argsort(f32[1500000])",
        "sort(f64[1200000], descending=True)", "fft(f32[524288, 2])", "fft(f64[65537, 2])"}) {
    if (some.skips()) continue;
    INFO(call);
    const Program program = testing::program_of_call(call);
    std::vector<Buffer> inputs;
    for (std::uint32_t i = 0; i < program.main().parameter_count; ++i) {
      const Shape& shape = *program.main().values[i].shape;
      const double most = shape.dtype() == i32 ? 1000 : 1;
      inputs.push_back(random.uniform(shape, 0, most).to_device(cpu_device()));
    }
    for (const int threads : {1, 2, 8}) {
      Session session(program, {.backends = {make_backend("cpu", {.threads = threads})}});
      const auto run = [&] { return testing::elements(session.forward(inputs)[0].to_host()); };
      const std::vector<double> want = run();
      const auto begin = std::chrono::steady_clock::now();
      run();
      const auto whole = std::chrono::steady_clock::now() - begin;
      for (int round = 0; round < testing::rounds(4); ++round) {
        const auto now = std::chrono::steady_clock::now();
        session.set_interrupt({.deadline = now + whole * random.integer(0, 99) / 100});
        try {
          const bool is_equal = run() == want;
          CHECK(is_equal);
        } catch (const Error& error) {
          CHECK(error.code() == Errc::timeout);
        }
      }
      for (const Interrupt& never :
           {Interrupt{}, Interrupt{.deadline = std::chrono::steady_clock::time_point::max()}}) {
        session.set_interrupt(never);
        const bool is_equal = run() == want;
        CHECK(is_equal);
      }
    }
  }
}
