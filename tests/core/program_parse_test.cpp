#include "support/expect_error.hpp"
#include "support/program_text.hpp"

#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <algorithm>
#include <chrono>
#include <string>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

/// What is wrong with the functions of a text: "6:9 BadReference", the line counted from the first
/// function's.
std::vector<std::string> errors_in(std::string_view functions) {
  const ParseResult result =
      parse_all(std::string(program_header) + std::string(functions), "bad.tenon");
  std::vector<std::string> found;
  for (const Diagnostic& error : result.errors) {
    found.push_back(std::to_string(error.line.line - 4) + ":" + std::to_string(error.line.column) +
                    " " + std::string(spelling(error.code)));
  }
  return found;
}

using Errors = std::vector<std::string>;

std::string in_forward(std::string_view statement) {
  return "def forward(x: f32[4], i: i64):\n    " + std::string(statement) + "\n    return x\n";
}

}  // namespace

TEST_CASE("parse: the first error with its place, its line and a caret") {
  const std::string what = expect_error(Errc::alias, [] {
    parse(std::string(program_header) +
              "\n"
              "def forward(kv0: f32[1, 1, 1, 4, 2], i: i64, x: f32[1, 1, 1, 2], pos: i32):\n"
              "    kv1 = cache_update(kv0, i, x, pos)\n"
              "    y = add(kv1, kv0)\n"
              "    return y\n",
          "tiny.tenon");
  });
  CHECK(what ==
        "Alias: tiny.tenon:8:18: 'kv0' was consumed at line 7 by cache_update; use 'kv1'\n"
        "    y = add(kv1, kv0)\n"
        "                 ^");
}

TEST_CASE("parse: all errors are reported") {
  CHECK(errors_in("def forward(x: f32[4], y: f32[4]):\n"
                  "    a = exp(x\n"
                  "    b = exp(a)\n"
                  "    c = expo(b)\n"
                  "    d = exp(q)\n"
                  "    d = softmax(x, axes=1)\n"
                  "     e = exp(x)\n"
                  "    return d, nothing\n"
                  "    f = exp(x)\n"
                  "def second(x: f33):\n"
                  "    y = full(value=\"one\")\n") ==
        Errors{"2:14 Syntax", "5:13 BadReference", "6:5 DuplicateName", "7:6 Syntax",
               "8:15 BadReference", "9:5 Syntax", "10:5 Syntax", "10:15 BadType",
               "11:20 BadAttribute"});
}

TEST_CASE("parse: what a writer meant is said") {
  const auto message = [](std::string_view statement) {
    const ParseResult result =
        parse_all(std::string(program_header) + in_forward(statement), "bad.tenon");
    REQUIRE(result.errors.size() == 1);
    return result.errors[0].message.substr(0, result.errors[0].message.find('\n'));
  };
  CHECK(message("y = sofmax(x, axis=0)") ==
        "there is no op 'sofmax', and functions take no attributes; did you mean 'softmax'?");
  CHECK(message("y = reluu(x)") ==
        "there is no op or function 'reluu'; did you mean 'relu', 'relu6'?");
  CHECK(message("y = forwrd(x, i)") ==
        "there is no op or function 'forwrd'; did you mean 'forward'?");
  CHECK(message("y = quite_another(x)") == "there is no op or function 'quite_another'");
  CHECK(message("y = relu(exp(x))") ==
        "a call of 'exp' within a call: give its result a name, on a line before");
  CHECK(message("y = x * x") ==
        "'*' has no meaning here: texts have ops by name, such as add, sub, mul, div, "
        "matmul and lt");
  CHECK(message("y = full(value=9007199254740993, dims=[1], dtype=\"i64\")") ==
        "attribute value of full is a real number, and no double is 9007199254740993");
  for (const auto& [character, name] :
       {std::pair("\u00a0", "U+00A0"), {"\u00e9", "U+00E9"}, {"\U0001f600", "U+1F600"}}) {
    CHECK(message("y" + std::string(character) + " = exp(x)") ==
          std::string(name) +
              " has no meaning here: outside of strings and comments a text is ASCII");
  }
}

