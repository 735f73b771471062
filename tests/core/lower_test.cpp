// Lowered programs: memory planning, shared storage, and that every value is correct.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/plan_bounds.hpp"
#include "support/program_text.hpp"
#include "support/random_program.hpp"
#include "support/remote_backend.hpp"

#include <tenon/lowered.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon {
namespace {

using namespace testing;

/// A naive evaluator of programs, value by value: no plan, no shared memory, functions called as
/// written.
class Evaluator {
 public:
  Evaluator(const Program& program, const std::map<std::string, HostBuffer>& weights)
      : program_(program), weights_(weights) {}

  std::vector<HostBuffer> run(const std::vector<HostBuffer>& inputs) {
    std::vector<Item> arguments;
    for (const HostBuffer& input : inputs) arguments.push_back({input});
    std::vector<HostBuffer> results;
    for (const Item& item : call(program_.main(), std::move(arguments))) {
      results.push_back(std::get<HostBuffer>(item.value));
    }
    return results;
  }

 private:
  struct Item;
  using Tuple = std::vector<Item>;
  struct Item {
    std::variant<HostBuffer, Tuple, std::string> value;  // a scope is its prefix
  };

  static std::string join(const std::string& prefix, const std::string& name) {
    return prefix.empty() ? name : prefix + "." + name;
  }

  Tuple call(const Function& function, Tuple arguments) {
    Tuple known(function.values.size());
    std::ranges::move(arguments, known.begin());
    for (const Instruction& instruction : function.body) {
      Tuple operands;
      for (const ValueId id : instruction.operands) operands.push_back(known[id]);
      known[instruction.result] = evaluate(instruction, operands);
    }
    Tuple results;
    for (const ValueId id : function.results) results.push_back(known[id]);
    return results;
  }

  Item evaluate(const Instruction& instruction, const Tuple& operands) {
    switch (instruction.kind) {
      case Instruction::Kind::op: {
        std::vector<HostBuffer> inputs;
        for (const Item& item : operands) inputs.push_back(std::get<HostBuffer>(item.value));
        return {run_reference(instruction.op, inputs)};
      }
      case Instruction::Kind::constant: {
        const std::string scope = operands.empty() ? "" : std::get<std::string>(operands[0].value);
        return {weights_.at(join(scope, instruction.text))};
      }
      case Instruction::Kind::scope:
        return {join(operands.empty() ? "" : std::get<std::string>(operands[0].value),
                     instruction.text)};
      case Instruction::Kind::pack:
        return {operands};
      case Instruction::Kind::item:
        return std::get<Tuple>(operands[0].value)[static_cast<std::size_t>(instruction.index)];
      case Instruction::Kind::call: {
        Tuple results = call(*program_.find(instruction.function), operands);
        if (results.size() == 1) return results[0];
        return {std::move(results)};
      }
      case Instruction::Kind::repeat: {
        Tuple carry = std::get<Tuple>(operands[0].value);
        const std::string& scope = std::get<std::string>(operands[1].value);
        for (std::int64_t i = instruction.first; i < instruction.first + instruction.count; ++i) {
          Tuple arguments = carry;
          arguments.push_back({HostBuffer::of<std::int64_t>(Shape({}, i64), {i})});
          arguments.push_back({join(scope, std::to_string(i))});
          arguments.insert(arguments.end(), operands.begin() + 2, operands.end());
          carry = call(*program_.find(instruction.function), std::move(arguments));
        }
        return {std::move(carry)};
      }
    }
    throw std::logic_error("an instruction of no kind");
  }

