// What a program computes from constants alone: once, when weights are bound.
#include "core/runs.hpp"
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"
#include "support/remote_backend.hpp"

#include <tenon/optimize.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon {
namespace {

using namespace testing;

std::vector<std::string> computed(Session& session, const std::vector<Shape>& inputs) {
  std::vector<std::string> values;
  for (const auto& value : session.report(inputs).computed) values.push_back(value.value);
  return values;
}

std::vector<std::string> run(Session& session, const std::vector<Shape>& inputs) {
  std::vector<std::string> values;
  for (const auto& part : session.report(inputs).parts) {
    values.insert(values.end(), part.values.begin(), part.values.end());
  }
  return values;
}

using Names = std::vector<std::string>;

Buffer ones(std::initializer_list<Axis> axes) {
  const Shape shape(axes, f32);
  const std::vector<float> numbers(static_cast<std::size_t>(shape.elements()), 1);
  return device(HostBuffer::of<float>(shape, numbers));
}

/// y = x + exp(w) of w's first row, from a value of its own for each layer.
constexpr const char* layers = R"(def layer(h: f32[2, 4], i: i64, s: Scope):
    w: f32[4] = const(s, "w")
    e = exp(w)
    y = mul(h, e)
    return y

def forward(x: f32[2, 4]):
    blk = scope("blk")
    carry = pack(x)
    t = repeat(layer, 3, carry, blk)
    y = item(t, 0)
    return y
)";

std::map<std::string, Buffer> layer_weights() {
  std::map<std::string, Buffer> weights;
  for (int i = 0; i < 3; ++i) {
    weights["blk." + std::to_string(i) + ".w"] =
        device(Random(static_cast<unsigned>(i)).uniform(Shape({4}, f32)));
  }
  return weights;
}

}  // namespace

TEST_CASE("constant part: runs do not compute what depends on constants alone") {
  const char* text = R"(def forward(x: f32[2, 3]):
    w: f32[3, 3] = const("w")
    one = full(value=1.0, dtype="f32")
    p = add(w, one)
    e = exp(p)
    t = permute(e, order=[1, 0])
    y = matmul(x, t)
    z = add(x, one)
    return y, z
)";
  const HostBuffer w = Random(1).uniform(Shape({3, 3}, f32)),
                   x = Random(2).uniform(Shape({2, 3}, f32));
  for (const char* backend : {"reference", "cpu"}) {
    Session made = session(program_of(text), {{"w", device(w)}}, backend);
    CHECK(computed(made, {x.shape()}) == Names{"one", "p", "e"});
    CHECK(run(made, {x.shape()}) == Names{"one", "y", "z"});
    for (const auto& results : {made.forward({device(x)}), made.forward({device(x)})}) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 3; ++j) {
          double sum = 0;
          for (int k = 0; k < 3; ++k) sum += x.at({i, k}) * std::exp(w.at({j, k}) + 1);
          CHECK(results[0].to_host().at({i, j}) == Approx(sum).epsilon(1e-5));
        }
      }
    }
    const std::string why =
        expect_error(Errc::bad_reference, [&] { made.step_to("e", {device(x)}); });
    CHECK(why.find("constants alone") != std::string::npos);
  }
}

TEST_CASE("constant part: each layer of a loop has its own, the same as unrolled") {
  const HostBuffer x = Random(9).uniform(Shape({2, 4}, f32));
  const auto weights = layer_weights();
  std::vector<float> want = values(device(x));
  for (std::size_t i = 0; i < want.size(); ++i) {
    for (int layer = 0; layer < 3; ++layer) {
      const auto w = values(weights.at("blk." + std::to_string(layer) + ".w"));
      want[i] *= std::exp(w[i % 4]);
    }
  }
  for (const char* backend : {"reference", "cpu"}) {
    Session loop = session(program_of(layers), weights, backend);
    Session straight = session(unroll(program_of(layers)), weights, backend);
    CHECK(computed(loop, {x.shape()}) == Names{"e", "e", "e"});
    CHECK(computed(straight, {x.shape()}).size() == 3);
    const std::vector<float> got = values(loop.forward({device(x)})[0]);
    CHECK(got == values(straight.forward({device(x)})[0]));
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-5));
  }
}

