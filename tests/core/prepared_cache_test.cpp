#include "io/temp_folder.hpp"

#include <tenon/io/input_file.hpp>
#include <tenon/log.hpp>
#include <tenon/prepared_cache.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/types.h>
#include <unistd.h>

using namespace tenon;
using tenon::testing::TempFolder;

namespace {

PreparedCache::Bytes owned(std::string_view text) {
  auto kept = std::make_shared<const std::string>(text);
  return {std::as_bytes(std::span(*kept)), kept};
}

std::string text_of(const std::optional<PreparedCache::Bytes>& bytes) {
  if (!bytes) return "nothing";
  return {reinterpret_cast<const char*>(bytes->bytes.data()), bytes->bytes.size()};
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// The library's messages while it lives.
class Messages {
 public:
  Messages() : before_(set_log_sink([this](LogLevel, std::string_view line) { lines_ += line; })) {}
  ~Messages() { set_log_sink(std::move(before_)); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  const std::string& lines() const { return lines_; }

 private:
  std::string lines_;
  LogSink before_;
};

}  // namespace

TEST_CASE("prepared cache: what was kept is mapped by the next") {
  const TempFolder folder;
  const PreparedFile file{folder / "weights.packed", "of these weights"};
  {
    PreparedCache cache(file);
    CHECK_FALSE(cache.kept("up", 5));
    cache.keep("up", owned("packed up"));
    CHECK(text_of(cache.kept("up", 9)) == "packed up");
    CHECK_FALSE(std::filesystem::exists(file.path));
    cache.save();
    CHECK(std::filesystem::exists(file.path));
    CHECK(text_of(cache.kept("up", 9)) == "packed up");
  }
  std::optional<PreparedCache::Bytes> outlives;
  {
    PreparedCache cache(file);
    outlives = cache.kept("up", 9);
    CHECK_FALSE(cache.kept("up", 8));
    CHECK_FALSE(cache.kept("down", 9));
    CHECK(text_of(cache.kept("up")) == "packed up");
    CHECK_FALSE(cache.kept("down"));
    CHECK(cache.has_file());
    cache.keep("down", owned("packed down"));
    cache.save();
  }
  CHECK(text_of(outlives) == "packed up");
  REQUIRE(outlives);
  CHECK(reinterpret_cast<std::uintptr_t>(outlives->bytes.data()) % 64 == 0);
  const PreparedCache cache(file);
  CHECK(text_of(cache.kept("up", 9)) == "packed up");
  CHECK(text_of(cache.kept("down", 11)) == "packed down");
}

TEST_CASE("prepared cache: nothing is written when nothing was kept") {
  const TempFolder folder;
  const PreparedFile file{folder / "weights.packed", ""};
  PreparedCache cache(file);
  cache.save();
  CHECK_FALSE(std::filesystem::exists(file.path));
  cache.keep("a name of\nseveral lines", owned("?"));
  cache.keep(std::string(400, 'n'), owned("?"));
  cache.save();
  CHECK_FALSE(std::filesystem::exists(file.path));
}

TEST_CASE("prepared cache: without a file what is kept ends with the cache") {
  PreparedCache cache;
  cache.keep("up", owned("packed up"));
  cache.save();
  CHECK(text_of(cache.kept("up", 9)) == "packed up");
  CHECK_FALSE(cache.has_file());
  CHECK_FALSE(PreparedCache().kept("up"));
}

TEST_CASE("prepared cache: it may begin with what was kept elsewhere") {
  const PreparedCache cache({{"up", owned("packed up")}});
  CHECK(text_of(cache.kept("up", 9)) == "packed up");
  CHECK_FALSE(cache.kept("up", 8));
  CHECK_FALSE(cache.kept("down"));
}

TEST_CASE("prepared cache: a file of other weights is rebuilt") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "weights.packed";
  const auto keep = [&](const char* weights, const char* bytes) {
    PreparedCache cache({path, weights});
    cache.keep("up", owned(bytes));
    cache.save();
  };
  keep("first", "11");
  const Messages messages;
  CHECK_FALSE(PreparedCache({path, "second"}).kept("up", 2));
  CHECK(messages.lines().find("of other weights") != std::string::npos);
  keep("second", "22");
  CHECK(text_of(PreparedCache({path, "second"}).kept("up", 2)) == "22");
  CHECK_FALSE(PreparedCache({path, "first"}).kept("up", 2));
}

TEST_CASE("prepared cache: damage is found, wherever it is") {
  const TempFolder folder;
  const PreparedFile file{folder / "weights.packed", "of these weights"};
  {
    PreparedCache cache(file);
    cache.keep("up", owned("packed up"));
    cache.keep("down", owned("packed down"));
    cache.save();
  }
  const std::string intact = read_file(file.path);
  int found_both = 0;
  for (std::size_t i = 0; i < intact.size(); ++i) {
    CAPTURE(i);
    std::string damaged = intact;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write_file(file.path, damaged);
    const Messages messages;
    const PreparedCache cache(file);
    const std::string up = text_of(cache.kept("up", 9)), down = text_of(cache.kept("down", 11));
    CHECK((up == "packed up" || up == "nothing"));
    CHECK((down == "packed down" || down == "nothing"));
    if (up == "packed up" && down == "packed down") ++found_both;
    CHECK_FALSE(messages.lines().empty());
  }
  CHECK(found_both == 0);

  for (std::size_t length = 0; length < intact.size(); ++length) {
    write_file(file.path, intact.substr(0, length));
    CHECK_FALSE(PreparedCache(file).kept("up", 9));
  }

  // What is damaged is replaced by what is packed again, and the rest stays.
  std::string damaged = intact;
  damaged[intact.find("packed up")] = 'P';
  write_file(file.path, damaged);
  {
    PreparedCache cache(file);
    REQUIRE_FALSE(cache.kept("up", 9));
    cache.keep("up", owned("packed up"));
    cache.save();
  }
  CHECK(text_of(PreparedCache(file).kept("up", 9)) == "packed up");
  CHECK(text_of(PreparedCache(file).kept("down", 11)) == "packed down");
}

TEST_CASE("prepared cache: a file that cannot be written is logged, once") {
  const TempFolder folder;
  const PreparedFile file{folder / "no such folder" / "weights.packed", ""};
  const Messages messages;
  PreparedCache cache(file);
  cache.keep("up", owned("packed up"));
  cache.save();
  const std::string first = messages.lines();
  CHECK(first.find("weights.packed") != std::string::npos);
  cache.keep("down", owned("packed down"));
  cache.save();
  CHECK(messages.lines() == first);
}

TEST_CASE("prepared cache: a link is neither read nor followed") {
  const TempFolder folder;
  const TempFolder elsewhere;
  const PreparedFile trap{elsewhere / "trap.packed", "of these weights"};
  {
    PreparedCache cache(trap);
    cache.keep("up", owned("poisoned!"));
    cache.save();
  }
  const std::string planted = read_file(trap.path);
  const PreparedFile file{folder / "weights.packed", "of these weights"};
  std::filesystem::create_symlink(trap.path, file.path);
  const Messages messages;
  PreparedCache cache(file);
  CHECK(messages.lines().find("PathEscape") != std::string::npos);
  CHECK(text_of(cache.kept("up", 9)) == "nothing");
  cache.keep("up", owned("packed up"));
  cache.save();
  CHECK(read_file(trap.path) == planted);
  CHECK_FALSE(std::filesystem::is_symlink(file.path));
  CHECK(text_of(PreparedCache(file).kept("up", 9)) == "packed up");
}

TEST_CASE("prepared cache: what others may write is not trusted") {
  using std::filesystem::perms;
  const TempFolder folder;
  const PreparedFile file{folder / "weights.packed", "of these weights"};
  const auto keep = [&] {
    PreparedCache cache(file);
    cache.keep("up", owned("packed up"));
    cache.save();
  };
  keep();
  CHECK(std::filesystem::status(file.path).permissions() ==
        (perms::owner_read | perms::owner_write));
  for (const perms others : {perms::group_write, perms::others_write}) {
    std::filesystem::permissions(file.path, others, std::filesystem::perm_options::add);
    {
      const Messages messages;
      CHECK(text_of(PreparedCache(file).kept("up", 9)) == "nothing");
      CHECK(messages.lines().find("cannot be trusted") != std::string::npos);
    }
    keep();  // a file of our own takes its place
    CHECK(text_of(PreparedCache(file).kept("up", 9)) == "packed up");

    std::filesystem::permissions(folder.path(), others, std::filesystem::perm_options::add);
    {
      const Messages messages;
      CHECK(text_of(PreparedCache(file).kept("up", 9)) == "nothing");
      std::filesystem::remove(file.path);
      keep();
      CHECK_FALSE(std::filesystem::exists(file.path));
      CHECK(messages.lines().find("cannot be trusted") != std::string::npos);
    }
    std::filesystem::permissions(folder.path(), perms::owner_all);
    keep();
  }
}

TEST_CASE("prepared cache: what others own is not trusted") {
  if (::geteuid() != 0) return;  // only the superuser can give a file away
  const TempFolder folder;
  const PreparedFile file{folder / "weights.packed", "of these weights"};
  PreparedCache cache(file);
  cache.keep("up", owned("packed up"));
  cache.save();
  constexpr uid_t stranger = 12345;
  REQUIRE(::chown(file.path.c_str(), stranger, stranger) == 0);
  CHECK(text_of(PreparedCache(file).kept("up", 9)) == "nothing");
  REQUIRE(::chown(file.path.c_str(), 0, 0) == 0);
  CHECK(text_of(PreparedCache(file).kept("up", 9)) == "packed up");
  REQUIRE(::chown(folder.path().c_str(), stranger, stranger) == 0);
  CHECK(text_of(PreparedCache(file).kept("up", 9)) == "nothing");
}

TEST_CASE("prepared cache: nothing is kept of weights that have changed") {
  const TempFolder folder;
  const auto model = folder.write("model", std::string(10'000, 'w'));
  const PreparedFile file{
      folder / "weights.packed", "of these weights", {io::InputFile::open(model)}};
  const Messages messages;
  PreparedCache cache(file);
  cache.keep("up", owned("packed up"));
  std::filesystem::resize_file(model, 10);
  cache.save();
  CHECK_FALSE(std::filesystem::exists(file.path));
  CHECK(messages.lines().find("the file has 10 bytes now") != std::string::npos);
}
