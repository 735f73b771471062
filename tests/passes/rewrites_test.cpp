#include "support/cpu_timer.hpp"
#include "support/program_text.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/optimize.hpp>

#include <algorithm>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace tenon;
using namespace tenon::testing;

namespace {

/// The only function of a text after one rewrite, applied wherever it matches, without what that
/// leaves behind.
std::string rewritten(std::string_view rewrite, std::string_view text) {
  Program program = program_of(text);
  verify(program);
  const auto found = std::ranges::find(all_rewrites(), rewrite, &Rewrite::name);
  REQUIRE(found != all_rewrites().end());
  const int applied = found->apply(program, program.functions[0]);
  const bool changed = !same_program(program, [&] {
    Program before = program_of(text);
    verify(before);
    return before;
  }());
  CHECK((applied > 0) == changed);
  remove_dead_code(program.functions[0]);
  verify(program);
  return functions_of(program);
}

/// The same without types, to compare with what a test writes.
void expect(std::string_view rewrite, std::string_view text, std::string_view want) {
  Program program = program_of(want);
  verify(program);
  INFO(rewrite);
  CHECK(rewritten(rewrite, text) == functions_of(program));
}

void expect_unchanged(std::string_view rewrite, std::string_view text) {
  Program program = program_of(text);
  verify(program);
  remove_dead_code(program.functions[0]);
  INFO(rewrite);
  CHECK(rewritten(rewrite, text) == functions_of(program));
}

}  // namespace

TEST_CASE("drop_identity: multiplying by 1, subtracting 0, casting to the same type") {
  expect("drop_identity", R"(
def forward(x: f32[S, 4]):
    one = full(value=1.0)
    zero = full()
    a = mul(x, one)
    b = mul(one, a)
    c = div(b, one)
    d = sub(c, zero)
    e = cast(d)
    f = pow(e, one)
    y = exp(f)
    return y
)",
         R"(
def forward(x: f32[S, 4]):
    y = exp(x)
    return y
)");
  // x - (-0) is x + 0, which turns -0 into 0; f32 to f16 is no identity; [1, 4] broadcasts x.
  expect_unchanged("drop_identity", R"(
def forward(x: f32[4]):
    minus_zero = full(value=-0.0)
    zero = full()
    ones = full(value=1.0, dims=[1, 4])
    a = sub(x, minus_zero)
    b = add(a, zero)
    c = mul(b, ones)
    d = cast(c, dtype="f16")
    return d
)");
}

TEST_CASE("drop_identity: stop_gradient stays, which gradients see") {
  expect_unchanged("drop_identity", R"(
def forward(x: f32[2, 4]):
    a = stop_gradient(x)
    y = mul(x, a)
    return y
)");
}

TEST_CASE("drop_identity: views that show all of their input") {
  expect("drop_identity", R"(
def forward(x: f32[2, 4]):
    a = reshape(x, dims=[2, 4])
    b = permute(a, order=[0, 1])
    c = slice(b, axis=1, end=4)
    y = exp(c)
    return y
)",
         R"(
def forward(x: f32[2, 4]):
    y = exp(x)
    return y
)");
  expect_unchanged("drop_identity", R"(
def forward(x: f32[4, 4]):
    a = permute(x, order=[1, 0])
    y = exp(a)
    return y
)");
}

TEST_CASE("drop_identity: a copy that outlives an update stays a copy") {
  expect_unchanged("drop_identity", R"(
def forward(kv0: f32[1, 1, 1, 4, 2], i: i64, x: f32[1, 1, 1, 2], pos: i32):
    one = full(value=1.0)
    before = mul(kv0, one)
    kv1 = cache_update(kv0, i, x, pos)
    y = sub(kv1, before)
    return y, kv1
)");
}

TEST_CASE("double_negation") {
  expect("double_negation", R"(
def forward(x: i32[3]):
    a = neg(x)
    b = neg(a)
    y = abs(b)
    return y
)",
         R"(
def forward(x: i32[3]):
    y = abs(x)
    return y
)");
}

