#include "support/expect_error.hpp"
#include "support/program_text.hpp"

#include <tenon/draw.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/softmax.hpp>
#include <tenon/program.hpp>

#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

/// full(value=...) as the text spells it.
std::string spelled(double value) {
  Program program = program_of("\ndef forward(x: f32):\n    y = full(value=1.5)\n    return y\n");
  program.functions[0].body[0].op = OpInstance(Full{.value = value, .dims = {}, .dtype = f64});
  const std::string text = functions_of(program);
  const std::size_t begin = text.find("value=");
  return begin == std::string::npos ? ""
                                    : text.substr(begin + 6, text.find(',', begin) - begin - 6);
}

double read_back(const std::string& literal) {
  const Program program =
      program_of("\ndef forward(x: f32):\n    y = full(value=" + literal + ")\n    return y\n");
  return program.functions[0].body[0].op.as<Full>()->value;
}

}  // namespace

TEST_CASE("draw: marks of XML and of DOT in names are escaped") {
  const Program program = program_of(
      "\ndef forward(x: f32[4]):\n    w: f32[4] = const(\"a<b>&\\\"c\\\\\\n\")\n"
      "    y = add(x, w)\n    return y\n");
  CHECK(to_svg(program).find("const a&lt;b&gt;&amp;\"c\\?") != std::string::npos);
  CHECK(to_dot(program).find("const a<b>&\\\"c\\\\\n") != std::string::npos);
}

TEST_CASE("print: a program in canonical form") {
  const std::string text =
      "# tenon 1.0\n"
      "from __future__ import annotations\n"
      "from tenon.ir import *\n"
      "module(\"tiny\", opset=1, weights=\"tiny.safetensors\", entry=\"run\")\n"
      "\n"
      "def block(x0: f32[B, S, 256], i: i64, s: Scope, scale: f32):\n"
      "    w: q4_k[256, 256] = const(s, \"out.weight\")\n"
      "    h: f32[B, S, 256] = rms_norm(x0, eps=0.001)\n"
      "    x1 = linear(h, w, x0, has_residual=True)\n"
      "    return x1\n"
      "\n"
      "def run(x: f32[B, S, 256], scale: f32, more: Tensor):\n"
      "    s0 = scope(\"model.layers\")\n"
      "    c0 = pack(x)\n"
      "    c1 = repeat(block, 12, c0, s0, scale, first=2)\n"
      "    y: f32[B, _, 256] = item(c1, 0)\n"
      "    z = permute(y, order=[1, 0, 2])\n"
      "    return y, z\n";
  const Program program = parse(text);
  CHECK(print(program) == text);
  CHECK(program.entry == "run");
  CHECK(program.functions[0].values[4].shape->dtype() == DType::q4_k);
  CHECK(program.functions[1].values[6].shape->rank() == 3);
  CHECK((*program.functions[1].values[6].shape)[1] == unknown_dim);
}

TEST_CASE("print: the example of docs/text-ir.md, and the error it shows") {
  std::ifstream file("docs/text-ir.md");
  REQUIRE(file);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = page.find("```python\n") + 10;
  const std::string example = page.substr(begin, page.find("```", begin) - begin);
  CHECK(print(parse(example)) == example);

  std::string wrong = example;
  wrong.replace(wrong.find("return x1, kv1"), 14, "return x1, kv0");
  const std::string what = expect_error(Errc::alias, [&] { parse(wrong, "tiny.tenon"); });
  CHECK(page.find("```\n" + what + "\n```") != std::string::npos);
}

TEST_CASE("print: what a graph recorded reads like source") {
  Graph graph;
  const Tensor x = graph.input("in", Shape({{"b", 2}, {"d", 4}}, f32));
  const Tensor w = graph.constant("layer.0.weight", Shape({3, 4}, f32));
  const Tensor y = softmax(linear(x, w), -1);
  const Program program = graph.program({&y, 1});
  CHECK(functions_of(program).find("module") == std::string::npos);
  // `in` is a keyword of Python.
  CHECK(print(program).find("def forward(in_: f32[2, 4]):\n"
                            "    v0_weight: f32[3, 4] = const(\"layer.0.weight\")\n"
                            "    linear0: f32[2, 3] = linear(in_, v0_weight)\n"
                            "    softmax0: f32[2, 3] = softmax(linear0, axis=1)\n"
                            "    return softmax0\n") != std::string::npos);
  CHECK(same_program(parse(print(program)), program));
}

TEST_CASE("print: reals are what Python's repr writes") {
  CHECK(spelled(1e-5) == "1e-05");
  CHECK(spelled(0.0001) == "0.0001");
  CHECK(spelled(10000.0) == "10000.0");
  CHECK(spelled(123456789012345680.0) == "1.2345678901234568e+17");
  CHECK(spelled(1e16) == "1e+16");
  CHECK(spelled(1e15) == "1000000000000000.0");
  CHECK(spelled(-0.1) == "-0.1");
  CHECK(spelled(1.0 / 3) == "0.3333333333333333");
  CHECK(spelled(5e-324) == "5e-324");
  CHECK(spelled(1.7976931348623157e308) == "1.7976931348623157e+308");
  CHECK(spelled(-std::numeric_limits<double>::infinity()) == "-inf");
  CHECK(spelled(std::nan("")) == "nan");
  CHECK(spelled(-0.0) == "-0.0");  // the default is 0.0
  CHECK(spelled(0.0).empty());
}

TEST_CASE("print: every double comes back with its bits") {
  std::mt19937_64 engine(3);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = engine();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (i % 2 == 0)
      value = std::ldexp(static_cast<double>(bits >> 40), static_cast<int>(bits % 60) - 40);
    if (std::isnan(value) || (value == 0 && !std::signbit(value))) continue;
    const std::string literal = spelled(value);
    const double again = read_back(literal);
    INFO(literal);
    REQUIRE(std::memcmp(&again, &value, sizeof value) == 0);
  }
  CHECK(std::isnan(read_back("nan")));
}

TEST_CASE("print: the locale does not matter", "[locale]") {
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) {
    WARN("SKIPPED: no locale de_DE.UTF-8 on this machine");
    return;
  }
  CHECK(spelled(1234.5) == "1234.5");
  CHECK(read_back("1.5") == 1.5);
  std::setlocale(LC_ALL, "C");
}

TEST_CASE("print: strings in Python's spelling") {
  Program program = program_of("\ndef forward():\n    y: f32[1] = const(\"w\")\n    return y\n");
  Instruction& instruction = program.functions[0].body[0];
  instruction.text = std::string("a\"b\\c\n\t\r\x01\x7F\0é🦆", 17);
  const std::string text = print(program);
  CHECK(text.find(R"("a\"b\\c\n\t\r\x01\x7f\x00é🦆")") != std::string::npos);
  CHECK(same_program(parse(text), program));
}

TEST_CASE("print: what has no text is refused") {
  Program program = program_of("\ndef forward(x: f32):\n    y = exp(x)\n    return y\n");
  program.functions[0].body[0].operands[0] = 7;
  expect_error(Errc::bad_reference, [&] { print(program); });
  program.functions[0].body[0].operands[0] = 0;
  program.functions[0].body[0].op = OpInstance();
  expect_error(Errc::unknown_op, [&] { print(program); });
}
