// Optimised programs compute the same results: for random programs over every op, and for programs
// that consist of the rewrites' patterns.

#include "support/program_text.hpp"
#include "support/random_program.hpp"

#include <tenon/backend.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace tenon;
using namespace tenon::testing;

namespace {

/// Values for the constants that the program asks for; none where a loop leaves its arrays.
std::map<std::string, Buffer> weights_of(const Program& program, RandomProgram& random,
                                         const std::vector<Shape>& inputs) {
  std::map<std::string, Buffer> weights;
  try {
    for (const ConstantSlot& slot : lower(program, inputs).constants) {
      weights.emplace(slot.name, random.value(slot.shape).to_device(cpu_device()));
    }
  } catch (const Error& error) {
    if (error.code() != Errc::out_of_range) throw;
  }
  return weights;
}

class Runner {
 public:
  Runner(const Program& program, RandomProgram& random) : inputs_(random.inputs(program)) {
    register_reference_backend();
    std::vector<Shape> shapes;
    for (const HostBuffer& input : inputs_) shapes.push_back(input.shape());
    weights_ = std::make_shared<WeightSet>(weights_of(program, random, shapes));
  }

  /// What the program computes on the reference backend; nothing when its data is out of range.
  std::optional<std::vector<HostBuffer>> run(const Program& program) const {
    Session session(program, {.backends = {make_backend("reference")}});
    session.bind(weights_);
    std::vector<Buffer> inputs;
    for (const HostBuffer& input : inputs_)
      inputs.push_back(input.contiguous().to_device(cpu_device()));
    try {
      std::vector<HostBuffer> results;
      for (const Buffer& output : session.forward(std::move(inputs)))
        results.push_back(output.to_host());
      return results;
    } catch (const Error& error) {
      if (error.code() != Errc::out_of_range) throw;
      return std::nullopt;
    }
  }

 private:
  std::vector<HostBuffer> inputs_;
  std::shared_ptr<const WeightSet> weights_;
};

bool equal_bytes(const HostBuffer& a, const HostBuffer& b) {
  return a.shape() == b.shape() && std::memcmp(a.contiguous().bytes(), b.contiguous().bytes(),
                                               static_cast<std::size_t>(a.shape().bytes())) == 0;
}

/// Of a program's intermediate results in `dtype`. A rewrite that fuses two ops rounds once where
/// they rounded twice, and what comes after may make more of that.
double rounding_errors(DType dtype) {
  constexpr double steps = 8;
  switch (dtype) {
    case DType::bf16:
      return steps / 128;
    case DType::f16:
      return steps / 1024;
    case DType::f32:
      return steps * std::numeric_limits<float>::epsilon();
    default:
      return steps * std::numeric_limits<double>::epsilon();
  }
}

bool nearly_equal(const HostBuffer& a, const HostBuffer& b, double wanted_tolerance) {
  if (!(a.shape() == b.shape())) return false;
  if (!is_floating(a.shape().dtype())) return equal_bytes(a, b);
  const double tolerance = std::max(wanted_tolerance, rounding_errors(a.shape().dtype()));
  const HostBuffer x = a.to(f64);
  const HostBuffer y = b.to(f64);
  return std::ranges::equal(x.values<double>(), y.values<double>(), [&](double got, double want) {
    if (std::isnan(want)) return std::isnan(got);
    return got == want || std::abs(got - want) <= tolerance * (1 + std::abs(want));
  });
}

/// A program of `count` pieces, each of which makes a value of x's type from the one before. They
/// are what the rewrites look for, and what looks almost like it.
class Composer {
 public:
  Composer(RandomProgram& random, std::string_view dtype) : random_(random), dtype_(dtype) {}

  std::string make(int count);

 private:
  struct Piece {
    std::string_view name;
    std::string_view text;
  };
  static const std::vector<Piece>& pieces();