TEST_CASE("power") {
  expect("power", R"(
def forward(x: f32[3]):
    two = full(value=2.0)
    minus_one = full(value=-1.0)
    half = full(value=0.5)
    a = pow(x, two)
    b = pow(x, minus_one)
    c = pow(a, half)
    return a, b, c
)",
         R"(
def forward(x: f32[3]):
    a = square(x)
    b = reciprocal(x)
    c = sqrt(a)
    return a, b, c
)");
}

TEST_CASE("power: not where values would differ, nor where x broadcasts") {
  expect_unchanged("power", R"(
def forward(x: f32[3], i: i32[3]):
    half = full(value=0.5)
    three = full(value=3.0)
    minus_one = full(value=-1.0, dtype="i32")
    twos = full(value=2.0, dims=[4, 3])
    a = pow(x, half)
    b = pow(x, three)
    c = pow(i, minus_one)
    d = pow(x, twos)
    return a, b, c, d
)");
}

TEST_CASE("permute_of_permute composes the orders") {
  expect("permute_of_permute", R"(
def forward(x: f32[2, 3, 4]):
    a = permute(x, order=[1, 2, 0])
    y = permute(a, order=[2, 1, 0])
    return y
)",
         R"(
def forward(x: f32[2, 3, 4]):
    y = permute(x, order=[0, 2, 1])
    return y
)");
}

TEST_CASE("reshape_of_reshape, for known sizes") {
  expect("reshape_of_reshape", R"(
def forward(x: f32[2, 6]):
    a = split_axis(x, axis=1, sizes=[3, 2])
    b = merge_axes(a, axis=0, count=2)
    y = unsqueeze(b, axis=0)
    return y
)",
         R"(
def forward(x: f32[2, 6]):
    y = reshape(x, dims=[1, 6, 2])
    return y
)");
  expect_unchanged("reshape_of_reshape", R"(
def forward(x: f32[S, 6]):
    a = split_axis(x, axis=1, sizes=[3, 2])
    y = unsqueeze(a, axis=0)
    return y
)");
}

TEST_CASE("scale_of_scale, unless the middle could overflow where the end does not") {
  expect("scale_of_scale", R"(
def forward(x: f32[4]):
    a = full(value=2.0)
    b = full(value=8.0)
    x1 = mul(x, a)
    y = mul(b, x1)
    return y
)",
         R"(
def forward(x: f32[4]):
    scale: f32 = full(value=16.0)
    y = mul(x, scale)
    return y
)");
  expect_unchanged("scale_of_scale", R"(
def forward(x: f32[4]):
    a = full(value=1e+30)
    b = full(value=1e-30)
    x1 = mul(x, a)
    y = mul(x1, b)
    return y
)");
}

TEST_CASE("silu") {
  expect("silu", R"(
def forward(x: f32[4]):
    g = sigmoid(x)
    y = mul(x, g)
    return y
)",
         R"(
def forward(x: f32[4]):
    y = silu(x)
    return y
)");
}

TEST_CASE("rms_norm, as people write it") {
  expect("rms_norm", R"(
def forward(x: f32[S, 8]):
    s = square(x)
    m = mean(s, axes=[1], keep_dims=True)
    eps = full(value=1e-06)
    v = add(m, eps)
    r = rsqrt(v)
    y = mul(x, r)
    return y
)",
         R"(
def forward(x: f32[S, 8]):
    y = rms_norm(x, eps=1e-06)
    return y
)");
  expect("rms_norm", R"(
def forward(x: f32[S, 8]):
    s = mul(x, x)
    m = mean(s, axes=[1], keep_dims=True)
    r = sqrt(m)
    y = div(x, r)
    return y
)",
         R"(
def forward(x: f32[S, 8]):
    y = rms_norm(x, eps=0.0)
    return y
)");
  // Another axis; another x.
  expect_unchanged("rms_norm", R"(
def forward(x: f32[8, 8], z: f32[8, 8]):
    s = square(x)
    m = mean(s, axes=[0], keep_dims=True)
    r = rsqrt(m)
    y = mul(x, r)
    n = mean(s, axes=[1], keep_dims=True)
    q = rsqrt(n)
    w = mul(z, q)
    return y, w
)");
}