TEST_CASE("constant part: not what would take much more memory, nor numbers of codes") {
  // 1 KiB of weights may become 64 KiB, but not more.
  const auto outer = [](int rows) {
    return "def forward(x: f32[1]):\n    a: f32[" + std::to_string(rows) +
           ", 1] = const(\"a\")\n    b: f32[1, 128] = const(\"b\")\n    w = mul(a, b)\n"
           "    y = add(w, x)\n    return y\n";
  };
  const std::vector<Shape> one{Shape({1}, f32)};
  for (const auto& [rows, once] : {std::pair{128, true}, {129, false}}) {
    Session made =
        session(program_of(outer(rows)), {{"a", device(Random(1).uniform(Shape({rows, 1}, f32)))},
                                          {"b", device(Random(2).uniform(Shape({1, 128}, f32)))}});
    CHECK(computed(made, one) == (once ? Names{"w"} : Names{}));
  }
  const char* codes = R"(def forward(x: f32[2]):
    c: i8[2] = const("c")
    s: f32[] = const("s")
    w = dequantize_linear(c, s)
    y = add(w, x)
    return y
)";
  Session made = session(program_of(codes),
                         {{"c", device(HostBuffer::of<std::int8_t>(Shape({2}, i8), {1, 2}))},
                          {"s", device(floats({}, {2}))}});
  CHECK(computed(made, {Shape({2}, f32)}).empty());
  CHECK(values(made.forward({device(floats({2}, {10, 20}))})[0]) == std::vector<float>{12, 24});
}

TEST_CASE("constant part: of one program no more than some thousands") {
  // The first ops of a loop over 4096 slices are computed once, the others when the program runs.
  std::string body =
      "def body(sum: f32[], i: i64, s: Scope):\n    t: f32[4096] = const(\"t\")\n    w0 = "
      "select(t, i)\n";
  for (int op = 1; op <= 4; ++op) body += fmt::format("    w{} = neg(w{})\n", op, op - 1);
  const Program program = program_of(body + "    r = add(sum, w4)\n    return r\n\n" +
                                     R"(def forward(x: f32[]):
    carry = pack(x)
    l = scope("l")
    t = repeat(body, 4096, carry, l)
    y = item(t, 0)
    return y
)");
  Session made = session(program, {{"t", ones({4096})}});
  CHECK(computed(made, {Shape({}, f32)}).size() == 8192);
  CHECK(values(made.forward({device(floats({}, {0}))})[0]) == std::vector<float>{4096});
}

TEST_CASE("constant part: names of constants may be any text") {
  // A loop's slots and one whose name is theirs with a line break between them.
  const char* text = R"(def body(sum: f32[2], i: i64, s: Scope):
    w: f32[2] = const(s, "w")
    r = add(sum, w)
    return r

def forward(x: f32[2]):
    l = scope("l")
    carry = pack(x)
    t = repeat(body, 2, carry, l)
    y = item(t, 0)
    b: f32[3] = const("l.0.w\nl.1.w")
    z = neg(b)
    return y, z
)";
  Session made = session(program_of(text), {{"l.0.w", device(floats({2}, {1, 2}))},
                                            {"l.1.w", device(floats({2}, {10, 20}))},
                                            {"l.0.w\nl.1.w", device(floats({3}, {3, 4, 5}))}});
  const auto results = made.forward({device(floats({2}, {100, 100}))});
  CHECK(values(results[0]) == std::vector<float>{111, 122});
  CHECK(values(results[1]) == std::vector<float>{-3, -4, -5});
}

TEST_CASE("constant part: an index that only a branch reads is not looked at before it is taken") {
  const char* text = R"(def branch(g: bool, x: f32[2], i: i64, s: Scope):
    t: f32[4, 2] = const("t")
    n: i64 = const("n")
    w: f32[2] = select(t, n)
    return g, w

def forward(x: f32[2], g: bool):
    carry = pack(g, x)
    l = scope("l")
    t = repeat(branch, 1, carry, l, condition=0)
    y: f32[2] = item(t, 1)
    return y
)";
  const HostBuffer far = HostBuffer::of<std::int64_t>(Shape({}, i64), {99});
  Session made = session(program_of(text), {{"t", ones({4, 2})}, {"n", device(far)}});
  const auto given = [](bool which) {
    return std::vector{device(floats({2}, {5, 6})),
                       device(HostBuffer::of<bool>(Shape({}, boolean), {which}))};
  };
  CHECK(values(made.forward(given(false))[0]) == std::vector<float>{5, 6});
  expect_error(Errc::out_of_range, [&] { made.forward(given(true)); });
}

