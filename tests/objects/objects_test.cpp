// Classes as element types: what is refused, saved, copied, and when.
#include "core/runs.hpp"
#include "io/temp_folder.hpp"
#include "objects/log_class.hpp"
#include "support/expect_error.hpp"

#include <tenon/eager.hpp>
#include <tenon/exe.hpp>
#include <tenon/ops.hpp>
#include <tenon/program.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <source_location>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// Of a class that cannot be copied, saved or loaded.
struct Handle {
  Handle() = default;
  Handle(const Handle&) = delete;
  int uses = 0;
};

struct HandleUse {
  static constexpr std::string_view name = "handle_use";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.updates_input = 0, .takes_objects = true};
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const { return in[0]; }
  void reference(std::span<const HostView> in, const HostView& out) const {
    ++update_object<Handle>(in[0], out).uses;
  }
};

/// Says that it takes objects, and makes one of nothing.
struct LogOfNumber {
  static constexpr std::string_view name = "log_of_number";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.takes_objects = true};
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const {
    return in[0].dtype() == i64 ? object_shape<Log>() : in[0];
  }
};

std::source_location here(const std::source_location& where = std::source_location::current()) {
  return where;
}

Program parsed(std::string_view functions) {
  register_test_classes();
  return parse(program_text(functions));
}

std::string alias_of(std::string_view functions) {
  return expect_error(Errc::alias, [&] { parsed(functions); });
}

Buffer number(std::int64_t value) {
  return device(HostBuffer::of<std::int64_t>(number_shape(), {value}));
}

TEST_CASE("objects: a class is an element type of its own name") {
  register_test_classes();
  const DType log = object_type<Log>();
  CHECK(name(log) == "Log");
  CHECK(facts(log).kind == DTypeKind::object);
  CHECK(is_object(log));
  CHECK(is_linear_object(log));
  CHECK_FALSE(is_linear_object(object_type<Table>()));
  CHECK_FALSE(is_floating(log));
  CHECK_FALSE(is_integer(log));
  CHECK(find_object_type("Log") == log);
  CHECK_FALSE(find_object_type("Nothing"));
  CHECK_FALSE(find_dtype("Log"));
  CHECK(register_object<Log>("Log") == log);
  CHECK(contains(expect_error(Errc::duplicate_name, [] { register_object<Log>("Diary"); }),
                 "already registered as 'Log'"));
  CHECK_FALSE(find_object_type("Diary"));
  CHECK(object_type<Log>() == log);
  CHECK(contains(to_string(object_shape<Log>()), "Log"));

  expect_error(Errc::duplicate_name, [] { register_object<int>("Log"); });
  expect_error(Errc::duplicate_name, [] { register_object<int>("Scope"); });
  for (const char* name : {"", "log", "1Log", "Lo g", "f32"}) {
    expect_error(Errc::bad_argument, [&] { register_object<int>(name); });
  }
  expect_error(Errc::call_order, [] { object_type<float>(); });
  expect_error(Errc::bad_type, [] { object_class(f32); });
  expect_error(Errc::bad_type, [] { object_class(static_cast<DType>(250)); });
  CHECK(name(static_cast<DType>(250)) == "object");
}

