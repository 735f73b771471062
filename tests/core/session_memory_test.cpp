// A03: memory runs out at every allocation of what a session does beside forward().
#include "core/layered_model.hpp"
#include "objects/log_class.hpp"
#include "support/failing_memory.hpp"
#include "support/literals.hpp"
#include "support/program_text.hpp"
#include "support/remote_backend.hpp"

#include <tenon/exe.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/ops.hpp>
#include <tenon/program_view.hpp>
#include <tenon/weights_view.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr std::size_t samples = 300;

class Rig {
 public:
  Rig() {
    Session session = fresh();
    want_ = values(session.forward(inputs())[0]);
  }

  /// Nothing planned yet.
  Session fresh() const {
    Session session(own_copy(program_), own_copy(options_));
    session.bind(weights_);
    return session;
  }
  std::vector<Buffer> inputs() const { return own_copy(inputs_); }
  std::vector<BackendPtr> backends() const { return own_copy(options_.backends); }
  const std::vector<Shape>& shapes() const { return shapes_; }

  bool is_right(const Buffer& output) const { return values(output) == want_; }
  void check(Session& session) const { CHECK(is_right(session.forward(inputs())[0])); }

 private:
  Program program_ = layered_model();
  SessionOptions options_{.backends = testing::backends("cpu")};
  std::vector<Buffer> inputs_{device(Random(9).uniform(Shape({3, 4}, f32)))};
  std::vector<Shape> shapes_{Shape({3, 4}, f32)};
  std::shared_ptr<const WeightSet> weights_ = layered_weight_set();
  std::vector<float> want_;
};

/// A session file in a folder of its own.
class SavedFile {
 public:
  explicit SavedFile(const char* name) : folder_(fs::temp_directory_path() / name) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~SavedFile() { fs::remove_all(folder_); }
  const fs::path& path() const { return path_; }
  auto files() const { return std::distance(fs::directory_iterator(folder_), {}); }

 private:
  fs::path folder_;
  fs::path path_ = folder_ / "session.snap";
};

/// relu(x w^T).
template <class T = Tensor>
struct Dense {
  T weight;
  TENON_FIELDS(weight)
  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    return relu(linear(x, weight));
  }
};

template <class T = Tensor>
struct Parts {
  std::vector<T> all;
  TENON_FIELDS(all)
};

/// Adds parts to a state. Its results have axis tags.
template <class T = Tensor>
struct Adder {
  TENON_FIELDS()
  std::tuple<Tensor, Tensor> forward(const Parts<>& parts, const Tensor& state) const
    requires std::same_as<T, Tensor>
  {
    Tensor sum = state;
    for (const Tensor& part : parts.all) sum = sum + part;
    return {sum.with_tags({"row", "column"}), (state + 1).with_tags({"row", "column"})};
  }
};

}  // namespace

