// Random programs on objects, beside an interpreter in which every value is a copy.
#include "core/runs.hpp"
#include "io/temp_folder.hpp"
#include "objects/log_class.hpp"
#include "support/random_program.hpp"
#include "support/remote_backend.hpp"

#include <tenon/optimize.hpp>
#include <tenon/program.hpp>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::testing {
namespace {

constexpr std::int64_t table_values[] = {5, -7, 11, 0, 23};

/// Writes functions that keep to the rules: each log is used once by what changes or moves it.
class Writer {
 public:
  explicit Writer(std::uint64_t seed) : engine_(seed) {}

  std::string program() {
    std::string main = function("forward", 1 + pick(3), 1 + pick(2), false);
    std::string text;
    for (const std::string& one : functions_) text += one + "\n";
    return program_text(text + main);
  }

 private:
  struct Function {
    std::string name;
    int logs, numbers;
    bool repeats;  ///< has an index and a scope as its last parameters
  };

  int pick(int below) { return std::uniform_int_distribution<int>(0, below - 1)(engine_); }
  std::string fresh(std::string_view kind) { return fmt::format("{}{}", kind, names_++); }
  void line(std::string text) { body_.back() += "    " + std::move(text) + "\n"; }
  std::string& log() {
    return logs_[static_cast<std::size_t>(pick(static_cast<int>(logs_.size())))];
  }
  const std::string& number() {
    return numbers_[static_cast<std::size_t>(pick(static_cast<int>(numbers_.size())))];
  }

  /// The text of a function of logs and numbers, which returns its logs in some order and as many
  /// numbers.
  std::string function(const std::string& name, int logs, int numbers, bool repeats) {
    auto outer_logs = std::exchange(logs_, {});
    auto outer_numbers = std::exchange(numbers_, {});
    body_.emplace_back();
    ++depth_;
    std::vector<std::string> parameters;
    for (int i = 0; i < logs; ++i) {
      logs_.push_back(fresh("a"));
      parameters.push_back(logs_.back() + ": Log");
    }
    for (int i = 0; i < numbers; ++i) {
      numbers_.push_back(fresh("x"));
      parameters.push_back(numbers_.back() + ": i64");
    }
    if (repeats) {
      numbers_.push_back(fresh("i"));
      parameters.push_back(numbers_.back() + ": i64");
      parameters.push_back("s: Scope");
    }
    const int steps = 2 + pick(7);
    for (int i = 0; i < steps; ++i) step();
    std::ranges::shuffle(logs_, engine_);
    std::vector<std::string> results = logs_;
    for (int i = 0; i < numbers; ++i) results.push_back(number());
    std::string text =
        fmt::format("def {}({}):\n{}    return {}\n", name, fmt::join(parameters, ", "),
                    body_.back(), fmt::join(results, ", "));
    --depth_;
    body_.pop_back();
    logs_ = std::move(outer_logs);
    numbers_ = std::move(outer_numbers);
    return text;
  }

  void step() {
    const int choice = pick(depth_ < 3 ? 9 : 7);
    if (choice < 3) {
      std::string& target = log();
      std::string made = fresh("a");
      line(fmt::format("{} = log_append({}, {})", made, target, number()));
      target = made;
    } else if (choice < 5) {
      std::string made = fresh("x");
      line(fmt::format("{} = log_digest({})", made, log()));
      numbers_.push_back(made);
    } else if (choice == 5) {
      const std::string table = fresh("t"), made = fresh("x");
      line(fmt::format("{}: Table = const(\"table\")", table));
      line(fmt::format("{} = table_at({}, {})", made, table, number()));
      numbers_.push_back(made);
    } else if (choice == 6) {
      const std::string made = fresh("x");
      line(fmt::format("{} = maximum({}, {})", made, number(), number()));
      numbers_.push_back(made);
    } else {
      jump(choice == 7);
    }
  }

  /// A call, or a loop, of a new function or one that is there.
  void jump(bool repeats) {
    const int logs = 1 + pick(static_cast<int>(logs_.size())), numbers = 1 + pick(2);
    const std::string name = fresh("f");
    functions_.push_back(function(name, logs, numbers, repeats));
    std::ranges::shuffle(logs_, engine_);
    std::vector<std::string> operands(logs_.begin(), logs_.begin() + logs);
    for (int i = 0; i < numbers; ++i) operands.push_back(number());
    std::string results = fresh("r");
    if (repeats) {
      const std::string packed = fresh("c"), scope = fresh("s");
      line(fmt::format("{} = pack({})", packed, fmt::join(operands, ", ")));
      line(fmt::format("{} = scope(\"layers\")", scope));
      line(fmt::format("{} = repeat({}, {}, {}, {})", results, name, pick(4), packed, scope));
    } else {
      line(fmt::format("{} = {}({})", results, name, fmt::join(operands, ", ")));
    }
    for (int i = 0; i < logs + numbers; ++i) {
      const std::string made = fresh(i < logs ? "a" : "x");
      line(fmt::format("{} = item({}, {})", made, results, i));
      if (i < logs) {
        logs_[static_cast<std::size_t>(i)] = made;
      } else {
        numbers_.push_back(made);
      }
    }
  }

