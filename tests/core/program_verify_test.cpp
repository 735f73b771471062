#include "support/expect_error.hpp"
#include "support/program_text.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/glu.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/program.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

/// The functions of a text once verify has filled in their types.
std::string verified(std::string_view functions) {
  Program program = program_of(functions);
  verify(program);
  return functions_of(program);
}

/// The message of the only error of a text, without the quoted line.
std::string error_in(std::string_view functions) {
  const ParseResult result = parse_all(std::string(program_header) + std::string(functions));
  REQUIRE(result.errors.size() == 1);
  const std::string& message = result.errors[0].message;
  return std::string(spelling(result.errors[0].code)) + ": " +
         message.substr(0, message.find('\n'));
}

/// forward(x) = exp(x), to be broken.
Program simple() { return program_of("\ndef forward(x: f32[4]):\n    y = exp(x)\n    return y\n"); }

constexpr std::string_view cache = "kv0: f32[2, 1, 1, 4, 2], i: i64, x: f32[1, 1, 1, 2], pos: i32";

std::string with_cache(std::string_view body) {
  return "\ndef forward(" + std::string(cache) + "):\n" + std::string(body);
}

}  // namespace

TEST_CASE("verify: types follow from the parameters, open sizes and all") {
  CHECK(verified(R"(
def forward(x: f32[B, S, 8], w: f32[4, 8]):
    a = linear(x, w)
    b = split_axis(a, axis=2, sizes=[2, 2])
    c = reshape(b, dims=[-1, 4])
    return c
)") == R"(
def forward(x: f32[B, S, 8], w: f32[4, 8]):
    a: f32[B, S, 4] = linear(x, w)
    b: f32[B, S, 2, 2] = split_axis(a, axis=2, sizes=[2, 2])
    c: f32[_, 4] = reshape(b, dims=[-1, 4])
    return c
)");
}

TEST_CASE("verify: types pass through calls and loops") {
  CHECK(verified(R"(
def both(x: f32[N, M], y: Tensor):
    a = add(x, x)
    b = exp(y)
    return a, b

def block(x: f32[N], i: i64, s: Scope, y: Tensor):
    z = add(x, y)
    return z

def forward(p: f32[S, 4], r: f32[2]):
    t = both(p, r)
    u = item(t, 0)
    s = scope("l")
    c = pack(r)
    d = repeat(block, 3, c, s, r)
    e = item(d, 0)
    return u, e
)") == R"(
def both(x: f32[N, M], y: f32[2]):
    a: f32[N, M] = add(x, x)
    b: f32[2] = exp(y)
    return a, b

def block(x: f32[N], i: i64, s: Scope, y: f32[2]):
    z: f32[2] = add(x, y)
    return z

def forward(p: f32[S, 4], r: f32[2]):
    t = both(p, r)
    u: f32[S, 4] = item(t, 0)
    s = scope("l")
    c = pack(r)
    d = repeat(block, 3, c, s, r)
    e: f32[2] = item(d, 0)
    return u, e
)");
}

TEST_CASE("verify: a function that serves several types keeps what they share") {
  CHECK(verified(R"(
def f(x: Tensor):
    y = exp(x)
    return y

def g(x: f32[N]):
    y = exp(x)
    return y

def forward(p: f32[2, 4], q: f32[3, 4], r: f32[S], t: f16[5]):
    a = f(p)
    b = f(q)
    c = g(r)
    return a, b, c
)") == R"(
def f(x: f32[_, 4]):
    y: f32[_, 4] = exp(x)
    return y

def g(x: f32[N]):
    y: f32[N] = exp(x)
    return y

def forward(p: f32[2, 4], q: f32[3, 4], r: f32[S], t: f16[5]):
    a: f32[2, 4] = f(p)
    b: f32[3, 4] = f(q)
    c: f32[S] = g(r)
    return a, b, c
)");
  CHECK(verified(R"(
def f(x: Tensor):
    y = exp(x)
    return y

def forward(p: f32[2], q: f16[2]):
    a = f(p)
    b = f(q)
    return a, b
)") == R"(
def f(x: Tensor):
    y = exp(x)
    return y

def forward(p: f32[2], q: f16[2]):
    a: f32[2] = f(p)
    b: f16[2] = f(q)
    return a, b
)");
}

TEST_CASE("verify: types that cannot agree") {
  CHECK(error_in("def forward(x: f32[4], y: f32[3]):\n    z = add(x, y)\n    return z\n")
            .starts_with("ShapeMismatch: "));
  CHECK(error_in("def forward(x: f32[4]):\n    z: f32[5] = exp(x)\n    return z\n") ==
        "ShapeMismatch: 'z' is f32[4], declared f32[5]");
  CHECK(error_in("def forward(x: f32[4], y: f32[3]):\n    a: f32[N] = exp(x)\n    b: f32[N] = "
                 "exp(y)\n    return a, b\n") ==
        "ShapeMismatch: 'b' is f32[3], declared f32[N] with N = 4");
  CHECK(error_in("def f(x: f32[N], y: f32[N]):\n    return x\n"
                 "def forward(x: f32[4], y: f32[3]):\n    a = f(x, y)\n    return a\n") ==
        "ShapeMismatch: 'y' of 'f' is f32[3], declared f32[N] with N = 4");
  CHECK(error_in("def f(x: f32[N], i: i64, s: Scope):\n    y = concat(x, x)\n    return y\n"
                 "def forward(x: f32[4]):\n    s = scope(\"l\")\n    c = pack(x)\n    r = "
                 "repeat(f, 2, c, s)\n"
                 "    y = item(r, 0)\n    return y\n") ==
        "ShapeMismatch: carries f32[4] as value 0, but 'f' returns f32[8]");
  // Open sizes may turn out to be equal.
  CHECK_NOTHROW(
      verified("def forward(x: f32[N], y: f32[M]):\n    z: f32[N] = exp(y)\n    w: f32[4] = add(x, "
               "z)\n    return w\n"));
}

TEST_CASE("verify: an updated value is not read again") {
  CHECK_NOTHROW(verified(
      with_cache("    kv1 = cache_update(kv0, i, x, pos)\n    kv2 = cache_update(kv1, i, x, pos)\n"
                 "    return kv2\n")));
  const std::string used = "Alias: 'kv0' was consumed at line 7 by cache_update; use 'kv1'";
  const std::string update = "    kv1 = cache_update(kv0, i, x, pos)\n";
  CHECK(error_in(with_cache(update + "    y = exp(kv0)\n    return y, kv1\n")) == used);
  CHECK(error_in(with_cache(update +
                            "    y = cache_update(kv0, i, x, pos)\n    return y, kv1\n")) == used);
  CHECK(error_in(with_cache(update + "    t = pack(kv0)\n    return kv1\n")) == used);
  CHECK(error_in(with_cache(update + "    return kv0\n")) == used);
  // Neither through a view that was taken before.
  CHECK(error_in(with_cache(
            "    v = permute(kv0, order=[1, 0, 2, 3, 4])\n    l = select(v, i)\n"
            "    kv1 = cache_update(kv0, i, x, pos)\n    y = exp(l)\n    return y, kv1\n")) ==
        "Alias: 'l' was consumed at line 9 by cache_update; use 'kv1'");
  // A copy is another matter.
  CHECK_NOTHROW(
      verified(with_cache("    v = exp(kv0)\n" + update + "    y = exp(v)\n    return y, kv1\n")));
  // The latest name is the one to use.
  CHECK(error_in(
            with_cache(update + "    kv2 = cache_update(kv1, i, x, pos)\n    return kv0, kv2\n")) ==
        "Alias: 'kv0' was consumed at line 8 by cache_update; use 'kv2'");
}

TEST_CASE("verify: what cannot be updated") {
  CHECK(error_in("def forward(i: i64, x: f32[1, 1, 1, 2], pos: i32):\n    w: f32[2, 1, 1, 4, 2] = "
                 "const(\"w\")\n"
                 "    kv1 = cache_update(w, i, x, pos)\n    return kv1\n") ==
        "Alias: 'w' is a constant and cannot be updated");
  CHECK(error_in(with_cache("    v = slice(kv0, axis=0, end=1)\n    kv1 = cache_update(v, i, x, "
                            "pos)\n    return kv1\n")) ==
        "Alias: 'v' is a view of 'kv0'; only a whole value can be updated");
}

TEST_CASE("verify: updates in called functions") {
  const std::string callee = "\ndef f(" + std::string(cache) +
                             "):\n    kv1 = cache_update(kv0, i, x, pos)\n    return kv1, x\n"
                             "def view(kv: f32[2, 1, 1, 4, 2]):\n    y = permute(kv, order=[0, 1, "
                             "2, 3, 4])\n    return y\n";
  CHECK_NOTHROW(program_of(
      callee +
      with_cache("    t = f(kv0, i, x, pos)\n    kv1 = item(t, 0)\n    u = f(kv1, i, x, pos)\n"
                 "    kv2 = item(u, 0)\n    return kv2\n")));
  CHECK(error_in(callee +
                 with_cache("    t = f(kv0, i, x, pos)\n    y = exp(kv0)\n    return y\n")) ==
        "Alias: 'kv0' was consumed at line 14 by f; use an item of 't'");
  CHECK(error_in(
            callee +
            with_cache(
                "    v = view(kv0)\n    t = f(kv0, i, x, pos)\n    y = exp(v)\n    return y\n")) ==
        "Alias: 'v' was consumed at line 15 by f; use an item of 't'");
  CHECK(
      error_in(
          callee +
          with_cache(
              "    v = view(kv0)\n    t = f(v, i, x, pos)\n    y = item(t, 0)\n    return y\n")) ==
      "Alias: 'v' is a view of 'kv0'; only a whole value can be updated");
}

TEST_CASE("verify: results of a call that share their storage") {
  const auto with_result = [](const std::string& second, const std::string& body) {
    return "\ndef f(x: f32[4]):\n    a = square(x)\n    b = " + second +
           "\n    return a, b\n\ndef forward(x: f32[4], v: f32):\n    t = f(x)\n    p = item(t, "
           "0)\n"
           "    q = item(t, 1)\n    i = full(dtype=\"i32\")\n" +
           body;
  };
  const std::string view = "slice(a, axis=0, begin=0, end=2)";
  CHECK(error_in(with_result(view, "    u = update_slice(p, i, v)\n    return u, q\n")) ==
        "Alias: 'q' was consumed at line 16 by update_slice; use 'u'");
  CHECK(error_in(with_result(view, "    u = update_slice(q, i, v)\n    return u\n")) ==
        "Alias: 'q' is a view of 'p'; only a whole value can be updated");
  CHECK_NOTHROW(verified(with_result(view, "    u = update_slice(p, i, v)\n    return u\n")));
  CHECK_NOTHROW(
      verified(with_result("square(x)", "    u = update_slice(p, i, v)\n    return u, q\n")));
}

TEST_CASE("verify: updates in loops") {
  const std::string block =
      "\ndef block(kv0: f32[2, 1, 1, 4, 2], i: i64, s: Scope, x: f32[1, 1, 1, 2], pos: i32):\n"
      "    kv1 = cache_update(kv0, i, x, pos)\n    return kv1\n"
      "def keep(y: f32, i: i64, s: Scope, kv0: f32[2, 1, 1, 4, 2], x: f32[1, 1, 1, 2], pos: i32):\n"
      "    kv1 = cache_update(kv0, i, x, pos)\n    return y\n";
  const std::string loop =
      "    s = scope(\"l\")\n    c = pack(kv0)\n    r = repeat(block, 2, c, s, x, pos)\n";
  CHECK_NOTHROW(program_of(block + with_cache(loop + "    kv1 = item(r, 0)\n    return kv1\n")));
  CHECK(error_in(block + with_cache(loop + "    kv1 = item(r, 0)\n    return kv1, kv0\n")) ==
        "Alias: 'kv0' was consumed at line 16 by repeat; use an item of 'r'");
  CHECK(
      error_in(
          block +
          with_cache(
              "    s = scope(\"l\")\n    y: f32 = full()\n    c = pack(y)\n"
              "    r = repeat(keep, 2, c, s, kv0, x, pos)\n    z = item(r, 0)\n    return z\n")) ==
      "Alias: 'keep' updates a value that every repetition reads; carry it");
  // One that is carried twice is two values, whichever of them the loop updates.
  const std::string again =
      "(a: f32[2, 1, 1, 4, 2], b: f32[2, 1, 1, 4, 2], i: i64, s: Scope, x: "
      "f32[1, 1, 1, 2], pos: i32):\n";
  const std::string pair =
      "    s = scope(\"l\")\n    c = pack(kv0, kv0)\n    r = repeat(two, 2, c, s, x, pos)\n    "
      "kv1 = item(r, 0)\n    kv2 = item(r, 1)\n";
  for (const char* body :
       {"    c = cache_update(a, i, x, pos)\n    return c, b\n",
        "    c = cache_update(b, i, x, pos)\n    return a, c\n",
        "    c = cache_update(a, i, x, pos)\n    d = cache_update(b, i, x, pos)\n"
        "    return d, c\n"}) {
    const std::string two = "\ndef two" + again + body;
    CHECK_NOTHROW(program_of(two + with_cache(pair + "    return kv1, kv2\n")));
    CHECK_THAT(error_in(two + with_cache(pair + "    return kv1, kv0\n")),
               Catch::Contains("'kv0' was consumed"));
  }
  // A constant to start from is copied into the loop's own storage.
  CHECK_NOTHROW(program_of(
      block +
      with_cache(
          "    w: f32[2, 1, 1, 4, 2] = const(\"zero\")\n    s = scope(\"l\")\n    c = pack(w)\n"
          "    r = repeat(block, 2, c, s, x, pos)\n    kv1 = item(r, 0)\n    return kv1, w\n")));
}

TEST_CASE("verify: calls and loops that do not fit their function") {
  const std::string block =
      "def block(x: f32, i: i64, s: Scope, e: f32):\n    y = add(x, e)\n    return y\n";
  const std::string begin = "def forward(x: f32):\n    s = scope(\"l\")\n    c = pack(x)\n";
  CHECK(error_in(block + begin +
                 "    r = repeat(block, 2, c, s)\n    y = item(r, 0)\n    return y\n") ==
        "BadArgument: 'block' takes 4 parameters, but 1 carried values, an index, a scope and 0 "
        "extras are 3");
  CHECK(error_in(block + begin + "    r = repeat(block, 2, x, s, x)\n    return x\n") ==
        "BadArgument: takes a function, a count, a tuple, a scope and extras");
  CHECK(error_in(block + begin + "    r = repeat(block, -1, c, s, x)\n    return x\n") ==
        "OutOfRange: cannot count -1 times from 0");
  CHECK(error_in(block + begin +
                 "    r = repeat(block, 2, c, s, x)\n    y = item(r, 1)\n    return y\n") ==
        "OutOfRange: item 1 of 'r', which has 1");
  CHECK(error_in(block + begin + "    y = block(x, x)\n    return y\n") ==
        "BadArgument: takes 4 operands, 2 given");
  CHECK(error_in(block + begin + "    y = block(x, x, x, x)\n    return y\n") ==
        "BadType: parameter 's' of 'block' is a scope, not a tensor");
  CHECK(
      error_in(
          "def f(x: f32):\n    y = g(x)\n    return y\ndef g(x: f32):\n    y = f(x)\n    return y\n"
          "def forward(x: f32):\n    y = f(x)\n    return y\n") == "Cycle: 'f' calls itself");
  CHECK(error_in("def forward(s: Scope):\n    w: f32 = const(s, \"w\")\n    return w\n") ==
        "BadType: parameter 's' of 'forward' is a scope; a program takes tensors");
  CHECK(error_in("def forward(x: f32):\n    s = scope(\"w\")\n    return s\n") ==
        "BadType: 's' is a scope; functions return tensors");
}

TEST_CASE("verify: one constant has one type") {
  const auto with_constants = [](std::string_view constants, std::string_view block = "") {
    return std::string(block) + "def forward(x: f32[4]):\n" + std::string(constants) +
           "    return x\n";
  };
  CHECK(error_in(with_constants("    a: f32[4] = const(\"w\")\n"
                                "    b: f32[400] = const(\"w\")\n")) ==
        "ShapeMismatch: 'b' takes constant 'w' for f32[400], 'a' at line 6 for f32[4]");
  CHECK(error_in(with_constants("    a: f32[4] = const(\"w\")\n"
                                "    b: bf16[4] = const(\"w\")\n")) ==
        "ShapeMismatch: 'b' takes constant 'w' for bf16[4], 'a' at line 6 for f32[4]");
  CHECK(error_in(with_constants("    s = scope(\"s\")\n    a: f32[4] = const(s, \"w\")\n"
                                "    b: f32[8] = const(\"s.w\")\n")) ==
        "ShapeMismatch: 'b' takes constant 's.w' for f32[8], 'a' at line 7 for f32[4]");
  // One of a loop's, by its number.
  const std::string block =
      "def block(x: f32[4], i: i64, s: Scope):\n    w: f32[4] = const(s, \"w\")\n"
      "    y = add(x, w)\n    return y\n";
  const std::string loop =
      "    s = scope(\"blk\")\n    t = pack(x)\n    r = repeat(block, 3, t, s, first=2)\n";
  CHECK(error_in(with_constants(loop + "    b: f32[8] = const(\"blk.4.w\")\n", block)) ==
        "ShapeMismatch: 'b' takes constant 'blk.4.w' for f32[8], 'w' at line 6 for f32[4]");
  // Sizes that are open may be any.
  CHECK_NOTHROW(program_of(with_constants(loop + "    b: f32[8] = const(\"blk.5.w\")\n"
                                                 "    c: f32[N] = const(\"n\")\n"
                                                 "    d: f32[8] = const(\"n\")\n",
                                          block)));
}

TEST_CASE("verify: a folded constant has the type of its value") {
  Program program = program_of(
      "def forward(x: f32[4]):\n    w: f32[4] = const(\"folded:w\")\n"
      "    y = add(x, w)\n    return y\n");
  program.folded.emplace("folded:w", HostBuffer::zeros(Shape({4}, f32)));
  CHECK_NOTHROW(verify(program));
  program.folded.at("folded:w") = HostBuffer::zeros(Shape({2}, f32));
  CHECK(expect_error(Errc::shape_mismatch, [&] { verify(program); }).find("its value is f32[2]") !=
        std::string::npos);
}

TEST_CASE("verify: programs that no text could spell") {
  const auto refused = [](Errc code, auto&& change) {
    Program program = simple();
    change(program, program.functions[0]);
    expect_error(code, [&] { verify(program); });
    CHECK(!check_program(program).empty());
  };
  refused(Errc::bad_reference, [](Program& p, Function&) { p.entry = "main"; });
  refused(Errc::bad_reference, [](Program&, Function& f) { f.body[0].operands[0] = 9; });
  refused(Errc::bad_reference, [](Program&, Function& f) { f.body[0].operands[0] = 1; });
  refused(Errc::bad_reference, [](Program&, Function& f) { f.body[0].result = 0; });
  refused(Errc::bad_reference, [](Program&, Function& f) { f.results[0] = 9; });
  refused(Errc::bad_reference, [](Program&, Function& f) { f.values[1].name = "two words"; });
  refused(Errc::bad_reference, [](Program&, Function& f) { f.values[1].name = "for"; });
  refused(Errc::duplicate_name, [](Program&, Function& f) { f.values[1].name = "x"; });
  refused(Errc::bad_reference,
          [](Program&, Function& f) { f.add_value({"z", ValueKind::tensor, {}}); });
  refused(Errc::bad_argument, [](Program&, Function& f) { f.results.clear(); });
  refused(Errc::bad_argument, [](Program&, Function& f) { f.body[0].operands.clear(); });
  refused(Errc::bad_type, [](Program&, Function& f) { f.values[1].kind = ValueKind::tuple; });
  refused(Errc::bad_type, [](Program&, Function& f) { f.values[0] = {"x", ValueKind::scope, {}}; });
  refused(Errc::unknown_op, [](Program&, Function& f) { f.body[0].op = OpInstance(); });
  refused(Errc::unknown_op,
          [](Program&, Function& f) { const OpInstance taken = std::move(f.body[0].op); });
  refused(Errc::bad_encoding, [](Program& p, Function&) { p.name = "\xFF"; });
  refused(Errc::bad_encoding, [](Program&, Function& f) {
    f.body[0].kind = Instruction::Kind::constant;
    f.body[0].operands.clear();
    f.body[0].text = "\xC3(";
  });
  CHECK_NOTHROW([] {
    Program program = simple();
    verify(program);
  }());
}

TEST_CASE("verify: tuples, scopes and loops that no text could spell") {
  const auto refused = [](Errc code, auto&& change) {
    Program program = program_of(R"(
def step(x: f32[4], i: i64, s: Scope):
    y = exp(x)
    return y
def forward(x: f32[4]):
    s0 = scope("a")
    w: f32[4] = const(s0, "w")
    c0 = pack(x)
    c1 = repeat(step, 3, c0, s0)
    y = item(c1, 0)
    z = add(y, w)
    return z
)");
    const auto is_code = [&](const Diagnostic& error) { return error.code == code; };
    change(program, program.functions[0], program.functions[1]);
    INFO(spelling(code));
    CHECK(std::ranges::any_of(check_program(program), is_code));
  };
  constexpr std::size_t constant = 1, pack = 2, item = 4, add = 5;  // instructions
  constexpr ValueId scope = 1, weight = 2, tuple = 3;
  refused(Errc::bad_type,
          [](Program&, Function&, Function& f) { f.body[pack].operands = {scope}; });
  refused(Errc::limit_exceeded,
          [](Program&, Function&, Function& f) { f.body[pack].operands.assign(16'385, 0); });
  refused(Errc::bad_argument,
          [](Program&, Function&, Function& f) { f.body[constant].operands = {scope, scope}; });
  refused(Errc::bad_type,
          [](Program&, Function&, Function& f) { f.body[constant].operands = {0}; });
  refused(Errc::bad_argument,
          [](Program&, Function&, Function& f) { f.body[item].operands.clear(); });
  refused(Errc::bad_type,
          [](Program&, Function&, Function& f) { f.body[item].operands = {weight}; });
  refused(Errc::bad_type,
          [](Program&, Function&, Function& f) { f.body[add].operands[0] = scope; });
  refused(Errc::bad_encoding, [](Program&, Function&, Function& f) {
    f.body[add].op = OpInstance(Glu{.activation = Name("\xFF")});
  });
  refused(Errc::bad_type,
          [](Program&, Function&, Function& f) { f.values[tuple].shape = Shape({4}, f32); });
  refused(Errc::bad_argument,
          [](Program&, Function& step, Function&) { step.results.push_back(0); });
  refused(Errc::bad_type, [](Program&, Function& step, Function&) {
    step.values[1].shape = Shape(std::initializer_list<std::int64_t>{}, i32);
  });
  refused(Errc::bad_type,
          [](Program&, Function& step, Function&) { step.values[0].kind = ValueKind::tuple; });
  refused(Errc::limit_exceeded,
          [](Program&, Function& step, Function&) { step.parameter_count = 16'385; });
  refused(Errc::duplicate_name, [](Program& p, Function& step, Function&) {
    const Function again = step;
    p.functions.push_back(again);
  });
}

TEST_CASE("verify: the place is the line that the program came from") {
  Program program = simple();
  program.functions[0].body[0].line = {"model.cpp", 31, 0};
  program.functions[0].values[1].shape = Shape({5}, f32);
  const std::string what = expect_error(Errc::shape_mismatch, [&] { verify(program); });
  CHECK(what == "ShapeMismatch: model.cpp:31: exp: 'y' is f32[4], declared f32[5]");
  const std::vector<Diagnostic> found = check_program(program);
  REQUIRE(found.size() == 1);
  CHECK(found[0].line.line == 31);
}