TEST_CASE("parse: a return that cannot be read is not missing, too") {
  CHECK(errors_in("def forward(x: f32[4]):\n    y = exp(x)\n   return y\n") ==
        Errors{"3:4 Syntax"});
  CHECK(errors_in("def forward(x: f32[4]):\n\ty = exp(x)\n\treturn y\n") ==
        Errors{"2:1 Syntax", "3:1 Syntax"});
  CHECK(errors_in("def forward(x: f32[4]):\r    return x\r") == Errors{"1:24 Syntax"});
}

TEST_CASE("parse: arguments that do not fit are reported where the function is called") {
  const std::string text =
      "def f(a: f32[3]):\n    return a\n"
      "def forward(x: f32[2], y: f32[3]):\n    v = f(y)\n    w = f(x)\n    return v, w\n";
  CHECK(errors_in(text) == Errors{"5:9 ShapeMismatch"});
  const std::string what = expect_error(
      Errc::shape_mismatch, [&] { parse(std::string(program_header) + text, "net.tenon"); });
  CHECK(what.find("'a' of 'f' is f32[2], declared f32[3]") != std::string::npos);
}

TEST_CASE("parse: names") {
  CHECK(errors_in(in_forward("y = exp(later)\n    later = exp(x)")) == Errors{"2:13 BadReference"});
  CHECK(errors_in(in_forward("y = frobnicate(x)")) == Errors{"2:9 UnknownOp"});
  CHECK(errors_in(in_forward("x = exp(x)")) == Errors{"2:5 DuplicateName"});
  CHECK(errors_in(in_forward("lambda = exp(x)")) == Errors{"2:5 Syntax"});
  CHECK(errors_in(in_forward("y = lambda(x)")) == Errors{"2:9 Syntax"});
  CHECK(errors_in(in_forward("y = exp(None)")) == Errors{"2:13 Syntax"});
  CHECK(errors_in(in_forward("y = softmax(x, if=1)")) == Errors{"2:20 Syntax"});
  CHECK(errors_in(in_forward("y = True(x)")) == Errors{"2:9 Syntax"});
  CHECK(errors_in(in_forward("y = softmax(x, True=1)")) == Errors{"2:24 Syntax"});
  CHECK(errors_in("def forward(x: f32):\n    return True\n") == Errors{"2:12 Syntax"});
  CHECK(errors_in("def True(x: f32):\n    return x\n")[0] == "1:5 Syntax");
  CHECK(errors_in(in_forward("y = y(x)")) == Errors{"2:9 UnknownOp"});
  CHECK(errors_in(in_forward("y = forward(x, i)")) == Errors{"2:9 Cycle"});
  CHECK(errors_in("def softmax(x: f32):\n    return x\ndef forward(x: f32):\n    return x\n") ==
        Errors{"1:5 DuplicateName"});
  CHECK(errors_in("def forward(x: f32, x: f32):\n    return x\n") == Errors{"1:21 DuplicateName"});
  CHECK(errors_in("def f(x: f32):\n    return x\ndef f(x: f32):\n    return x\n") ==
        Errors{"3:5 DuplicateName"});
  // A name that is defined later is said to be.
  const ParseResult result =
      parse_all(std::string(program_header) + in_forward("y = exp(z)\n    z = exp(x)"));
  REQUIRE(result.errors.size() == 1);
  CHECK(result.errors[0].message.starts_with("'z' is used before it is defined at line 7\n"));
}