  const Program& program_;
  const std::map<std::string, HostBuffer>& weights_;
};

std::vector<Shape> shapes_of(const std::vector<HostBuffer>& arrays) {
  std::vector<Shape> shapes;
  for (const HostBuffer& array : arrays) shapes.push_back(array.shape());
  return shapes;
}

/// Runs twice, the second time on used memory; false when a result differs.
bool check_session(Session& run, const std::vector<HostBuffer>& inputs,
                   const std::vector<Buffer>& given, const std::vector<HostBuffer>& want) {
  for (int round = 0; round < 2; ++round) {
    const std::vector<Buffer> got = run.forward(given);
    if (got.size() != want.size()) {
      FAIL_CHECK("another number of results");
      return false;
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("result " << i << ", round " << round);
      if (!same_bits(got[i].to_host(), want[i])) {
        CHECK(to_string(got[i].to_host()) == to_string(want[i]));
        FAIL_CHECK("the results differ");
        return false;
      }
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!same_bits(given[i].to_host(), inputs[i])) {
        FAIL_CHECK("input " << i << " was overwritten");
        return false;
      }
    }
  }
  return true;
}

/// Runs a random program by the evaluator and by a session; whether there was something to compare.
bool check_random(std::uint64_t seed, const RandomProgramOptions& options) {
  INFO("seed " << seed);
  RandomProgram random(seed);
  Program program = random.make(options);
  verify(program);
  INFO(print(program));
  const std::vector<HostBuffer> inputs = random.inputs(program);
  std::map<std::string, HostBuffer> weights;
  std::optional<std::vector<HostBuffer>> want;
  std::map<std::string, Buffer> bound;
  std::vector<Buffer> given;
  for (const HostBuffer& input : inputs) given.push_back(device(input));
  try {
    const Lowered plan = lower(program, shapes_of(inputs));
    CHECK(out_of_bounds(plan) == "");
    for (const ConstantSlot& slot : plan.constants) {
      weights.emplace(slot.name, random.value(slot.shape));
      bound.emplace(slot.name, device(weights.at(slot.name)));
    }
    want = Evaluator(program, weights).run(inputs);
  } catch (const Error& error) {
    if (error.code() != Errc::out_of_range) throw;  // an index of the data's choosing
    CHECK_THROWS_AS(session(program, bound).forward(given), Error);
    return false;
  }
  std::vector<Session> sessions{session(program, bound), session(unroll(program), bound)};
  sessions.push_back(session(program, bound));
  sessions.back().set_merge(false);
  // Every second step, by its name, somewhere that the CPU cannot reach.
  const auto device = std::make_shared<FakeDevice>();
  const auto odd = [](const Step& step) -> std::optional<std::string> {
    if (std::hash<std::string>()(step.value) % 2 == 0) return std::nullopt;
    return "not here";
  };
  for (const bool unrolled : {false, true}) {
    const auto remote = std::make_shared<RemoteBackend>(device, odd, unrolled);
    sessions.emplace_back(program, SessionOptions{.backends = {remote, backends("reference")[0]}});
    sessions.back().bind(std::make_shared<const WeightSet>(bound));
  }
  for (std::size_t which = 0; which < sessions.size(); ++which) {
    INFO("session " << which);
    if (!check_session(sessions[which], inputs, given, *want)) return true;
  }
  return true;
}

Lowered lowered(std::string_view functions, std::initializer_list<Shape> inputs) {
  Program program = program_of(functions);
  verify(program);
  return lower(program, std::span<const Shape>(inputs.begin(), inputs.size()));
}

}  // namespace

TEST_CASE("Lowering: random programs keep every value", "[fuzz]") {
  const std::uint64_t seed = fuzz_seed(20261121);
  const int rounds = fuzz_rounds(150);
  int compared = 0;
  for (int i = 0; i < rounds; ++i) {
    if (check_random(seed + static_cast<std::uint64_t>(i), {.instructions = 24})) ++compared;
  }
  CHECK(compared > rounds / 4);
}

TEST_CASE("Lowering: random programs with calls and loops keep every value", "[fuzz]") {
  const std::uint64_t seed = fuzz_seed(20261121);
  const int rounds = fuzz_rounds(150);
  int compared = 0;
  for (int i = 0; i < rounds; ++i) {
    if (check_random(seed + static_cast<std::uint64_t>(i), {.instructions = 12, .callees = 3}))
      ++compared;
  }
  CHECK(compared > rounds / 4);
}

