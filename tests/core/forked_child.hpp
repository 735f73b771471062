// Work done in a child of fork(), and what became of it.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include <catch2/catch.hpp>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::testing {

/// A line of text that children write and their parent reads.
class SharedLine {
 public:
  SharedLine()
      : text_(static_cast<char*>(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(text_ != MAP_FAILED);
  }
  ~SharedLine() { ::munmap(text_, size); }
  SharedLine(const SharedLine&) = delete;
  SharedLine& operator=(const SharedLine&) = delete;

  void set(const char* text) const noexcept { std::snprintf(text_, size, "%s", text); }
  std::string text() const { return text_; }

 private:
  static constexpr std::size_t size = 512;
  char* text_;
};

/// What `call` did wrong in a child process: empty when it returned true within a minute. It may
/// write into the line what it is about to do.
template <class Call>
std::string failure_in_child(const Call& call) {
  const SharedLine line;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);  // ends a child that hangs
    int status = 2;
    try {
      status = call(line) ? 0 : 1;
    } catch (const std::exception& error) {
      line.set((line.text() + ": " + error.what()).c_str());
    }
    ::_exit(status);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  return (hung ? "hung" : "status " + std::to_string(status)) + " in: " + line.text();
}

/// Whether `call` returns true in a child process, within a minute.
template <class Call>
bool holds_in_child(const Call& call) {
  const std::string failure = failure_in_child([&](const SharedLine&) { return call(); });
  INFO(failure);
  CHECK(failure.empty());
  return failure.empty();
}

}  // namespace tenon::testing
