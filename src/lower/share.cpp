#include "lower/flat.hpp"

#include <algorithm>
#include <optional>
#include <span>

namespace tenon::lowering {
namespace {

class Sharer {
 public:
  Sharer(Flat& flat, const std::vector<bool>& given_up) : flat_(flat), given_up_(given_up) {}

  void overwrite_operands(std::vector<FlatStep>& steps);
  void join_all_carries(std::vector<FlatStep>& steps);
  void drop_joined_copies(std::vector<FlatStep>& steps);
  void assign_outputs(std::vector<OutputSlot>& outputs);

 private:
  Storage& storage(const Array& array) { return flat_.storages[flat_.root(array.storage)]; }

  /// Merges `from` into `to`.
  void merge(StorageId from, StorageId to) {
    has_merged_ = true;
    Storage& a = flat_.storages[from];
    Storage& b = flat_.storages[to];
    a.merged_into = to;
    b.begin = std::min(b.begin, a.begin);
    b.end = std::max(b.end, a.end);
    b.reads.insert(b.reads.end(), a.reads.begin(), a.reads.end());
    b.updated = b.updated || a.updated;
    b.replaced = b.replaced || a.replaced;
  }

  bool may_overwrite(const FlatStep& step, std::size_t number) const;
  bool is_free_to_write(const Storage& storage) const;
  void overwrite(StorageId value, StorageId place, bool is_update = false);
  bool is_left_alone(const FlatStep& step, StorageId id) const;
  bool is_kept(std::span<const FlatStep> rest, StorageId carry) const;
  void join_carries(std::vector<FlatStep>& steps);
  bool try_enter(const FlatStep& copy, std::span<const FlatStep> rest);
  bool may_overwrite_carry(const FlatStep& step, StorageId carry) const;
  void try_next(const FlatStep& copy, const FlatStep& loop);