TEST_CASE("Lowering: a chain of matrix multiplications needs two buffers, not ten") {
  std::string text = "def forward(x: f32[64, 64]):\n    y0 = matmul(x, x)\n";
  for (int i = 1; i < 10; ++i) {
    text += "    y" + std::to_string(i) + " = matmul(y" + std::to_string(i - 1) + ", x)\n";
  }
  const Lowered plan = lowered(text + "    return y9\n", {Shape({64, 64}, f32)});
  constexpr std::int64_t bytes = 64 * 64 * 4;
  CHECK(plan.activation_bytes == 10 * bytes);
  CHECK(plan.slab_bytes <= 2 * bytes);
  CHECK(plan.slab_bytes >= bytes);
  CHECK(plan.steps.size() == 10);
  CHECK(plan.steps.back().output.place.kind == Place::Kind::output);  // the result needs no copy
}

TEST_CASE("Lowering: pointwise ops overwrite values that are not read later") {
  const Lowered plan = lowered(R"(def forward(x: f32[256]):
    a = exp(x)
    b = neg(a)
    c = tanh(b)
    d = sum(c, axes=[0], keep_dims=True)
    return d
)",
                               {Shape({256}, f32)});
  CHECK(plan.slab_bytes == 256 * 4);
  CHECK(plan.activation_bytes == 3 * 256 * 4 + 4);
  for (const Step& step : plan.steps) {
    for (const Operand& input : step.inputs) CHECK_FALSE(input.place.kind == Place::Kind::output);
  }
  CHECK_FALSE(plan.inputs[0].updated);  // never over an input
}

TEST_CASE("Lowering: state that a later loop updates is handed through earlier ones in place") {
  const Lowered plan = lowered(R"(def other(x: f32[8], state: f32[4, 8], index: i64, s: Scope):
    y = exp(x)
    return y, state

def keeps(x: f32[8], state: f32[4, 8], index: i64, s: Scope):
    next = update_slice(state, index, x)
    return x, next

def forward(x: f32[8], state: f32[4, 8]):
    first = pack(x, state)
    scope0 = scope("layer")
    one = repeat(other, 2, first, scope0)
    x1 = item(one, 0)
    s1 = item(one, 1)
    second = pack(x1, s1)
    two = repeat(keeps, 1, second, scope0, first=2)
    x2 = item(two, 0)
    s2 = item(two, 1)
    third = pack(x2, s2)
    three = repeat(other, 1, third, scope0, first=3)
    y = item(three, 0)
    s3 = item(three, 1)
    return y, s3
)",
                               {Shape({8}, f32), Shape({4, 8}, f32)});
  CHECK(plan.inputs[1].updated);
  CHECK_FALSE(plan.inputs[1].reusable);  // it is anyway
  CHECK(plan.outputs[1].from_input == 1u);
  CHECK(plan.slab_bytes < 4 * 8 * 4);
}

TEST_CASE("Lowering: state that an earlier loop updates is read by later ones in place") {
  const Lowered plan = lowered(R"(def keeps(x: f32[8], state: f32[4, 8], index: i64, s: Scope):
    next = update_slice(state, index, x)
    return x, next

def reads(x: f32[8], state: f32[4, 8], index: i64, s: Scope):
    row = select(state, index)
    y = add(x, row)
    return y, state

def forward(x: f32[8], state: f32[4, 8]):
    first = pack(x, state)
    scope0 = scope("layer")
    one = repeat(keeps, 2, first, scope0)
    x1 = item(one, 0)
    s1 = item(one, 1)
    second = pack(x1, s1)
    two = repeat(reads, 2, second, scope0, first=0)
    y = item(two, 0)
    s2 = item(two, 1)
    return y, s2
)",
                               {Shape({8}, f32), Shape({4, 8}, f32)});
  CHECK(plan.inputs[1].updated);
  CHECK(plan.outputs[1].from_input == 1u);
  CHECK(plan.slab_bytes < 4 * 8 * 4);
}