TEST_CASE("objects: a buffer shares an object, and memory is none") {
  register_test_classes();
  const auto log = std::make_shared<Log>(Log{{1, 2}});
  const Buffer buffer = object_buffer(log);
  CHECK(object_of<Log>(buffer) == log);
  CHECK(log.use_count() == 2);
  CHECK(object_of<Log>(buffer.to(cpu_device()->default_mem_region())) == log);
  CHECK(buffer.to_host().contiguous().shape() == object_shape<Log>());
  std::ostringstream text;
  text << buffer.to_host();
  CHECK(contains(text.str(), "an object"));

  const Shape shape = object_shape<Log>();
  expect_error(Errc::bad_type, [&] { object_of<Table>(buffer); });
  expect_error(Errc::bad_type, [] { object_of(number(1), i64); });
  expect_error(Errc::bad_type, [] { object_at(number(1).host_view(), i64); });
  expect_error(Errc::bad_argument, [] { object_buffer(std::shared_ptr<Log>()); });
  expect_error(Errc::call_order, [&] {
    object_of<Log>(Buffer::allocate(shape, cpu_device()->default_mem_region()));
  });
  expect_error(Errc::unsupported_dtype, [&] { HostBuffer::zeros(shape); });
  std::int64_t memory = 0;
  expect_error(Errc::unsupported_dtype, [&] { HostBuffer::borrow(&memory, shape); });
  expect_error(Errc::bad_argument, [&] { Buffer(shape, number(1).chunk()); });
  expect_error(Errc::bad_argument, [&] { Buffer(Shape({1}, object_type<Log>()), buffer.chunk()); });
  expect_error(Errc::shape_mismatch, [&] { buffer.with_shape(number_shape()); });
  expect_error(Errc::shape_mismatch, [&] { buffer.with_shape(object_shape<Table>()); });
  expect_error(Errc::unsupported_dtype, [&] { buffer.to_host().to(i64); });
  expect_error(Errc::unsupported_dtype, [&] { buffer.to_host().at({}); });
  expect_error(Errc::bad_argument, [&] { buffer.dump(text, "SFT"); });
  expect_error(Errc::bad_argument, [&] { buffer.dump(text); });
}

TEST_CASE("objects: they are saved as bytes") {
  register_test_classes();
  const HostBuffer bytes = save_object(object_buffer(Log{{3, -4}}));
  CHECK(bytes.shape() == Shape({16}, u8));
  CHECK(object_of<Log>(load_object(object_type<Log>(), bytes))->entries ==
        std::vector<std::int64_t>{3, -4});
  expect_error(Errc::corrupt,
               [&] { load_object(object_type<Log>(), HostBuffer::zeros(Shape({15}, u8))); });
  expect_error(Errc::bad_type,
               [&] { load_object(object_type<Log>(), HostBuffer::zeros(Shape({2}, i64))); });
  register_object<Handle>("Handle", {.is_linear = true});
  const Buffer handle = object_buffer(std::make_shared<Handle>());
  expect_error(Errc::unsupported, [&] { save_object(handle); });
  expect_error(Errc::unsupported, [&] { load_object(object_type<Handle>(), bytes); });
}

TEST_CASE("objects: other ops refuse them") {
  register_test_classes();
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor log = graph.input("log", object_shape<Log>());
  const Tensor x = graph.input("x", number_shape());
  expect_error(Errc::unsupported_dtype, [&] { record(Reshape{}, {log}, here()); });
  expect_error(Errc::unsupported_dtype, [&] { return log + log; });
  expect_error(Errc::unsupported_dtype, [&] { cast(x, object_type<Log>()); });
  expect_error(Errc::unsupported_dtype, [&] { record(LogOfNumber{}, {x}, here()); });
  expect_error(Errc::unsupported_dtype, [&] { record(LogOfNumber{}, {log}, here()); });
  const Tensor table = graph.input("table", object_shape<Table>());
  CHECK(
      contains(expect_error(Errc::unsupported_dtype, [&] { record(HandleUse{}, {table}, here()); }),
               "whose objects are shared"));
  const Tensor logs = graph.input("logs", Shape({2}, object_type<Log>()));
  expect_error(Errc::bad_shape, [&] { record(LogDigest{}, {logs}, here()); });
  expect_error(Errc::bad_type, [&] { record(LogDigest{}, {x}, here()); });
}

