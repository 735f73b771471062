#include "support/expect_error.hpp"
#include "support/memory_watch.hpp"
#include "temp_folder.hpp"

#include <tenon/io/file.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/io/save.hpp>

#include <atomic>
#include <thread>

#include <catch2/catch.hpp>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

std::vector<io::NamedTensor> tensors_of(float first, std::int64_t columns = 4) {
  const HostBuffer matrix = HostBuffer::zeros(Shape({2, columns}, f32));
  for (std::int64_t i = 0; i < 2 * columns; ++i) {
    matrix.view().as<float>()[i] = first + static_cast<float>(i % 7);
  }
  return {{"matrix", matrix},
          {"scalar", HostBuffer::of<std::int64_t>(Shape({}, i64), {-5})},
          {"empty", HostBuffer::zeros(Shape({0, 3}, f16))},
          {"bytes", HostBuffer::of<std::int8_t>(Shape({3}, i8), {1, -2, 3})}};
}

void check_equal(const io::File& file, std::span<const io::NamedTensor> expected) {
  CHECK(file.tensors().size() == expected.size());
  for (const io::NamedTensor& tensor : expected) {
    INFO(tensor.name);
    const HostBuffer found = file.at(tensor.name).data();
    const HostBuffer wanted = tensor.data.contiguous();
    REQUIRE(found.shape() == wanted.shape());
    CHECK(std::equal(found.bytes(), found.bytes() + found.shape().bytes(), wanted.bytes()));
  }
}

enum class Writer { safetensors, gguf };
constexpr Writer every_writer[] = {Writer::safetensors, Writer::gguf};

void save(Writer writer, const std::filesystem::path& path,
          std::span<const io::NamedTensor> tensors) {
  if (writer == Writer::safetensors) {
    io::save_safetensors(path, tensors, {{"format", "pt"}});
  } else {
    io::save_gguf(path, io::Metadata(), tensors);
  }
}

}  // namespace

TEST_CASE("save: written and read back") {
  const TempFolder folder;
  const auto tensors = tensors_of(1.0f);
  for (const Writer writer : every_writer) {
    save(writer, folder / "model", tensors);
    check_equal(io::open(folder / "model"), tensors);
    CHECK(folder.entries() == 1);
  }
}

