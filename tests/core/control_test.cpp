// Loops that their values end, and branches.
#include "core/runs.hpp"
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/control.hpp>
#include <tenon/exe.hpp>
#include <tenon/grad.hpp>
#include <tenon/io/network.hpp>
#include <tenon/ops.hpp>
#include <tenon/program.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>
#include <tenon/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

using Make = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

Program program_of(const std::vector<Shape>& shapes, const Make& make) {
  Graph graph;
  const Graph::Recording recording(graph);
  std::vector<Tensor> inputs;
  for (const Shape& shape : shapes) {
    inputs.push_back(graph.input("x" + std::to_string(inputs.size()), shape));
  }
  return graph.program(make(inputs));
}

/// The results on every backend, which agree.
std::vector<HostBuffer> run(const Program& program, const std::vector<HostBuffer>& inputs) {
  std::vector<HostBuffer> first;
  std::vector<std::vector<BackendPtr>> ways{backends("reference")};
  for (const int threads : {1, 2, 7}) ways.push_back(backends("cpu", threads));
  // A session that runs the loop itself, since two backends share its body.
  ways.push_back({make_backend("reference"), make_backend("cpu", {.threads = 2, .exact = true})});
  for (const auto& way : ways) {
    Session session(program, {.backends = way});
    for (int call = 0; call < 2; ++call) {
      std::vector<Buffer> given;
      for (const HostBuffer& input : inputs) given.push_back(device(input));
      const std::vector<Buffer> results = session.forward(std::move(given));
      for (std::size_t i = 0; i < results.size(); ++i) {
        const HostBuffer got = results[i].to_host();
        if (first.size() < results.size()) {
          first.push_back(got);
        } else {
          CHECK(to_string(got) == to_string(first[i]));
        }
      }
    }
  }
  CHECK(same_program(parse(print(program)), program));
  const TempFolder folder;
  io::save_network({program, {}}, folder / "net.json", folder / "net.raw");
  CHECK(same_program(io::load_network(folder / "net.json", folder / "net.raw").program, program));
  return first;
}

HostBuffer number(std::int64_t value) {
  return HostBuffer::of<std::int64_t>(Shape({}, i64), {value});
}

Tensor like(const Tensor& x, double value) { return scalar_like(x, value); }

/// Steps until 1 is reached (Collatz).
std::vector<Tensor> collatz(std::span<const Tensor> inputs, std::int64_t limit = max_iterations) {
  using Carry = std::pair<Tensor, Tensor>;  // the number, and how many came before it
  const Carry last = while_loop(
      Carry(inputs[0], like(inputs[0], 0)),
      [](const Carry& now) { return gt(now.first, like(now.first, 1)); },
      [](const Carry& now) {
        const Tensor& n = now.first;
        const Tensor is_odd = eq(remainder(n, like(n, 2)), like(n, 1));
        const Tensor next = tenon::where(is_odd, n * like(n, 3) + like(n, 1), div(n, like(n, 2)));
        return Carry(next, now.second + like(n, 1));
      },
      limit);
  return {last.first, last.second};
}

TEST_CASE("while_loop: as often as its values say") {
  const Program program =
      program_of({Shape({}, i64)}, [](std::span<const Tensor> in) { return collatz(in); });
  for (const auto& [start, steps] : {std::pair{1, 0}, {2, 1}, {27, 111}, {97, 118}}) {
    const auto results = run(program, {number(start)});
    CHECK(results[0].at({}) == 1);
    CHECK(results[1].at({}) == steps);
  }
}

TEST_CASE("while_loop: never more than its limit") {
  for (const std::int64_t limit : {0, 1, 10}) {
    const Program program = program_of(
        {Shape({}, i64)}, [&](std::span<const Tensor> in) { return collatz(in, limit); });
    CHECK(run(program, {number(27)})[1].at({}) == static_cast<double>(limit));
    CHECK(run(program, {number(2)})[1].at({}) ==
          static_cast<double>(std::min<std::int64_t>(limit, 1)));
  }
  expect_error(Errc::out_of_range, [] {
    program_of({Shape({}, i64)},
               [](std::span<const Tensor> in) { return collatz(in, max_iterations + 1); });
  });
}