TEST_CASE("objects: an object that changes is in one place") {
  CHECK(contains(alias_of("def forward(a: Log, x: i64):\n"
                          "    b = log_append(a, x)\n"
                          "    y = log_digest(a)\n"
                          "    return b, y\n"),
                 "'a' was consumed at line 7 by log_append; use 'b'"));
  CHECK(contains(alias_of("def forward(a: Log, x: i64):\n"
                          "    b = log_append(a, x)\n"
                          "    return b, b\n"),
                 "'b' is returned twice: it is one object"));
  CHECK(contains(alias_of("def forward(x: i64):\n"
                          "    a: Log = const(\"a\")\n"
                          "    y = log_digest(a)\n"
                          "    return y\n"),
                 "'a' is a Log, which changes: an input, not a constant"));
  const std::string twice =
      "def f(a: Log, b: Log, i: i64, s: Scope):\n"
      "    c = log_append(a, i)\n"
      "    return c, b\n\n"
      "def forward(a: Log):\n"
      "    s0 = scope(\"s\")\n"
      "    c0 = pack(a, a)\n"
      "    c1 = repeat(f, 2, c0, s0)\n"
      "    y = item(c1, 0)\n"
      "    return y\n";
  CHECK(contains(alias_of(twice), "'c0' has one object twice"));
  // What a loop only carries is in the loop's place, too.
  CHECK(contains(alias_of("def f(a: Log, x: i64, i: i64, s: Scope):\n"
                          "    return a, i\n\n"
                          "def forward(a: Log, x: i64):\n"
                          "    s0 = scope(\"s\")\n"
                          "    c0 = pack(a, x)\n"
                          "    c1 = repeat(f, 2, c0, s0)\n"
                          "    b = item(c1, 0)\n"
                          "    y = log_digest(a)\n"
                          "    return b, y\n"),
                 "'a' was consumed"));
  CHECK(contains(alias_of("def f(a: Log, i: i64, s: Scope, b: Log):\n"
                          "    return b\n\n"
                          "def forward(a: Log, b: Log):\n"
                          "    s0 = scope(\"s\")\n"
                          "    c0 = pack(a)\n"
                          "    c1 = repeat(f, 2, c0, s0, b)\n"
                          "    y = item(c1, 0)\n"
                          "    return y\n"),
                 "'f' carries 'b', an object that every repetition reads"));
  CHECK(contains(expect_error(Errc::bad_type,
                              [] {
                                parsed(
                                    "def f(a: Tensor):\n"
                                    "    y = log_digest(a)\n"
                                    "    return y\n\n"
                                    "def forward(a: Log):\n"
                                    "    y = f(a)\n"
                                    "    return y\n");
                              }),
                 "which a parameter must declare"));
  expect_error(Errc::bad_type, [] { parsed("def forward(a: Nothing):\n    return a\n"); });
  expect_error(Errc::syntax, [] { parsed("def forward(a: Log[2]):\n    return a\n"); });
}

TEST_CASE("objects: a run changes what it is given, or a copy") {
  Program program = parsed(
      "def forward(a: Log, x: i64):\n"
      "    b = log_append(a, x)\n"
      "    return b\n");
  for (const char* backend : {"reference", "cpu"}) {
    Session session(program, {.backends = backends(backend)});
    const auto log = std::make_shared<Log>();
    std::vector<Buffer> inputs{object_buffer(log), number(7)};
    std::vector<Buffer> results = session.forward(std::move(inputs));
    CHECK(object_of<Log>(results[0]) == log);
    CHECK(log->entries == std::vector<std::int64_t>{7});
    // A handle that is kept, then one that is not, of a run that has yet to begin.
    const Buffer kept = results[0];
    std::vector<Buffer> copies =
        session.forward(std::vector<Buffer>{std::move(results[0]), number(8)});
    CHECK(object_of<Log>(copies[0])->entries == std::vector<std::int64_t>{7, 8});
    CHECK(log->entries == std::vector<std::int64_t>{7});
    for (std::int64_t i = 0; i < 5; ++i) {
      copies = session.submit(std::vector<Buffer>{std::move(copies[0]), number(i)});
    }
    CHECK(object_of<Log>(copies[0])->entries == std::vector<std::int64_t>{7, 8, 0, 1, 2, 3, 4});
    // A run that throws gives its inputs back; what it did to them stays.
    std::vector<Buffer> failing{std::move(copies[0]), number(666)};
    expect_error(Errc::out_of_range, [&] { session.forward(std::move(failing)); });
    REQUIRE(failing[0].has_data());
    CHECK(object_of<Log>(failing[0])->entries.size() == 8);
    // Results in memory of the caller's.
    std::vector<Buffer> given{object_buffer(Log{{1}})};
    session.forward({kept, number(9)}, given);
    CHECK(object_of<Log>(given[0])->entries == std::vector<std::int64_t>{7, 9});
  }
}

