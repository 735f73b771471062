// Invalid options of the CPU backend.
#include "backends/cpu/cpu_features.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/error.hpp>
#include <tenon/log.hpp>

#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

using namespace tenon;
using tenon::testing::contains;
using tenon::testing::expect_error;

namespace {

constexpr const char* variable = "TENON_CPU_ISA";

/// The variable as it was, when the test has ended.
class KeptVariable {
 public:
  KeptVariable() {
    const char* const value = std::getenv(variable);
    if (value != nullptr) value_ = value;
    was_set_ = value != nullptr;
  }
  ~KeptVariable() {
    if (was_set_) {
      ::setenv(variable, value_.c_str(), 1);
    } else {
      ::unsetenv(variable);
    }
  }

 private:
  std::string value_;
  bool was_set_ = false;
};

/// What is logged while a backend is made.
std::string logged() {
  std::string text;
  LogSink before = set_log_sink([&](LogLevel, std::string_view message) { text += message; });
  static_cast<void>(make_cpu_backend({.threads = 1}));
  set_log_sink(std::move(before));
  return text;
}

}  // namespace

TEST_CASE("cpu backend: a negative number of threads is refused") {
  const auto message = expect_error(Errc::bad_argument, [] { make_cpu_backend({.threads = -3}); });
  CHECK(message.find("threads is -3") != std::string::npos);
}

TEST_CASE("cpu backend: TENON_CPU_ISA names an instruction set") {
  const KeptVariable kept;
  ::setenv(variable, "nonsense", 1);
  const auto message = expect_error(Errc::bad_argument, [] { make_cpu_backend({.threads = 1}); });
  CHECK(message.find("'nonsense'; known are portable, avx2") != std::string::npos);
  ::setenv(variable, "", 1);
  CHECK(logged().empty());
  ::setenv(variable, "portable", 1);
  CHECK(logged().empty());
}

TEST_CASE("cpu backend: an instruction set that the machine lacks is logged") {
  const KeptVariable kept;
  for (int i = 0; i < cpu::isa_count; ++i) {
    const auto isa = static_cast<cpu::Isa>(i);
    const std::string name(cpu::name(isa));
    INFO(name);
    ::setenv(variable, name.c_str(), 1);
    CHECK(logged().empty() == cpu::supports(isa));
  }
}