/// Newton's method for square roots, until no element moves by more than 1e-6.
Tensor square_roots(const Tensor& x, std::int64_t limit = 100) {
  using Carry = std::pair<Tensor, Tensor>;
  return while_loop(
             Carry(x, x * 0.0),
             [](const Carry& now) {
               return gt(max(abs(now.first - now.second)), like(now.first, 1e-6));
             },
             [&](const Carry& now) { return Carry((now.first + x / now.first) * 0.5, now.first); },
             limit)
      .first;
}

TEST_CASE("while_loop: an iteration until it converges, of values from outside") {
  const Program program = program_of({Shape({3}, f32)}, [](std::span<const Tensor> in) {
    return std::vector{square_roots(in[0])};
  });
  const auto results = run(program, {floats({3}, {4, 2, 1e4f})});
  CHECK(results[0].at({0}) == Approx(2));
  CHECK(results[0].at({1}) == Approx(std::sqrt(2)));
  CHECK(results[0].at({2}) == Approx(100));
}

TEST_CASE("while_loop: inside a loop, and one inside another") {
  const Program program = program_of({Shape({}, i64)}, [](std::span<const Tensor> in) {
    // 1 + 2 + ... + n, by a loop that counts up to each i.
    using Carry = std::pair<Tensor, Tensor>;
    const Tensor total = repeat(
        std::int64_t{4}, in[0] * like(in[0], 0), [&](const Tensor& index, const Tensor& sum) {
          const Carry inner = while_loop(
              Carry(like(sum, 0), sum), [&](const Carry& now) { return lt(now.first, index); },
              [&](const Carry& now) {
                return Carry(now.first + like(sum, 1), now.second + like(sum, 1) + in[0]);
              },
              50);
          return inner.second;
        });
    return std::vector{total};
  });
  CHECK(run(program, {number(0)})[0].at({}) == 0 + 1 + 2 + 3);
  CHECK(run(program, {number(10)})[0].at({}) == 66);
}

TEST_CASE("control: four loops and branches inside each other, and no more") {
  // The sum over i, j, k < 2, 3, 2 of digits ijk in the order of the loops, where i + j + k is not 2.
  const auto digits = [](int levels) {
    return program_of({Shape({}, i64)}, [levels](std::span<const Tensor> in) {
      const std::int64_t counts[] = {2, 3, 2, 1};
      const auto step = [&](auto&& self, int level, const Tensor& number, const Tensor& of_indices,
                            const Tensor& sum) -> Tensor {
        if (level == levels) {
          return cond(
              eq(of_indices, like(in[0], 2)), [&] { return sum; }, [&] { return sum + number; });
        }
        return repeat(counts[level], sum, [&](const Tensor& index, const Tensor& now) {
          return self(self, level + 1, number * like(in[0], 10) + index, of_indices + index, now);
        });
      };
      return std::vector{step(step, 0, like(in[0], 0), like(in[0], 0), in[0])};
    });
  };
  std::int64_t want = 5;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 2; ++k) want += i + j + k == 2 ? 0 : 100 * i + 10 * j + k;
    }
  }
  CHECK(run(digits(3), {number(5)})[0].at({}) == want);
  expect_error(Errc::unsupported, [&] { run(digits(4), {number(5)}); });
}

TEST_CASE("while_loop: slices of a stack by the loop's own count") {
  // Until an element is negative. The limit is beyond the stack's end.
  const Program program = program_of({Shape({4}, f32)}, [](std::span<const Tensor> in) {
    using Carry = std::pair<Tensor, Tensor>;
    const Tensor zero = like(cast(select(in[0], like(cast(sum(in[0]), i64), 0)), i64), 0);
    const Carry last = while_loop(
        Carry(zero, select(in[0], zero) * 0.0),
        [&](const Carry& now) { return ge(select(in[0], now.first), like(in[0], 0)); },
        [&](const Carry& now) {
          return Carry(now.first + like(now.first, 1), now.second + select(in[0], now.first));
        });
    return std::vector{last.second, last.first};
  });
  CHECK(run(program, {floats({4}, {1, 2, -1, 5})})[0].at({}) == 3);
  CHECK(run(program, {floats({4}, {-1, 2, -1, 5})})[0].at({}) == 0);
  Session session(program, {.backends = backends("cpu", 2)});
  expect_error(Errc::out_of_range, [&] { session.forward({device(floats({4}, {1, 2, 3, 5}))}); });
  CHECK(values(session.forward({device(floats({4}, {1, 2, 3, -5}))}).at(0))[0] == 6);
}

