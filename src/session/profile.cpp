#include <tenon/profile.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>

#include <fmt/format.h>

namespace tenon {
namespace {

double ops_limit(const Profile::Line& line, const Limits& limits) {
  if (!line.weights) return limits.f32_ops;
  if (is_block(*line.weights)) return limits.int8_ops;
  const bool is_half = *line.weights == bf16 || *line.weights == f16;
  return is_half && limits.bf16_ops > 0 ? limits.bf16_ops : limits.f32_ops;
}

/// A number for a column, or a dash.
std::string number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string short_text(const std::string& text, std::size_t limit) {
  return text.size() <= limit ? text : text.substr(0, limit - 3) + "...";
}

}  // namespace

std::optional<double> Profile::Line::share_of(const Limits& limits) const {
  const double ops = ops_limit(*this, limits);
  if (std::isnan(bytes) || limits.read_bytes <= 0 || ops <= 0 || wall.count() <= 0) return {};
  return std::max(bytes_per_second() / limits.read_bytes, flops_per_second() / ops);
}

void Profile::add(std::span<const StepTime> times) {
  ++runs_;
  for (const StepTime& time : times) {
    wall_ += time.wall;
    for (const StepTime::Part& part : time.parts) add(time, part);
    if (!time.parts.empty()) continue;
    StepTime::Part whole;
    whole.values = time.values;
    whole.count = 1;
    whole.wall = time.device;
    whole.bytes = whole.flops = std::numeric_limits<double>::quiet_NaN();
    add(time, whole);
  }
}

void Profile::add(const StepTime& time, const StepTime::Part& part) {
  const std::string value = part.title();
  auto line = std::ranges::find_if(lines_, [&](const Line& known) {
    return known.value == value && known.op == part.op && known.backend == time.backend &&
           known.shape == part.shape;
  });
  if (line == lines_.end()) {
    lines_.push_back({.value = value,
                      .op = part.op,
                      .backend = time.backend,
                      .shape = part.shape,
                      .weights = part.weights});
    line = std::prev(lines_.end());
  }
  line->count += part.count;
  line->wall += part.wall;
  line->bytes += part.bytes;
  line->flops += part.flops;
}

std::vector<Profile::Line> Profile::lines() const {
  std::vector<Line> sorted = lines_;
  std::ranges::sort(sorted, [](const Line& a, const Line& b) {
    return std::tie(b.wall, a.value) < std::tie(a.wall, b.value);
  });
  return sorted;
}

std::string Profile::table(const Limits& limits, std::size_t rows) const {
  constexpr std::size_t longest_value = 44;
  const std::vector<Line> sorted = lines();
  const std::size_t shown = std::min(rows, sorted.size());
  const auto runs = static_cast<double>(std::max<std::size_t>(runs_, 1));
  const double total = std::chrono::duration<double>(wall_).count();
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{:>9} {:>6} {:>6} {:>10} {:>7} {:>8} {:>6}  {:<14} {:<20} {}\n", "ms", "%",
                 "runs", "MB", "GB/s", "GFLOP/s", "limit", "op", "result", "value");
  const auto row = [&](const Line& line) {
    const auto share = line.share_of(limits);
    fmt::format_to(
        out, "{:>9.3f} {:>6.1f} {:>6} {:>10} {:>7} {:>8} {:>6}  {:<14} {:<20} {}\n",
        1e3 * line.seconds() / runs, 100 * line.seconds() / total,
        number(static_cast<double>(line.count) / runs, 0), number(line.bytes / runs / 1e6, 3),
        number(line.bytes_per_second() / 1e9, 1), number(line.flops_per_second() / 1e9, 1),
        share ? fmt::format("{:.0f} %", 100 * *share) : "-", line.op.empty() ? "merged" : line.op,
        line.op.empty() ? "" : to_string(line.shape), short_text(line.value, longest_value));
  };
  for (const Line& line : std::span(sorted).first(shown)) row(line);
  std::chrono::nanoseconds listed{};
  for (const Line& line : std::span(sorted).first(shown)) listed += line.wall;
  const double rest = total - std::chrono::duration<double>(listed).count();
  fmt::format_to(out,
                 "{:>9.3f} {:>6.1f}  what is not listed: {} further lines, copies, the session\n",
                 1e3 * rest / runs, 100 * rest / total, sorted.size() - shown);
  fmt::format_to(out, "{:>9.3f} {:>6.1f}  a run, on average of {}\n", 1e3 * total / runs, 100.0,
                 runs_);
  return text;
}

}  // namespace tenon
