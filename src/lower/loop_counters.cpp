#include "lower/loop_counters.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>

#include <cmath>

namespace tenon::lowering {

std::optional<LoopCounters::Counter> LoopCounters::of(StorageId id) const {
  const Storage& storage = flat_.storages[id];
  if (storage.kind == Place::Kind::loop_index) {
    return Counter{storage.index, storage.bytes};  // which are its first number
  }
  const auto found = computed_.find(id);
  return found == computed_.end() ? std::nullopt : std::optional(found->second);
}

/// The i64 number that an array is, where the program has it: filled, or folded.
std::optional<std::int64_t> LoopCounters::number_of(const Array& array) const {
  if (!(array.shape == Shape(std::span<const Axis>(), i64))) return std::nullopt;
  const Storage& storage = flat_.storages[array.storage];
  if (storage.kind == Place::Kind::constant) {
    const ConstantSlot& slot = flat_.constants[storage.index];
    const auto found = program_.folded.find(slot.name);
    const bool moves = array.entry_step != LoopSteps{} || array.byte_step != LoopSteps{};
    if (slot.computed || found == program_.folded.end() || moves) return std::nullopt;
    const auto numbers = found->second.values<std::int64_t>();
    return numbers[static_cast<std::size_t>(array.offset) / sizeof(std::int64_t)];
  }
  const auto found = flat_.fills.find(array.storage);
  const Full* const full = found == flat_.fills.end() ? nullptr : found->second.op.as<Full>();
  constexpr double largest = 1e15;  // doubles have all whole numbers up to it
  if (full == nullptr || !(std::fabs(full->value) <= largest)) return std::nullopt;
  return static_cast<std::int64_t>(full->value);
}

void LoopCounters::note(const FlatStep& step) {
  const bool is_sum = step.op.as<Add>() != nullptr;
  if (!is_sum && step.op.as<Sub>() == nullptr) return;
  const Array &left = step.inputs[0], &right = step.inputs[1];
  // A sum that wraps around is no counter: the op computes it.
  const auto keep = [&](const std::optional<Counter>& counter, std::optional<std::int64_t> number) {
    std::int64_t first = 0;
    if (!counter || !number) return;
    const bool wraps = is_sum ? __builtin_add_overflow(counter->first, *number, &first)
                              : __builtin_sub_overflow(counter->first, *number, &first);
    if (!wraps) computed_.insert_or_assign(step.output.storage, Counter{counter->loop, first});
  };
  const auto number = number_of(right);
  if (is_sum) {
    keep(of(left.storage), number);
    keep(of(right.storage), number_of(left));
  } else if (number) {
    keep(of(left.storage), number);
  }
}

}  // namespace tenon::lowering