TEST_CASE("parse: arguments") {
  CHECK(errors_in(in_forward("y = exp()")) == Errors{"2:9 BadArgument"});
  CHECK(errors_in(in_forward("y = exp(x, x)")) == Errors{"2:9 BadArgument"});
  CHECK(errors_in(in_forward("y = exp(1.5)")) == Errors{"2:13 BadArgument"});
  CHECK(errors_in(in_forward("y = exp(exp(x))")) == Errors{"2:16 Syntax"});
  CHECK(errors_in(in_forward("y = softmax(axis=0, x)")) == Errors{"2:25 Syntax"});
  CHECK(errors_in(in_forward("y = softmax(x, axis=0.5)")) == Errors{"2:25 BadAttribute"});
  CHECK(errors_in(in_forward("y = softmax(x, axis=0, axis=0)")) == Errors{"2:28 DuplicateName"});
  CHECK(errors_in(in_forward("y = softmax(x, axis=i)")) == Errors{"2:20 Syntax"});
  CHECK(errors_in(in_forward("y = cast(x, dtype=\"f33\")")) == Errors{"2:17 BadAttribute"});
  CHECK(errors_in(in_forward("y = permute(x, order=[0, [1]])")) == Errors{"2:30 Syntax"});
  CHECK(errors_in(in_forward("y = permute(x, order=[0, 1, 2, 3, 4, 5, 6, 7, 8])")) ==
        Errors{"2:51 LimitExceeded"});
  CHECK(errors_in(in_forward("y = const(x)")) == Errors{"2:9 BadArgument"});
  CHECK(errors_in(in_forward("y = item(x, 0)")) == Errors{"2:14 BadType"});
  // What infer says of the types.
  CHECK(errors_in(in_forward("y = softmax(x, axis=1)")) == Errors{"2:9 AxisOutOfRange"});
  CHECK(errors_in(in_forward("y: f32[5] = exp(x)")) == Errors{"2:17 ShapeMismatch"});
  // An integer will do for a real, and attributes may come in any order.
  CHECK(errors_in(in_forward("y = full(dtype=\"f64\", value=2)")).empty());
}

TEST_CASE("parse: numbers, words and types where they do not belong") {
  CHECK(errors_in(in_forward("y = full(value=-x)")) == Errors{"2:20 Syntax"});
  CHECK(errors_in(in_forward("y = full(value=-infinite)")) == Errors{"2:20 Syntax"});
  CHECK(errors_in(in_forward("y = full(value=-inf)")).empty());
  CHECK(errors_in(in_forward("y: Scope = scope(\"a\")")) == Errors{"2:8 BadType"});
  CHECK(errors_in(in_forward("y: Tensor = exp(x)")) == Errors{"2:8 BadType"});
  CHECK(errors_in(in_forward("y: f32[4] = const(\"\\u20AC\\xE9\\U0001F600\")")).empty());
  CHECK(errors_in(in_forward("y = glu(x, x, activation=\"" + std::string(256, 'a') + "\")")) ==
        Errors{"2:30 LimitExceeded"});
}

TEST_CASE("parse: types") {
  CHECK(errors_in("def forward(x: f32[4294967296, 4294967296]):\n    return x\n") ==
        Errors{"1:16 ShapeOverflow"});
  CHECK(errors_in("def forward(x: f32[1048576, 1048577]):\n    return x\n") ==
        Errors{"1:13 LimitExceeded"});
  CHECK(errors_in("def forward(x: f32[-1]):\n    return x\n") == Errors{"1:20 Syntax"});
  CHECK(errors_in("def forward(x: f32[9223372036854775808]):\n    return x\n") ==
        Errors{"1:20 Syntax"});
  CHECK(errors_in("def forward(x: f32[1, 1, 1, 1, 1, 1, 1, 1, 1]):\n    return x\n") ==
        Errors{"1:16 BadShape"});
  CHECK(errors_in("def forward(x: q4_k[100]):\n    return x\n") == Errors{"1:16 BadShape"});
  CHECK(errors_in("def forward(x: KVCache):\n    return x\n") == Errors{"1:16 BadType"});
  CHECK(errors_in("def forward(x: f32[for]):\n    return x\n") == Errors{"1:20 Syntax"});
  CHECK(errors_in("def forward(s: Scope):\n    y: f32 = const(s, \"w\")\n    return y\n") ==
        Errors{"1:13 BadType"});
  // Scalars: canonical text has no brackets.
  const Program program = program_of("\ndef forward(x: f32[], i: Index):\n    return x, i\n");
  CHECK(functions_of(program) == "\ndef forward(x: f32, i: i64):\n    return x, i\n");
}

