// Files of importance matrices: both formats, and what is refused.
#include "support/expect_error.hpp"
#include "temp_folder.hpp"

#include <tenon/io/importance.hpp>
#include <tenon/io/save.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

io::ImportanceMatrix made_matrix() {
  io::ImportanceMatrix matrix{.datasets = {"a.txt"}, .chunk_count = 3, .chunk_size = 64};
  const std::vector<float> row = {1, -2, 0}, other = {3, 0.5f, 0};
  io::ColumnSums& dense = matrix.tensors["blk.0.attn_q.weight"];
  dense = io::ColumnSums::zeros(1, 3);
  dense.add(0, row);
  dense.add(0, other);
  io::ColumnSums& experts = matrix.tensors["blk.0.ffn_up_exps.weight"];
  experts = io::ColumnSums::zeros(2, 3);
  experts.add(1, row);
  return matrix;
}

template <class T>
void put(std::string& to, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof value);
}

/// What llama.cpp wrote before it wrote GGUF: of each entry means times a number of pieces.
std::string former_file() {
  std::string file;
  put(file, std::int32_t{1});
  const std::string name = "blk.0.attn_q.weight", dataset = "a.txt";
  put(file, static_cast<std::int32_t>(name.size()));
  file += name;
  put(file, std::int32_t{4});
  put(file, std::int32_t{3});
  for (const float sum : {8.0f, 2.0f, 0.0f}) put(file, sum);
  put(file, std::int32_t{4});
  put(file, static_cast<std::int32_t>(dataset.size()));
  return file + dataset;
}

bool is_same(const io::ColumnSums& a, const io::ColumnSums& b) {
  return a.columns == b.columns && a.sums == b.sums && a.counts == b.counts;
}

}  // namespace

TEST_CASE("importance: means of squares, and 1 for a matrix that met no row") {
  const io::ImportanceMatrix matrix = made_matrix();
  CHECK(matrix.tensors.at("blk.0.attn_q.weight").means() == std::vector<float>{5, 2.125f, 0});
  CHECK(matrix.tensors.at("blk.0.ffn_up_exps.weight").means() ==
        std::vector<float>{1, 1, 1, 1, 4, 0});
}

TEST_CASE("importance: a file has what was saved, and runs add up") {
  const TempFolder folder;
  const auto path = folder.path() / "imatrix.gguf";
  const io::ImportanceMatrix made = made_matrix();
  io::save_importance(path, made);
  io::ImportanceMatrix read = io::load_importance(path);
  CHECK(read.datasets == made.datasets);
  CHECK(read.chunk_count == 3);
  CHECK(read.chunk_size == 64);
  REQUIRE(read.tensors.size() == made.tensors.size());
  for (const auto& [name, sums] : made.tensors) CHECK(is_same(read.tensors.at(name), sums));

  read.add(made);
  CHECK(read.chunk_count == 6);
  CHECK(read.datasets.size() == 2);
  const io::ColumnSums& twice = read.tensors.at("blk.0.attn_q.weight");
  CHECK(twice.counts == std::vector<double>{4});
  CHECK(twice.means() == made.tensors.at("blk.0.attn_q.weight").means());

  // llama.cpp's files leave out outer axes of size 1.
  io::save_gguf(path, {},
                std::vector<io::NamedTensor>{{"a.in_sum2", HostBuffer::zeros(Shape({3}, f32))},
                                             {"a.counts", HostBuffer::zeros(Shape({1}, f32))}});
  CHECK(is_same(io::load_importance(path).tensors.at("a"), io::ColumnSums::zeros(1, 3)));
  io::ImportanceMatrix endless = made;
  endless.tensors.begin()->second.sums[0] = std::numeric_limits<double>::quiet_NaN();
  expect_error(Errc::bad_input, [&] { io::save_importance(path, endless); });

  io::ImportanceMatrix other;
  other.tensors["blk.0.attn_q.weight"] = io::ColumnSums::zeros(1, 4);
  expect_error(Errc::shape_mismatch, [&] { read.add(other); });
}

