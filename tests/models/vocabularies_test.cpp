// llama.cpp's vocabulary-only files with the strings and the ids that come with them, in the folder
// TENON_TEST_VOCABULARIES (llama.cpp's `models/`, which the source package of llama-cpp-python
// holds).
#include <tenon/io/file.hpp>
#include <tenon/models/vocabulary.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;

namespace {

/// Ends the program as skipped where there is no such folder.
std::filesystem::path vocabulary_folder() {
  const char* const folder = std::getenv("TENON_TEST_VOCABULARIES");
  if (folder == nullptr || !std::filesystem::exists(folder)) {
    std::puts("SKIPPED: TENON_TEST_VOCABULARIES names no folder");
    std::fflush(stdout);
    std::_Exit(77);
  }
  return folder;
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A string, then the separator; in some files behind the last one, too.
std::vector<std::string> strings_of(const std::filesystem::path& file) {
  constexpr std::string_view separator = "\n__ggml_vocab_test__\n";
  const std::string text = read_file(file);
  std::vector<std::string> strings;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string::npos;
       end = text.find(separator, begin)) {
    strings.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  if (begin != text.size()) strings.push_back(text.substr(begin));
  return strings;
}

std::vector<std::vector<std::int32_t>> lines_of(const std::filesystem::path& file) {
  std::istringstream text(read_file(file));
  std::vector<std::vector<std::int32_t>> lines;
  for (std::string line; std::getline(text, line);) {
    std::istringstream numbers(line);
    lines.emplace_back(std::istream_iterator<std::int32_t>(numbers),
                       std::istream_iterator<std::int32_t>());
  }
  return lines;
}

}  // namespace

TEST_CASE("vocabularies of llama.cpp: the ids that come with them", "[llama_cpp]") {
  const auto folder = vocabulary_folder();
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    auto texts = entry.path();
    auto expected = entry.path();
    texts += ".inp";
    expected += ".out";
    INFO(entry.path().filename().string());
    const auto tokenizer = models::load_tokenizer(io::open(entry.path()));
    CHECK(tokenizer.vocab_size() > 1000);
    if (!std::filesystem::exists(texts)) continue;
    const auto strings = strings_of(texts);
    const auto lines = lines_of(expected);
    REQUIRE(strings.size() == lines.size());
    for (std::size_t i = 0; i < strings.size(); ++i) {
      INFO(strings[i]);
      const auto ids = tokenizer.encode(strings[i], {.add_special = false, .parse_special = false});
      CHECK(ids == lines[i]);
    }
    ++files;
  }
  CHECK(files > 10);
}
