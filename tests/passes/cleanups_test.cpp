#include "support/expect_error.hpp"
#include "support/literals.hpp"
#include "support/program_text.hpp"

#include <tenon/error.hpp>
#include <tenon/optimize.hpp>

#include <string>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

TEST_CASE("remove_dead_code: what no result needs, and what only that needs") {
  Program program = program_of(R"(
def forward(x: f32[4]):
    a = exp(x)
    b = neg(a)
    y = abs(x)
    c = add(b, y)
    return y
)");
  CHECK(remove_dead_code(program.functions[0]) == 3);
  CHECK(functions_of(program) == R"(
def forward(x: f32[4]):
    y = abs(x)
    return y
)");
  CHECK_NOTHROW(verify(program));
  CHECK(remove_dead_code(program.functions[0]) == 0);
}

TEST_CASE("share_common_subexpressions: equal ops on equal operands, whatever their order") {
  Program program = program_of(R"(
def forward(x: f32[4], z: f32[4]):
    a = exp(x)
    b = exp(x)
    c = add(a, z)
    d = add(z, b)
    e = sub(a, z)
    f = sub(z, b)
    g: f32[4] = const("w")
    h: f32[4] = const("w")
    i = full(value=0.0)
    j = full(value=-0.0)
    return c, d, e, f, g, h, i, j
)");
  CHECK(share_common_subexpressions(program, program.functions[0]) == 3);
  CHECK(functions_of(program) == R"(
def forward(x: f32[4], z: f32[4]):
    a = exp(x)
    c = add(a, z)
    e = sub(a, z)
    f = sub(z, a)
    g: f32[4] = const("w")
    i = full()
    j = full(value=-0.0)
    return c, c, e, f, g, g, i, j
)");
  CHECK_NOTHROW(verify(program));
}

TEST_CASE("share_common_subexpressions: two caches that are updated stay two") {
  constexpr std::string_view text = R"(
def forward(i: i64, x: f32[1, 1, 1, 2], pos: i32):
    a0 = full(dims=[1, 1, 1, 4, 2])
    b0 = full(dims=[1, 1, 1, 4, 2])
    a1 = cache_update(a0, i, x, pos)
    return a1, b0
)";
  Program program = program_of(text);
  CHECK(share_common_subexpressions(program, program.functions[0]) == 0);
  // Nor does folding make them constants, which nothing may write to.
  optimize(program);
  CHECK_NOTHROW(verify(program));
  CHECK(functions_of(program).find("a0: f32[1, 1, 1, 4, 2] = full(") != std::string::npos);
}

TEST_CASE("optimize: what a called function returns stays storage of its own") {
  // The caller updates `a`: were it `b`, the argument or a constant, too, that would change.
  for (const std::string made :
       {"    a = square(x)\n    b = square(x)\n",
        "    one = full(value=1.0)\n    a = mul(x, one)\n    b = exp(x)\n",
        "    z = iota(size=4, dtype=\"f32\")\n    a = square(z)\n    b = exp(x)\n"}) {
    CAPTURE(made);
    Program program = program_of("\ndef f(x: f32[4]):\n" + made + R"(    return a, b

def forward(x: f32[4], v: f32):
    t = f(x)
    p = item(t, 0)
    q = item(t, 1)
    i = full(dtype="i32")
    u = update_slice(p, i, v)
    y = add(x, q)
    return u, y
)");
    CHECK(share_common_subexpressions(program, program.functions[0]) == 0);
    optimize(program);
    CHECK_NOTHROW(verify(program));
    const std::string after = functions_of(program);
    CHECK(contains(after, "return a, b"));
    CHECK_FALSE(after.find("a: f32[4] = const(") != std::string::npos);
  }
}

