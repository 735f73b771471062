#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {

/// The names of all tiny language models in tests/models/data.
inline std::vector<std::string> tiny_architectures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/models/data")) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() == ".gguf") names.push_back(stem.substr(stem.find('_') + 1));
  }
  std::ranges::sort(names);
  REQUIRE(names.size() > 80);
  return names;
}

inline std::string tiny_path(const std::string& architecture) {
  return "tests/models/data/tiny_" + architecture + ".gguf";
}

/// TENON_TEST_SEED, or a fresh one.
inline std::uint64_t test_seed() {
  const char* given = std::getenv("TENON_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

}  // namespace tenon::testing
