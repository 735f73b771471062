// CompileOptions::cache: what backends made of an Exe's weights, found again by the next process.
#include "core/runs.hpp"
#include "io/temp_folder.hpp"
#include "support/op_testing.hpp"

#include <tenon/exe.hpp>
#include <tenon/log.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/weights_view.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon {
namespace {

using namespace testing;
namespace fs = std::filesystem;

template <class T = Tensor>
struct Net {
  nn::Conv2d<T> stem;
  nn::Linear<T> head;
  TENON_FIELDS(stem, head)

  Tensor forward(const Tensor& image) const {
    return head.forward(mean(relu(stem.forward(image)), {2, 3}));
  }
};

const Shape filter({8, 4, 3, 3}, f32), rows({5, 8}, f32), image({1, 4, 6, 6}, f32);

/// A process's whole work: declares the model, compiles it, binds weights and runs it.
std::vector<float> run(const fs::path& cache, std::uint64_t seed = 1, bool exact = false) {
  register_cpu_backend();
  const std::vector<std::pair<std::string, Shape>> declared{{"stem.weight", filter},
                                                            {"head.weight", rows}};
  const WeightsView view("net.safetensors", declared);
  const Net<> model{nn::Conv2d<>::init(view["stem"]), nn::Linear<>::init(view["head"])};
  CompileOptions options;
  options.backends = {make_backend("cpu", {.threads = 1, .exact = exact})};
  options.cache = cache;
  const auto exe = compile<&Net<>::forward>(model, {image}, options);
  Bufferized<Net<>> weights;
  weights.stem.weight = device(Random(seed).uniform(filter));
  weights.head.weight = device(Random(seed + 1).uniform(rows));
  auto bound = exe.bind(weights);
  return values(bound(device(Random(9).uniform(image))));
}

/// The only file in a folder.
fs::path only_file(const TempFolder& folder) {
  REQUIRE(folder.entries() == 1);
  return fs::directory_iterator(folder.path())->path();
}

/// The library's messages while it lives.
class Messages {
 public:
  Messages() : before_(set_log_sink([this](LogLevel, std::string_view line) { lines_ += line; })) {}
  ~Messages() { set_log_sink(std::move(before_)); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  bool contain(std::string_view text) const { return lines_.find(text) != std::string::npos; }
  bool none() const { return lines_.empty(); }

 private:
  std::string lines_;
  LogSink before_;
};

/// Sets all that was packed to zero, as only this user can: with checksums that are right.
void clear_packed(const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> sections;
  {
    const Snapshot snapshot = Snapshot::open(path);
    for (const Snapshot::Section& section : snapshot.sections()) {
      std::string content(snapshot.text(section.name));
      if (section.name.starts_with("of cpu/")) content.assign(content.size(), '\0');
      sections.emplace_back(section.name, std::move(content));
    }
  }
  SnapshotWriter writer = SnapshotWriter::make_private(path);
  for (const auto& [name, content] : sections) writer.add(name, content);
  writer.commit();
}

const std::vector<float> zeros(5, 0.0F);

}  // namespace

TEST_CASE("exe cache: the next process packs nothing") {
  const TempFolder folder;
  const std::vector<float> want = run({});
  CHECK(run(folder.path()) == want);
  const std::string bytes = read_bytes(only_file(folder));
  const Messages messages;
  CHECK(run(folder.path()) == want);
  CHECK(messages.none());
  CHECK(read_bytes(only_file(folder)) == bytes);
  clear_packed(only_file(folder));
  CHECK(run(folder.path()) == zeros);  // so what is in the file is what runs
}

TEST_CASE("exe cache: other weights and other options take nothing of it") {
  const TempFolder folder;
  run(folder.path());
  clear_packed(only_file(folder));
  CHECK(run(folder.path(), 2) == run({}, 2));
  CHECK(folder.entries() == 2);
  // Linear layers are packed alike for both precisions, so the file of the first has to go.
  const TempFolder exact;
  const std::vector<float> want = run({}, 1, true);
  CHECK(run(exact.path(), 1, true) == want);
  CHECK(run(exact.path(), 1, false) == run({}));
  CHECK(run(exact.path(), 1, true) == want);
  CHECK(exact.entries() == 1);
}

TEST_CASE("exe cache: a file of other weights under this name is rebuilt") {
  const TempFolder folder, other;
  const std::vector<float> want = run(folder.path());
  run(other.path(), 2);
  const fs::path path = only_file(folder);
  fs::copy_file(only_file(other), path, fs::copy_options::overwrite_existing);
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  const Messages messages;
  CHECK(run(folder.path()) == want);
  CHECK(messages.contain("of other weights"));
  clear_packed(path);
  CHECK(run(folder.path()) == zeros);
}

TEST_CASE("exe cache: a torn file is rebuilt, wherever it ends") {
  const TempFolder folder;
  const std::vector<float> want = run(folder.path());
  const fs::path path = only_file(folder);
  const std::string whole = read_bytes(path);
  for (std::size_t size = 0; size < whole.size(); size += whole.size() / 23) {
    fs::resize_file(path, size);
    CHECK(run(folder.path()) == want);
    CHECK(read_bytes(path).size() == whole.size());
  }
  for (std::size_t at = 0; at < whole.size(); at += whole.size() / 101) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    folder.write(path.filename().string(), bytes);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    CHECK(run(folder.path()) == want);
  }
}

TEST_CASE("exe cache: what others can have planted is neither read nor followed") {
  const TempFolder folder, elsewhere;
  const std::vector<float> want = run(elsewhere.path());
  const fs::path trap = only_file(elsewhere), path = folder / trap.filename().string();
  clear_packed(trap);
  const std::string planted = read_bytes(trap);
  fs::create_symlink(trap, path);
  {
    const Messages messages;
    CHECK(run(folder.path()) == want);
    CHECK(messages.contain("PathEscape"));
  }
  CHECK(read_bytes(trap) == planted);
  CHECK_FALSE(fs::is_symlink(path));

  fs::copy_file(trap, path, fs::copy_options::overwrite_existing);
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  CHECK(run(folder.path()) == want);
  fs::remove(path);
  fs::permissions(folder.path(), fs::perms::others_write, fs::perm_options::add);
  const Messages messages;
  CHECK(run(folder.path()) == want);
  CHECK(messages.contain("cannot be trusted"));
  CHECK(folder.entries() == 0);
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST_CASE("exe cache: its folder is made for this user alone") {
  const TempFolder folder;
  run(folder / "a/b");
  CHECK(fs::status(folder / "a/b").permissions() == fs::perms::owner_all);
  const Messages messages;
  folder.write("file", "");
  CHECK(run(folder / "file") == run({}));
  CHECK(messages.contain("file"));
}

TEST_CASE("exe cache: processes that race all succeed") {
  const TempFolder folder;
  const std::vector<float> want = run({});
  for (int round = 0; round < 5; ++round) {
    for (const auto& entry : fs::directory_iterator(folder.path())) fs::remove(entry);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      children.push_back(::fork());
      REQUIRE(children.back() >= 0);
      if (children.back() != 0) continue;
      ::alarm(60);
      bool right = false;
      try {
        right = run(folder.path()) == want && run(folder.path()) == want;
      } catch (const std::exception&) {
        right = false;
      }
      ::_exit(right ? 0 : 1);
    }
    for (const pid_t child : children) {
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == 0);
    }
    static_cast<void>(only_file(folder));
    CHECK(run(folder.path()) == want);
  }
}

}  // namespace tenon
