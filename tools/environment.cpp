#include "environment.hpp"

#include "base/suggestion.hpp"
#include "io/names.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

constexpr std::string_view prefix = "TENON_";

const std::vector<std::string_view> known = {
    "TENON_API_KEY",              // serve
    "TENON_CPU_ISA",              // the library
    "TENON_CPU_MIN_SHARED_WORK",  // the library
    "TENON_PYTHON",               // import and export
    // Scripts, tests and benchmarks.
    "TENON_BUILDS",
    "TENON_CACHE",
    "TENON_NPU_NETWORKS",
    "TENON_NPU_REFERENCE_PROGRAMS",
    "TENON_ORACLE_PYTHON",
    "TENON_QUICK",
    "TENON_SCALESIM_ROWS",
    "TENON_SOURCE",
    "TENON_TEST_MODELS",
    "TENON_TEST_PLUGINS",
    "TENON_TEST_ROUNDS",
    "TENON_TEST_SEED",
    "TENON_TEST_VOCABULARIES",
    "TENON_TEXT_STRINGS",
    "TENON_TOOL",
};

}  // namespace

std::vector<std::string> unread_variables() {
  std::vector<std::string> sentences;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(prefix) || std::ranges::find(known, name) != known.end()) continue;
    sentences.push_back(fmt::format("nothing reads the environment variable {}{}",
                                    io::quote_name(name), suggestion(name, known)));
  }
  return sentences;
}

}  // namespace tenon::tool
