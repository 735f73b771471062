// The fuzzers' targets in every build: their seeds, and seeds with a few changes.
#include "fuzz/targets.hpp"
#include "support/random_program.hpp"

#include <algorithm>
#include <exception>
#include <random>
#include <string>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : engine_(seed) {}

  std::string change(const std::string& good) {
    std::string bytes = good;
    for (std::size_t n = below(4) + 1; n > 0 && !bytes.empty(); --n) change_once(bytes);
    return bytes;
  }
  std::size_t below(std::size_t end) { return engine_() % end; }

 private:
  void change_once(std::string& bytes) {
    const std::size_t at = below(bytes.size());
    const std::size_t length = std::min(below(16) + 1, bytes.size() - at);
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:  // another number, where one stands
        if (const auto digit = bytes.find_first_of("0123456789", at); digit != bytes.npos) {
          static constexpr const char* numbers[] = {"-1",         "0",     "7",
                                                    "4294967296", "1e999", "9223372036854775807"};
          bytes.replace(digit, 1, numbers[below(std::size(numbers))]);
        }
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(below(bytes.size()), bytes.substr(at, length));
        break;
      case 5:
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), length,
                    below(2) == 0 ? '\0' : '\xff');
        break;
      default:
        bytes.resize(at);
    }
  }

  std::mt19937_64 engine_;
};

std::string trouble(const FuzzTarget& target, const std::string& bytes) {
  try {
    target.run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("fuzz targets: seeds, and seeds with a few changes") {
  const std::uint64_t seed = fuzz_seed(1);
  const int rounds = fuzz_rounds(2000);
  for (const FuzzTarget& target : fuzz_targets()) {
    REQUIRE(!target.seeds.empty());
    for (const std::string& good : target.seeds) {
      INFO(target.name);
      CHECK(trouble(target, good) == "");
    }
    Mutator mutator(seed);
    for (int round = 0; round < rounds; ++round) {
      const std::string bytes = mutator.change(target.seeds[mutator.below(target.seeds.size())]);
      const std::string found = trouble(target, bytes);
      if (!found.empty()) {
        FAIL_CHECK(target.name << ", TENON_TEST_SEED=" << seed << ", round " << round << ": "
                               << found);
      }
    }
  }
}

}  // namespace tenon::testing