TEST_CASE("fold_constants: values that follow from numbers") {
  Program program = program_of(R"(
def forward(x: f32[3]):
    a = iota(size=3)
    b = cast(a)
    two = full(value=2.0)
    c = mul(b, two)
    y = add(x, c)
    return y
)");
  verify(program);
  CHECK(fold_constants(program, program.functions[0]) == 4);
  remove_dead_code(program.functions[0]);
  CHECK(functions_of(program) == R"(
def forward(x: f32[3]):
    c: f32[3] = const("folded:forward.c")
    y: f32[3] = add(x, c)
    return y
)");
  const HostBuffer& folded = program.folded.at("folded:forward.c");
  CHECK(folded.at({0}) == 0);
  CHECK(folded.at({1}) == 2);
  CHECK(folded.at({2}) == 4);
}

TEST_CASE("fold_constants: large values, failures and taken names are left alone") {
  Program large =
      program_of("\ndef forward(x: f32):\n    y = full(dims=[1000, 1000])\n    return y\n");
  CHECK(fold_constants(large, large.functions[0]) == 0);
  CHECK(fold_constants(large, large.functions[0], 4'000'000) == 1);

  Program failing = program_of(R"(
def forward(x: f32):
    i = full(value=7.0, dtype="i64")
    a = full(dims=[2, 2])
    y = select(a, i)
    return y
)");
  CHECK(fold_constants(failing, failing.functions[0]) == 2);  // not the select

  Program taken = program_of(R"(
def forward(x: f32):
    w: f32 = const("folded:forward.y")
    y = full(value=3.0)
    return w, y
)");
  CHECK(fold_constants(taken, taken.functions[0]) == 0);
}

TEST_CASE("fold_constants: all results together are bounded") {
  std::string text = "\ndef forward(x: f32):\n";
  for (int i = 0; i < 1100; ++i) text += "    a" + std::to_string(i) + " = full(dims=[4])\n";
  Program program = program_of(text + "    return a0\n");
  CHECK(fold_constants(program, program.functions[0], 16) == 1024);
  CHECK(fold_constants(program, program.functions[0], 16) == 0);
  CHECK(fold_constants(program, program.functions[0]) == 76);
  CHECK_NOTHROW(verify(program));
}

TEST_CASE("optimize: arrays that became part of others are gone") {
  Program program = program_of(R"(
def forward(x: f32[2]):
    w: f32[2] = const("w")
    v: f32[2] = const("v")
    e = exp(w)
    y = add(x, e)
    z = mul(y, v)
    return z
)");
  program.folded.emplace("w", floats({2}, {0, 1}));
  program.folded.emplace("v", floats({2}, {2, 3}));
  optimize(program);
  std::vector<std::string> names;
  for (const auto& [name, array] : program.folded) names.push_back(name);
  CHECK(names == std::vector<std::string>{"folded:forward.e", "v"});
}

TEST_CASE("optimize: functions that nothing calls any more are gone") {
  Program program = program_of(R"(
def unused(x: f32[4]):
    y = exp(x)
    return y

def block(x: f32[4], i: i64, s: Scope):
    one = full(value=1.0)
    a = mul(x, one)
    y = exp(a)
    return y

def forward(x: f32[4]):
    s = scope("layers")
    c = pack(x)
    r = repeat(block, 3, c, s)
    y = item(r, 0)
    dead = unused(y)
    z = unused(dead)
    return y
)");
  const OptimizeReport report = optimize(program);
  CHECK(functions_of(program) == R"(
def block(x: f32[4], i: i64, s: Scope):
    y: f32[4] = exp(x)
    return y

def forward(x: f32[4]):
    s = scope("layers")
    c = pack(x)
    r = repeat(block, 3, c, s)
    y: f32[4] = item(r, 0)
    return y
)");
  const std::vector<std::pair<std::string, int>> want = {{"drop_identity", 1},
                                                         {"remove_dead_code", 4}};
  CHECK(report.applied == want);
}

TEST_CASE("optimize: every rewrite says what it does") {
  for (const Rewrite& rewrite : all_rewrites()) {
    INFO(rewrite.name);
    CHECK(!rewrite.pattern.empty());
    CHECK(!rewrite.replacement.empty());
    CHECK(rewrite.apply != nullptr);
  }
}