TEST_CASE("layer_norm is rms_norm of what is centred") {
  expect("layer_norm", R"(
def forward(x: f32[S, 8], w: f32[8]):
    m = mean(x, axes=[1], keep_dims=True)
    d = sub(x, m)
    y = rms_norm(d, w, eps=0.001)
    return y
)",
         R"(
def forward(x: f32[S, 8], w: f32[8]):
    y = layer_norm(x, w, eps=0.001)
    return y
)");
}

TEST_CASE("norm_weight and norm_bias") {
  expect("norm_weight", R"(
def forward(x: f32[S, 8], w: f32[8]):
    n = layer_norm(x)
    y = mul(w, n)
    return y
)",
         R"(
def forward(x: f32[S, 8], w: f32[8]):
    y = layer_norm(x, w)
    return y
)");
  expect("norm_bias", R"(
def forward(x: f32[S, 8], w: f32[8], b: f32[8]):
    n = layer_norm(x, w)
    y = add(n, b)
    return y
)",
         R"(
def forward(x: f32[S, 8], w: f32[8], b: f32[8]):
    y = layer_norm(x, w, b)
    return y
)");
  // Not one weight per column.
  expect_unchanged("norm_weight", R"(
def forward(x: f32[8, 8], w: f32[8, 1]):
    n = rms_norm(x)
    y = mul(n, w)
    return y
)");
}

TEST_CASE("linear_of_matmul, for weights") {
  expect("linear_of_matmul", R"(
def forward(x: f32[S, 4]):
    w: f32[3, 4] = const("w")
    t = permute(w, order=[1, 0])
    y = matmul(x, t)
    return y
)",
         R"(
def forward(x: f32[S, 4]):
    w: f32[3, 4] = const("w")
    y = linear(x, w)
    return y
)");
  expect_unchanged("linear_of_matmul", R"(
def forward(x: f32[S, 4], w: f32[3, 4]):
    t = permute(w, order=[1, 0])
    y = matmul(x, t)
    return y
)");
}

TEST_CASE("norm_of_product, where all but x is constant") {
  expect("norm_of_product", R"(
def forward(x: f32[N, 3, 8, 8]):
    w: f32[4, 3, 3, 3] = const("w")
    m: f32[4] = const("m")
    v: f32[4] = const("v")
    g: f32[4] = const("g")
    b: f32[4] = const("b")
    c = conv2d(x, w, stride=[2, 2])
    y = batch_norm(c, m, v, g, b, eps=0.5)
    return y
)",
         R"(
def forward(x: f32[N, 3, 8, 8]):
    w: f32[4, 3, 3, 3] = const("w")
    m: f32[4] = const("m")
    v: f32[4] = const("v")
    g: f32[4] = const("g")
    b: f32[4] = const("b")
    eps = full(value=0.5)
    above = add(v, eps)
    scale = rsqrt(above)
    scale0 = mul(scale, g)
    rows = unsqueeze(scale0, axis=1)
    rows0 = unsqueeze(rows, axis=2)
    rows1 = unsqueeze(rows0, axis=3)
    scaled = mul(w, rows1)
    centre = neg(m)
    bias = mul(centre, scale0)
    bias0 = add(bias, b)
    y = conv2d(x, scaled, bias0, stride=[2, 2], has_bias=True)
    return y
)");
  expect("norm_of_product", R"(
def forward(x: f32[N, 3]):
    w: f32[4, 3] = const("w")
    c: f32[4] = const("c")
    m: f32[4] = const("m")
    v: f32[4] = const("v")
    p = linear(x, w, c, has_bias=True)
    y = batch_norm(p, m, v)
    return y
)",
         R"(