  Flat& flat_;
  const std::vector<bool>& given_up_;
  bool has_merged_ = false;
};

/// Computes `value` in `place`, which is the run's own, or an input: updated or given up.
void Sharer::overwrite(StorageId value, StorageId place, bool is_update) {
  merge(value, place);
  Storage& storage = flat_.storages[place];
  if (storage.kind != Place::Kind::input || is_update) return;
  storage.updated = storage.replaced = true;
}

/// Whether the run's own values may lie in a storage.
bool Sharer::is_free_to_write(const Storage& storage) const {
  return storage.kind == Place::Kind::slab ||
         (storage.kind == Place::Kind::input && storage.index < given_up_.size() &&
          given_up_[storage.index]);
}

/// Whether a step may overwrite this operand, which is not read later: if the operand is the run's
/// own, or an input that the caller gives up.
bool Sharer::may_overwrite(const FlatStep& step, std::size_t number) const {
  const std::uint32_t allowed = step.op.def()->traits.in_place_inputs;
  const auto is_allowed = [&](std::size_t i) { return i < 32 && (allowed >> i & 1u) != 0; };
  if (!is_allowed(number)) return false;
  const Array& input = step.inputs[number];
  const StorageId from = flat_.root(step.output.storage);
  const StorageId to = flat_.root(input.storage);
  const bool is_value =
      flat_.storages[to].kind == Place::Kind::slab || flat_.storages[to].kind == Place::Kind::input;
  if (from == to || !is_value || flat_.storages[to].end != step.time ||
      flat_.storages[to].loops != flat_.storages[from].loops ||
      !(input.shape == step.output.shape) || !fills_storage(flat_, input)) {
    return false;
  }
  // Another operand in the same storage would see half-written data, unless the op may overwrite it
  // just as well.
  for (std::size_t j = 0; j < step.inputs.size(); ++j) {
    const Array& other = step.inputs[j];
    const bool overwritable = is_allowed(j) && fills_storage(flat_, other);
    if (flat_.root(other.storage) == to && !overwritable) return false;
  }
  return true;
}

/// Whether a storage is not read from the definition of the step's youngest operand on: the op that
/// defines that operand does not read it, or the storage is that operand's own.
bool Sharer::is_left_alone(const FlatStep& step, StorageId id) const {
  std::int64_t youngest = 0;
  for (const Array& input : step.inputs) {
    youngest = std::max(youngest, flat_.storages[flat_.root(input.storage)].begin);
  }
  const Storage& storage = flat_.storages[id];
  return storage.begin == youngest || std::ranges::none_of(storage.reads, [&](std::int64_t time) {
           return time >= youngest && time < step.time;
         });
}

/// Lets an op overwrite an operand that is not read later. Of several, the oldest, unless it is
/// read meanwhile: a backend that fuses the computation of the others then accesses only the memory
/// of that operand.
void Sharer::overwrite_operands(std::vector<FlatStep>& steps) {
  for (FlatStep& step : steps) {
    overwrite_operands(step.body);
    if (step.kind != Step::Kind::op || step.op.def()->traits.updates_input >= 0) continue;
    std::optional<StorageId> first, oldest;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      if (!may_overwrite(step, i)) continue;
      const StorageId to = flat_.root(step.inputs[i].storage);
      if (!is_free_to_write(flat_.storages[to])) {
        flat_.inputs[flat_.storages[to].index].reusable = true;
        continue;
      }
      if (!first) first = to;
      const bool is_older = !oldest || flat_.storages[to].begin < flat_.storages[*oldest].begin;
      if (is_older && is_left_alone(step, to)) oldest = to;
    }
    if (first) overwrite(flat_.root(step.output.storage), oldest ? *oldest : *first);
  }
}

/// Whether a carry is, after each iteration of its loop, which is the first one of `rest` that has it, what lies where it lay:
/// itself, or an update of it.
bool Sharer::is_kept(std::span<const FlatStep> rest, StorageId carry) const {
  for (const FlatStep& loop : rest) {
    for (const FlatStep& copy : loop.body) {
      if (copy.join != FlatStep::Join::next_iteration) continue;
      if (flat_.root(copy.output.storage) != carry) continue;
      // Not by roots: other values may have joined the carry's storage by now.
      return copy.inputs[0].storage == copy.output.storage && fills_storage(flat_, copy.inputs[0]);
    }
  }
  return false;
}

/// A loop reuses the storage of its carry's initial value, when that is not read later. `rest`: the steps behind the copy.
bool Sharer::try_enter(const FlatStep& copy, std::span<const FlatStep> rest) {
  const Array& init = copy.inputs[0];
  const StorageId from = flat_.root(init.storage);
  const StorageId carry = flat_.root(copy.output.storage);
  const Storage& source = flat_.storages[from];
  const bool is_input = source.kind == Place::Kind::input;
  // What an earlier loop has updated in an input stays there, too, where a later one only reads it.
  const bool is_updated =
      is_input && (flat_.storages[carry].updated || (source.updated && is_kept(rest, carry)));
  if (from == carry || !(is_input || source.kind == Place::Kind::slab) || source.end != copy.time ||
      !fills_storage(flat_, init) || source.loops != flat_.storages[carry].loops) {
    return false;
  }
  if (!is_updated && !is_free_to_write(source)) {
    flat_.inputs[source.index].reusable = true;
    return false;
  }
  overwrite(carry, from, is_updated);
  return true;
}

/// Whether a step that reads a carry may write what it makes there: an op that may overwrite it, or the
/// copy of all of it with which a loop inside begins.
bool Sharer::may_overwrite_carry(const FlatStep& step, StorageId carry) const {
  if (step.kind == Step::Kind::copy) return fills_storage(flat_, step.inputs[0]);
  if (step.kind != Step::Kind::op) return false;
  const std::uint32_t allowed = step.op.def()->traits.in_place_inputs;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const Array& input = step.inputs[i];
    if (flat_.root(input.storage) != carry) continue;
    const bool fits = i < 32 && (allowed >> i & 1u) != 0 && fills_storage(flat_, input) &&
                      input.shape == step.output.shape;
    if (!fits) return false;
  }
  return true;
}

