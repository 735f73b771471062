// How fast a tokenizer.json encodes a text, in processor time of one thread; tokenizing.py compares
// with Hugging Face's.
//
//   bench_tokenizing TOKENIZER.JSON TEXT
#include "timing.hpp"

#include <tenon/text/tokenizer.hpp>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>

int main(int argc, char** argv) try {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} TOKENIZER.JSON TEXT\n", argv[0]);
    return 2;
  }
  const auto tokenizer = tenon::text::Tokenizer::from_json(argv[1]);
  std::ifstream stream(argv[2], std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  std::size_t count = 0;
  const double seconds =
      tenon::bench::shortest_alone([&] { count = tokenizer.encode(text).size(); }, 2.0);
  fmt::print("{} tokens, {:.4f} s\n", count, seconds);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