std::vector<Tensor> branches(std::span<const Tensor> in) {
  const Tensor is_large = gt(sum(in[0]), like(in[0], 10));
  const auto [a, b] = cond(
      is_large, [&] { return std::pair(tanh(in[0]), in[0] * 2.0); },
      [&] { return std::pair(in[0] + like(in[0], 1), exp(in[0])); });
  return {a, b};
}

TEST_CASE("cond: one of two") {
  const Program program = program_of({Shape({2}, f32)}, branches);
  const auto large = run(program, {floats({2}, {20, 1})});
  CHECK(large[0].at({0}) == Approx(1));
  CHECK(large[1].at({1}) == 2);
  const auto small = run(program, {floats({2}, {2, 0})});
  CHECK(small[0].at({0}) == 3);
  CHECK(small[1].at({1}) == 1);
}

TEST_CASE("cond: a carry is updated in place by one of two, or by none") {
  const Shape table({4, 2}, f32), row({2}, f32);
  for (const bool moves_on : {false, true}) {
    const auto make = [&](std::span<const Tensor> in) {
      using Carry = std::pair<Tensor, Tensor>;
      const Carry made = cond(
          in[0], Carry(in[1], sum(in[2])),
          [&](const Carry& now) {
            return Carry(update_slice(now.first, in[3], in[2]), now.second * 2.0);
          },
          [&](const Carry& now) {
            if (!moves_on) return now;
            const Tensor last = scalar_like(in[3], 3);
            return Carry(update_slice(now.first, last, select(now.first, in[3]) * 10.0),
                         now.second);
          });
      return std::vector{made.first, made.second};
    };
    const Program program = program_of({Shape({}, boolean), table, row, Shape({}, i64)}, make);
    CHECK(print(program) == print(parse(print(program))));
    for (const bool which : {true, false}) {
      const auto got = run(program, {HostBuffer::of<bool>(Shape({}, boolean), {which}),
                                     floats({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7}), floats({2}, {8, 9}),
                                     HostBuffer::of<std::int64_t>(Shape({}, i64), {1})});
      std::vector<double> want{0, 1, 2, 3, 4, 5, 6, 7};
      if (which) want[2] = 8, want[3] = 9;
      if (!which && moves_on) want[6] = 20, want[7] = 30;
      CHECK(elements(got[0]) == want);
      CHECK(got[1].at({}) == (which ? 34 : 17));
    }
  }
  // A value from outside is not a branch's to update, and the message says what is.
  const Program outside =
      program_of({Shape({}, boolean), table, row, Shape({}, i64)}, [](std::span<const Tensor> in) {
        return std::vector{
            cond(in[0], [&] { return update_slice(in[1], in[3], in[2]); }, [&] { return in[1]; })};
      });
  const std::string what =
      expect_error(Errc::alias, [&] { Session(outside, {.backends = backends("reference")}); });
  CHECK(what.find("updates a value from outside of a branch; carry it") != std::string::npos);
  expect_error(Errc::shape_mismatch, [&] {
    program_of({Shape({}, boolean), row}, [](std::span<const Tensor> in) {
      const auto total = [](const Tensor& now) { return sum(now); };
      return std::vector{cond(in[0], in[1], total, total)};
    });
  });
}

/// A branch in a loop in a loop writes rows of a table, or makes another one of it. In the second case, the table before
/// the inner loop is read behind it, and needs a copy.
std::vector<Tensor> change_table(std::span<const Tensor> in, bool writes_rows) {
  using Carry = std::pair<Tensor, Tensor>;
  const Carry last =
      repeat(std::int64_t{4}, Carry(in[0], in[1]), [&](const Tensor& row, const Carry& before) {
        const Tensor total = sum(before.first);
        const Carry after = repeat(std::int64_t{2}, before, [&](const Tensor&, const Carry& carry) {
          return cond(
              ne(row, like(row, 1)), carry,
              [&](const Carry& now) {
                return Carry(
                    writes_rows ? update_slice(now.first, row, now.second) : now.first * 2.0,
                    now.second * 2.0);
              },
              [](const Carry& now) { return Carry(now.first, now.second + 1.0); });
        });
        return Carry(after.first, after.second + (writes_rows ? total : select(before.first, row)));
      });
  return {last.first, last.second};
}

