// The intermediate form between a program and its lowered steps: functions expanded, shapes
// concrete, views resolved, storages not yet placed.
#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tenon::lowering {

using StorageId = std::uint32_t;
inline constexpr StorageId no_storage = 0xFFFFFFFFu;

/// A piece of memory of one value, or of several whose live ranges do not overlap.
struct Storage {
  Place::Kind kind = Place::Kind::slab;
  std::uint32_t index = 0;  ///< number of the input, output, constant or loop
  std::int64_t bytes = 0;
  std::int64_t begin = 0;            ///< time of its first definition
  std::int64_t end = 0;              ///< time of its last use, loops included
  std::vector<std::int64_t> reads;   ///< times of its reads
  std::vector<std::uint32_t> loops;  ///< loops around its definition, outermost first
  bool updated = false;              ///< an op writes to it after its definition
  bool replaced = false;  ///< what no update makes of it, such as twice a carry, is computed in it
  StorageId merged_into = no_storage;
  std::int64_t slab_offset = 0;
};

/// An array in a storage.
struct Array {
  StorageId storage = no_storage;
  std::int64_t offset = 0;
  LoopSteps byte_step{};
  LoopSteps entry_step{};
  Shape shape;
  Strides strides{};
};

struct FlatStep {
  Step::Kind kind = Step::Kind::op;
  OpInstance op;
  std::vector<Array> inputs;
  Array output;
  std::string value, function;  ///< as of Step
  std::string path;             ///< of the value: see Origins
  SourceLine line;
  std::int64_t time = 0;
  // Copies that disappear when both sides can share one storage.
  enum class Join : std::uint8_t { none, enter_loop, next_iteration } join = Join::none;
  // Loops.
  std::int64_t first = 0;
  std::int64_t count = 0;
  int depth = 0;
  std::int64_t begin_time = 0;
  std::vector<FlatStep> body;
};

/// A constant that an op computes from other constants.
struct MadeConstant {
  OpInstance op;
  std::vector<Operand> inputs;  ///< in Flat::constants, outside of loops
  Shape shape;
  std::string value, function;  ///< as of Step
  SourceLine line;
  std::string path;                   ///< of the value: see Origins
  std::set<std::uint32_t> sources{};  ///< the numbers of the weights that it comes from
};

struct Flat {
  std::vector<InputSlot> inputs;
  std::vector<ConstantSlot> constants;  ///< `computed` is a number in `made`
  std::vector<MadeConstant> made;       ///< after those that they are made from
  /// What steps without inputs write, such as `full`: a constant where one is made from it.
  std::map<StorageId, MadeConstant> fills;
  std::map<StorageId, std::uint32_t> fill_constants;  ///< the numbers of those constants
  std::vector<FlatStep> steps;
  std::vector<Array> results;
  std::vector<std::string> result_names;
  std::vector<Storage> storages;
  std::int64_t activation_bytes = 0;
  std::int64_t end_time = 0;

  /// The representative of `id` after merging storages.
  StorageId root(StorageId id) const {
    while (storages[id].merged_into != no_storage) id = storages[id].merged_into;
    return id;
  }
};

/// Whether the array fills its storage densely.
bool fills_storage(const Flat& flat, const Array& array);

/// Whether the value with a path may be a constant that is computed from others; null: none may.
using MayBeConstant = std::function<bool(const std::string& path)>;

/// Expands a verified program for the shapes of its inputs. `constant_numbers`: see
/// lower_with_constant_numbers().
Flat flatten(const Program& program, std::span<const Shape> inputs, const ConstantTypes& types,
             const MayBeConstant& may_be_constant, bool constant_numbers = false);

/// The number of a constant with what a step of `flat.fills` writes.
std::uint32_t constant_of_fill(Flat& flat, StorageId id);

/// Adds the constants that a step makes to `flat.made`, one for each iteration of the loops around it
/// in which they differ, and returns their slots, which `entry_step` tells apart. None where it is no
/// step on constants alone, or runs are to compute it (LowerOptions::splits_constant_part). `counts`:
/// of those loops.
std::vector<ConstantSlot> make_constants(Flat& flat, const FlatStep& step,
                                         std::span<const std::int64_t> counts,
                                         LoopSteps& entry_step);

/// Removes the steps of `flat.fills` that nothing reads, since constants were made from them.
void drop_unread_fills(const Flat& flat, std::vector<FlatStep>& steps);

/// Sets the constants that the steps of `lowered` read, and the part that makes some of them.
void split_constant_part(const Flat& flat, Lowered& lowered);

/// Lets values share storages: operands that their op may overwrite, inputs that the caller gives up
/// among them, and what loops carry. Decides which results live in output buffers, and adds copies
/// for those that cannot.
void share_storages(Flat& flat, const std::vector<bool>& given_up,
                    std::vector<OutputSlot>& outputs);

/// Places the slab storages by their live ranges; returns the slab's size in bytes.
std::int64_t place_storages(Flat& flat);

}  // namespace tenon::lowering