  RandomProgram& random_;
  std::string_view dtype_;
};

// In each: `x` is the value so far and `y` the next, of type T = [S, D]; D = 2 E; `n` makes names
// unique.
const std::vector<Composer::Piece>& Composer::pieces() {
  static const std::vector<Piece> all = {
      {"times one", R"(
    one{n} = full(value=1.0, dtype="{t}")
    {y} = mul({x}, one{n})
)"},
      {"over one, minus zero, cast to itself", R"(
    one{n} = full(value=1.0, dtype="{t}")
    zero{n} = full(dtype="{t}")
    a{n} = div({x}, one{n})
    b{n} = sub(a{n}, zero{n})
    c{n} = cast(b{n}, dtype="{t}")
    {y} = slice(c{n}, axis=1, end={D})
)"},
      {"minus minus", R"(
    a{n} = neg({x})
    {y} = neg(a{n})
)"},
      {"powers", R"(
    two{n} = full(value=2.0, dtype="{t}")
    half{n} = full(value=0.5, dtype="{t}")
    one{n} = full(value=1.0, dtype="{t}")
    a{n} = pow({x}, two{n})
    b{n} = pow(a{n}, half{n})
    {y} = pow(b{n}, one{n})
)"},
      {"there and back", R"(
    a{n} = permute({x}, order=[1, 0])
    {y} = permute(a{n}, order=[1, 0])
)"},
      {"through other sizes", R"(
    a{n} = split_axis({x}, axis=1, sizes=[2, {E}])
    b{n} = merge_axes(a{n}, axis=0, count=2)
    c{n} = unsqueeze(b{n}, axis=1)
    {y} = reshape(c{n}, dims=[-1, {D}])
)"},
      {"scaled twice", R"(
    f{n} = full(value=1.25, dtype="{t}")
    g{n} = full(value=1.5, dtype="{t}")
    a{n} = mul({x}, f{n})
    {y} = mul(g{n}, a{n})
)"},
      {"scaled up and down", R"(
    f{n} = full(value=3.0, dtype="{t}")
    g{n} = full(value=0.25, dtype="{t}")
    a{n} = mul({x}, f{n})
    {y} = mul(a{n}, g{n})
)"},
      {"silu", R"(
    a{n} = sigmoid({x})
    {y} = mul({x}, a{n})
)"},
      {"rms norm by rsqrt", R"(
    s{n} = square({x})
    m{n} = mean(s{n}, axes=[1], keep_dims=True)
    e{n} = full(value=0.01, dtype="{t}")
    v{n} = add(e{n}, m{n})
    r{n} = rsqrt(v{n})
    h{n} = mul(r{n}, {x})
    w{n}: {t}[{D}] = const("w{n}")
    {y} = mul(h{n}, w{n})
)"},
      {"rms norm by sqrt", R"(
    s{n} = mul({x}, {x})
    m{n} = mean(s{n}, axes=[1], keep_dims=True)
    e{n} = full(value=0.001, dtype="{t}")
    v{n} = add(m{n}, e{n})
    r{n} = sqrt(v{n})
    {y} = div({x}, r{n})
)"},
      {"norm along the other axis", R"(
    s{n} = square({x})
    m{n} = mean(s{n}, axes=[0], keep_dims=True)
    e{n} = full(value=0.01, dtype="{t}")
    v{n} = add(m{n}, e{n})
    r{n} = rsqrt(v{n})
    {y} = mul({x}, r{n})
)"},
      {"layer norm", R"(
    c{n} = mean({x}, axes=[1], keep_dims=True)
    d{n} = sub({x}, c{n})
    s{n} = square(d{n})
    m{n} = mean(s{n}, axes=[1], keep_dims=True)
    e{n} = full(value=0.01, dtype="{t}")
    v{n} = add(m{n}, e{n})
    r{n} = rsqrt(v{n})
    h{n} = mul(d{n}, r{n})
    w{n}: {t}[{D}] = const("w{n}")
    g{n} = mul(h{n}, w{n})
    b{n}: {t}[{D}] = const("b{n}")
    {y} = add(b{n}, g{n})
)"},
      {"product with a transposed weight, and a bias", R"(
    w{n}: {t}[{D}, {D}] = const("w{n}")
    u{n} = permute(w{n}, order=[1, 0])
    p{n} = matmul({x}, u{n})
    b{n}: {t}[{D}] = const("b{n}")
    {y} = add(p{n}, b{n})
)"},
      {"linear, bias, residual", R"(
    w{n}: {t}[{D}, {D}] = const("w{n}")
    p{n} = linear({x}, w{n})
    b{n}: {t}[{D}] = const("b{n}")
    q{n} = add(b{n}, p{n})
    {y} = add({x}, q{n})
)"},
      {"parts side by side, as gradients of slices are", R"(
    a{n} = exp({x})
    p{n} = pad(a{n}, before=[0, {D}], after=[0, 0])
    q{n} = pad({x}, before=[0, 0], after=[0, {D}])
    s{n} = add(p{n}, q{n})
    t{n} = reshape(s{n}, dims=[{S}, 2, {D}])
    {y} = sum(t{n}, axes=[1])
)"},
      {"linear, batch norm", R"(
    w{n}: {t}[{D}, {D}] = const("w{n}")
    b{n}: {t}[{D}] = const("b{n}")
    p{n} = linear({x}, w{n}, b{n}, has_bias=True)
    v{n}: {t}[{D}] = const("v{n}")
    e{n} = exp(v{n})
    s{n}: {t}[{D}] = const("s{n}")
    {y} = batch_norm(p{n}, b{n}, e{n}, s{n})
)"},
      {"convolution, batch norm", R"(
    c{n} = reshape({x}, dims=[1, 1, {S}, {D}])
    w{n}: {t}[2, 1, 1, 1] = const("w{n}")
    p{n} = conv2d(c{n}, w{n})
    m{n}: {t}[2] = const("m{n}")
    v{n}: {t}[2] = const("v{n}")
    e{n} = exp(v{n})
    q{n} = batch_norm(p{n}, m{n}, e{n}, m{n}, v{n}, eps=0.01)
    h{n} = slice(q{n}, axis=1, begin=0, end=1)
    {y} = reshape(h{n}, dims=[{S}, {D}])
)"},
      {"transposed convolution of one row, batch norm", R"(
    c{n} = reshape({x}, dims=[{S}, {D}, 1, 1])
    w{n}: {t}[{D}, {D}, 1, 1] = const("w{n}")
    p{n} = conv_transpose2d(c{n}, w{n})
    z{n} = squeeze(p{n}, axis=2)
    m{n}: {t}[{D}] = const("m{n}")
    e{n} = exp(m{n})
    q{n} = batch_norm(z{n}, m{n}, e{n})
    {y} = squeeze(q{n}, axis=2)
)"},
      {"linear plus a column", R"(
    w{n}: {t}[{D}, {D}] = const("w{n}")
    p{n} = linear({x}, w{n})
    b{n}: {t}[{S}, 1] = const("b{n}")
    {y} = add(p{n}, b{n})
)"},
      {"gate", R"(
    w{n}: {t}[{D}, {D}] = const("w{n}")
    u{n} = linear({x}, w{n})
    a{n} = {activation}({x})
    {y} = mul(u{n}, a{n})
)"},
      {"attention", R"(
    a{n} = reshape({x}, dims=[1, {S}, 2, {E}])
    q{n} = permute(a{n}, order=[0, 2, 1, 3])
    k{n} = tanh(q{n})
    u{n} = permute(k{n}, order=[0, 1, 3, 2])
    s{n} = matmul(q{n}, u{n})
    f{n} = full(value=0.5, dtype="{t}")
    g{n} = mul(s{n}, f{n})
    p{n} = softmax(g{n}, axis=3)
    o{n} = matmul(p{n}, q{n})
    h{n} = permute(o{n}, order=[0, 2, 1, 3])
    {y} = reshape(h{n}, dims=[{S}, {D}])
)"},
      // Scales are powers of two, so that sums in f32 are exact: on every type the same results.
      {"product of codes, with a bias", R"(
    e{n} = clamp({x}, min=-4.0, max=4.0)
    c{n} = cast(e{n}, dtype="f32")
    s{n} = full(value=0.25)
    z{n} = full(value=3.0, dtype="i8")
    q{n} = quantize_linear(c{n}, s{n}, z{n}, dtype="i8")
    d{n} = dequantize_linear(q{n}, s{n}, z{n})
    w{n}: i8[{D}, {D}] = const("w{n}")
    r{n} = full(value=0.5)
    v{n} = dequantize_linear(w{n}, r{n}, axis=0)
    b{n} = full(value=1.5, dims=[{D}])
    p{n} = linear(d{n}, v{n}, b{n}, has_bias=True)
    {y} = cast(p{n}, dtype="{t}")
)"},
      {"convolution of codes", R"(
    e{n} = clamp({x}, min=-4.0, max=4.0)
    a{n} = cast(e{n}, dtype="f32")
    c{n} = reshape(a{n}, dims=[1, 1, {S}, {D}])
    s{n} = full(value=0.125)
    q{n} = quantize_linear(c{n}, s{n})
    d{n} = dequantize_linear(q{n}, s{n})
    w{n}: i8[1, 1, 1, 1] = const("w{n}")
    r{n} = full(value=0.5, dims=[1])
    z{n} = full(value=2.0, dims=[1], dtype="i8")
    v{n} = dequantize_linear(w{n}, r{n}, z{n}, axis=0)
    b{n} = full(value=-0.5, dims=[1])
    p{n} = conv2d(d{n}, v{n}, b{n}, has_bias=True)
    o{n} = reshape(p{n}, dims=[{S}, {D}])
    {y} = cast(o{n}, dtype="{t}")
)"},
      {"product of two arrays of codes", R"(
    e{n} = clamp({x}, min=-4.0, max=4.0)
    c{n} = cast(e{n}, dtype="f32")
    s{n} = full(value=0.25)
    z{n} = full(value=100.0, dtype="u8")
    q{n} = quantize_linear(c{n}, s{n}, z{n})
    d{n} = dequantize_linear(q{n}, s{n}, z{n})
    w{n}: u8[{D}, {D}] = const("w{n}")
    r{n} = full(value=0.5, dims=[{D}])
    v{n} = dequantize_linear(w{n}, r{n})
    p{n} = matmul(d{n}, v{n})
    {y} = cast(p{n}, dtype="{t}")
)"},
      {"the same twice", R"(
    a{n} = tanh({x})
    b{n} = tanh({x})
    {y} = add(b{n}, a{n})
)"},
  };
  return all;
}

std::string Composer::make(int count) {
  static constexpr std::string_view activations[] = {"silu", "gelu",    "gelu_tanh",
                                                     "relu", "sigmoid", "tanh"};
  const std::int64_t s = random_.integer(1, 5);
  const std::int64_t e = random_.integer(1, 3);
  std::string text = fmt::format("\ndef forward(v0: {}[{}, {}]):\n", dtype_, s, 2 * e);
  std::vector<std::string> results;
  for (int i = 0; i < count; ++i) {
    const Piece& piece =
        pieces()[static_cast<std::size_t>(random_.integer(0, std::ssize(pieces()) - 1))];
    std::string body = fmt::format(
        fmt::runtime(piece.text.substr(1)), fmt::arg("x", fmt::format("v{}", i)),
        fmt::arg("y", fmt::format("v{}", i + 1)), fmt::arg("n", fmt::format("_{}", i)),
        fmt::arg("t", dtype_), fmt::arg("S", s), fmt::arg("D", 2 * e), fmt::arg("E", e),
        fmt::arg("activation", activations[random_.integer(0, std::ssize(activations) - 1)]));
    // Sometimes what lies between is asked for as well, so that it must not disappear.
    if (random_.chance(0.2)) {
      std::vector<std::string> names;
      for (std::size_t at = 0; at < body.size(); at = body.find('\n', at) + 1) {
        const std::size_t begin = at + 4;
        names.push_back(body.substr(begin, body.find_first_of(" :", begin) - begin));
      }
      results.push_back(names[static_cast<std::size_t>(random_.integer(0, std::ssize(names) - 1))]);
    }
    text += body;
  }
  results.push_back(fmt::format("v{}", count));
  return text + fmt::format("    return {}\n", fmt::join(results, ", "));
}

void expect_same_results(const Program& before, const Program& after, const Runner& runner,
                         double tolerance) {
  const auto want = runner.run(before);
  if (!want) return;  // dead code may have been what failed
  const auto got = runner.run(after);
  REQUIRE(got);
  REQUIRE(got->size() == want->size());
  for (std::size_t i = 0; i < want->size(); ++i) {
    INFO("result " << i << ": " << to_string((*got)[i]) << "\nwanted " << to_string((*want)[i]));
    const bool same = tolerance == 0 ? equal_bytes((*got)[i], (*want)[i])
                                     : nearly_equal((*got)[i], (*want)[i], tolerance);
    REQUIRE(same);
  }
}

}  // namespace