def forward(x: f32[N, 3]):
    w: f32[4, 3] = const("w")
    c: f32[4] = const("c")
    m: f32[4] = const("m")
    v: f32[4] = const("v")
    eps = full(value=1e-05)
    above = add(v, eps)
    scale = rsqrt(above)
    rows = unsqueeze(scale, axis=1)
    scaled = mul(w, rows)
    centre = neg(m)
    centre0 = add(c, centre)
    bias = mul(centre0, scale)
    y = linear(x, scaled, bias, has_bias=True)
    return y
)");
  expect_unchanged("norm_of_product", R"(
def forward(x: f32[N, 3], w: f32[4, 3]):
    m: f32[4] = const("m")
    v: f32[4] = const("v")
    p = linear(x, w)
    y = batch_norm(p, m, v)
    return y
)");
  expect("norm_of_product", R"(
def forward(x: bf16[N, 3]):
    w: bf16[4, 3] = const("w")
    c: bf16[4] = const("c")
    m: bf16[4] = const("m")
    v: bf16[4] = const("v")
    p = linear(x, w, c, has_bias=True)
    y = batch_norm(p, m, v)
    return y
)",
         R"(
def forward(x: bf16[N, 3]):
    w: bf16[4, 3] = const("w")
    c: bf16[4] = const("c")
    m: bf16[4] = const("m")
    v: bf16[4] = const("v")
    wide = cast(m)
    wide0 = cast(v)
    eps = full(value=1e-05)
    above = add(wide0, eps)
    scale = rsqrt(above)
    rows = unsqueeze(scale, axis=1)
    wide1 = cast(w)
    scaled = mul(wide1, rows)
    rounded = cast(scaled, dtype="bf16")
    centre = neg(wide)
    wide2 = cast(c)
    centre0 = add(wide2, centre)
    bias = mul(centre0, scale)
    rounded0 = cast(bias, dtype="bf16")
    y = linear(x, rounded, rounded0, has_bias=True)
    return y
)");
  expect_unchanged("norm_of_product", R"(
def forward(x: f32[N, 3]):
    w: f32[4, 3] = const("w")
    m: f32[4] = const("m")
    v: f32[4] = const("v")
    p = linear(x, w)
    y = batch_norm(p, m, v)
    return y, p
)");
}

TEST_CASE("norm_of_product, whose bias has another type than its weights") {
  const std::string text = rewritten("norm_of_product", R"(
def forward(x: f32[N, 3]):
    w: f32[4, 3] = const("w")
    h: f16[4] = const("h")
    m: f32[4] = const("m")
    v: f32[4] = const("v")
    c = linear(x, w, h, has_bias=True)
    y = batch_norm(c, m, v, eps=0.5)
    return y
)");
  CHECK(text.find("= cast(h)") != std::string::npos);
  CHECK(text.find("batch_norm") == std::string::npos);
}

TEST_CASE("attention, of keys whose type nothing says, is left as it is") {
  expect_unchanged("attention", R"(
def forward(q: f32[1, 2, 5, 8], v: f32[1, 2, 5, 8]):
    k = const("k")
    t: f32[1, 2, 8, 5] = permute(k, order=[0, 1, 3, 2])
    s: f32[1, 2, 5, 5] = matmul(q, t)
    p = softmax(s, axis=3)
    y: f32[1, 2, 5, 8] = matmul(p, v)
    return y
)");
}

TEST_CASE("attention, composed of matrix multiplications and a softmax") {
  expect("attention", R"(
def forward(q: f32[B, 2, S, 8], k: f32[B, 2, T, 8], v: f32[B, 2, T, 6]):
    t = permute(k, order=[0, 1, 3, 2])
    s = matmul(q, t)
    c = full(value=4.0)
    d = div(s, c)
    p = softmax(d, axis=3)
    y = matmul(p, v)
    return y
)",
         R"(
def forward(q: f32[B, 2, S, 8], k: f32[B, 2, T, 8], v: f32[B, 2, T, 6]):
    heads = permute(q, order=[0, 2, 1, 3])
    heads0 = permute(k, order=[0, 2, 1, 3])
    heads1 = permute(v, order=[0, 2, 1, 3])
    attended = attention(heads, heads0, heads1, scale=0.25)
    y = permute(attended, order=[0, 2, 1, 3])
    return y
)");
  // Heads come second in all operands, and `dot` brings them to the front: permutations that a
  // later rewrite takes away again.
  expect("attention", R"(
def forward(q: f32[B, S, 2, 8], k: f32[B, T, 2, 8], v: f32[B, 2, T, 6]):
    first = permute(q, order=[0, 2, 1, 3])
    t = permute(k, order=[0, 2, 3, 1])
    s = matmul(first, t)
    p = softmax(s, axis=3)
    y = matmul(p, v)
    return y
)",
         R"(