TEST_CASE("save: safetensors puts larger types first, then orders by name, as the reference does") {
  const TempFolder folder;
  const std::vector<io::NamedTensor> tensors{
      {"b", HostBuffer::of<std::int8_t>(Shape({1}, i8), {7})},
      {"z", HostBuffer::of<float>(Shape({1}, f32), {1.0f})},
      {"a\"\n", HostBuffer::of<float>(Shape({}, f32), {2.0f})}};
  io::save_safetensors(folder / "m", tensors, {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a\"\n":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("z":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
      R"("b":{"dtype":"I8","shape":[1],"data_offsets":[8,9]}})";
  const std::string bytes = read_bytes(folder / "m");
  CHECK(bytes.substr(8, header.size()) == header);
  CHECK(static_cast<unsigned char>(bytes[0]) == (header.size() + 7) / 8 * 8);
  CHECK(bytes.back() == '\x07');
}

TEST_CASE("save: GGUF keys of every kind, and its alignment") {
  const TempFolder folder;
  io::Metadata keys;
  keys.set("general.alignment", std::uint32_t{256});
  keys.set("text", "value");
  keys.set("flag", false);
  keys.set("f64", 0.1);
  const std::int16_t numbers[] = {-1, 2};
  keys.set_array<std::int16_t>("numbers", numbers);
  const std::string_view strings[] = {"", "\xff", "abc"};
  keys.set_strings("strings", strings);
  const auto tensors = tensors_of(3.0f);
  io::save_gguf(folder / "m.gguf", keys, tensors);
  const io::File file = io::open(folder / "m.gguf");
  check_equal(file, tensors);
  for (const io::TensorEntry& tensor : file.tensors()) CHECK(tensor.offset_bytes % 256 == 0);
  const io::Metadata& found = file.metadata();
  REQUIRE(found.size() == keys.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found.entries()[i].key == keys.entries()[i].key);
    CHECK(found.entries()[i].value.index() == keys.entries()[i].value.index());
  }
  CHECK(found.get<std::vector<std::int16_t>>("numbers") == std::vector<std::int16_t>{-1, 2});
  CHECK(found.get<std::vector<std::string>>("strings")[1] == "\xff");
  CHECK(found.get<double>("f64") == 0.1);
}

TEST_CASE("save: views are written as dense arrays") {
  const TempFolder folder;
  const HostBuffer matrix = HostBuffer::of<float>(Shape({2, 3}, f32), {1, 2, 3, 4, 5, 6});
  const int order[] = {1, 0};
  const std::vector<io::NamedTensor> tensors{{"t", matrix.permute(order)},
                                             {"s", matrix.slice(1, 1, 3)}};
  for (const Writer writer : every_writer) {
    save(writer, folder / "m", tensors);
    check_equal(io::open(folder / "m"), tensors);
  }
}

TEST_CASE("save: what the formats cannot hold") {
  const TempFolder folder;
  const HostBuffer one = HostBuffer::zeros(Shape({1}, f32));
  const auto refuse = [&](Errc code, Writer writer, std::vector<io::NamedTensor> tensors) {
    expect_error(code, [&] { save(writer, folder / "m", tensors); });
    CHECK(folder.entries() == 0);
  };
  for (const Writer writer : every_writer) {
    refuse(Errc::duplicate_name, writer, {{"a", one}, {"b", one}, {"a", one}});
    refuse(Errc::bad_key, writer, {{"", one}});
    refuse(Errc::bad_encoding, writer, {{"\xff", one}});
    refuse(Errc::bad_encoding, writer, {{std::string("a\0", 2), one}});
    refuse(Errc::bad_argument, writer, {{"a", HostBuffer()}});
  }
  refuse(Errc::bad_key, Writer::safetensors, {{"__metadata__", one}});
  refuse(Errc::unsupported_dtype, Writer::safetensors,
         {{"a", HostBuffer::zeros(Shape({32}, DType::q8_0))}});
  for (const DType dtype : {DType::boolean, u8, u16, u32}) {
    refuse(Errc::unsupported_dtype, Writer::gguf, {{"a", HostBuffer::zeros(Shape({1}, dtype))}});
  }
  refuse(Errc::bad_shape, Writer::gguf, {{"a", HostBuffer::zeros(Shape({1, 1, 1, 1, 1}, f32))}});
  expect_error(Errc::bad_encoding,
               [&] { io::save_safetensors(folder / "m", {}, {{"k", "\xff"}}); });
  io::Metadata keys;
  keys.set("general.alignment", std::uint32_t{12});
  expect_error(Errc::bad_alignment, [&] { io::save_gguf(folder / "m", keys, {}); });
  keys.set("general.alignment", "32");
  expect_error(Errc::bad_type, [&] { io::save_gguf(folder / "m", keys, {}); });
}

TEST_CASE("save: places that cannot be written") {
  const TempFolder folder;
  const auto tensors = tensors_of(0.0f);
  for (const Writer writer : every_writer) {
    expect_error(Errc::io_error, [&] { save(writer, folder / "missing" / "m", tensors); });
    expect_error(Errc::not_regular_file, [&] { save(writer, folder.path(), tensors); });
    expect_error(Errc::not_regular_file, [&] { save(writer, "/dev/null", tensors); });
    expect_error(Errc::bad_argument, [&] { save(writer, "", tensors); });
  }
  expect_error(Errc::io_error, [&] { io::write_npy(folder / "no" / "a", tensors[0].data); });
  CHECK(folder.entries() == 0);
}

TEST_CASE("S20: saving to the file that the tensors are mapped from") {
  for (const Writer writer : every_writer) {
    const TempFolder folder;
    const auto path = folder / "model";
    save(writer, path, tensors_of(1.0f, 3000));
    const io::File old_file = io::open(path);
    std::vector<io::NamedTensor> tensors;
    for (const io::TensorEntry& entry : old_file.tensors()) {
      tensors.push_back({entry.name, entry.data()});
    }
    CHECK(old_file.at("matrix").data().ownership() == HostBuffer::Ownership::mapped);
    const std::string before = read_bytes(path);
    save(writer, path, tensors);
    CHECK((read_bytes(path) == before));
    tensors.push_back({"added", HostBuffer::of<float>(Shape({1}, f32), {9.0f})});
    save(writer, path, tensors);
    check_equal(io::open(path), tensors);
    check_equal(old_file, std::span(tensors).first(4));
    CHECK(folder.entries() == 1);
  }
}

TEST_CASE("save: a link stays a link, and the file keeps its permissions") {
  const TempFolder folder;
  save(Writer::gguf, folder / "real", tensors_of(1.0f));
  REQUIRE(::chmod((folder / "real").c_str(), 0640) == 0);
  std::filesystem::create_symlink("real", folder / "link");
  save(Writer::gguf, folder / "link", tensors_of(2.0f));
  CHECK(std::filesystem::is_symlink(folder / "link"));
  check_equal(io::open(folder / "real"), tensors_of(2.0f));
  struct stat status{};
  REQUIRE(::stat((folder / "real").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
}

TEST_CASE("N06: the device is full") {
  const TempFolder folder;
  const auto path = folder / "model";
  const auto old_tensors = tensors_of(1.0f);
  ::signal(SIGXFSZ, SIG_IGN);
  for (const Writer writer : every_writer) {
    save(writer, path, old_tensors);
    const auto larger = tensors_of(2.0f, 100'000);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    for (const rlim_t bytes : {rlim_t{0}, rlim_t{1}, rlim_t{4096}, rlim_t{700'000}}) {
      rlimit limit = before;
      limit.rlim_cur = bytes;
      ::setrlimit(RLIMIT_FSIZE, &limit);
      std::string words;
      Errc code = Errc::internal;
      try {
        save(writer, path, larger);
      } catch (const Error& error) {
        code = error.code();
      }
      ::setrlimit(RLIMIT_FSIZE, &before);
      CHECK(spelling(code) == spelling(Errc::io_error));
      CHECK(folder.entries() == 1);
      check_equal(io::open(path), old_tensors);
    }
  }
  ::signal(SIGXFSZ, SIG_DFL);
}

TEST_CASE("N07: killed at any moment of a save") {
  const TempFolder folder;
  const auto path = folder / "model";
  const auto a = tensors_of(1.0f, 50'000);
  const auto b = tensors_of(2.0f, 50'000);
  for (const Writer writer : every_writer) {
    save(writer, path, a);
    for (int round = 0; round < 20; ++round) {
      const pid_t child = ::fork();
      if (child == 0) {
        for (int i = 0;; ++i) save(writer, path, i % 2 == 0 ? b : a);
      }
      REQUIRE(child > 0);
      ::usleep(static_cast<useconds_t>(300 + 379 * round));
      ::kill(child, SIGKILL);
      int status = 0;
      ::waitpid(child, &status, 0);
      const io::File file = io::open(path);
      const bool is_a = file.at("matrix").data().values<float>()[0] == 1.0f;
      check_equal(file, is_a ? a : b);
    }
  }
}

TEST_CASE("N08: readers see one whole version while writers replace it") {
  const TempFolder folder;
  const auto path = folder / "model";
  const std::vector<io::NamedTensor> versions[] = {tensors_of(1.0f, 20'000),
                                                   tensors_of(2.0f, 20'000)};
  save(Writer::gguf, path, versions[0]);
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (const auto& version : versions) {
    threads.emplace_back([&] {
      while (!stop) save(Writer::gguf, path, version);
    });
  }
  for (int reader = 0; reader < 4; ++reader) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const HostBuffer matrix = io::open(path).at("matrix").data();
        const float first = matrix.values<float>()[0];
        for (std::size_t i = 0; i < 40'000; ++i) {
          if (matrix.values<float>()[i] != first + static_cast<float>(i % 7)) {
            ++torn;
            break;
          }
        }
      }
    });
  }
  for (std::size_t i = 2; i < threads.size(); ++i) threads[i].join();
  stop = true;
  threads[0].join();
  threads[1].join();
  CHECK(torn == 0);
  CHECK(folder.entries() == 1);
}

TEST_CASE("C08: signals that interrupt system calls") {
  const TempFolder folder;
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) {};  // without SA_RESTART: calls return EINTR
  ::sigaction(SIGALRM, &action, &before);
  const itimerval storm{{0, 200}, {0, 200}};
  ::setitimer(ITIMER_REAL, &storm, nullptr);
  const auto tensors = tensors_of(4.0f, 100'000);
  for (int round = 0; round < 20; ++round) {
    for (const Writer writer : every_writer) {
      CHECK_NOTHROW(save(writer, folder / "m", tensors));
      const io::File file = io::open(folder / "m", {.access = io::Access::read});
      CHECK_NOTHROW(file.at("matrix").data());
    }
  }
  const itimerval calm{};
  ::setitimer(ITIMER_REAL, &calm, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  check_equal(io::open(folder / "m"), tensors);
}

TEST_CASE("A03: memory runs out at every allocation of saving") {
  const TempFolder folder;
  const auto path = folder / "m";
  const auto old_tensors = tensors_of(1.0f);
  const auto new_tensors = tensors_of(2.0f);
  for (const Writer writer : every_writer) {
    save(writer, path, old_tensors);
    bool succeeded = false;
    std::size_t k = 0;
    for (; !succeeded; ++k) {
      bool typed = false;
      std::ptrdiff_t live = 0;
      {
        MemoryWatch watch;
        watch.fail_at(k, false);
        try {
          save(writer, path, new_tensors);
          succeeded = true;
        } catch (const Error& error) {
          typed = error.code() == Errc::out_of_memory;
        } catch (const std::bad_alloc&) {  // in this test's own arguments
          typed = k < 4;
        }
        watch.fail_never();
        live = watch.live_bytes();
      }
      CHECK((succeeded || typed));
      CHECK(live == 0);
      CHECK(folder.entries() == 1);
      if (!succeeded) check_equal(io::open(path), old_tensors);
    }
    CHECK(k > 5);
    check_equal(io::open(path), new_tensors);
  }
}

}  // namespace tenon::testing
