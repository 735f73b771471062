// The code that codegen() wrote while the tests were built, against sessions on the same programs.
#include "awkward.hpp"
#include "every_op.hpp"
#include "every_op_calls.hpp"
#include "objects.hpp"
#include "selected_cases.hpp"
#include "support/expect_error.hpp"
#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"
#include "tiny_decoder.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/codegen.hpp>
#include <tenon/session.hpp>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

std::vector<BackendPtr> backends() { return {make_cpu_backend({}), make_reference_backend({})}; }

/// In memory that may be written to.
Buffer own(const HostBuffer& values) {
  Buffer buffer = Buffer::allocate(values.shape(), cpu_device()->default_mem_region());
  copy_elements(values.view(), buffer.host_view());
  return buffer;
}

void check_same(const HostBuffer& got, const HostBuffer& want) {
  CHECK(to_string(got.shape().without_tags()) == to_string(want.shape().without_tags()));
  CHECK(std::memcmp(got.bytes(), want.bytes(), static_cast<std::size_t>(got.shape().bytes())) == 0);
}

std::string read(const std::string& name) {
  std::ifstream in("tests/codegen/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST_CASE("every op: its line computes what a session computes", "[codegen]") {
  const std::vector<OpCase> cases = selected_cases();
  REQUIRE(cases.size() == std::size(every_op_calls));
  every_op::Model model{Eager(nullptr, backends())};
  Program program = program_of(cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].name << ": " << to_string(cases[i].op));
    std::vector<Buffer> inputs;
    std::vector<EagerArray> arrays;
    for (const HostBuffer& input : cases[i].inputs) {
      inputs.push_back(own(input));
      arrays.emplace_back(own(input));
    }
    program.entry = "op" + std::to_string(i);
    Session session(program, {.backends = backends()});
    const HostBuffer want = session.forward(inputs).at(0).to_host();
    check_same(every_op_calls[i](model, arrays).to_buffer().to_host(), want);
  }
}

TEST_CASE("objects: a cache, a generator and a tokenizer", "[codegen]") {
  nn::register_objects();
  text::register_objects();
  const Buffer json = text::text_buffer(
      R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "unk_token": "?",
          "vocab": {"?": 0, "one": 1, "two": 2}}})");
  const auto weights = std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"tokenizer", json},
                                    {"layers.0.tokenizer", json},
                                    {"layers.1.tokenizer", json},
                                    {"layers.2.tokenizer", json}});
  Random random;
  const HostBuffer k = random.uniform(Shape({1, 2, 2, 4}, f32));
  const HostBuffer q = random.uniform(Shape({1, 2, 4, 4}, f32));
  const Buffer generator = object_buffer(nn::Generator(7)),
               cache = object_buffer(nn::GrowingCache(3));
  Session session(parse(read("objects.tenon"), "objects.tenon"), {.backends = backends()});
  session.bind(weights);
  const std::vector<Buffer> want =
      session.forward({generator, cache, text::text_buffer("two one"), own(k), own(q)});
  objects::Model model{Eager(weights, backends())};
  const auto [g1, kv1, ids, back, n, y] =
      model.forward(generator, cache, text::text_buffer("two one"), own(k), own(q));
  CHECK(*object_of<nn::Generator>(g1.to_buffer()) == *object_of<nn::Generator>(want[0]));
  CHECK(object_of<nn::GrowingCache>(kv1.to_buffer())->save() ==
        object_of<nn::GrowingCache>(want[1])->save());
  CHECK(text::text_of(back.to_buffer()) == text::text_of(want[3]));
  check_same(ids.to_buffer().to_host(), want[2].to_host());
  check_same(n.to_buffer().to_host(), want[4].to_host());
  check_same(y.to_buffer().to_host(), want[5].to_host());
  CHECK(object_of<nn::GrowingCache>(cache)->length(2) == 0);  // the caller's, which is kept

  const std::string code =
      codegen(parse(read("objects.tenon"), "objects.tenon"), {.with_main = true});
  for (const char* part :
       {"tenon::nn::register_objects();", "tenon::text::register_objects();",
        "tenon::load_object(tenon::object_type(\"KvCache\"), inputs.at(\"kv0\").data())",
        "tenon::save_object(std::get<1>(results).to_buffer())"}) {
    CHECK(contains(code, part));
  }
  struct Own {};
  register_object<Own>("OwnClass");
  CHECK(contains(expect_error(Errc::unsupported,
                              [] {
                                codegen(
                                    parse("# tenon 1.0\nfrom __future__ import annotations\n"
                                          "from tenon.ir import *\nmodule(\"m\", opset=1)\n\n"
                                          "def forward(a: OwnClass):\n    return a\n"));
                              }),
                 "OwnClass is no class of the library's own"));
}