def forward(q: f32[B, S, 2, 8], k: f32[B, T, 2, 8], v: f32[B, 2, T, 6]):
    first = permute(q, order=[0, 2, 1, 3])
    heads = permute(first, order=[0, 2, 1, 3])
    heads0 = permute(k, order=[0, 1, 2, 3])
    heads1 = permute(v, order=[0, 2, 1, 3])
    attended = attention(heads, heads0, heads1, scale=1.0)
    y = permute(attended, order=[0, 2, 1, 3])
    return y
)");
  // A factor that bf16 does not hold, as PyTorch multiplies by it.
  expect("attention", R"(
def forward(q: bf16[1, 2, S, 8], k: bf16[1, 2, T, 8], v: bf16[1, 2, T, 6]):
    t = permute(k, order=[0, 1, 3, 2])
    s = matmul(q, t)
    wide = cast(s, dtype="f32")
    c: f32[] = full(value=0.3)
    d = mul(wide, c)
    scores = cast(d, dtype="bf16")
    p = softmax(scores, axis=3)
    y = matmul(p, v)
    return y
)",
         R"(
def forward(q: bf16[1, 2, S, 8], k: bf16[1, 2, T, 8], v: bf16[1, 2, T, 6]):
    heads = permute(q, order=[0, 2, 1, 3])
    heads0 = permute(k, order=[0, 2, 1, 3])
    heads1 = permute(v, order=[0, 2, 1, 3])
    attended = attention(heads, heads0, heads1, scale=0.3)
    y = permute(attended, order=[0, 2, 1, 3])
    return y
)");
  expect_unchanged("attention", R"(
def forward(q: f32[1, 2, 3, 8], k: f32[1, 2, 3, 8], v: bf16[1, 2, 3, 8]):
    t = permute(k, order=[0, 1, 3, 2])
    s = matmul(q, t)
    c: f32[] = full(value=0.3)
    d = mul(s, c)
    scores = cast(d, dtype="bf16")
    p = softmax(scores, axis=3)
    y = matmul(p, v)
    return y
)");
  // A mask; one head of keys for all queries; keys whose columns lie apart.
  expect_unchanged("attention", R"(
def forward(q: f32[1, 2, 3, 8], k: f32[1, 2, 8, 3], v: f32[1, 2, 3, 8]):
    t = permute(k, order=[0, 1, 2, 3])
    s = matmul(q, t)
    p = softmax(s, axis=3)
    y = matmul(p, v)
    return y
)");
  expect_unchanged("attention", R"(
def forward(q: f32[1, 2, 3, 8], k: f32[1, 2, 3, 8], v: f32[1, 2, 3, 8], k1: f32[1, 1, 3, 8], m: f32[3, 3]):
    t = permute(k, order=[0, 1, 3, 2])
    s = matmul(q, t)
    d = add(s, m)
    p = softmax(d, axis=3)
    y = matmul(p, v)
    t1 = permute(k1, order=[0, 1, 3, 2])
    s1 = matmul(q, t1)
    p1 = softmax(s1, axis=3)
    y1 = matmul(p1, k1)
    return y, y1
)");
  // A scale that makes more of the scores.
  expect_unchanged("attention", R"(
def forward(q: f32[1, 2, 3, 8], k: f32[1, 2, 3, 8], v: f32[1, 2, 3, 8]):
    half = full(value=0.5, dims=[3, 1, 1, 1])
    t = permute(k, order=[0, 1, 3, 2])
    s = matmul(q, t)
    d = mul(s, half)
    p = softmax(d, axis=3)
    y = matmul(p, v)
    return y
)");
}

