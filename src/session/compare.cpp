#include <tenon/compare.hpp>
#include <tenon/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

/// A dense array of a plain type.
HostBuffer plain(const HostBuffer& array) {
  if (is_block(array.shape().dtype())) return array.to(f32);
  return array.is_contiguous() ? array : array.contiguous();
}

double distance(double got, double want) noexcept {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
  const double apart = std::abs(got - want);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

/// The value that `share` of the sorted rest keep within: nearest rank.
double percentile(std::vector<double>& distances, double share) {
  const auto rank =
      static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(distances.size())) - 1);
  const auto at = distances.begin() + std::max<std::ptrdiff_t>(rank, 0);
  std::nth_element(distances.begin(), at, distances.end());
  return *at;
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

/// The function that computes iteration `index` of the entry's loops over `name`: over the function of that
/// name, or over those that a stack of unequal layers became, name0, name1, ...
const Function* function_at(const Program& program, std::string_view name, std::int64_t index) {
  for (const Instruction& loop : program.main().body) {
    if (loop.kind != Instruction::Kind::repeat || loop.condition >= 0) continue;
    if (index < loop.first || index >= loop.first + loop.count) continue;
    const std::size_t digits = loop.function.find_last_not_of("0123456789") + 1;
    if (loop.function == name || std::string_view(loop.function).substr(0, digits) == name) {
      return program.find(loop.function);
    }
  }
  return nullptr;
}

/// The value of the unrolled program that "layer[3]" or "layer[3].1" stands for; other names are
/// values' own.
std::string value_of(const Program& program, const std::string& name) {
  const std::size_t open = name.find('[');
  const std::size_t close = name.find(']', open);
  if (open == std::string::npos || close == std::string::npos) return name;
  const std::string_view text = name;
  const auto index = number_in(text.substr(open + 1, close - open - 1));
  const std::string_view rest = text.substr(close + 1);
  const auto result = rest.empty()          ? std::optional<std::int64_t>(0)
                      : rest.front() == '.' ? number_in(rest.substr(1))
                                            : std::nullopt;
  if (!index || !result) return name;
  const Function* const function = function_at(program, text.substr(0, open), *index);
  if (function == nullptr || *result >= std::ssize(function->results)) return name;
  const ValueId id = function->results[static_cast<std::size_t>(*result)];
  return fmt::format("{}_{}_{}", function->name, *index, function->values[id].name);
}

/// What a step computed, in the run's memory.
using Visit =
    std::function<void(const std::string& value, std::string_view op, const Buffer& array)>;

void run_watched(const Session& session, std::span<const Buffer> inputs, const Visit& visit) {
  Session watched = session.fork();  // the callback, which ends with this call, is the fork's alone
  watched.set_merge(false);
  std::set<std::string> seen;  // a loop with a condition computes a value again and again
  watched.set_post_callback([&](const StepEvent& event) {
    for (std::size_t i = 0; i < event.values.size() && i < event.outputs.size(); ++i) {
      if (seen.insert(event.values[i]).second) visit(event.values[i], event.op, event.outputs[i]);
    }
  });
  watched.forward(std::vector<Buffer>(inputs.begin(), inputs.end()));
}

}  // namespace

Difference difference(const HostBuffer& got, const HostBuffer& want) {
  if (got.is_empty() || want.is_empty()) {
    throw Error(Errc::call_order, "difference", "there is no array");
  }
  if (!std::ranges::equal(got.shape().dims(), want.shape().dims())) {
    throw Error(Errc::shape_mismatch, "difference",
                fmt::format("{} and {}", to_string(got.shape()), to_string(want.shape())));
  }
  const bool in_parts = is_complex(got.shape().dtype()) || is_complex(want.shape().dtype());
  const auto numbers = [&](const HostBuffer& array) {
    return plain(in_parts ? array.to(c64).view_as_real() : array);
  };
  const HostBuffer a = numbers(got), b = numbers(want);
  const DType type_a = a.shape().dtype(), type_b = b.shape().dtype();
  Difference found;
  found.elements = a.shape().elements();
  if (found.elements == 0) return found;
  std::vector<double> distances;
  distances.reserve(static_cast<std::size_t>(found.elements));
  double sum = 0;
  for (std::int64_t i = 0; i < found.elements; ++i) {
    const double x = load_as_double(type_a, a.bytes() + i * block_bytes(type_a));
    const double y = load_as_double(type_b, b.bytes() + i * block_bytes(type_b));
    const double apart = distance(x, y);
    if (found.worst < 0 || apart > found.max) {
      found.max = apart;
      found.worst = i;
      found.got = x;
      found.want = y;
    }
    if (std::isfinite(y)) found.scale = std::max(found.scale, std::abs(y));
    sum += apart;
    distances.push_back(apart);
  }
  found.mean = sum / static_cast<double>(found.elements);
  found.p99 = percentile(distances, 0.99);
  found.p90 = percentile(distances, 0.90);
  found.p50 = percentile(distances, 0.50);
  return found;
}