TEST_CASE("parse: literals") {
  CHECK(errors_in(in_forward("y = full(value=1.5e3)")).empty());
  for (const char* bad : {"1.", ".5", "01", "1e", "1e999", "1e-999", "1_000", "0x10", "1.5.2",
                          "--1", "- 1", "+1", "1f"}) {
    INFO(bad);
    const Errors found = errors_in(in_forward("y = full(value=" + std::string(bad) + ")"));
    REQUIRE(found.size() == 1);
    CHECK(found[0].substr(0, 5) == "2:20 ");
    CHECK(found[0].ends_with("Syntax"));
  }
  CHECK(errors_in(in_forward("y: f32 = const(\"a\\x41\\u00e9\\U0001F986\\n\\'\")")).empty());
  for (const char* bad :
       {"\"a", "\"a\\\"", "\"\\q\"", "\"\\x4\"", "\"\\ud800\"", "\"\\U00110000\"", "'a'"}) {
    INFO(bad);
    const Errors found = errors_in(in_forward("y: f32 = const(" + std::string(bad) + ")"));
    REQUIRE(found.size() == 1);
    CHECK(found[0] == "2:20 Syntax");
  }
}

TEST_CASE("parse: bytes that no text has") {
  CHECK(errors_in(in_forward(std::string_view("y = exp(x\0)", 11))) == Errors{"2:14 Syntax"});
  CHECK(errors_in(in_forward("y = exp(x\xFF)")) == Errors{"2:14 Syntax"});
  CHECK(errors_in(in_forward("y = exp(x) # \xC3")) == Errors{"2:18 Syntax"});
  CHECK(errors_in(in_forward("# \xED\xA0\x80 is no character")) == Errors{"2:7 Syntax"});
  CHECK(errors_in(in_forward("y = exp(x);")) == Errors{"2:15 Syntax"});
  CHECK(errors_in(in_forward("\ty = exp(x)")) == Errors{"2:5 Syntax"});
  CHECK(errors_in(in_forward("y = exp(x)\r    z = exp(x)")) == Errors{"2:15 Syntax"});
}

TEST_CASE("parse: comments, blank lines, CRLF and a byte order mark say nothing") {
  const std::string plain =
      std::string(program_header) + "\ndef forward(x: f32):\n    y = exp(x)\n    return y\n";
  const Program want = parse(plain);
  std::string windows;
  for (const char c : "\xEF\xBB\xBF" + plain)
    windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  CHECK(same_program(parse(windows), want));
  std::string noted = plain;
  noted.replace(noted.find("    y ="), 0, "\n    # e to the x\n   \n");
  noted.replace(noted.find("exp(x)") + 6, 0, "   # é");
  CHECK(same_program(parse(noted), want));
  CHECK(same_program(parse(plain.substr(0, plain.size() - 1)), want));
}

TEST_CASE("parse: the header") {
  const auto code_of = [](std::string_view text) {
    const ParseResult result = parse_all(text);
    REQUIRE(result.errors.size() == 1);
    return std::string(spelling(result.errors[0].code));
  };
  const std::string good = std::string(program_header);
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  CHECK(code_of("") == "BadMagic");
  CHECK(code_of("# tennon 1.0\n") == "BadMagic");
  CHECK(code_of("# tenon 1\n") == "BadMagic");
  CHECK(code_of(with("1.0", "2.0")) == "UnsupportedVersion");
  CHECK(code_of(with("opset=1", "opset=2")) == "UnsupportedVersion");
  CHECK(code_of(with("from tenon.ir import *", "from os import *")) == "Syntax");
  CHECK(code_of(with("module(\"test\"", "module(3")) == "Syntax");
  CHECK(code_of(with(", opset=1", "")) == "Syntax");
  CHECK(code_of(with("opset=1", "opset=1, opset=1")) == "DuplicateName");
  CHECK(code_of(good.substr(0, good.find("module"))) == "Truncated");
  CHECK(code_of(good) == "BadReference");  // no function to start with
  // A newer minor version only adds.
  CHECK_NOTHROW(parse(with("1.0", "1.7") + "def forward(x: f32):\n    return x\n"));
}