TEST_CASE("layers, state, quantised weights, open sizes", "[codegen]") {
  const Program program = parse(read("tiny_decoder.tenon"), "tiny_decoder.tenon");
  Random random;
  std::map<std::string, Buffer> weights;
  const auto add = [&](const std::string& name, const Shape& shape) {
    const HostBuffer values = random.uniform(shape.with_dtype(f32), -0.3, 0.3);
    weights.emplace(name, own(is_block(shape.dtype()) ? values.to(shape.dtype()) : values));
  };
  add("embed.weight", Shape({20, 32}, DType::q8_0));
  for (int i = 0; i < 3; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    add(layer + ".norm.weight", Shape({32}, f32));
    add(layer + ".keys.weight", Shape({32, 32}, DType::q4_0));
    add(layer + ".mlp.up.weight", Shape({64, 32}, f32));
    add(layer + ".mlp.down.weight", Shape({32, 64}, DType::q4_0));
  }
  const auto set = std::make_shared<const WeightSet>(std::move(weights));
  Session session(program, {.backends = backends()});
  session.bind(set);
  Eager eager(set, backends());
  tiny_decoder::Model model(eager);

  HostBuffer cache = HostBuffer::zeros(Shape({3, 1, 2, 8, 16}, DType::f16));
  Buffer state = own(cache);
  EagerArray eager_state = own(cache);
  const std::byte* const memory = eager_state.view().data;
  std::int32_t at = 0;
  for (const int length : {4, 1, 1, 2}) {
    HostBuffer ids = HostBuffer::uninitialized(Shape({1, length}, i32));
    for (std::int32_t& id : ids.mutable_values<std::int32_t>()) id = 7 * at % 20;
    const HostBuffer position = ints({}, {at});
    at += length;
    std::vector<Buffer> inputs{own(ids), own(position), std::move(state)};
    std::vector<Buffer> want = session.forward(std::move(inputs));
    state = std::move(want[1]);
    auto [y, after] = model.forward(own(ids), own(position), std::move(eager_state));
    check_same(y.to_buffer().to_host(), want[0].to_host());
    eager_state = std::move(after);
    check_same(eager_state.to_buffer().to_host(), state.to_host());
  }
  CHECK(eager_state.view().data == memory);
  CHECK(eager.copied_bytes() == 0);
  CHECK(eager.fallbacks().empty());

  const std::string why = expect_error(Errc::bad_input, [&] {
    model.forward(own(ints({1, 1}, {0})), own(ints({}, {0})),
                  own(HostBuffer::zeros(Shape({3, 2, 2, 8, 16}, DType::f16))));
  });
  CHECK(why.find("'kv0' is f16[3, 2, 2, 8, 16], declared f16[3, B, 2, 8, 16] with B = 1") !=
        std::string::npos);
}

TEST_CASE("names that mean something in C++, loops with a condition", "[codegen]") {
  const Program program = parse(read("awkward.tenon"), "awkward.tenon");
  CHECK(contains(codegen(program), "Scope{\"none?\\?/\"}"));  // which is no trigraph
  Session session(program, {.backends = backends()});
  const HostBuffer x = floats({2}, {1, 2}), step = floats({2}, {3, 4});
  const std::vector<Buffer> want = session.forward({own(x), own(step)});
  int_::Model model{Eager(nullptr, backends())};
  const auto results = model.class_(own(x), own(step));
  check_same(std::get<0>(results).to_buffer().to_host(), want[0].to_host());
  check_same(std::get<1>(results).to_buffer().to_host(), want[1].to_host());
  check_same(std::get<2>(results).to_buffer().to_host(), want[2].to_host());
  expect_equal(want[1].to_host(), {22, 30});
}