TEST_CASE("A03: memory runs out while a run has objects") {
  register_test_classes();
  const Program program =
      parse(program_text("def each(a: Log, b: Log, i: i64, s: Scope):\n"
                         "    c = log_append(a, i)\n"
                         "    return b, c\n\n"
                         "def forward(a: Log, b: Log, x: i64):\n"
                         "    t: Table = const(\"table\")\n"
                         "    y = table_at(t, x)\n"
                         "    a1 = log_append(a, y)\n"
                         "    c0 = pack(a1, b)\n"
                         "    s0 = scope(\"s\")\n"
                         "    c1 = repeat(each, 3, c0, s0)\n"
                         "    a2 = item(c1, 0)\n"
                         "    b2 = item(c1, 1)\n"
                         "    return a2, b2\n"));
  const SessionOptions options{.backends = testing::backends("cpu")};
  const HostBuffer table = save_object(object_buffer(Table{{5, 6, 7}}));
  const std::vector<Buffer> kept{object_buffer(testing::Log{{1}}), object_buffer(testing::Log{{2}}),
                                 device(HostBuffer::of<std::int64_t>(number_shape(), {1}))};
  const auto run = [&] {
    Session session(own_copy(program), own_copy(options));
    session.bind(with_memory_errors("the test", [&] {  // its own allocations
      std::map<std::string, Buffer> weights;
      weights.emplace("table", table.to_device(cpu_device()));
      return std::make_shared<const WeightSet>(std::move(weights));
    }));
    std::vector<Buffer> state = session.forward(kept);  // copies, which the next run is to change
    with_memory_errors("the test", [&] { state.push_back(kept[2]); });
    return session.forward(std::move(state));
  };
  const auto entries = [&] {
    const std::vector<Buffer> results = run();
    return std::vector{object_of<testing::Log>(results[0])->entries,
                       object_of<testing::Log>(results[1])->entries};
  };
  const auto want = entries();
  fail_allocations(
      samples, [&] { static_cast<void>(run()); },
      [&] {
        CHECK(object_of<testing::Log>(kept[0])->entries == std::vector<std::int64_t>{1});
        CHECK(object_of<testing::Log>(kept[1])->entries == std::vector<std::int64_t>{2});
        CHECK(entries() == want);
      });
}

TEST_CASE("A03: memory runs out while a model is compiled, bound and called") {
  const std::vector<std::pair<std::string, Shape>> list{{"w", Shape({3, 4}, f32)}};
  const WeightsView view("dense.gguf", list);
  const Dense<> model{view.tensor("w")};
  const Bufferized<Dense<>> weights{device(Random(1).uniform(Shape({3, 4}, f32)))};
  const Buffer x = device(Random(2).uniform(Shape({2, 4}, f32)));
  const Buffer longer = device(Random(3).uniform(Shape({5, 4}, f32)));
  CompileOptions options;
  options.backends = testing::backends("cpu");
  const auto live = [&] {
    const auto exe = compile<&Dense<>::forward>(model, {Shape({2, 4}, f32)}, own_copy(options));
    auto run = exe.bind(weights);
    auto again = run.fork();
    static_cast<void>(run(x));
    static_cast<void>(again(longer));
    static_cast<void>(run.report());
  };
  fail_allocations(samples, live, [&] { live(); });
}

TEST_CASE("A03: a model's call that runs out of memory gives back what was moved in") {
  const Shape shape({2, 4}, f32);
  CompileOptions options;
  options.backends = testing::backends("cpu");
  const auto exe = compile<&Adder<>::forward>(Adder<>{}, {Parts<Shape>{{shape, shape}}, shape},
                                              std::move(options));
  auto run = exe.bind({});
  Random random(4);
  const Parts<Buffer> parts{{device(random.uniform(shape)), device(random.uniform(shape))}};
  const HostBuffer first = random.uniform(shape);
  bool is_lost = false;
  const auto call = [&] {
    Buffer state = with_memory_errors("the test", [&] { return device(first); });
    Buffer sum;
    try {
      sum = std::get<0>(run(parts, std::move(state)));
    } catch (...) {
      is_lost = is_lost || !state.has_data();
      throw;
    }
    return with_memory_errors("the test", [&] { return values(sum); });
  };
  const std::vector<float> want = call();
  fail_allocations(
      samples, [&] { static_cast<void>(call()); },
      [&] {
        CHECK_FALSE(is_lost);
        CHECK(call() == want);
      });
}

