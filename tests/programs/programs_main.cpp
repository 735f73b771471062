// Random whole programs, each on every backend.
//
//   random_programs [--count N] [--seed S]          programs of seeds S, S + 1, ...
//   random_programs --allocations N [--seed S]      N programs with failing allocations
//   random_programs --one SEED [--drop 1,4]          one of them, without some of its moves
//   random_programs --show SEED [--drop 1,4]         its text
//
// Programs run in child processes, so that one that ends its process, or never ends, is found too.
// What fails is made smaller by leaving moves out, and shown with the command that repeats it.
// TENON_TEST_ROUNDS and TENON_TEST_SEED replace N and S. Exit status 1 when something failed.
#include "check_model.hpp"

#include <tenon/error.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

constexpr unsigned most_seconds = 120;  // of one program

std::atomic<std::uint64_t> running{0};

extern "C" void on_signal(int number) {
  std::array<char, 96> text{};
  const char* const what = number == SIGALRM ? "does not end" : "ends the process";
  const int size = std::snprintf(text.data(), text.size(), "FAILED %llu %s (signal %d)\n",
                                 static_cast<unsigned long long>(running.load()), what, number);
  if (write(STDOUT_FILENO, text.data(), static_cast<std::size_t>(size)) < 0) _exit(4);
  _exit(3);
}

constexpr int allocation_samples = 40;

/// Every eighth program runs with one set of sizes after another.
bool has_open_sizes(std::uint64_t seed) { return seed % 8 == 0; }

/// One program after the other, in this process. Returns the number of those that failed.
int run_here(std::uint64_t first, std::uint64_t count, const std::set<int>& dropped,
             bool allocations = false) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) {
    std::signal(number, on_signal);
  }
  CheckCounts counts;
  int failures = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    running = seed;
    alarm(most_seconds);
    std::string what;
    try {
      if (has_open_sizes(seed) && !allocations) {
        what = check_sizes(make_sized_model({seed, dropped}), seed, counts);
      } else {
        const RandomModel model = make_random_model({seed, dropped});
        what = allocations ? check_allocations(model, seed, allocation_samples, counts)
                           : check_model(model, seed, counts);
      }
    } catch (const std::exception& error) {
      what = fmt::format("not made: {}", error.what());
    }
    alarm(0);
    if (what.empty()) continue;
    ++failures;
    fmt::print("FAILED {} {}\n", seed, what);
    std::fflush(stdout);
  }
  fmt::print("COUNTS {} {} {} {} {} {}\n", counts.programs, counts.runs, counts.plain,
             counts.plain_fallbacks, counts.worst_exact, counts.worst_fast);
  return failures;
}

struct Found {
  std::uint64_t seed;
  std::string what;
};

/// Runs this program again with other arguments; calls line(text) for each line that it prints.
template <class Line>
void run_child(const std::string& arguments, Line&& line) {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) std::exit(2);
  FILE* const pipe = popen(fmt::format("'{}' {}", self.data(), arguments).c_str(), "r");
  if (pipe == nullptr) std::exit(2);
  std::array<char, 8192> text{};
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) {
    std::string_view read(text.data());
    if (read.ends_with('\n')) read.remove_suffix(1);
    line(read);
  }
  pclose(pipe);
}

std::vector<Found> run_batch(std::uint64_t first, std::uint64_t count, CheckCounts& counts) {
  std::vector<Found> found;
  bool ended = false;
  while (!ended && count > 0) {
    std::uint64_t last = first;
    run_child(fmt::format("--batch {} {}", first, count), [&](std::string_view line) {
      if (line.starts_with("FAILED ")) {
        char* rest = nullptr;
        const std::string text(line.substr(7));
        last = std::strtoull(text.c_str(), &rest, 10);
        found.push_back({last, rest + 1});
      } else if (line.starts_with("COUNTS ")) {
        CheckCounts part;
        ended = std::sscanf(std::string(line).c_str(), "COUNTS %ld %ld %ld %ld %lf %lf",
                            &part.programs, &part.runs, &part.plain, &part.plain_fallbacks,
                            &part.worst_exact, &part.worst_fast) == 6;
        counts.programs += part.programs;
        counts.runs += part.runs;
        counts.plain += part.plain;
        counts.plain_fallbacks += part.plain_fallbacks;
        counts.worst_exact = std::max(counts.worst_exact, part.worst_exact);
        counts.worst_fast = std::max(counts.worst_fast, part.worst_fast);
      } else {
        fmt::print("{}\n", line);
      }
    });
    // A program that ended its process is the last that was reported: go on behind it.
    if (!ended) {
      if (found.empty() || found.back().seed < first) found.push_back({first, "ends its process"});
      last = found.back().seed;
      count -= last + 1 - first;
      first = last + 1;
    }
  }
  return found;
}

