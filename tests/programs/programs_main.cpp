// Random whole programs, each run in one of several ways (ways.hpp).
//
//   random_programs [--count N] [--seed S]          programs of seeds S, S + 1, ...
//   random_programs --one SEED [--drop 1,4]          one of them, without some of its moves
//   random_programs --show SEED [--drop 1,4]         its text
//   ... --way NAME                                  every program in this way
//
// Programs run in child processes, so that one that ends its process, or never ends, is found too.
// What fails is made smaller by leaving moves out, and shown with the command that repeats it.
// TENON_TEST_ROUNDS and TENON_TEST_SEED replace N and S. Exit status 1 when something failed.
#include "support/rounds.hpp"
#include "ways.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

constexpr unsigned max_seconds = 120;  // of one program

std::atomic<std::uint64_t> running{0};

extern "C" void on_signal(int number) {
  std::array<char, 96> text{};
  const char* const what = number == SIGALRM ? "does not end" : "ends the process";
  const int size = std::snprintf(text.data(), text.size(), "FAILED %llu %s (signal %d)\n",
                                 static_cast<unsigned long long>(running.load()), what, number);
  if (write(STDOUT_FILENO, text.data(), static_cast<std::size_t>(size)) < 0) _exit(4);
  _exit(3);
}

/// What runs: the way that was named, or each seed in its own.
struct Selection {
  const Way* way = nullptr;
  const Way& of(std::uint64_t seed) const { return way != nullptr ? *way : way_of(seed); }
};

/// One program after the other, in this process. Returns the number of those that failed.
int run_here(const Selection& selection, std::uint64_t first, std::uint64_t count,
             const std::set<int>& dropped) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) {
    std::signal(number, on_signal);
  }
  CheckCounts counts;
  int failures = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    running = seed;
    const Way& way = selection.of(seed);
    alarm(max_seconds);
    const std::string what = run_way(way, {seed, dropped, way.kind}, counts);
    alarm(0);
    if (what.empty()) continue;
    ++failures;
    fmt::print("FAILED {} {}\n", seed, what);
    std::fflush(stdout);
  }
  fmt::print("COUNTS {}\n", counts.to_text());
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

std::vector<Found> run_batch(const Selection& selection, std::uint64_t first, std::uint64_t count,
                             CheckCounts& counts) {
  std::vector<Found> found;
  bool ended = false;
  while (!ended && count > 0) {
    std::uint64_t last = first;
    const std::string way =
        selection.way != nullptr ? fmt::format("--way {} ", selection.way->name) : "";
    run_child(fmt::format("{}--batch {} --count {}", way, first, count),
              [&](std::string_view line) {
                if (line.starts_with("FAILED ")) {
                  char* rest = nullptr;
                  const std::string text(line.substr(7));
                  last = std::strtoull(text.c_str(), &rest, 10);
                  found.push_back({last, rest + 1});
                } else if (line.starts_with("COUNTS ")) {
                  counts.add(CheckCounts::from_text(std::string(line.substr(7))));
                  ended = true;
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

/// The arguments that run, or show, a program.
std::string arguments_for(std::string_view mode, const Way& way, std::uint64_t seed,
                          const std::set<int>& dropped) {
  return fmt::format("--way {} {} {}{}", way.name, mode, seed,
                     dropped.empty() ? "" : fmt::format(" --drop {}", fmt::join(dropped, ",")));
}

/// Leaves out every move that is not needed to fail.
void show_smallest(const Way& way, const Found& failure) {
  std::string what;
  const auto fails = [&](const std::set<int>& dropped) {
    bool failed = false;
    run_child(arguments_for("--one", way, failure.seed, dropped), [&](std::string_view line) {
      if (!line.starts_with("FAILED ")) return;
      failed = true;
      what = line.substr(7);
    });
    return failed;
  };
  std::set<int> dropped;
  for (int move = 0; move < 16; ++move) {
    dropped.insert(move);
    if (!fails(dropped)) dropped.erase(move);
  }
  fails(dropped);
  fmt::print("seed {} ({}): {}\n", failure.seed, way.name, failure.what);
  fmt::print("  smallest: random_programs {}\n  {}\n",
             arguments_for("--one", way, failure.seed, dropped), what);
  run_child(arguments_for("--show", way, failure.seed, dropped),
            [](std::string_view line) { fmt::print("    {}\n", line); });
}

void show(const RandomModelPlan& plan) {
  fmt::print("{}", print(plan.kind == ProgramKind::open_sizes ? make_sized_model(plan).program
                                                              : make_random_model(plan).program));
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
  std::uint64_t first = 1, programs = testing::rounds(500);
  if (const char* rounds = std::getenv("TENON_TEST_ROUNDS")) programs = number(rounds);
  if (const char* seed = std::getenv("TENON_TEST_SEED")) first = number(seed);
  std::set<int> dropped;
  Selection selection;
  std::string_view mode;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view option = arguments[i];
    const char* const value = arguments[i + 1];
    if (option == "--count") programs = number(value);
    if (option == "--drop") dropped = moves_in(value);
    if (option == "--seed") first = number(value);
    if (option == "--one" || option == "--show" || option == "--batch") {
      mode = option;
      first = number(value);
    }
    if (option == "--way") {
      selection.way = find_way(value);
      if (selection.way == nullptr) {
        std::vector<std::string_view> names;
        for (const Way& way : ways()) names.push_back(way.name);
        fmt::print(stderr, "there is no way '{}'; known are {}\n", value, fmt::join(names, ", "));
        return 2;
      }
    }
  }
  if (mode == "--one") return run_here(selection, first, 1, dropped) > 0 ? 1 : 0;
  if (mode == "--batch") return run_here(selection, first, programs, dropped) > 0 ? 1 : 0;
  if (mode == "--show") {
    show({first, dropped, selection.of(first).kind});
    return 0;
  }

  fmt::print("{} random programs from seed {} on\n", programs, first);
  constexpr std::uint64_t batch = 50;
  CheckCounts counts;
  std::size_t failures = 0;
  for (std::uint64_t done = 0; done < programs; done += batch) {
    const auto found = run_batch(selection, first + done, std::min(batch, programs - done), counts);
    failures += found.size();
    for (const Found& failure : found) {
      if (failures <= 10) {
        show_smallest(selection.of(failure.seed), failure);
      } else {
        fmt::print("seed {}: {}\n", failure.seed, failure.what);
      }
      std::fflush(stdout);
    }
  }
  fmt::print(
      "{} programs, {} runs: {} failed. Of {} without rare types {} fell back to the reference.\n",
      counts.programs, counts.runs, failures, counts.plain, counts.plain_fallbacks);
  fmt::print("the NPU took {} of {} values\n", counts.npu_taken, counts.npu_values);
  fmt::print("largest error, of what is allowed: exact {:.2f}, fast {:.2f}, int8 {:.2f}\n",
             counts.worst_exact, counts.worst_fast, counts.worst_int8);
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