TEST_CASE("constant part: what is updated in place is no constant") {
  const char* text = R"(def forward(x: f32[1, 1, 1, 2], at: i32):
    w: f32[1, 1, 1, 4, 2] = const("w")
    room = full(dims=[1, 1, 1, 4, 2], value=3.0, dtype="f32")
    before = mul(w, room)
    layer = full(value=0.0, dtype="i64")
    filled = cache_update(room, layer, x, at)
    after = mul(w, filled)
    return before, after
)";
  Session made = session(program_of(text),
                         {{"w", device(floats({1, 1, 1, 4, 2}, {1, 1, 1, 1, 1, 1, 1, 1}))}}, "cpu");
  const std::vector<Buffer> results =
      made.forward({device(floats({1, 1, 1, 2}, {5, 6})), device(ints({}, {1}))});
  CHECK(values(results[0]) == std::vector<float>(8, 3));
  CHECK(values(results[1]) == std::vector<float>{3, 3, 5, 6, 3, 3, 3, 3});
}

TEST_CASE("constant part: plans that read it share it, and let it go") {
  const char* text = R"(def forward(x: f32[S, 4]):
    w: f32[4] = const("w")
    e = exp(w)
    y = add(x, e)
    return y
)";
  const auto weights = std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"w", device(floats({4}, {0, 0, 0, 0}))}});
  const auto backend = std::make_shared<RemoteBackend>(std::make_shared<FakeDevice>());
  for (int round = 1; round <= 2; ++round) {
    Session made(program_of(text), {.backends = {backend}});
    Session beside(program_of(text), {.backends = {backend}});
    for (Session* session : {&made, &beside}) session->bind(weights);
    for (const std::int64_t rows : {1, 2, 5}) {
      const HostBuffer x = HostBuffer::zeros(Shape({rows, 4}, f32));
      const std::vector<float> ones(static_cast<std::size_t>(rows) * 4, 1);
      CHECK(values(made.forward({device(x)})[0]) == ones);
      CHECK(values(beside.forward({device(x)})[0]) == ones);
    }
    // Three plans each, and once the constant part.
    CHECK(backend->compiled == round * 7);
  }
}

TEST_CASE("constant part: weights that are missing are named") {
  Session made(program_of(layers), {.backends = backends("cpu")});
  const Buffer x = device(HostBuffer::zeros(Shape({2, 4}, f32)));
  CHECK(expect_error(Errc::bad_reference, [&] { made.forward({x}); }).find("blk.0.w") !=
        std::string::npos);
  auto weights = layer_weights();
  weights["blk.1.w"] = device(floats({3}, {1, 2, 3}));
  made.bind(std::make_shared<const WeightSet>(weights));
  CHECK(expect_error(Errc::shape_mismatch, [&] { made.forward({x}); }).find("blk.1.w") !=
        std::string::npos);
}

TEST_CASE("constant part: in memory that the CPU cannot address, and without a backend for it") {
  const auto device_of = std::make_shared<FakeDevice>();
  const HostBuffer x = Random(9).uniform(Shape({2, 4}, f32));
  const auto weights = layer_weights();
  Session plain = session(program_of(layers), weights);
  const std::vector<float> want = values(plain.forward({device(x)})[0]);
  auto elsewhere = weights;
  for (auto& [name, weight] : elsewhere) weight = weight.to(device_of->dram());
  for (const bool is_elsewhere : {false, true}) {
    Session made(program_of(layers), {.backends = {std::make_shared<RemoteBackend>(device_of)}});
    made.bind(std::make_shared<const WeightSet>(is_elsewhere ? elsewhere : weights));
    CHECK(values(made.forward({device(x)})[0]) == want);
    const PlanReport report = made.report(std::vector{x.shape()});
    CHECK(report.computed.size() == 3);
    CHECK(report.weight_copies.size() == (is_elsewhere ? 3 : 0));
  }
}

TEST_CASE("constant part: a snapshot has what it is computed from only where that is read") {
  const TempFolder folder;
  const char* text = R"(def forward(x: f32[2, 64]):
    w: f32[64, 64] = const("w")
    v: f32[64] = const("v")
    e = exp(w)
    n = neg(v)
    p = linear(x, e)
    y = add(p, n)
    return y
)";
  const HostBuffer x = Random(1).uniform(Shape({2, 64}, f32));
  const std::map<std::string, Buffer> weights{
      {"w", device(Random(2).uniform(Shape({64, 64}, f32)))},
      {"v", device(Random(3).uniform(Shape({64}, f32)))}};
  register_cpu_backend();
  const std::vector<BackendPtr> cpu{make_backend("cpu", {.threads = 1})};
  Session made(program_of(text), {.backends = cpu});
  made.bind(std::make_shared<const WeightSet>(weights));
  const std::vector<float> want = values(made.forward({device(x)})[0]);
  made.save(folder / "a.snapshot", {.weights = SavedWeights::needed});
  Session loaded = Session::load(folder / "a.snapshot", cpu);
  CHECK(values(loaded.forward({device(x)})[0]) == want);
  // It has neither weight.
  made.save(folder / "b.snapshot", {.weights = SavedWeights::digests});
  CHECK(std::filesystem::file_size(folder / "b.snapshot") < 64 * 64 * 4);
  Session asked =
      Session::load(folder / "b.snapshot", cpu, std::make_shared<const WeightSet>(weights));
  CHECK(values(asked.forward({device(x)})[0]) == want);
}