TEST_CASE("control: what branches and loops inside of loops update stays where it is") {
  for (const bool writes_rows : {true, false}) {
    std::vector<double> table{1, 2, 3, 4, 5, 6, 7, 8}, values{1, 3};
    const Program small =
        program_of({Shape({4, 2}, f32), Shape({2}, f32)},
                   [&](std::span<const Tensor> in) { return change_table(in, writes_rows); });
    const auto got = run(small, {floats({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), floats({2}, {1, 3})});
    for (std::size_t row = 0; row < 4; ++row) {
      const std::vector<double> before = table;
      for (int i = 0; i < 2; ++i) {
        for (std::size_t column = 0; column < 2; ++column) {
          double& value = values[column];
          if (row != 1 && writes_rows) table[2 * row + column] = value;
          value = row == 1 ? value + 1 : value * 2;
        }
        if (row == 1 || writes_rows) continue;
        for (double& element : table) element *= 2;
      }
      const double total = std::accumulate(before.begin(), before.end(), 0.0);
      for (std::size_t column = 0; column < 2; ++column) {
        values[column] += writes_rows ? total : before[2 * row + column];
      }
    }
    CHECK(elements(got[0]) == table);
    CHECK(elements(got[1]) == values);
  }

  const std::vector<Shape> shapes{Shape({64, 4096}, f32), Shape({4096}, f32)};
  const Program large = program_of(
      shapes, [](std::span<const Tensor> in) { return change_table(in, /*writes_rows=*/true); });
  for (const char* backend : {"reference", "cpu"}) {
    Session session(large, {.backends = backends(backend)});
    CHECK(session.report(shapes).slab_bytes < shapes[0].bytes());  // never the table
    std::vector<Buffer> inputs;
    for (const Shape& shape : shapes) {
      inputs.push_back(Buffer::allocate(shape, cpu_device()->default_mem_region()));
      inputs.back().fill<float>([](std::size_t i) { return i % 7; });
    }
    const MemPtr place = inputs[0].data();
    const Buffer kept = inputs[1];  // for another call
    std::stop_source stop;
    stop.request_stop();
    session.set_interrupt({.cancel = stop.get_token()});
    expect_error(Errc::cancelled, [&] { session.forward(std::move(inputs)); });
    CHECK_NOTHROW(inputs[0].wait());  // the rows that are not written are still there
    session.set_interrupt({});
    CHECK(session.forward(std::move(inputs))[0].data() == place);
  }
}

TEST_CASE("control: a run that fails leaves no mixture of an update and another value") {
  const std::vector<Shape> shapes{Shape({4, 2}, f32), Shape({2}, f32)};
  // Rows of the table are written in some iterations; in others it is twice itself.
  const auto mixed = [](std::span<const Tensor> in) {
    return std::vector{repeat(std::int64_t{3}, in[0], [&](const Tensor& row, const Tensor& table) {
      return cond(
          ne(row, like(row, 1)), table,
          [&](const Tensor& now) { return update_slice(now, row, in[1]); },
          [](const Tensor& now) { return now * 2.0; });
    })};
  };
  // Another table with the row: nothing of the first one is left.
  const auto renewed = [](std::span<const Tensor> in) {
    return std::vector{repeat(std::int64_t{3}, in[0], [&](const Tensor& row, const Tensor& table) {
      return update_slice(table * 0.0, row, in[1]);
    })};
  };
  const std::vector<std::vector<double>> wanted{{2, 6, 6, 8, 1, 3, 14, 16},
                                                {0, 0, 0, 0, 1, 3, 0, 0}};
  for (const bool is_mixed : {true, false}) {
    const Program program = is_mixed ? program_of(shapes, mixed) : program_of(shapes, renewed);
    for (const char* backend : {"reference", "cpu"}) {
      CAPTURE(is_mixed, backend);
      Session session(program, {.backends = backends(backend)});
      const auto inputs = [&] {
        std::vector<Buffer> made;
        for (const Shape& shape : shapes) {
          made.push_back(Buffer::allocate(shape, cpu_device()->default_mem_region()));
          made.back().fill<float>(
              [&](std::size_t at) { return made.size() == 1 ? at + 1 : 2 * at + 1; });
        }
        return made;
      };
      std::vector<Buffer> good = inputs(), failing = inputs();
      const std::vector<Buffer> kept = inputs();
      const MemPtr place = good[0].data();
      const std::vector<Buffer> results = session.forward(std::move(good));
      CHECK(elements(results[0].to_host()) == wanted[is_mixed ? 0 : 1]);
      CHECK(results[0].data() == place);

      std::stop_source stop;
      stop.request_stop();
      session.set_interrupt({.cancel = stop.get_token()});
      expect_error(Errc::cancelled, [&] { session.forward(std::move(failing)); });
      expect_error(Errc::cancelled, [&] { failing[0].wait(); });
      // A run of handles that are not the last ones has a copy.
      const std::vector<double> before = elements(kept[0].to_host());
      expect_error(Errc::cancelled, [&] { session.forward(kept); });
      kept[0].wait();
      CHECK(elements(kept[0].to_host()) == before);
    }
  }
}

TEST_CASE("cond: gradients go back through a carry") {
  const auto make = [](std::span<const Tensor> in) {
    const Tensor y = cond(
        in[0], in[1], [](const Tensor& now) { return now * now; },
        [](const Tensor& now) { return now * 3.0; });
    return grad(sum(y), std::span(in).subspan(1));
  };
  const Program program = program_of({Shape({}, boolean), Shape({2}, f32)}, make);
  for (const bool which : {true, false}) {
    const auto got =
        run(program, {HostBuffer::of<bool>(Shape({}, boolean), {which}), floats({2}, {2, 5})});
    CHECK(got[0].at({0}) == (which ? 4 : 3));
    CHECK(got[0].at({1}) == (which ? 10 : 3));
  }
}

TEST_CASE("cond: what is not taken is not computed") {
  // Each row of the table that is looked up would be an error in the other case.
  const Program program =
      program_of({Shape({}, boolean), Shape({1}, i32)}, [](std::span<const Tensor> in) {
        const Tensor table = full(5, Shape({2, 1}, f32));
        return std::vector{cond(
            in[0], [&] { return embedding(in[1], table); },
            [&] { return full(7, Shape({1, 1}, f32)); })};
      });
  const auto pick = [](bool which) { return HostBuffer::of<bool>(Shape({}, boolean), {which}); };
  CHECK(run(program, {pick(true), ints({1}, {1})})[0].at({0, 0}) == 5);
  CHECK(run(program, {pick(false), ints({1}, {99})})[0].at({0, 0}) == 7);
  Session session(program, {.backends = backends("cpu", 2)});
  expect_error(Errc::out_of_range,
               [&] { session.forward({device(pick(true)), device(ints({1}, {99}))}); });
}

TEST_CASE("cond: slices beyond a stack's ends are not read where a branch leaves them out") {
  const Program program = program_of({Shape({3}, f32)}, [](std::span<const Tensor> in) {
    const Tensor zero = like(sum(in[0]), 0);
    const auto at = [&](const Tensor& index) { return select(in[0], index); };
    return std::vector{repeat(std::int64_t{4}, zero, [&](const Tensor& i, const Tensor& x) {
      const Tensor before =
          cond(gt(i, like(i, 0)), [&] { return at(i - like(i, 1)); }, [&] { return zero; });
      const Tensor here = cond(lt(i, like(i, 3)), [&] { return at(i); }, [&] { return zero; });
      return x * 2.0 + before - here;
    })};
  });
  float want = 0;
  const float x[] = {1, 2, 5};
  for (int i = 0; i < 4; ++i) want = want * 2 + (i > 0 ? x[i - 1] : 0) - (i < 3 ? x[i] : 0);
  CHECK(run(program, {floats({3}, {1, 2, 5})})[0].at({}) == want);
}

TEST_CASE("cond: of another's result, in a loop") {
  const Program program = program_of({Shape({}, f32)}, [](std::span<const Tensor> in) {
    return std::vector{repeat(std::int64_t{5}, in[0], [](const Tensor&, const Tensor& x) {
      const Tensor y = cond(gt(x, like(x, 4)), [&] { return x * 0.5; }, [&] { return x * 3.0; });
      return cond(gt(y, like(y, 8)), [&] { return y - 8.0; }, [&] { return y; });
    })};
  });
  float want = 1.5f;
  for (int i = 0; i < 5; ++i) {
    want = want > 4 ? want * 0.5f : want * 3;
    if (want > 8) want -= 8;
  }
  CHECK(run(program, {HostBuffer::of<float>(Shape({}, f32), {1.5f})})[0].at({}) == want);
}

TEST_CASE("control: gradients are those of what is taken") {
  const auto check = [](const Make& loss, float at, double want) {
    const Program program = program_of({Shape({1}, f32)}, [&](std::span<const Tensor> in) {
      const Tensor value = sum(loss(in)[0]);
      return std::vector{grad(value, {in.data(), 1})[0]};
    });
    CHECK(run(program, {floats({1}, {at})})[0].at({0}) == Approx(want));
  };
  const Make root = [](std::span<const Tensor> in) { return std::vector{square_roots(in[0], 20)}; };
  check(root, 4, 0.25);
  check(root, 100, 0.05);
  check(branches, 20, 1 - std::tanh(20.0) * std::tanh(20.0));
  check(branches, 3, 1);
}

TEST_CASE("control: errors name what is wrong") {
  const auto refused = [](Errc code, const Make& make) {
    return expect_error(code, [&] { program_of({Shape({3}, f32)}, make); });
  };
  const std::string text = refused(Errc::bad_type, [](std::span<const Tensor> in) {
    return std::vector{cond(in[0], [&] { return in[0]; }, [&] { return in[0]; })};
  });
  const auto says = [](const std::string& message, std::string_view part) {
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
  };
  says(text, "cond: its condition is bool[], not f32[3]");
  says(refused(Errc::bad_type,
               [](std::span<const Tensor> in) {
                 const auto same = [](const Tensor& x) { return x; };
                 return std::vector{while_loop(in[0], same, same)};
               }),
       "while_loop: its condition is bool[], not f32[3]");
  says(refused(Errc::shape_mismatch,
               [](std::span<const Tensor> in) {
                 return std::vector{cond(
                     any(gt(in[0], in[0])), [&] { return in[0]; }, [&] { return sum(in[0]); })};
               }),
       "cond: no() has f32[], yes() f32[3]");
  says(refused(Errc::shape_mismatch,
               [](std::span<const Tensor> in) {
                 return std::vector{cond(
                     any(gt(in[0], in[0])), in[0], [](const Tensor& x) { return x; },
                     [](const Tensor& x) { return sum(x); })};
               }),
       "cond: no() has f32[], the carry f32[3]");
  says(refused(Errc::shape_mismatch,
               [](std::span<const Tensor> in) {
                 const auto many = [&](std::size_t count) { return std::vector(count, in[0]); };
                 return cond(
                     any(gt(in[0], in[0])), [&] { return many(2); }, [&] { return many(3); });
               }),
       "cond: no() has 3 tensors, yes() 2");
  says(refused(Errc::shape_mismatch,
               [](std::span<const Tensor> in) {
                 return std::vector{while_loop(
                     in[0], [](const Tensor& x) { return any(gt(x, x)); },
                     [](const Tensor& x) { return concat({x, x}, 0); })};
               }),
       "while_loop: the body has f32[6], the carry f32[3]");
}

const std::string text = R"(# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("counting", opset=1)

def step(go: bool, n: i64, i: i64, s: Scope, end: i64):
    one: i64 = full(value=1.0, dtype="i64")
    next: i64 = add(n, one)
    more: bool = lt(next, end)
    return more, next

def forward(go: bool, n: i64, end: i64):
    s0 = scope("loop")
    c0 = pack(go, n)
    c1 = repeat(step, 100, c0, s0, end, condition=0)
    last: i64 = item(c1, 1)
    return last
)";