  std::mt19937_64 engine_;
  std::vector<std::string> functions_, body_, logs_, numbers_;
  int names_ = 0, depth_ = 0;
};

struct Anything;
using Tuple = std::vector<Anything>;
struct Anything {
  std::variant<std::int64_t, Log, Tuple> value;
};

/// Runs a program without sharing anything: every value is its own.
class Interpreter {
 public:
  explicit Interpreter(const Program& program) : program_(program) {}

  Tuple call(const Function& function, const Tuple& arguments) {
    std::vector<Anything> values(function.values.size());
    std::ranges::copy(arguments, values.begin());
    for (const Instruction& instruction : function.body) {
      Tuple operands;
      for (const ValueId id : instruction.operands) operands.push_back(values[id]);
      values[instruction.result] = evaluate(instruction, operands);
    }
    Tuple results;
    for (const ValueId id : function.results) results.push_back(values[id]);
    return results;
  }

 private:
  static std::int64_t number(const Anything& value) { return std::get<std::int64_t>(value.value); }

  Anything evaluate(const Instruction& instruction, Tuple& operands) {
    using Kind = Instruction::Kind;
    switch (instruction.kind) {
      case Kind::constant:
      case Kind::scope:
        return {std::int64_t{0}};
      case Kind::pack:
        return {operands};
      case Kind::item:
        return std::get<Tuple>(operands[0].value)[static_cast<std::size_t>(instruction.index)];
      case Kind::call: {
        Tuple results = call(*program_.find(instruction.function), operands);
        return results.size() == 1 ? results[0] : Anything{results};
      }
      case Kind::repeat: {
        Tuple carry = std::get<Tuple>(operands[0].value);
        for (std::int64_t i = 0; i < instruction.count; ++i) {
          Tuple arguments = carry;
          arguments.push_back({i});
          arguments.push_back({std::int64_t{0}});
          carry = call(*program_.find(instruction.function), arguments);
        }
        return {carry};
      }
      case Kind::op:
        break;
    }
    const std::string_view op = instruction.op.def()->name;
    if (op == "log_append") {
      Log log = std::get<Log>(operands[0].value);
      log.entries.push_back(number(operands[1]));
      return {log};
    }
    if (op == "log_digest") return {digest(std::get<Log>(operands[0].value).entries)};
    if (op == "table_at") {
      return {entry_of({std::begin(table_values), std::end(table_values)}, number(operands[1]))};
    }
    return {std::max(number(operands[0]), number(operands[1]))};
  }

  const Program& program_;
};

Tuple inputs_of(const Program& program, std::mt19937_64& engine) {
  Tuple inputs;
  const Function& main = program.main();
  for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
    const auto any = [&] { return static_cast<std::int64_t>(engine() % 100); };
    if (main.values[i].shape->dtype() == i64) {
      inputs.push_back({any()});
    } else {
      inputs.push_back({Log{{any(), any()}}});
    }
  }
  return inputs;
}

std::vector<Buffer> buffers_of(const Tuple& values) {
  std::vector<Buffer> buffers;
  for (const Anything& value : values) {
    if (const auto* number = std::get_if<std::int64_t>(&value.value)) {
      buffers.push_back(device(HostBuffer::of<std::int64_t>(number_shape(), {*number})));
    } else {
      buffers.push_back(object_buffer(std::get<Log>(value.value)));
    }
  }
  return buffers;
}

void check_equal(const std::vector<Buffer>& got, const Tuple& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("result " << i);
    if (const auto* number = std::get_if<std::int64_t>(&want[i].value)) {
      CHECK(number_at(got[i].host_view()) == *number);
    } else {
      CHECK(object_of<Log>(got[i])->entries == std::get<Log>(want[i].value).entries);
    }
  }
}

std::shared_ptr<const WeightSet> weights(bool as_bytes) {
  const std::vector<std::int64_t> values(std::begin(table_values), std::end(table_values));
  const Buffer table = object_buffer(Table{values});
  std::map<std::string, Buffer> all;
  all.emplace("table", as_bytes ? device(save_object(table)) : table);
  return std::make_shared<const WeightSet>(std::move(all));
}