TEST_CASE("constant part: a batch norm becomes a part of the convolution before it") {
  const char* text = R"(def forward(x: f32[1, 3, 8, 8]):
    w: f32[4, 3, 3, 3] = const("w")
    mean: f32[4] = const("mean")
    variance: f32[4] = const("variance")
    weight: f32[4] = const("weight")
    bias: f32[4] = const("bias")
    c = conv2d(x, w, padding=[1, 1])
    n = batch_norm(c, mean, variance, weight, bias, eps=0.001)
    y = relu(n)
    return y
)";
  std::map<std::string, Buffer> weights{{"w", device(Random(1).uniform(Shape({4, 3, 3, 3}, f32)))},
                                        {"variance", device(floats({4}, {0.5F, 1, 2, 3}))}};
  for (const char* name : {"mean", "weight", "bias"}) {
    weights[name] = device(Random(weights.size()).uniform(Shape({4}, f32)));
  }
  const HostBuffer x = Random(5).uniform(Shape({1, 3, 8, 8}, f32));
  Program program = program_of(text);
  const std::vector<float> want = values(session(program, weights).forward({device(x)})[0]);
  optimize(program);
  for (const char* backend : {"reference", "cpu"}) {
    Session made = session(program, weights, backend);
    CHECK(run(made, {x.shape()}) == Names{"n", "y"});
    const std::vector<float> got = values(made.forward({device(x)})[0]);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(1e-5));
  }
}

/// The root of the mean square of differences.
double distance(const HostBuffer& a, const HostBuffer& b) {
  const std::vector<double> left = elements(a), right = elements(b);
  double sum = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    sum += (left[i] - right[i]) * (left[i] - right[i]);
  }
  return std::sqrt(sum / static_cast<double>(left.size()));
}

TEST_CASE("constant part: a batch norm in a convolution of 16 bits is as accurate as after it") {
  Random random;
  for (const DType dtype : {f16, bf16}) {
    for (int round = 0; round < 3; ++round) {
      const std::int64_t channels = random.integer(2, 24), outputs = random.integer(8, 20);
      const Shape row({outputs}, dtype);
      const std::map<std::string, HostBuffer> arrays{
          {"x", random.uniform(Shape({1, channels, 7, 9}, dtype), 0, 2)},
          {"w", random.uniform(Shape({outputs, channels, 3, 3}, dtype), -0.3, 0.3)},
          {"mean", random.uniform(row, -0.5, 0.5)},
          {"variance", random.uniform(row, 0.3, 2.5)},
          {"weight", random.uniform(row, 0.3, 1.5)},
          {"bias", random.uniform(row, -0.5, 0.5)}};
      // In f64 the numbers are exact beside those of 16 bits.
      const auto result = [&](DType type, bool optimizes) {
        std::string text = "def forward(x: " + to_string(arrays.at("x").shape().with_dtype(type));
        text += "):\n";
        std::map<std::string, Buffer> weights;
        for (const auto& [name, array] : arrays) {
          if (name == "x") continue;
          weights[name] = device(array.to(type));
          text += "    " + name + ": " + to_string(array.shape().with_dtype(type)) + " = const(\"";
          text += name + "\")\n";
        }
        text +=
            "    c = conv2d(x, w, padding=[1, 1])\n"
            "    y = batch_norm(c, mean, variance, weight, bias)\n    return y\n";
        Program program = program_of(text);
        if (optimizes) optimize(program);
        CHECK((print(program).find("batch_norm") == std::string::npos) == optimizes);
        return session(program, weights).forward({device(arrays.at("x").to(type))})[0].to_host();
      };
      const HostBuffer truth = result(f64, false);
      const double apart = distance(result(dtype, false), truth);
      const double fused = distance(result(dtype, true), truth);
      INFO(to_string(arrays.at("w").shape()) << ": " << fused << " beside " << apart);
      CHECK(fused > 0);
      CHECK(fused < 1.7 * apart);
    }
  }
}

}  // namespace tenon
