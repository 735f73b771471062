#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tenon::testing {

/// A model of the folder TENON_TEST_MODELS. Where it has none of that name, ends the program as
/// skipped (exit status 77): all test cases of one CTest test must need the same model (tenon_test
/// NEEDS), so that none has failed before.
inline std::filesystem::path real_model(const std::string& name) {
  const char* const folder = std::getenv("TENON_TEST_MODELS");
  if (folder == nullptr || !std::filesystem::exists(std::filesystem::path(folder) / name)) {
    std::puts(("SKIPPED: no " + name + " in TENON_TEST_MODELS").c_str());
    std::fflush(stdout);
    std::_Exit(77);
  }
  return std::filesystem::path(folder) / name;
}

inline const std::string smollm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
inline const std::string gemma3 = "gemma-3-270m-q4_k_m.gguf";
inline const std::string minilm = "all-MiniLM-L6-v2";

}  // namespace tenon::testing