TEST_CASE("control: as text") {
  const Program program = parse(text);
  CHECK(print(program) == text);
  CHECK(program.find("forward")->body[2].condition == 0);
  const auto replaced = [](std::string_view from, std::string_view to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return parse_all(other).errors;
  };
  CHECK(replaced("condition=0", "condition=2").at(0).code == Errc::out_of_range);
  CHECK(replaced("condition=0", "condition=1").at(0).code == Errc::bad_type);
  CHECK(replaced("condition=0", "condition=-1").at(0).code == Errc::bad_argument);
  CHECK(replaced("condition=0", "condition=0, condition=0").at(0).code == Errc::bad_argument);
  CHECK(replaced("condition=0", "condition=0, first=3").empty());
  CHECK(replaced("condition=0", "ending=0").at(0).code == Errc::bad_argument);

  Session session(program, {.backends = backends("cpu", 2)});
  const auto pick = [](bool which) { return HostBuffer::of<bool>(Shape({}, boolean), {which}); };
  const auto last = [&](bool go, std::int64_t end) {
    return session.forward({device(pick(go)), device(number(3)), device(number(end))})
        .at(0)
        .to_host()
        .at({});
  };
  CHECK(last(true, 9) == 9);
  CHECK(last(false, 9) == 3);
  CHECK(last(true, 1000) == 103);
}