/// The next value of a carry is computed in place, when the old value is not read after that.
void Sharer::try_next(const FlatStep& copy, const FlatStep& loop) {
  const Array& result = copy.inputs[0];
  const StorageId from = flat_.root(result.storage);
  const StorageId carry = flat_.root(copy.output.storage);
  if (from == carry) return;
  const Storage& made = flat_.storages[from];
  if (made.kind != Place::Kind::slab || made.end != copy.time || made.begin < loop.begin_time ||
      !fills_storage(flat_, result)) {
    return;
  }
  std::int64_t last_read = -1;
  for (const std::int64_t time : flat_.storages[carry].reads) {
    if (time > loop.begin_time && time < copy.time) last_read = std::max(last_read, time);
  }
  if (last_read > made.begin) return;
  const auto maker = std::ranges::find(loop.body, made.begin, &FlatStep::time);
  const bool is_known = maker != loop.body.end();
  if (last_read == made.begin) {
    // What makes the new value reads the old one: only where it may overwrite it.
    if (!is_known || !may_overwrite_carry(*maker, carry)) return;
  }
  // What begins as the carry itself, as in a loop inside, has of the carry what it does not update.
  const bool begins_as_carry =
      is_known && maker->kind == Step::Kind::copy && flat_.root(maker->inputs[0].storage) == carry;
  if (!begins_as_carry) flat_.storages[carry].replaced = true;
  merge(from, carry);
}

/// One carry joins after the other: what a later loop, or one inside, updates is then updated in the
/// storage of all of them, which others may enter.
void Sharer::join_all_carries(std::vector<FlatStep>& steps) {
  do {
    has_merged_ = false;
    join_carries(steps);
  } while (has_merged_);
}

void Sharer::join_carries(std::vector<FlatStep>& steps) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    FlatStep& step = steps[i];
    const auto rest = std::span<const FlatStep>(steps).subspan(i + 1);
    if (step.join == FlatStep::Join::enter_loop && try_enter(step, rest)) {
      step.join = FlatStep::Join::none;
    }
    if (step.kind != Step::Kind::loop) continue;
    join_carries(step.body);
    for (const FlatStep& inner : step.body) {
      if (inner.join == FlatStep::Join::next_iteration) try_next(inner, step);
    }
  }
}

void Sharer::drop_joined_copies(std::vector<FlatStep>& steps) {
  for (FlatStep& step : steps) drop_joined_copies(step.body);
  std::erase_if(steps, [&](const FlatStep& step) {
    return step.kind == Step::Kind::copy &&
           flat_.root(step.inputs[0].storage) == flat_.root(step.output.storage) &&
           fills_storage(flat_, step.inputs[0]) && fills_storage(flat_, step.output);
  });
}

void Sharer::assign_outputs(std::vector<OutputSlot>& outputs) {
  for (std::size_t i = 0; i < flat_.results.size(); ++i) {
    Array& result = flat_.results[i];
    const StorageId id = flat_.root(result.storage);
    Storage& place = flat_.storages[id];
    OutputSlot slot{result.shape, std::nullopt};
    const bool whole = fills_storage(flat_, result);
    const bool taken = std::ranges::any_of(outputs, [&](const OutputSlot& other) {
      return other.from_input && place.kind == Place::Kind::input &&
             *other.from_input == place.index;
    });
    if (whole && place.kind == Place::Kind::input && place.updated && !taken) {
      slot.from_input = place.index;
    } else if (whole && place.kind == Place::Kind::slab && place.loops.empty()) {
      place.kind = Place::Kind::output;
      place.index = static_cast<std::uint32_t>(i);
    } else {
      Storage own;
      own.kind = Place::Kind::output;
      own.index = static_cast<std::uint32_t>(i);
      own.bytes = result.shape.bytes();
      FlatStep copy;
      copy.kind = Step::Kind::copy;
      copy.inputs = {result};
      copy.output.shape = result.shape;
      copy.output.strides = dense_strides(result.shape);
      copy.output.storage = static_cast<StorageId>(flat_.storages.size());
      copy.value = flat_.result_names[i];
      copy.time = flat_.end_time;
      flat_.storages.push_back(std::move(own));
      flat_.steps.push_back(std::move(copy));
    }
    outputs.push_back(slot);
  }
}

}  // namespace

void share_storages(Flat& flat, const std::vector<bool>& given_up,
                    std::vector<OutputSlot>& outputs) {
  Sharer sharer(flat, given_up);
  sharer.overwrite_operands(flat.steps);
  sharer.join_all_carries(flat.steps);
  sharer.drop_joined_copies(flat.steps);
  sharer.assign_outputs(outputs);
  for (const Storage& storage : flat.storages) {
    if (storage.merged_into == no_storage && storage.kind == Place::Kind::input &&
        storage.updated) {
      flat.inputs[storage.index].updated = true;
      flat.inputs[storage.index].reused = storage.replaced;
      flat.inputs[storage.index].reusable = false;
    }
  }
}

}  // namespace tenon::lowering
