// Files of cases that python/tests/op_cases.py writes, and the scripts that make them.
#pragma once

#include <tenon/host_buffer.hpp>

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tenon::testing {

/// A safetensors file with its cases, read whole. Throws std::runtime_error for another format.
class CaseFile {
 public:
  explicit CaseFile(const std::filesystem::path& path);

  /// The list of cases (format: python/tests/op_cases.py).
  nlohmann::json cases() const;
  /// The array that a case calls {"array": name, "dtype": type, "shape": sizes}.
  HostBuffer array(const nlohmann::json& entry) const;
  /// The same of each entry of a list.
  std::vector<HostBuffer> arrays(const nlohmann::json& entries) const;

 private:
  std::vector<char> bytes_;
  std::size_t data_ = 0;
  nlohmann::json header_;
};

/// The files of a folder whose names start and end so, sorted.
std::vector<std::filesystem::path> files_like(const std::filesystem::path& folder,
                                              std::string_view start, std::string_view end);

/// What every python/tests/START*.py writes for a fresh seed (TENON_TEST_SEED repeats one), which
/// is printed. Run by the interpreter that TENON_ORACLE_PYTHON names; none when it is not set.
std::vector<std::filesystem::path> generated_cases(std::string_view start);

}  // namespace tenon::testing