TEST_CASE("control: a step of a session is a whole loop with a condition") {
  const Program program = program_of({Shape({}, i64)}, [](std::span<const Tensor> in) {
    const std::vector<Tensor> results = collatz(in);
    return std::vector{results[1] * like(results[1], 2)};
  });
  Session session(program, {.backends = backends("cpu", 2)});
  const std::string after = program.main().values[program.main().results[0]].name;
  CHECK(session.step_to(after, {device(number(27))}).to_host().at({}) == 222);
  Session profiled(program, {.backends = backends("cpu", 2)});
  profiled.enable_time_profile(true);
  CHECK(profiled.forward({device(number(27))}).at(0).to_host().at({}) == 222);
}

/// A program that branches and scans over values of `rows` x `columns`, made of draws of a seed.
std::vector<Tensor> branches_and_scans(std::span<const Tensor> in, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto draw = [&](int most) { return std::uniform_int_distribution<int>(0, most)(engine); };
  const Tensor &goes = in[0], &x = in[1], &steps = in[2];  // bool[], f64[R, C], f64[3, R, C]
  const int way = draw(4), inner = draw(3);
  const auto of_branch = [&](const Tensor& value, int which) {
    switch (which) {
      case 0:
        return tanh(value) * x;
      case 1:
        return cumsum(value, 0) - mean(x, {0}, true);
      case 2:
        return softmax(value + x, 1);
      default:
        return where(gt(value, x), value, x * 0.5);
    }
  };
  const auto branch = [&](const Tensor& value) {
    return cond(
        goes, [&] { return of_branch(value, inner); },
        [&] { return of_branch(value * 0.5, (inner + 1) % 4); });
  };
  const auto scanned = [&](const auto& body) {
    return scan(x, steps, [&](const Tensor& now, const Tensor& slice) {
      const Tensor next = body(now * 0.5 + slice);
      return std::pair(next, std::pair(sum(next, {1}), next - now));
    });
  };
  if (way == 0) return {branch(x)};
  if (way == 1) {  // sizes without a symbol
    const Tensor rest = slice(x, 0, 1);
    return {cond(goes, [&] { return tanh(rest); }, [&] { return rest * 2.0; })};
  }
  if (way == 2) {
    const auto [last, outputs] = scanned([&](const Tensor& value) { return tanh(value); });
    return {last, outputs.first, outputs.second};
  }
  if (way == 3) {
    const auto [last, outputs] = scanned(branch);
    return {last, outputs.first, outputs.second};
  }
  const Tensor looped = repeat(std::int64_t{2}, x, [&](const Tensor&, const Tensor& now) {
    const auto [last, outputs] =
        scan(now, transpose(steps, 1, 2), [&](const Tensor& carry, const Tensor& slice) {
          const Tensor next = of_branch(carry * 0.5 + transpose(slice, 0, 1), inner);
          return std::pair(next, sum(next));
        });
    return last + sum(outputs) * 0.01;
  });
  return {looped};
}

