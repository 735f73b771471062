// Cases that python/tests/op_cases_*.py computed with numpy: what goes into an op, and what must
// come out. How a case is executed is the caller's business, so every backend can run the same
// ones.
#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/op.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace tenon::testing {

struct OpCase {
  std::string name;  ///< "sum 3"
  OpInstance op;
  std::vector<HostBuffer> inputs;
  HostBuffer output;
  double absolute = 0;  ///< |got - want| <= absolute + relative * |want|
  double relative = 0;
};

/// The cases of one file (format: python/tests/op_cases.py). Throws std::runtime_error for a file
/// that is not of that format, and for an op or attribute that does not exist.
std::vector<OpCase> read_op_cases(const std::filesystem::path& file);

/// tests/ops/data/cases_*.safetensors, in the source tree that CTest runs the tests in.
std::vector<std::filesystem::path> committed_op_cases();

/// A larger set from every python/tests/op_cases_*.py, made now by the interpreter that
/// TENON_ORACLE_PYTHON names with a fresh seed (TENON_TEST_SEED repeats one); the seed is printed.
/// Empty when the variable is not set.
std::vector<std::filesystem::path> generated_op_cases();

}  // namespace tenon::testing