TEST_CASE("clean-ups keep every bit of random programs") {
  const std::uint64_t first = fuzz_seed(1);
  int changed = 0;
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(fuzz_rounds(150));
       ++seed) {
    RandomProgram random(seed);
    const Program before =
        random.make({.instructions = 14, .callees = static_cast<int>(random.integer(0, 2))});
    const Runner runner(before, random);
    for (const std::string_view pass : {"dead", "common", "fold"}) {
      Program after = before;
      int applied = 0;
      for (Function& function : after.functions) {
        applied += pass == "dead"     ? remove_dead_code(function)
                   : pass == "common" ? share_common_subexpressions(after, function)
                                      : fold_constants(after, function);
      }
      INFO("seed " << seed << ", " << pass << "\n" << print(before) << "\n" << print(after));
      REQUIRE_NOTHROW(verify(after));
      expect_same_results(before, after, runner, 0);
      changed += applied > 0 ? 1 : 0;
    }
  }
  CHECK(changed > 0);
}

TEST_CASE("optimize keeps the results of smooth random programs") {
  const std::uint64_t first = fuzz_seed(5000);
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(fuzz_rounds(150));
       ++seed) {
    RandomProgram random(seed);
    const Program before = random.make({.instructions = 20,
                                        .dtype = f64,
                                        .smooth = true,
                                        .callees = static_cast<int>(random.integer(0, 2))});
    const Runner runner(before, random);
    Program after = before;
    optimize(after);
    INFO("seed " << seed << "\n" << print(before) << "\n" << print(after));
    expect_same_results(before, after, runner, 1e-7);
    // There is nothing left to do.
    Program again = after;
    optimize(again);
    REQUIRE(same_program(again, after));
  }
}