TEST_CASE("cond and scan: symbolic sizes, as with the sizes themselves; gradients, too") {
  std::random_device device_of_seeds;
  const std::uint64_t first = device_of_seeds();
  const Axis rows = symbol("R"), columns = symbol("C");
  const auto types = [](std::int64_t r, std::int64_t c) {
    return std::vector{Shape({}, boolean), Shape({r, c}, f64), Shape({3, r, c}, f64)};
  };
  for (std::uint64_t seed = first; seed < first + 15; ++seed) {
    INFO("seed " << seed);
    for (const bool differentiates : {false, true}) {
      const auto make = [&](std::span<const Tensor> in) {
        std::vector<Tensor> results = branches_and_scans(in, seed);
        if (!differentiates) return results;
        Tensor loss = sum(square(results[0])) + sum(in[2]) * 0.1;
        for (std::size_t i = 1; i < results.size(); ++i) loss = loss + sum(results[i]);
        return grad(loss, std::span(in).subspan(1, seed % 5 == 0 ? 2 : 1));
      };
      const std::int64_t width = seed % 3 == 0 ? 4 : columns.size;
      const Program open = program_of(types(rows.size, width), make);
      INFO(print(open));
      CHECK(print(open) == print(parse(print(open))));
      Session session(open, {.backends = backends("cpu", 2)});
      std::mt19937_64 engine(seed);
      for (const std::int64_t r : {3, 1, 5, 3}) {
        const std::int64_t c = is_static(width) ? width : 2 + r % 3;
        const std::vector<Shape> shapes = types(r, c);
        std::vector<HostBuffer> inputs{HostBuffer::of<bool>(shapes[0], {engine() % 2 == 0})};
        for (std::size_t i = 1; i < 3; ++i) {
          inputs.push_back(HostBuffer::uninitialized(shapes[i]));
          for (double& value : inputs.back().mutable_values<double>())
            value = std::uniform_real_distribution<double>(-1, 1)(engine);
        }
        const auto given = [&] {
          std::vector<Buffer> buffers;
          for (const HostBuffer& input : inputs) buffers.push_back(device(input));
          return buffers;
        };
        Session closed(program_of(shapes, make), {.backends = backends("reference")});
        const std::vector<Buffer> want = closed.forward(given()), got = session.forward(given());
        for (std::size_t i = 0; i < want.size(); ++i)
          expect_close(got[i].to_host(), want[i].to_host(), 1e-12, 1e-12);
        if (r == 5) run(open, inputs);  // on every backend
      }
    }
  }
}