TEST_CASE("Lowering: a loop that computes its state anew leaves an updated input alone") {
  const Lowered plan = lowered(R"(def keeps(state: f32[4, 8], index: i64, s: Scope, row: f32[8]):
    next = update_slice(state, index, row)
    return next

def turns(state: f32[4, 8], index: i64, s: Scope):
    y = exp(state)
    return y

def forward(x: f32[8], state: f32[4, 8]):
    first = pack(state)
    scope0 = scope("layer")
    one = repeat(keeps, 2, first, scope0, x)
    s1 = item(one, 0)
    second = pack(s1)
    two = repeat(turns, 2, second, scope0)
    y = item(two, 0)
    return y
)",
                               {Shape({8}, f32), Shape({4, 8}, f32)});
  CHECK(plan.inputs[1].updated);
  CHECK_FALSE(plan.outputs[0].from_input);  // all else of it stays what it was
}

TEST_CASE("Lowering: a slice at a loop's index plus or minus a number is a view") {
  const auto plan_of = [](const std::string& at, double number, std::int64_t first) {
    return lowered(
        fmt::format(R"(def body(x: f32[8], index: i64, s: Scope, rows: f32[4, 8], number: i64):
    at = {}
    row = select(rows, at)
    y = add(x, row)
    return y

def forward(x: f32[8], rows: f32[4, 8]):
    number = full(value={:.1f}, dtype="i64")
    c0 = pack(x)
    s0 = scope("layer")
    c1 = repeat(body, 2, c0, s0, rows, number, first={})
    y = item(c1, 0)
    return y
)",
                    at, number, first),
        {Shape({8}, f32), Shape({4, 8}, f32)});
  };
  const auto read_from = [](const Lowered& plan) -> std::int64_t {
    for (const Step& step : plan.steps) {
      for (const Step& inner : step.body) {
        for (const Operand& input : inner.inputs) {
          if (input.place.kind != Place::Kind::input || input.place.index != 1) continue;
          CHECK(input.shape == Shape({8}, f32));
          CHECK(input.place.byte_step[0] == 32);
          return input.place.offset;
        }
      }
    }
    return -1;
  };
  CHECK(read_from(plan_of("sub(index, number)", 3, 4)) == 32);
  CHECK(read_from(plan_of("add(index, number)", 1, 0)) == 32);
  CHECK(read_from(plan_of("add(number, index)", -3, 3)) == 0);
  const struct {
    const char* at;
    double number;
    int first;
  } outside[] = {
      {"sub(index, number)", 3, 2}, {"sub(index, number)", 3, 6}, {"add(index, number)", 3, 0}};
  for (const auto& each : outside) {
    INFO(each.at << ", " << each.number << " from " << each.first);
    expect_error(Errc::out_of_range, [&] { plan_of(each.at, each.number, each.first); });
  }
  // A number minus the index counts down: that is no view, but read when it runs.
  CHECK_NOTHROW(plan_of("sub(number, index)", 3, 0));
}

TEST_CASE("Lowering: a loop's index plus a number beyond all rows is no view of them") {
  const auto plan_of = [](std::int64_t first, std::int64_t number) {
    Program program = program_of(fmt::format(R"(
def body(x: f32[8], index: i64, s: Scope, rows: f32[4, 8], number: i64):
    at = add(index, number)
    row = select(rows, at)
    y = add(x, row)
    return y

def forward(x: f32[8], rows: f32[4, 8]):
    number: i64 = const("number")
    c0 = pack(x)
    s0 = scope("layer")
    c1 = repeat(body, 2000, c0, s0, rows, number, first={})
    y = item(c1, 0)
    return y
)",
                                             first));
    program.folded["number"] = HostBuffer::of<std::int64_t>(Shape({}, i64), {number});
    verify(program);
    return lower(program, std::vector{Shape({8}, f32), Shape({4, 8}, f32)});
  };
  expect_error(Errc::out_of_range, [&] { plan_of(0, INT64_MIN); });
  expect_error(Errc::out_of_range, [&] { plan_of(0, INT64_MAX - 1000); });  // where it ends, wraps
  // Where the sum wraps around, the op gets all rows, and refuses the place when it runs.
  const Lowered plan = plan_of(2000, INT64_MAX - 1000);
  std::vector<Shape> read;
  for (const Step& step : plan.steps) {
    for (const Step& inner : step.body) {
      for (const Operand& input : inner.inputs) {
        if (input.place.kind == Place::Kind::input && input.place.index == 1)
          read.push_back(input.shape);
      }
    }
  }
  CHECK(read == std::vector{Shape({4, 8}, f32)});
}