TEST_CASE("linear_bias and linear_residual") {
  constexpr std::string_view text = R"(
def forward(x: f32[S, 4], r: f32[S, 3]):
    w: f32[3, 4] = const("w")
    b: f32[3] = const("b")
    p = linear(x, w)
    q = add(b, p)
    y = add(q, r)
    return y
)";
  expect("linear_bias", text, R"(
def forward(x: f32[S, 4], r: f32[S, 3]):
    w: f32[3, 4] = const("w")
    b: f32[3] = const("b")
    q = linear(x, w, b, has_bias=True)
    y = add(q, r)
    return y
)");
  Program program = program_of(text);
  optimize(program);
  Program want = program_of(R"(
def forward(x: f32[S, 4], r: f32[S, 3]):
    w: f32[3, 4] = const("w")
    b: f32[3] = const("b")
    y = linear(x, w, b, r, has_bias=True, has_residual=True)
    return y
)");
  verify(want);
  CHECK(functions_of(program) == functions_of(want));
  // The matmul's result is also read elsewhere; the sum is larger than the matmul's result.
  expect_unchanged("linear_residual", R"(
def forward(x: f32[1, 4], r: f32[1, 3], z: f32[2, 3]):
    w: f32[3, 4] = const("w")
    p = linear(x, w)
    y = add(p, r)
    u: f32[3, 4] = const("u")
    q = linear(x, u)
    a = add(q, z)
    return y, p, a
)");
}

TEST_CASE("concat_of_pads") {
  // The gradient of three slices that are all of a value, in any order.
  expect("concat_of_pads", R"(
def forward(a: f32[S, 2, 4], b: f32[S, 1, 4], c: f32[S, 3, 4]):
    p = pad(c, before=[0, 3, 0], after=[0, 0, 0])
    q = pad(a, before=[0, 0, 0], after=[0, 4, 0])
    r = pad(b, before=[0, 2, 0], after=[0, 3, 0])
    s = add(p, q)
    y = add(r, s)
    return y
)",
         R"(
def forward(a: f32[S, 2, 4], b: f32[S, 1, 4], c: f32[S, 3, 4]):
    y = concat(a, b, c, axis=1)
    return y
)");
  // A gap, parts that overlap, other numbers than 0, two axes, a pad that is read elsewhere.
  expect_unchanged("concat_of_pads", R"(
def forward(a: f32[2, 2], b: f32[2, 2]):
    p = pad(a, before=[0, 0], after=[0, 3])
    q = pad(b, before=[0, 3], after=[0, 0])
    gap = add(p, q)
    r = pad(a, before=[0, 0], after=[0, 1])
    s = pad(b, before=[0, 1], after=[0, 0])
    overlap = add(r, s)
    t = pad(a, before=[0, 0], after=[0, 2], value=1)
    u = pad(b, before=[0, 2], after=[0, 0], value=1)
    ones = add(t, u)
    v = pad(a, before=[0, 0], after=[2, 2])
    w = pad(b, before=[2, 2], after=[0, 0])
    corners = add(v, w)
    x = pad(a, before=[0, 0], after=[0, 2])
    z = pad(b, before=[0, 2], after=[0, 0])
    y = add(x, z)
    return gap, overlap, ones, corners, y, x
)");
}