TEST_CASE("scan: of a symbolic length no more than 2^20 steps, of which a gradient has no values") {
  const auto products = [](std::span<const Tensor> in) {
    const Tensor one = like(sum(slice(in[0], 0, 0, 1)), 1);
    return scan(one, in[0],
                [](const Tensor& product, const Tensor& x) {
                  const Tensor next = product * x;
                  return std::pair(next, next);
                })
        .carry;
  };
  const Shape type({symbol("T")}, f32);
  Session session(
      program_of({type}, [&](std::span<const Tensor> in) { return std::vector{products(in)}; }),
      {.backends = backends("cpu")});
  const auto of = [&](const HostBuffer& x) { return values(session.forward({device(x)})[0]); };
  CHECK(of(floats({3}, {2, 3, 4})) == std::vector<float>{24});
  const HostBuffer longer = HostBuffer::zeros(Shape({max_iterations + 1}, f32));
  expect_error(Errc::out_of_range, [&] { of(longer); });
  expect_error(Errc::unsupported, [&] {
    program_of({type}, [&](std::span<const Tensor> in) { return grad(products(in), in); });
  });
}

TEST_CASE("cond: what a branch makes is not computed for its sizes") {
  const Axis rows = symbol("R");
  const Program program =
      program_of({Shape({}, boolean), Shape({rows, 2}, f32)}, [](std::span<const Tensor> in) {
        return std::vector{cond(in[0], [&] { return exp(in[1]); }, [&] { return in[1]; })};
      });
  for (const Instruction& instruction : program.main().body)
    CHECK(instruction.op.def() != &op_def<Exp>());
}

}  // namespace
}  // namespace tenon::testing