std::string dropped_text(const std::set<int>& dropped) {
  return dropped.empty() ? "" : fmt::format(" --drop {}", fmt::join(dropped, ","));
}

/// Leaves out every move that is not needed to fail.
void show_smallest(const Found& failure) {
  const auto fails = [&](const std::set<int>& dropped) {
    bool failed = false;
    run_child(fmt::format("--one {}{}", failure.seed, dropped_text(dropped)),
              [&](std::string_view line) { failed = failed || line.starts_with("FAILED "); });
    return failed;
  };
  std::set<int> dropped;
  for (int move = 0; move < 16; ++move) {
    dropped.insert(move);
    if (!fails(dropped)) dropped.erase(move);
  }
  std::string what = failure.what;
  run_child(fmt::format("--one {}{}", failure.seed, dropped_text(dropped)),
            [&](std::string_view line) { what = line; });
  fmt::print("seed {}: {}\n", failure.seed, failure.what);
  fmt::print("  smallest: random_programs --one {}{}\n", failure.seed, dropped_text(dropped));
  run_child(fmt::format("--show {}{}", failure.seed, dropped_text(dropped)),
            [](std::string_view line) { fmt::print("    {}\n", line); });
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

std::set<int> moves_in(std::string_view text) {
  std::set<int> moves;
  while (!text.empty()) {
    moves.insert(static_cast<int>(number(std::string(text).c_str())));
    const auto comma = text.find(',');
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return moves;
}

int main_of(int count, char** arguments) {
  std::uint64_t first = 1, programs = 500;
  if (const char* rounds = std::getenv("TENON_TEST_ROUNDS")) programs = number(rounds);
  if (const char* seed = std::getenv("TENON_TEST_SEED")) first = number(seed);
  std::set<int> dropped;
  std::string_view mode;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view option = arguments[i];
    const char* const value = arguments[i + 1];
    if (option == "--count") programs = number(value);
    if (option == "--seed" || option == "--one" || option == "--show" || option == "--batch")
      first = number(value);
    if (option == "--drop") dropped = moves_in(value);
    if (option == "--one" || option == "--show") mode = option;
    if (option == "--allocations") {
      mode = option;
      programs = number(value);
    }
    if (option == "--batch" && i + 2 < count) {
      return run_here(first, number(arguments[i + 2]), {}) > 0 ? 1 : 0;
    }
  }
  if (mode == "--one") return run_here(first, 1, dropped) > 0 ? 1 : 0;
  if (mode == "--allocations") return run_here(first, programs, {}, true) > 0 ? 1 : 0;
  if (mode == "--show") {
    fmt::print("{}", print(has_open_sizes(first) ? make_sized_model({first, dropped}).program
                                                 : make_random_model({first, dropped}).program));
    return 0;
  }

  fmt::print("{} random programs from seed {} on\n", programs, first);
  constexpr std::uint64_t batch = 50;
  CheckCounts counts;
  std::size_t failures = 0;
  for (std::uint64_t done = 0; done < programs; done += batch) {
    const auto found = run_batch(first + done, std::min(batch, programs - done), counts);
    failures += found.size();
    for (const Found& failure : found) {
      if (failures <= 10) {
        show_smallest(failure);
      } else {
        fmt::print("seed {}: {}\n", failure.seed, failure.what);
      }
      std::fflush(stdout);
    }
  }
  fmt::print(
      "{} programs, {} runs: {} failed. Of {} without rare types {} fell back to the reference.\n",
      counts.programs, counts.runs, failures, counts.plain, counts.plain_fallbacks);
  fmt::print("largest error, of what is allowed: exact {:.2f}, fast {:.2f}\n", counts.worst_exact,
             counts.worst_fast);
  return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tenon::testing

int main(int count, char** arguments) {
  try {
    return tenon::testing::main_of(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "random_programs: {}\n", error.what());
    return 2;
  }
}