TEST_CASE("A03: memory runs out while a run is submitted, whose inputs are given back") {
  const auto remote = std::make_shared<RemoteBackend>(std::make_shared<FakeDevice>());
  const Program program = program_of(R"(def forward(a: f32[2], b: f32[2]):
    y = add(a, b)
    return y
)");
  Session session(program, {.backends = {remote, backends("reference")[0]}});
  bool are_lost = false;
  const auto call = [&] {
    std::vector<Buffer> inputs = with_memory_errors("the test", [&] {
      return std::vector{device(floats({2}, {1, 2})), device(floats({2}, {3, 4}))};
    });
    std::vector<Buffer> results;
    try {
      results = session.submit(std::move(inputs));
    } catch (...) {
      for (const Buffer& input : inputs)
        are_lost = are_lost || !input.is_on(cpu_device()->default_mem_region());
      are_lost = are_lost || inputs.size() != 2;
      throw;
    }
    return with_memory_errors("the test", [&] { return values(results[0]); });
  };
  fail_allocations(
      samples, [&] { static_cast<void>(call()); },
      [&] {
        CHECK_FALSE(are_lost);
        CHECK(call() == std::vector<float>{4, 6});
      });
}

TEST_CASE("A03: memory runs out while threads are started") {
  register_cpu_backend();
  fail_allocations(
      samples,
      [] {
        const BackendPtr backend = make_backend("cpu", {.threads = 4});
        static_cast<void>(backend->name());
      },
      [] { CHECK(make_backend("cpu", {.threads = 4})->properties()["threads"] == "4"); });
}

TEST_CASE("A03: memory runs out while a session steps") {
  const Rig rig;
  const std::string first = op_names(unroll(layered_model())).front();
  fail_allocations(
      samples,
      [&] {
        Session session = rig.fresh();
        static_cast<void>(session.step_to(first, rig.inputs()));
        static_cast<void>(session.step_to("z"));
      },
      [&] {
        Session session = rig.fresh();
        CHECK(rig.is_right(session.step_to("z", rig.inputs())));
      });
}

TEST_CASE("A03: a session whose steps ran out of memory starts again") {
  const Rig rig;
  Session session = rig.fresh();
  rig.check(session);
  fail_allocations(
      samples, [&] { static_cast<void>(session.step_to("z", rig.inputs())); },
      [&] {
        CHECK(rig.is_right(session.step_to("z", rig.inputs())));
        rig.check(session);
      });
}

TEST_CASE("A03: a call that runs out of memory gives back the inputs that were moved in") {
  const Rig rig;
  Session session = rig.fresh();
  rig.check(session);
  bool lost = false;
  fail_allocations(
      samples,
      [&] {
        std::vector<Buffer> given = rig.inputs();
        try {
          static_cast<void>(session.forward(std::move(given)));
        } catch (...) {
          lost = lost || given.size() != 1 || !given[0].has_data();
          throw;
        }
      },
      [&] {
        CHECK_FALSE(lost);
        rig.check(session);
      });
}

TEST_CASE("A03: memory runs out while a session is described, forked and viewed") {
  const Rig rig;
  fail_allocations(
      samples,
      [&] {
        Session session = rig.fresh();
        static_cast<void>(session.report(rig.shapes()));
        static_cast<void>(session.explain("z", rig.shapes()));
        Session fork = session.fork();
        fork = session.fork(fork);
        const Session part = session.view(0, 1);
      },
      [&] {
        Session session = rig.fresh();
        Session fork = session.fork();
        rig.check(fork);
      });
}

TEST_CASE("A03: memory runs out while a session is saved") {
  const Rig rig;
  const SavedFile file("tenon_session_memory_save");
  Session session = rig.fresh();
  rig.check(session);
  session.save(file.path());
  fail_allocations(
      samples, [&] { session.save(file.path()); },
      [&] {
        CHECK(file.files() == 1);  // the old file or the new one, and nothing beside it
        Session loaded = Session::load(file.path(), rig.backends());
        rig.check(loaded);
        rig.check(session);
      });
}

TEST_CASE("A03: memory runs out while a session is loaded") {
  const Rig rig;
  const SavedFile file("tenon_session_memory_load");
  Session session = rig.fresh();
  rig.check(session);
  session.save(file.path());
  fail_allocations(
      samples, [&] { static_cast<void>(Session::load(file.path(), rig.backends())); },
      [&] {
        Session loaded = Session::load(file.path(), rig.backends());
        rig.check(loaded);
      });
}

}  // namespace tenon