RecordedValues record_activations(Session session, std::span<const Buffer> inputs,
                                  std::span<const std::string> names) {
  std::map<std::string, std::vector<std::string>> wanted;  // value -> the names it was asked for by
  for (const std::string& name : names) {
    wanted[value_of(session.program(), name)].push_back(name);
  }
  RecordedValues recorded;
  run_watched(session, inputs,
              [&](const std::string& value, std::string_view, const Buffer& array) {
                if (is_object(array.shape().dtype())) return;
                if (names.empty()) {
                  recorded.emplace(value, array.to_host().contiguous());
                  return;
                }
                const auto found = wanted.find(value);
                if (found == wanted.end()) return;
                const HostBuffer copy = array.to_host().contiguous();
                for (const std::string& name : found->second) recorded.emplace(name, copy);
              });
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!recorded.contains(name)) missing.push_back(name);
  }
  if (!missing.empty()) {
    throw Error(Errc::bad_reference, session.program().name,
                fmt::format("no step computes {}", fmt::join(missing, ", ")));
  }
  return recorded;
}

Comparison compare_activations(Session session, std::span<const Buffer> inputs,
                               const RecordedValues& recorded, const Tolerance& tolerance) {
  std::multimap<std::string, std::string> wanted;  // value -> names
  for (const auto& [name, array] : recorded) {
    wanted.emplace(value_of(session.program(), name), name);
  }
  Comparison comparison;
  std::set<std::string> compared;
  run_watched(session, inputs,
              [&](const std::string& value, std::string_view op, const Buffer& array) {
                const auto [begin, end] = wanted.equal_range(value);
                for (auto entry = begin; entry != end; ++entry) {
                  const std::string& name = entry->second;
                  ValueDifference found{name, value, std::string(op), {}, true};
                  try {
                    found.difference = difference(array.to_host(), recorded.at(name));
                  } catch (const Error& error) {
                    throw Error(error.code(), name, error.message());
                  }
                  found.is_within = tolerance.holds(found.difference);
                  comparison.values.push_back(std::move(found));
                  compared.insert(name);
                }
              });
  for (const auto& [name, array] : recorded) {
    if (!compared.contains(name)) comparison.unknown.push_back(name);
  }
  if (comparison.values.empty()) {
    throw Error(Errc::bad_reference, session.program().name,
                fmt::format("no step computes any of the {} recorded values: {}", recorded.size(),
                            fmt::join(comparison.unknown, ", ")));
  }
  return comparison;
}

const ValueDifference* Comparison::first() const noexcept {
  const auto found = std::ranges::find(values, false, &ValueDifference::is_within);
  return found == values.end() ? nullptr : &*found;
}

std::string Comparison::table(std::size_t rows) const {
  std::size_t width = 5;
  for (const ValueDifference& one : values) width = std::max(width, one.name.size());
  std::string text =
      fmt::format("{:<{}}  {:<14} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12}\n", "value", width,
                  "op", "max", "mean", "p50", "p90", "p99", "largest");
  const ValueDifference* const worst = first();
  std::size_t begin = 0;
  if (worst != nullptr && static_cast<std::size_t>(worst - values.data()) >= rows) {
    begin = static_cast<std::size_t>(worst - values.data()) - rows / 2;
  }
  if (begin > 0) text += fmt::format("... {} before these are within the tolerance\n", begin);
  const std::size_t end = std::min(values.size(), begin + rows);
  for (std::size_t i = begin; i < end; ++i) {
    const ValueDifference& one = values[i];
    const Difference& d = one.difference;
    text += fmt::format(
        "{:<{}}  {:<14} {:>10.3g} {:>10.3g} {:>10.3g} {:>10.3g} {:>10.3g} {:>12.6g}{}\n", one.name,
        width, one.op, d.max, d.mean, d.p50, d.p90, d.p99, d.scale,
        one.is_within ? "" : "  differs");
  }
  if (end < values.size()) text += fmt::format("... and {} more\n", values.size() - end);
  return text;
}

}  // namespace tenon