TEST_CASE("a fused op of bf16 differs by the rounding that it leaves out, and no more") {
  // silu(x) in bf16 and then times x, against one glu.
  const Program before = program_of(R"(
def forward(x: bf16[512]):
    a = silu(x)
    y = mul(a, x)
    return y
)");
  Program after = before;
  optimize(after);
  REQUIRE(after.main().body.size() == 1);
  RandomProgram random(1);
  expect_same_results(before, after, Runner(before, random), 1e-7);
}

TEST_CASE("every rewrite finds its pattern in chains of them, and keeps the results") {
  const std::uint64_t first = fuzz_seed(9000);
  std::map<std::string_view, int> found;
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(fuzz_rounds(150));
       ++seed) {
    RandomProgram random(seed);
    const bool wide = random.chance(0.7);
    const Program before = program_of(Composer(random, wide ? "f64" : "f32").make(6));
    const double tolerance = wide ? 1e-8 : 2e-3;
    const Runner runner(before, random);
    for (const Rewrite& rewrite : all_rewrites()) {
      Program after = before;
      verify(after);
      // Some patterns appear only once others have been rewritten: all that come before take part.
      for (const Rewrite& earlier : all_rewrites()) {
        if (earlier.name == rewrite.name) break;
        earlier.apply(after, after.functions[0]);
        remove_dead_code(after.functions[0]);
      }
      const Program between = after;
      const int applied = rewrite.apply(after, after.functions[0]);
      found[rewrite.name] += applied;
      if (applied == 0) continue;
      INFO("seed " << seed << ", " << rewrite.name << "\n"
                   << print(between) << "\n"
                   << print(after));
      REQUIRE_NOTHROW(verify(after));
      expect_same_results(between, after, runner, tolerance);
    }
    Program after = before;
    optimize(after);
    INFO("seed " << seed << "\n" << print(before) << "\n" << print(after));
    expect_same_results(before, after, runner, tolerance);
  }
  if (fuzz_rounds(150) < 150) return;
  for (const Rewrite& rewrite : all_rewrites()) {
    INFO(rewrite.name);
    CHECK(found[rewrite.name] > 0);
  }
}