TEST_CASE("concat_of_pads: a sum of thousands of pads takes no stack and is read once") {
  constexpr int size = 1500;
  Program program = program_of(R"(
def forward(a: f32[1]):
    p = pad(a, before=[0], after=[1499])
    q = pad(a, before=[1], after=[1498])
    y = add(p, q)
    return y
)");
  Function& function = program.functions[0];
  const auto append = [&](Instruction instruction) {
    instruction.result = function.add_value(
        {fmt::format("v{}", function.values.size()), ValueKind::tensor, std::nullopt});
    function.body.push_back(std::move(instruction));
    return function.values.size() - 1;
  };
  const Instruction pad = function.body[0], sum = function.body[2];
  const auto append_sum = [&](int pads, int step) {
    Instruction next = sum;
    for (int i = 0; i < pads; ++i) {
      Pad op = *pad.op.as<Pad>();
      op.before = {step * i};
      op.after = {size - 1 - step * i};
      Instruction part = pad;
      part.op = OpInstance(op);
      next.operands[1] = static_cast<ValueId>(append(part));
      next.operands[0] = i == 0 ? next.operands[1] : static_cast<ValueId>(append(next));
    }
    return next.operands[0];
  };
  function.results = {append_sum(size, 1), append_sum(40 * size, 0)};
  remove_dead_code(function);
  verify(program);
  const auto found = std::ranges::find(all_rewrites(), "concat_of_pads", &Rewrite::name);
  const CpuTimer timer;
  CHECK(found->apply(program, function) == 1);
  CHECK(timer.seconds() < endless_seconds);
  verify(program);
}

TEST_CASE("gated_activation") {
  expect("gated_activation", R"(
def forward(g: f32[S, 4], u: f32[S, 4]):
    a = gelu_tanh(g)
    y = mul(u, a)
    return y
)",
         R"(
def forward(g: f32[S, 4], u: f32[S, 4]):
    y = glu(g, u, activation="gelu_tanh")
    return y
)");
  // A gate for all columns; an activation that glu does not know; one that is read elsewhere too.
  expect_unchanged("gated_activation", R"(
def forward(g: f32[S, 1], h: f32[S, 4], u: f32[S, 4]):
    a = silu(g)
    x = mul(a, u)
    b = mish(h)
    y = mul(b, u)
    c = silu(h)
    z = mul(c, u)
    return x, y, z, c
)");
}

TEST_CASE("integer_product: a convolution of codes, scales for each output") {
  expect("integer_product", R"(
def forward(x: u8[N, 3, H, 8], x_scale: f32, x_zero: u8):
    a = dequantize_linear(x, x_scale, x_zero)
    w: i8[5, 3, 3, 3] = const("w")
    w_scale: f32[5] = const("w_scale")
    b = dequantize_linear(w, w_scale, axis=0)
    bias: f32[5] = const("bias")
    c = conv2d(a, b, bias, padding=[1, 1], has_bias=True)
    y = relu(c)
    return y
)",
         R"(
def forward(x: u8[N, 3, H, 8], x_scale: f32, x_zero: u8):
    w: i8[5, 3, 3, 3] = const("w")
    w_scale: f32[5] = const("w_scale")
    bias: f32[5] = const("bias")
    sums = conv2d_integer(x, w, x_zero, padding=[1, 1])
    scale = mul(x_scale, w_scale)
    scaled = dequantize_linear(sums, scale)
    planes = reshape(bias, dims=[5, 1, 1])
    c = add(scaled, planes)
    y = relu(c)
    return y
)");
}

TEST_CASE("integer_product: a linear layer, and a zero point of the weight alone") {
  expect("integer_product", R"(
def forward(x: i8[B, S, 16], x_scale: f32):
    a = dequantize_linear(x, x_scale)
    w: u8[4, 16] = const("w")
    w_scale: f32[4] = const("w_scale")
    w_zero: u8[4] = const("w_zero")
    b = dequantize_linear(w, w_scale, w_zero, axis=0)
    y = linear(a, b)
    return y
)",
         R"(
def forward(x: i8[B, S, 16], x_scale: f32):
    w: u8[4, 16] = const("w")
    w_scale: f32[4] = const("w_scale")
    w_zero: u8[4] = const("w_zero")
    columns = permute(w, order=[1, 0])
    zero = full(dtype="i8")
    sums = matmul_integer(x, columns, zero, w_zero)
    scale = mul(x_scale, w_scale)
    y = dequantize_linear(sums, scale, axis=2)
    return y
)");
}

