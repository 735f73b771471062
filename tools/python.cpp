#include "python.hpp"

#include <tenon/error.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

constexpr int not_installed = 3;  // what find_package exits with
constexpr const char* find_package =
    "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('tenon') else 3)";

/// Exit status of a program that is found along PATH; 128 + the signal's number where one ended it.
int status_of(std::vector<std::string> words, bool is_quiet) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  posix_spawn_file_actions_t files;
  int failure = posix_spawn_file_actions_init(&files);
  if (failure == 0) {
    if (is_quiet) {
      failure = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    }
    if (failure == 0) {
      failure = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
    }
    posix_spawn_file_actions_destroy(&files);
  }
  if (failure != 0) {
    throw Error(Errc::unavailable, words[0],
                fmt::format("cannot be run ({}); the environment variable TENON_PYTHON names a "
                            "Python that has the package tenon",
                            std::strerror(failure)));
  }
  int state = 0;
  while (waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) throw Error(Errc::io_error, words[0], std::strerror(errno));
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

}  // namespace

int run_python(const std::string& module, const std::vector<std::string>& arguments,
               bool is_quiet) {
  const char* const named = std::getenv("TENON_PYTHON");
  const std::string python = named != nullptr && *named != '\0' ? named : "python3";
  if (status_of({python, "-c", find_package}, true) == not_installed) {
    throw Error(Errc::unavailable, python,
                "this Python has no package tenon: `pip install .` in Tenon's sources makes it, "
                "and TENON_PYTHON names another Python");
  }
  std::vector<std::string> words = {python, "-m", module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return status_of(std::move(words), is_quiet);
}

}  // namespace tenon::tool