TEST_CASE("the code reads like the text", "[codegen]") {
  const Program program = program_of(
      "\ndef forward(x: f32[N, 4]):\n"
      "    y: f32[N, 4] = softmax(x)\n"
      "    s: f32[N] = sum(y, axes=[1])\n"
      "    return s\n");
  const std::string code = codegen(program, {.text_file = "test.tenon", .output_file = "test.hpp"});
  const std::string want =
      "  Array forward(Array x) {\n"
      "    eager_.check(\"forward\", {{\"x\", tenon::Shape({tenon::symbol(\"N\"), 4}, "
      "tenon::DType::f32), x}});\n"
      "#line 7 \"test.tenon\"\n"
      "    Array y = eager_.run(tenon::Softmax{}, std::move(x));  // f32[N, 4]\n"
      "    Array s = eager_.run(tenon::Sum{{.axes = {1}}}, std::move(y));  // f32[N]\n";
  CAPTURE(code);
  CHECK(code.find(want) != std::string::npos);
  CHECK(code.find("#line 29 \"test.hpp\"\n    return s;\n") != std::string::npos);
  CHECK(codegen(program).find("#line") == std::string::npos);
}

TEST_CASE("main() writes a value that is returned twice once", "[codegen]") {
  const Program program =
      program_of("\ndef forward(x: f32[2]):\n    y = neg(x)\n    z = exp(x)\n    return y, z, y\n");
  const std::string code = codegen(program, {.with_main = true});
  CHECK(code.find("{\"y\", std::get<0>(results)") != std::string::npos);
  CHECK(code.find("{\"z\", std::get<1>(results)") != std::string::npos);
  CHECK(code.find("std::get<2>(results)") == std::string::npos);
}

TEST_CASE("a module's name is any text, a namespace's is not", "[codegen]") {
  Program program = program_of("\ndef forward(x: f32[2]):\n    y = neg(x)\n    return y\n");
  for (const auto& [name, wanted] :
       std::vector<std::pair<std::string, std::string>>{{"SmolLM2-135M, v1.0", "SmolLM2_135M_v1_0"},
                                                        {"3net", "v3net"},
                                                        {"", "v"},
                                                        {"a::b {", "a_b_"},
                                                        {"-", "v_"},
                                                        {"class", "class_"},
                                                        {"NULL", "NULL_"},
                                                        {"time", "time_"},
                                                        {"log2", "log2_"},
                                                        {"strlen", "strlen_"},
                                                        {"sqrtf", "sqrtf_"},
                                                        {"size_t", "size_t_"},
                                                        {"on_exit", "on_exit_"},
                                                        {"lgamma_r", "lgamma_r_"},
                                                        {"fread_unlocked", "fread_unlocked_"},
                                                        {"sched_param", "sched_param_"},
                                                        {"clock_gettime", "clock_gettime_"},
                                                        {"random_data", "random_data_"},
                                                        {"fd_set", "fd_set_"},
                                                        {"expf32", "expf32_"},
                                                        {"lockf64", "lockf64_"},
                                                        {"f32xaddf64x", "f32xaddf64x_"},
                                                        {"fmaximum_magf128", "fmaximum_magf128_"},
                                                        {"st_mtime", "st_mtime_"},
                                                        {"M_PIf", "M_PIf_"},
                                                        {"PRIx64", "PRIx64_"},
                                                        {"resnet64", "resnet64"},
                                                        {"Priors", "Priors"},
                                                        {"mnist", "mnist"}}) {
    program.name = name;
    CHECK(codegen(program).find("\nnamespace " + wanted + " {\n") != std::string::npos);
  }
}

TEST_CASE("programs whose code would not compute the same are refused", "[codegen]") {
  Program program = program_of("\ndef forward(x: f32[2]):\n    y = neg(x)\n    return y\n");
  program.folded.emplace("c", floats({1}, {1}));
  CHECK(expect_error(Errc::unsupported, [&] { codegen(program); }).find("'c'") !=
        std::string::npos);
  program.folded.clear();
  program.functions[0].body[0].operands[0] = 9;
  expect_error(Errc::bad_reference, [&] { codegen(program); });
}

}  // namespace
}  // namespace tenon::testing