TEST_CASE("objects: a class without a copy has to be moved") {
  register_object<Handle>("Handle", {.is_linear = true});
  register_op<HandleUse>();
  Session session(parse(program_text("def forward(a: Handle):\n"
                                     "    b = handle_use(a)\n"
                                     "    return b\n")),
                  {.backends = backends("cpu")});
  const Buffer kept = object_buffer(std::make_shared<Handle>());
  CHECK(contains(expect_error(Errc::unsupported, [&] { session.forward({kept}); }), "move it in"));
  CHECK(object_of<Handle>(kept)->uses == 0);
  std::vector<Buffer> moved;  // no list of initial values, which would be another handle
  moved.push_back(object_buffer(std::make_shared<Handle>()));
  const std::vector<Buffer> results = session.forward(std::move(moved));
  CHECK(object_of<Handle>(results[0])->uses == 1);
}

TEST_CASE("objects: the CPU's backend runs them in its partitions") {
  Program program = parsed(
      "def forward(a: Log, x: i64):\n"
      "    y = maximum(x, x)\n"
      "    b = log_append(a, y)\n"
      "    z = log_digest(b)\n"
      "    return b, z\n");
  Session session(program, {.backends = backends("cpu")});
  const PlanReport report = session.report(std::vector{object_shape<Log>(), number_shape()});
  CHECK(report.fallbacks.empty());
  CHECK(report.parts.size() == 1);
}

TEST_CASE("objects: constants are loaded once, and are what their class says") {
  Program program = parsed(
      "def forward(x: i64):\n"
      "    t: Table = const(\"table\")\n"
      "    y = table_at(t, x)\n"
      "    return y\n");
  const auto with = [&](const Buffer& table) {
    Session session(program, {.backends = backends("cpu")});
    session.bind(
        std::make_shared<const WeightSet>(std::map<std::string, Buffer>{{"table", table}}));
    return number_at(session.forward({number(1)})[0].host_view());
  };
  const Buffer table = object_buffer(Table{{4, 5, 6}});
  CHECK(with(table) == 5);
  CHECK(with(device(save_object(table))) == 5);
  expect_error(Errc::corrupt, [&] { with(device(HostBuffer::zeros(Shape({3}, u8)))); });
  expect_error(Errc::bad_type, [&] { with(device(HostBuffer::zeros(Shape({8}, f32)))); });
  expect_error(Errc::shape_mismatch, [&] { with(object_buffer(Log{})); });

  const TempFolder folder;
  Session session(program, {.backends = backends("cpu")});
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>{{"table", table}}));
  session.forward({number(0)});
  session.save(folder / "digests", {.weights = SavedWeights::digests});
  const auto load = [&](const Table& given) {
    Session loaded = Session::load(folder / "digests", backends("cpu"),
                                   std::make_shared<const WeightSet>(std::map<std::string, Buffer>{
                                       {"table", object_buffer(given)}}));
    return number_at(loaded.forward({number(2)})[0].host_view());
  };
  CHECK(load(Table{{4, 5, 6}}) == 6);
  expect_error(Errc::incompatible, [&] { load(Table{{4, 5, 7}}); });
}

struct Counting {
  Tensor forward(const Tensor& log, const Tensor& x) const {
    return record(LogAppend{}, {log, x}, here());
  }
};

TEST_CASE("objects: models and eager calls take them") {
  register_test_classes();
  Graph graph;
  {
    const Graph::Recording recording(graph);
    const Tensor log = graph.input("log", object_shape<Log>());
    const Tensor out = Counting().forward(log, graph.input("x", number_shape()));
    CHECK(out.shape() == object_shape<Log>());
    CHECK(contains(print(graph.program(std::vector<Tensor>{out})), "log: Log"));
  }
  Eager eager;
  EagerArray log = object_buffer(Log{});
  const EagerArray seven = number(7);
  log = eager.run(LogAppend{}, std::move(log), seven);
  const EagerArray kept = log;
  const EagerArray more = eager.run(LogAppend{}, log, seven);
  CHECK(object_of<Log>(kept.to_buffer())->entries.size() == 1);
  CHECK(object_of<Log>(more.to_buffer())->entries.size() == 2);
  CHECK(eager.run(LogDigest{}, more).to_int() == digest({7, 7}));
}

}  // namespace
}  // namespace tenon::testing
