#include "faults.hpp"

#include "quantity.hpp"

#include <fmt/format.h>

namespace tenon::npu::sim {
namespace {

constexpr std::string_view names[fault_kinds] = {
    "dma_timeout", "bus_error",   "illegal",    "crc",      "hang",           "removed",
    "lost_irq",    "flip_weight", "flip_instr", "flip_act", "host_dma_error", "host_dma_hang"};
constexpr std::uint64_t max_nth = 1'000'000'000;

std::optional<FaultPlan> parse_one(std::string_view text, std::string& why) {
  const std::size_t at = text.find('@');
  const std::string_view kind = text.substr(0, at);
  FaultPlan plan;
  bool known = false;
  for (std::uint32_t i = 0; i < fault_kinds; ++i) {
    if (kind != names[i]) continue;
    plan.kind = static_cast<FaultKind>(i);
    known = true;
  }
  if (!known) {
    why = fmt::format("'{}' is no fault", kind);
    return std::nullopt;
  }
  if (at == std::string_view::npos) {
    why = fmt::format("'{}' without '@' and an occurrence", text);
    return std::nullopt;
  }
  std::string_view rest = text.substr(at + 1);
  std::uint64_t number = 0;
  if (!take_number(rest, number) || number == 0 || number > max_nth) {
    why = fmt::format("'{}': occurrences count from 1", text);
    return std::nullopt;
  }
  plan.nth = static_cast<std::uint32_t>(number);
  if (rest.empty()) return plan;
  if (rest.starts_with(',') && has_layer(plan.kind)) {
    rest.remove_prefix(1);
    if (take_number(rest, number) && rest.empty() && number <= 0xFFFF) {
      plan.layer = static_cast<std::uint16_t>(number);
      return plan;
    }
  }
  why = fmt::format("'{}': kind@nth or, for faults of instructions, kind@nth,layer", text);
  return std::nullopt;
}

}  // namespace

std::string_view name(FaultKind kind) noexcept { return names[static_cast<std::uint32_t>(kind)]; }

bool has_layer(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::crc:
    case FaultKind::lost_irq:
    case FaultKind::flip_weight:
    case FaultKind::flip_instr:
    case FaultKind::host_dma_error:
    case FaultKind::host_dma_hang:
      return false;
    case FaultKind::dma_timeout:
    case FaultKind::bus_error:
    case FaultKind::illegal:
    case FaultKind::hang:
    case FaultKind::removed:
    case FaultKind::flip_act:
      break;
  }
  return true;
}

std::optional<std::vector<FaultPlan>> parse_faults(std::string_view text, std::string& why) {
  std::vector<FaultPlan> plans;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('+', at), text.size());
    const auto plan = parse_one(text.substr(at, end - at), why);
    if (!plan) return std::nullopt;
    plans.push_back(*plan);
    at = end + 1;
  }
  return plans;
}

std::string format_faults(const std::vector<FaultPlan>& plans) {
  std::string text;
  for (const FaultPlan& plan : plans) {
    if (!text.empty()) text += '+';
    text += fmt::format("{}@{}", name(plan.kind), plan.nth);
    if (plan.layer) text += fmt::format(",{}", *plan.layer);
  }
  return text;
}

void Faults::arm(const FaultPlan& plan) {
  const std::scoped_lock lock(mutex_);
  plans_.push_back(plan);
  armed_ = static_cast<std::uint32_t>(plans_.size());
}

bool Faults::strikes(FaultKind kind, std::uint16_t layer) {
  if (armed_ == 0) return false;
  const std::scoped_lock lock(mutex_);
  bool struck = false;
  for (auto plan = plans_.begin(); plan != plans_.end();) {
    if (plan->kind != kind || (plan->layer && *plan->layer != layer) || --plan->nth > 0) {
      ++plan;
      continue;
    }
    plan = plans_.erase(plan);
    struck = true;
  }
  armed_ = static_cast<std::uint32_t>(plans_.size());
  if (struck) ++fired_;
  return struck;
}

std::uint64_t Faults::pick(std::uint64_t bound) {
  const std::scoped_lock lock(mutex_);
  return random_() % bound;
}

}  // namespace tenon::npu::sim