TEST_CASE("parse: depth, length and number are limited") {
  const auto first_code = [](const std::string& text) {
    const ParseResult result = parse_all(text);
    REQUIRE(!result.errors.empty());
    return std::string(spelling(result.errors[0].code));
  };
  const auto functions = [](const std::string& text) { return std::string(program_header) + text; };
  CHECK(first_code(functions(in_forward("y = exp(" + std::string(60000, '(') +
                                        std::string(60000, ')')))) == "DepthLimit");
  CHECK(first_code(functions(in_forward("y = permute(x, order=" + std::string(60000, '[')))) ==
        "DepthLimit");
  CHECK(first_code(std::string(std::size_t{9} << 20, ' ')) == "LimitExceeded");
  CHECK(first_code(functions(in_forward("y = exp(" + std::string(std::size_t{2} << 20, 'x')))) ==
        "LimitExceeded");
  CHECK(first_code(functions(in_forward(std::string(300, 'y') + " = exp(x)"))) == "LimitExceeded");

  // Every function calls the one before twice: 2^40 instructions, were they inlined.
  std::string doubling = "def f0(x: f32):\n    y = exp(x)\n    return y\n";
  for (int i = 1; i <= 40; ++i) {
    doubling += "def f" + std::to_string(i) + "(x: f32):\n    a = f" + std::to_string(i - 1) +
                "(x)\n    b = f" + std::to_string(i - 1) + "(a)\n    return b\n";
  }
  CHECK(first_code(functions(doubling + "def forward(x: f32):\n    y = f40(x)\n    return y\n")) ==
        "LimitExceeded");

  // A chain of calls, each with a frame of its own.
  std::string chain = "def f0(x: f32):\n    return x\n";
  for (int i = 1; i <= 20000; ++i) {
    chain += "def f" + std::to_string(i) + "(x: f32):\n    a = f" + std::to_string(i - 1) +
             "(x)\n    return a\n";
  }
  CHECK(first_code(functions(chain + "def forward(x: f32):\n    y = f20000(x)\n    return y\n")) ==
        "DepthLimit");

  // A training step gives back each weight and its moments: thousands of values.
  const auto passed_on = [](int count) {
    std::string parameters, results;
    for (int i = 0; i < count; ++i) {
      parameters += (i > 0 ? ", x" : "x") + std::to_string(i) + ": f32";
      results += (i > 0 ? ", x" : "x") + std::to_string(i);
    }
    return "def forward(" + parameters + "):\n    return " + results + "\n";
  };
  CHECK(parse(functions(passed_on(16'384))).main().results.size() == 16'384);
  CHECK(first_code(functions(passed_on(16'385))) == "LimitExceeded");

  // Loops name their constants once for each repetition.
  const std::string loop =
      "def block(x: f32, i: i64, s: Scope):\n    w: f32 = const(s, \"w\")\n    y = add(x, w)\n    "
      "return y\n"
      "def forward(x: f32):\n    s = scope(\"l\")\n    c = pack(x)\n    r = repeat(block, 1000000, "
      "c, s)\n"
      "    y = item(r, 0)\n    return y\n";
  CHECK(first_code(functions(loop)) == "LimitExceeded");
}

TEST_CASE("parse: time and errors stay in proportion to the text") {
  std::string wrong(program_header);
  wrong += "def forward(x: f32):\n";
  while (wrong.size() < (std::size_t{7} << 20)) wrong += "    y = = =\n";
  const auto begin = std::chrono::steady_clock::now();
  CHECK(parse_all(wrong).errors.size() == 100);

  std::string large(program_header);
  large += "def forward(v0: f32[4]):\n";
  int count = 0;
  for (; count < 100000; ++count) {
    large += "    v" + std::to_string(count + 1) + " = exp(v" + std::to_string(count) + ")\n";
  }
  large += "    return v" + std::to_string(count) + "\n";
  CHECK(parse(large).functions[0].body.size() == 100000);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  CHECK(taken.count() < 20);  // about half a second, without sanitizers, on an idle machine
}

TEST_CASE("parse: a long line is quoted around the caret") {
  std::string arguments = "x";
  for (int i = 0; i < 200; ++i) arguments += ", x";
  const ParseResult result =
      parse_all(std::string(program_header) + in_forward("y = pack(" + arguments + ", oops)"));
  REQUIRE(result.errors.size() == 1);
  const std::string& message = result.errors[0].message;
  CHECK(message.size() < 300);
  const std::size_t line = message.find('\n') + 1;
  const std::size_t caret = message.find('\n', line) + 1;
  CHECK(message.substr(line, 3) == "...");
  CHECK(message.find("oops", line) - line == message.find('^') - caret);
}
