#include "ways.hpp"

#include "results.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <sstream>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

constexpr std::array list{
    Way{"sessions", ProgramKind::mixed, check_sessions, 8},
    Way{"sizes", ProgramKind::open_sizes, check_sizes, 2},
    Way{"exe", ProgramKind::mixed, check_exe, 3},
    Way{"exe_sizes", ProgramKind::open_sizes, check_exe_sizes, 2},
    Way{"npu", ProgramKind::images, check_npu, 3},
    Way{"npu_mixed", ProgramKind::mixed, check_npu, 2},
    Way{"eager", ProgramKind::mixed, check_eager, 2},
    Way{"allocations", ProgramKind::mixed, check_allocations, 0},
#ifdef TENON_WITH_CUDA_EMULATION
    Way{"cuda", ProgramKind::mixed, check_cuda, 0},
    Way{"cuda_images", ProgramKind::images, check_cuda, 0},
#endif
};

constexpr std::uint64_t all_shares() {
  std::uint64_t sum = 0;
  for (const Way& way : list) sum += way.share;
  return sum;
}

}  // namespace

void CheckCounts::add(const CheckCounts& other) {
  programs += other.programs;
  runs += other.runs;
  plain += other.plain;
  plain_fallbacks += other.plain_fallbacks;
  npu_values += other.npu_values;
  npu_taken += other.npu_taken;
  worst_exact = std::max(worst_exact, other.worst_exact);
  worst_fast = std::max(worst_fast, other.worst_fast);
  worst_int8 = std::max(worst_int8, other.worst_int8);
}

std::string CheckCounts::to_text() const {
  return fmt::format("{} {} {} {} {} {} {} {} {}", programs, runs, plain, plain_fallbacks,
                     npu_values, npu_taken, worst_exact, worst_fast, worst_int8);
}

CheckCounts CheckCounts::from_text(const std::string& text) {
  CheckCounts counts;
  std::istringstream(text) >> counts.programs >> counts.runs >> counts.plain >>
      counts.plain_fallbacks >> counts.npu_values >> counts.npu_taken >> counts.worst_exact >>
      counts.worst_fast >> counts.worst_int8;
  return counts;
}

std::span<const Way> ways() { return list; }

const Way& way_of(std::uint64_t seed) {
  std::uint64_t place = seed % all_shares();
  for (const Way& way : list) {
    if (place < way.share) return way;
    place -= way.share;
  }
  return list[0];
}

const Way* find_way(std::string_view name) {
  const auto found = std::ranges::find(list, name, &Way::name);
  return found == list.end() ? nullptr : &*found;
}

std::string run_way(const Way& way, const RandomModelPlan& plan, CheckCounts& counts) {
  try {
    way.check(plan, counts);
    ++counts.programs;
    return {};
  } catch (const Failure& failure) {
    return failure.what;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace tenon::testing
