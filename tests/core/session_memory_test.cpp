// A03: memory runs out at every allocation of what a session does beside forward().
#include "core/layered_model.hpp"
#include "support/failing_memory.hpp"

#include <tenon/program_view.hpp>

#include <filesystem>
#include <memory>
#include <string>
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

}  // namespace

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

TEST_CASE("A03: a session whose steps ran out of memory begins anew") {
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