TEST_CASE("importance: llama.cpp's former format") {
  const TempFolder folder;
  const io::ImportanceMatrix read = io::load_importance(folder.write("a.dat", former_file()));
  CHECK(read.chunk_count == 4);
  CHECK(read.datasets == std::vector<std::string>{"a.txt"});
  CHECK(read.tensors.at("blk.0.attn_q.weight").means() == std::vector<float>{2, 0.5f, 0});
}

TEST_CASE("importance: files that are refused") {
  const TempFolder folder;
  const auto refused = [&](Errc code, const std::string& bytes) {
    const auto path = folder.write("a.dat", bytes);
    expect_error(code, [&] { io::load_importance(path); });
  };
  expect_error(Errc::not_found, [&] { io::load_importance(folder.path() / "none"); });
  expect_error(Errc::not_regular_file, [&] { io::load_importance(folder.path()); });
  refused(Errc::truncated, "");
  refused(Errc::bad_magic, std::string(100, '\0'));
  refused(Errc::bad_magic, std::string(100, '\xff'));
  const std::string former = former_file();
  for (std::size_t length = 1; length + 1 < former.size(); ++length) {
    const auto path = folder.write("a.dat", former.substr(0, length));
    try {
      io::load_importance(path);
      // The numbers behind the entries may be missing.
      CHECK(length == former.size() - 13);
    } catch (const Error& error) {
      CHECK(error.code() == Errc::truncated);
    }
  }
  std::string negative = former, endless = former;
  const float minus = -1, infinity = std::numeric_limits<float>::infinity();
  const std::size_t first = 4 + 4 + 19 + 4 + 4;
  std::memcpy(negative.data() + first, &minus, sizeof minus);
  std::memcpy(endless.data() + first, &infinity, sizeof infinity);
  refused(Errc::bad_input, negative);
  refused(Errc::bad_input, endless);

  const auto path = folder.path() / "b.gguf";
  const auto refused_tensors = [&](Errc code, const std::vector<io::NamedTensor>& tensors) {
    io::save_gguf(path, {}, tensors);
    expect_error(code, [&] { io::load_importance(path); });
  };
  const HostBuffer sums = HostBuffer::zeros(Shape({2, 3}, f32));
  refused_tensors(Errc::bad_magic, {{"a", sums}});
  refused_tensors(Errc::bad_reference, {{"a.in_sum2", sums}});
  const HostBuffer one = HostBuffer::zeros(Shape({1, 1}, f32));
  refused_tensors(Errc::bad_shape, {{"a.in_sum2", sums}, {"a.counts", one}});
  refused_tensors(Errc::bad_shape,
                  {{"a.in_sum2", HostBuffer::zeros(Shape({1, 2, 3}, f32))}, {"a.counts", one}});
  refused_tensors(Errc::bad_shape, {{"a.in_sum2", sums.to(f16)},
                                    {"a.counts", HostBuffer::zeros(Shape({2, 1}, f32))}});
}

TEST_CASE("importance: files with changed bytes are read or refused") {
  const TempFolder folder;
  const auto path = folder.path() / "imatrix.gguf";
  io::save_importance(path, made_matrix());
  std::string gguf;
  {
    std::ifstream in(path, std::ios::binary);
    gguf.assign(std::istreambuf_iterator<char>(in), {});
  }
  constexpr unsigned seed = 20261129;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const std::string& valid : {gguf, former_file()}) {
    for (int round = 0; round < 2000; ++round) {
      std::string bytes = valid;
      for (int change = 0; change < 3; ++change) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      try {
        const io::ImportanceMatrix read = io::load_importance(folder.write("c", bytes));
        for (const auto& [name, sums] : read.tensors)
          CHECK(sums.means().size() == sums.sums.size());
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace tenon::testing