TEST_CASE("Lowering: a value that is needed later is not written over") {
  const Lowered plan = lowered(R"(def forward(x: f32[256]):
    a = exp(x)
    b = neg(a)
    c = mul(a, b)
    d = sum(c, axes=[0], keep_dims=True)
    return d
)",
                               {Shape({256}, f32)});
  CHECK(plan.slab_bytes == 2 * 256 * 4);
}

TEST_CASE("Lowering: a sum is written over its older operand, unless the other is made from it") {
  const auto plan = [](const char* factor) {
    return lowered(std::string(R"(def forward(x: f32[64, 64]):
    a = exp(x)
    t = matmul(a, a)
    b = matmul(t, )") + factor +
                       R"()
    c = add(b, a)
    d = matmul(c, c)
    return d
)",
                   {Shape({64, 64}, f32)});
  };
  const Lowered apart = plan("t");
  REQUIRE(apart.steps.size() == 5);
  CHECK(apart.steps[3].output == apart.steps[0].output);
  const Lowered made_from_it = plan("a");
  CHECK(made_from_it.steps[3].output == made_from_it.steps[2].output);
}

TEST_CASE("Lowering: views cost nothing") {
  const Lowered plan = lowered(R"(def forward(x: f32[4, 6]):
    a = permute(x, order=[1, 0])
    b = slice(a, axis=0, begin=1, end=5)
    y = neg(b)
    return y
)",
                               {Shape({4, 6}, f32)});
  REQUIRE(plan.steps.size() == 1);
  const Operand& input = plan.steps[0].inputs[0];
  CHECK(input.place.kind == Place::Kind::input);
  CHECK(input.place.offset == 4);
  CHECK(input.shape == Shape({4, 4}, f32));
  CHECK(input.strides[0] == 4);
  CHECK(input.strides[1] == 24);
  CHECK(plan.slab_bytes == 0);
}

TEST_CASE("Lowering: places in the slab are aligned for vectors") {
  const Lowered plan = lowered(R"(def forward(x: f32[7, 7]):
    a = matmul(x, x)
    b = matmul(a, x)
    c = matmul(a, b)
    d = matmul(c, b)
    y = matmul(d, a)
    return y
)",
                               {Shape({7, 7}, f32)});
  for (const Step& step : plan.steps) {
    if (step.output.place.kind == Place::Kind::slab) CHECK(step.output.place.offset % 64 == 0);
  }
}

TEST_CASE("Lowering: sizes that do not fit the declared types") {
  const std::string text = R"(def forward(x: f32[S, 4], y: f32[S, 4]):
    z = add(x, y)
    return z
)";
  CHECK(lowered(text, {Shape({3, 4}, f32), Shape({3, 4}, f32)}).outputs[0].shape ==
        Shape({3, 4}, f32));
  expect_error(Errc::bad_input, [&] { lowered(text, {Shape({3, 4}, f32), Shape({2, 4}, f32)}); });
  expect_error(Errc::bad_input, [&] { lowered(text, {Shape({3, 4}, f32)}); });
  expect_error(Errc::bad_input, [&] { lowered(text, {Shape({3, 4}, f32), Shape({3, 4}, f16)}); });
  expect_error(Errc::bad_input,
               [&] { lowered(text, {Shape({symbol("S"), 4}, f32), Shape({3, 4}, f32)}); });
}