/// A session's runs: with inputs that the caller keeps, which stay as they are; that are moved in;
/// one that fails in between; forks.
void check_session(Session& session, const Tuple& inputs, const Tuple& want) {
  const std::vector<Buffer> kept = buffers_of(inputs);
  check_equal(session.forward(kept), want);
  check_equal(kept, inputs);
  check_equal(session.forward(buffers_of(inputs)), want);
  Session fork = session.fork();
  check_equal(fork.forward(kept), want);
  check_equal(session.submit(buffers_of(inputs)), want);
  check_equal(kept, inputs);
}

/// Runs that are watched, and one op at a time: the same, and what is shown are objects.
void check_watched(const Program& program, const Tuple& inputs, const Tuple& want,
                   const TempFolder& folder) {
  Session session(program, {.backends = backends("cpu", 2)});
  session.bind(weights(true));
  session.set_merge(false);
  session.set_dump_outputs((folder / "dump").string());
  std::size_t logs = 0;
  session.set_post_callback([&](const StepEvent& step) {
    for (const auto& shown : {step.inputs, step.outputs}) {
      for (const Buffer& buffer : shown) {
        if (buffer.shape().dtype() != object_type<Log>()) continue;
        ++logs;
        CHECK(object_of<Log>(buffer)->entries.size() >= 2);  // as the inputs have
      }
    }
  });
  check_session(session, inputs, want);
  // Up to the last log that is changed: a copy of it, since later ops may change it again.
  const Program written_out = unroll(program);
  const auto& body = written_out.main().body;
  const auto last = std::ranges::find_if(body.rbegin(), body.rend(), [](const Instruction& each) {
    return each.kind == Instruction::Kind::op && each.op.def()->name == "log_append";
  });
  CHECK((logs > 0) == std::ranges::any_of(body, [](const Instruction& each) {
          return each.kind == Instruction::Kind::op && each.op.def()->name.starts_with("log_");
        }));
  if (last == body.rend()) return;
  Session stepped(program, {.backends = backends("cpu", 2)});
  stepped.bind(weights(true));
  const std::vector<Buffer> kept = buffers_of(inputs);
  const Buffer made = stepped.step_to(written_out.main().values[last->result].name, kept);
  CHECK(object_of<Log>(made)->entries.size() > 2);
  check_equal(kept, inputs);
  check_equal(stepped.forward(kept), want);
}

/// Beside a device that the CPU cannot address, which takes what is no object, and moves what is one.
void check_device(const Program& program, const Tuple& inputs, const Tuple& want) {
  const auto fake = std::make_shared<FakeDevice>();
  const auto remote =
      std::make_shared<RemoteBackend>(fake, [](const Step& step) -> std::optional<std::string> {
        if (step.kind != Step::Kind::op || !step.op.def()->traits.takes_objects)
          return std::nullopt;
        return "objects";
      });
  for (const bool results_on_device : {false, true}) {
    INFO("on a device, results there: " << results_on_device);
    Session session(program, {.backends = {remote, backends("reference")[0]},
                              .results_on_device = results_on_device});
    session.bind(weights(true));
    const std::vector<Buffer> kept = buffers_of(inputs);
    for (int run = 0; run < 2; ++run) {
      std::vector<Buffer> results = session.forward(kept);
      for (Buffer& result : results) result = result.to(cpu_device()->default_mem_region());
      check_equal(results, want);
    }
    check_equal(kept, inputs);
  }
}

TEST_CASE("objects: random programs change copies as they change the objects", "[random]") {
  register_test_classes();
  const std::uint64_t first = fuzz_seed(20261127);
  const int rounds = fuzz_rounds(60);
  const TempFolder folder;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(round);
    const std::string text = Writer(seed).program();
    INFO("TENON_TEST_SEED=" << seed << "\n" << text);
    Program program = parse(text);
    CHECK(print(parse(print(program))) == print(program));
    std::mt19937_64 engine(seed);
    const Tuple inputs = inputs_of(program, engine);
    const Tuple want = Interpreter(program).call(program.main(), inputs);
    verify(program);
    if (round % 4 == 0) check_watched(program, inputs, want, folder);
    if (round % 4 == 1) check_device(program, inputs, want);
    for (const bool optimized : {false, true}) {
      Program chosen = program;
      if (optimized) optimize(chosen);
      for (const auto& [name, threads] : {std::pair("reference", 1), {"cpu", 1}, {"cpu", 3}}) {
        INFO(name << " of " << threads << " threads, optimised: " << optimized);
        Session session(chosen, {.backends = backends(name, threads)});
        session.bind(weights(threads == 3));
        check_session(session, inputs, want);
        if (round % 8 != 0) continue;
        session.save(folder / "session", {});
        Session loaded = Session::load(folder / "session", backends(name, threads));
        check_session(loaded, inputs, want);
      }
    }
  }
}

}  // namespace
}  // namespace tenon::testing