TEST_CASE("integer_product: what stays in f32") {
  // Scales along the channels of the image, scales along the rows of a filter's taps, weights of
  // f32, and sums that may not fit in 32 bits.
  expect_unchanged("integer_product", R"(
def forward(x: u8[1, 3, 8, 8], s: f32, s3: f32[3], r: f32[1, 8], z: f32[1, 40000]):
    w: i8[5, 3, 3, 3] = const("w")
    f: f32[5, 3, 3, 3] = const("f")
    w_scale: f32[3] = const("w_scale")
    a = dequantize_linear(x, s3)
    b = dequantize_linear(w, s)
    y0 = conv2d(a, b)
    c = dequantize_linear(x, s)
    d = dequantize_linear(w, w_scale, axis=2)
    y1 = conv2d(c, d)
    y2 = conv2d(c, f)
    long: u8[1, 40000] = const("long")
    e = dequantize_linear(long, s)
    y3 = linear(e, e)
    return y0, y1, y2, y3
)");
}

TEST_CASE("norm_of_product: weights of many parts, made again and again of all of them") {
  constexpr int depth = 12;  // 64 to the power of 12 paths
  std::string text = R"(
def forward(x: f32[2, 4]):
    mean: f32[4] = const("mean")
    variance: f32[4] = const("variance")
    w0: f32[4, 4] = const("w")
)";
  for (int i = 1; i <= depth; ++i) {
    text += fmt::format("    c{0} = concat(w{1}", i, i - 1);
    for (int k = 1; k < 64; ++k) text += fmt::format(", w{}", i - 1);
    text += fmt::format(")\n    w{0} = slice(c{0}, begin=4, end=8)\n", i);
  }
  text += fmt::format(
      "    l = linear(x, w{})\n    y = batch_norm(l, mean, variance)\n    return y\n", depth);
  const CpuTimer timer;
  CHECK(rewritten("norm_of_product", text).find("batch_norm") == std::string::npos);
  CHECK(timer.seconds() < endless_seconds);
}

// Each change went through the whole function: minutes.
TEST_CASE("optimize: many changes of a long function take seconds") {
  const auto rewrite_chain = [](std::string_view rewrite, double factor, std::size_t count) {
    Program program = program_of(fmt::format(
        "\ndef forward(x: f32[2]):\n    c = full(value={})\n    y = mul(x, c)\n    return y\n",
        factor));
    Function& function = program.functions[0];
    while (function.body.size() < count) {
      Instruction next = function.body.back();
      next.operands[0] = next.result;
      next.result = function.add_value(
          {fmt::format("y{}", function.body.size()), ValueKind::tensor, std::nullopt});
      function.results = {next.result};
      function.body.push_back(next);
    }
    verify(program);
    const auto found = std::ranges::find(all_rewrites(), rewrite, &Rewrite::name);
    const CpuTimer timer;
    found->apply(program, function);
    CHECK(timer.seconds() < endless_seconds);
    remove_dead_code(function);
    verify(program);
    return function.body.size();
  };
  CHECK(rewrite_chain("drop_identity", 1.0, 200'000) == 0);
  CHECK(rewrite_chain("scale_of_scale", 1.0001, 60'000) == 2);
}

// Each rewrite looked for an unused name among all values, and each number was compared with all others: minutes.
TEST_CASE("optimize: programs of thousands of scales, numbers and sums take seconds") {
  constexpr int count = 6000;
  Graph graph;
  const Tensor x = graph.input("x", Shape({2}, f32));
  Tensor scaled = x, sum = x;
  for (int i = 0; i < count; ++i) scaled = scaled * 0.999;
  for (int i = 0; i < count; ++i) sum = sum + tanh(x * static_cast<double>(i + 2));
  const Tensor results[] = {scaled, sum};
  Program program = graph.program(results);
  const CpuTimer timer;
  optimize(program);
  CHECK(timer.seconds() < endless_seconds);
  // 0.999 to the power of 6000 is one factor, and each multiple of x is there.
  const auto muls = std::ranges::count_if(program.main().body, [](const Instruction& instruction) {
    return instruction.kind == Instruction::Kind::op && instruction.op.as<Mul>() != nullptr;
  });
  CHECK(muls == count + 1);
}