TEST_CASE("Lowering: a constant without a type asks for one") {
  const std::string text = R"(def forward(x: f32[4]):
    w = const("w")
    z = add(x, w)
    return z
)";
  const std::string what =
      expect_error(Errc::bad_reference, [&] { lowered(text, {Shape({4}, f32)}); });
  CHECK(what.find("'w'") != std::string::npos);
  Program program = program_of(text);
  verify(program);
  const Shape inputs[] = {Shape({4}, f32)};
  const Lowered plan = lower(program, inputs, [](const std::string& name) -> std::optional<Shape> {
    CHECK(name == "w");
    return Shape({4}, f32);
  });
  REQUIRE(plan.constants.size() == 1);
  CHECK(plan.constants[0].shape == Shape({4}, f32));
}

TEST_CASE("Lowering: one constant has one type, whoever reads it") {
  // Nobody verified this program.
  Program program = program_of(R"(def forward(x: f32[4]):
    a: f32[4] = const("w")
    b: f32[4] = const("w")
    y = add(x, a)
    z = add(y, b)
    return z
)");
  const Shape inputs[] = {Shape({4}, f32)};
  CHECK(lower(program, inputs).constants.size() == 1);
  Function& main = program.functions[0];
  main.values[2].shape = Shape({400}, f32);
  const std::string what = expect_error(Errc::shape_mismatch, [&] { lower(program, inputs); });
  for (const char* part : {"'w'", "f32[4]", "f32[400]"}) {
    INFO(what << " should hold " << part);
    CHECK(what.find(part) != std::string::npos);
  }
  // The same through a scope.
  program = program_of(R"(def forward(x: f32[4]):
    s = scope("s")
    a: f32[4] = const(s, "w")
    b: f32[4] = const("s.w")
    y = add(x, a)
    z = add(y, b)
    return z
)");
  program.functions[0].values[3].shape = Shape({400}, f32);
  expect_error(Errc::shape_mismatch, [&] { lower(program, inputs); });
}

TEST_CASE("Lowering: memory beyond what an integer counts is refused") {
  // Each result has 2^62 bytes.
  const std::string text = R"(def forward(n: f32[1], m: f32[1]):
    a = broadcast_to(n, dims=[1152921504606846976])
    b = broadcast_to(m, dims=[1152921504606846976])
    c = exp(a)
    d = exp(b)
    e = add(c, d)
    y = add(e, c)
    return y
)";
  expect_error(Errc::shape_overflow, [&] { lowered(text, {Shape({1}, f32), Shape({1}, f32)}); });
  // A result of 2^62 bytes, in four rounds.
  const std::string rounds = R"(def block(x: f32[1], i: i64, s: Scope):
    a = broadcast_to(x, dims=[1152921504606846976])
    b = exp(a)
    y = slice(b, axis=0, begin=0, end=1)
    return y

def forward(x: f32[1]):
    s = scope("layers")
    t = pack(x)
    r = repeat(block, 4, t, s)
    y = item(r, 0)
    return y
)";
  expect_error(Errc::shape_overflow, [&] { lowered(rounds, {Shape({1}, f32)}); });
}

TEST_CASE("Lowering: a loop that never runs hands on what it carries") {
  const std::string text = R"(def block(x: f32[4], i: i64, s: Scope):
    a: f32[4] = const(s, "a")
    b: f32[2, 4] = const(s, "b")
    c = sum(b, axes=[0])
    y = add(x, a)
    z = add(y, c)
    return z

def forward(x: f32[4]):
    s = scope("layers")
    t = pack(x)
    r = repeat(block, 0, t, s)
    y = item(r, 0)
    return y
)";
  const Lowered plan = lowered(text, {Shape({4}, f32)});
  CHECK(plan.constants.empty());
  CHECK(out_of_bounds(plan) == "");
  for (const char* backend : {"reference", "cpu"}) {
    Session run = session(program_of(text), {}, backend);
    CHECK(values(run.forward({device(floats({4}, {1, 2, 3, 4}))})[0]) ==
          std::vector<float>{1, 2, 3, 4});
  }
}

}  // namespace tenon
