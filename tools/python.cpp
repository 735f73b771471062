#include "python.hpp"

#include <tenon/error.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

// Without the current folder, which -c and -m put before all others: a folder that somebody has downloaded may hold packages of
// these names. (PYTHONSAFEPATH does the same from Python 3.11 on.)
#define TENON_SAFE_PATH "import sys; sys.path[:1] == [''] and sys.path.pop(0); "

constexpr int not_installed = 3, no_onnx = 4;  // what find_packages exits with
constexpr const char* find_packages = TENON_SAFE_PATH
    "import importlib.util; found = importlib.util.find_spec; "
    "sys.exit(3 if not found('tenon') else 4 if sys.argv[1:] == ['tenon.onnx'] and not "
    "found('onnx') else 0)";
/// As -m does it.
constexpr const char* run_module = TENON_SAFE_PATH
    "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)";

void check(int failure, const std::string& program) {
  if (failure == 0) return;
  throw Error(Errc::unavailable, program,
              fmt::format("cannot be run ({}); the environment variable TENON_PYTHON names a "
                          "Python that has the package tenon",
                          std::strerror(failure)));
}

/// What a program prints, until it has closed its end.
std::string read_all(int descriptor) {
  std::string text;
  char piece[4096];
  while (true) {
    const ssize_t count = ::read(descriptor, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(piece, static_cast<std::size_t>(count));
  }
}

struct Ended {
  int status;
  std::string printed;  ///< to standard output, where that was caught
};

/// Runs a program that is found along PATH to its end. Errc::internal where a signal ended it.
Ended run_to_end(std::vector<std::string> words, bool catches_output) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2] = {-1, -1};
  if (catches_output && ::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(Errc::io_error, words[0], std::strerror(errno));
  }
  pid_t child = 0;
  posix_spawn_file_actions_t files;
  int failure = posix_spawn_file_actions_init(&files);
  if (failure == 0) {
    if (catches_output) {
      failure = posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    }
    if (failure == 0) {
      failure = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
    }
    posix_spawn_file_actions_destroy(&files);
  }
  Ended ended{};
  if (catches_output) {
    ::close(ends[1]);
    if (failure == 0) ended.printed = read_all(ends[0]);
    ::close(ends[0]);
  }
  check(failure, words[0]);
  int state = 0;
  while (waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) throw Error(Errc::io_error, words[0], std::strerror(errno));
  }
  if (!WIFEXITED(state)) {
    throw Error(
        Errc::internal, words[0],
        fmt::format("was ended by signal {} ({})", WTERMSIG(state), strsignal(WTERMSIG(state))));
  }
  ended.status = WEXITSTATUS(state);
  return ended;
}

}  // namespace

int run_python(const std::string& module, std::vector<std::string> arguments, bool json) {
  const char* const named = std::getenv("TENON_PYTHON");
  const std::string python = named != nullptr && *named != '\0' ? named : "python3";
  const int missing = run_to_end({python, "-c", find_packages, module}, true).status;
  if (missing == not_installed) {
    throw Error(Errc::unavailable, python,
                "this Python has no package tenon: `pip install .` in Tenon's sources makes it, "
                "and TENON_PYTHON names another Python");
  }
  if (missing == no_onnx) {
    throw Error(Errc::unavailable, python,
                "this Python has no package onnx, which models of ONNX need: `pip install onnx`");
  }
  if (json) arguments.emplace_back("--json");
  arguments.insert(arguments.begin(), {python, "-c", run_module, module});
  const Ended ended = run_to_end(std::move(arguments), json);
  if (json && ended.status != 0) {
    if (ended.printed.empty()) {
      throw Error(Errc::internal, module,
                  fmt::format("ended with status {}; standard error says why", ended.status));
    }
    fmt::print("{}", ended.printed);
  }
  return ended.status;
}

}  // namespace tenon::tool
