#include "expect_refused.hpp"
#include "gguf_maker.hpp"
#include "safetensors_maker.hpp"

#include <thread>

#include <catch2/catch.hpp>

namespace tenon::testing {

TEST_CASE("open: the beginning decides the format, then the extension") {
  const TempFolder folder;
  const std::string gguf = two_tensors().bytes();
  const std::string tensors = safetensors(one_tensor("[2]", "[0,8]"), 8);
  CHECK(io::open(folder.write("a.bin", gguf)).format() == io::Format::gguf);
  CHECK(io::open(folder.write("b.safetensors", gguf)).format() == io::Format::gguf);
  CHECK(io::open(folder.write("c.bin", tensors)).format() == io::Format::safetensors);
  expect_refused(Errc::bad_magic, folder.write("d.gguf", tensors));
  expect_refused(Errc::bad_magic, folder.write("e.txt", "hello, world"));
  expect_refused(Errc::truncated, folder.write("f.gguf", ""));
}

TEST_CASE("open: formats by name") {
  CHECK(name(io::Format::gguf) == "gguf");
  CHECK(name(io::Format::safetensors) == "safetensors");
  CHECK(name(io::Format::safetensors_sharded) == "sharded safetensors");
}

TEST_CASE("open: a folder with one model") {
  const std::string tensors = safetensors(one_tensor("[2]", "[0,8]"), 8);
  const TempFolder folder;
  expect_refused(Errc::not_found, folder.path());
  folder.write("config.json", "{}");
  folder.write("tokenizer.json", "{}");
  expect_refused(Errc::not_found, folder.path());
  folder.write("weights.safetensors", tensors);
  CHECK(io::open(folder.path()).path() == folder / "weights.safetensors");
  folder.write("other.gguf", two_tensors().bytes());
  const std::string words = expect_refused(Errc::bad_argument, folder.path());
  CHECK(words.find("other.gguf, weights.safetensors") != std::string::npos);
  folder.write("model.safetensors", tensors);
  CHECK(io::open(folder.path()).path() == folder / "model.safetensors");
}

TEST_CASE("open: files beside the model") {
  const TempFolder folder;
  folder.write("config.json", "{}");
  std::filesystem::create_directory(folder / "folder");
  const io::File file = io::open(folder.write("model.gguf", two_tensors().bytes()));
  CHECK(file.sibling("config.json") == folder / "config.json");
  CHECK_FALSE(file.sibling("tokenizer.json").has_value());
  CHECK_FALSE(file.sibling("folder").has_value());
  for (const std::string_view name : {"../x", "/etc/passwd", "..", ".", "", "folder/x"}) {
    expect_error(Errc::path_escape, [&] { file.sibling(name); });
  }
}

TEST_CASE("open: a tensor that is not there") {
  const TempFolder folder;
  const io::File file = io::open(folder.write("model.gguf", two_tensors().bytes()));
  CHECK(file.find("c.weight") == nullptr);
  CHECK(expect_error(Errc::bad_reference, [&] { file.at("c.weight"); }) ==
        "BadReference: model.gguf: no tensor 'c.weight'; did you mean 'a.weight', 'b.weight'?");
  CHECK(expect_error(Errc::bad_reference, [&] { file.at("entirely different"); }) ==
        "BadReference: model.gguf: no tensor 'entirely different'");
}

TEST_CASE("open: what a file handed out outlives it") {
  const TempFolder folder;
  HostBuffer data;
  io::Metadata keys;
  io::TensorEntry entry;
  {
    const io::File file = io::open(folder.write("model.gguf", two_tensors().bytes()));
    data = file.at("a.weight").data();
    entry = file.at("b.weight");
    keys = file.metadata();
  }
  CHECK(data.ownership() == HostBuffer::Ownership::mapped);
  CHECK(data.bytes()[3] == std::byte{3});
  CHECK(entry.data().bytes()[0] == std::byte{32});
  CHECK(keys.get<std::string>("general.architecture") == "llama");
  CHECK(keys.strings("tokenizer.ggml.tokens")[0] == "a");
}

TEST_CASE("open: reading into memory of the caller") {
  const TempFolder folder;
  for (const io::Access access : every_access) {
    const io::File file =
        io::open(folder.write("model.gguf", two_tensors().bytes()), {.access = access});
    const io::TensorEntry& tensor = file.at("b.weight");
    std::vector<std::byte> to(tensor.size_bytes);
    tensor.read(to);
    CHECK(to.front() == std::byte{32});
    CHECK(to.back() == std::byte{65});
    to.pop_back();
    expect_error(Errc::bad_argument, [&] { tensor.read(to); });
  }
}

TEST_CASE("open: one file, many threads") {
  const TempFolder folder;
  for (const io::Access access : every_access) {
    const io::File file =
        io::open(folder.write("model.gguf", two_tensors().bytes()), {.access = access});
    std::vector<std::thread> threads;
    std::vector<int> sums(4, 0);
    for (int& sum : sums) {
      threads.emplace_back([&file, &sum] {
        for (int round = 0; round < 200; ++round) {
          const io::File copy = file;
          sum += static_cast<int>(copy.at("b.weight").data().bytes()[round % 34]);
          sum += copy.metadata().get<int>("llama.block_count");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int sum : sums) CHECK(sum == sums[0]);
  }
}

TEST_CASE("open: a file that was moved from says so") {
  const TempFolder folder;
  io::File file = io::open(folder.write("model.gguf", two_tensors().bytes()));
  const io::File other = std::move(file);
  CHECK(other.tensors().size() == 2);
  expect_error(Errc::call_order, [&] { file.path(); });
  expect_error(Errc::call_order, [&] { file.format(); });
  expect_error(Errc::call_order, [&] { file.tensors(); });
  expect_error(Errc::call_order, [&] { file.find("b.weight"); });
  expect_error(Errc::call_order, [&] { file.at("b.weight"); });
  expect_error(Errc::call_order, [&] { file.metadata(); });
  expect_error(Errc::call_order, [&] { file.view(); });
  expect_error(Errc::call_order, [&] { file.sibling("config.json"); });
  expect_error(Errc::call_order, [&] { file.shards(); });
}

}  // namespace tenon::testing
