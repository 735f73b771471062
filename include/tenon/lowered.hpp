#pragma once

#include <tenon/host_view.hpp>
#include <tenon/interrupt.hpp>
#include <tenon/memory.hpp>
#include <tenon/op.hpp>
#include <tenon/program.hpp>
#include <tenon/shape.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

class Trace;

/// Maximal depth of nested loops; deeper nesting throws Errc::unsupported.
inline constexpr int max_loop_depth = 4;

using LoopSteps = std::array<std::int64_t, max_loop_depth>;

/// Where the bytes of an operand are while a step runs. In iteration (i0, i1, ...) of the
/// enclosing loops the array begins `offset + i0 * byte_step[0] + i1 * byte_step[1] + ...` bytes into its
/// storage.
struct Place {
  enum class Kind : std::uint8_t {
    input,       ///< input `index` of the run
    output,      ///< output `index` of the run
    constant,    ///< entry `index + i0 * entry_step[0] + i1 * entry_step[1] + ...` of the constants
    slab,        ///< the session's activation memory
    loop_index,  ///< an i64 scalar: the current index of loop `index` (0: outermost)
    scratch,     ///< HostFrame::scratch: used by backends, not by lower()
    shared_scratch,  ///< HostFrame::shared_scratch: the same, where scratch is per thread
  };
  Kind kind = Kind::slab;
  std::uint32_t index = 0;
  std::int64_t offset = 0;
  LoopSteps byte_step{};
  LoopSteps entry_step{};

  /// The byte where the array begins in an iteration of the loops.
  std::int64_t offset_in(const LoopSteps& iteration) const noexcept {
    std::int64_t result = offset;
    for (std::size_t d = 0; d < max_loop_depth; ++d) result += iteration[d] * byte_step[d];
    return result;
  }
  /// Of a constant: which entry the array is in an iteration of the loops.
  std::size_t entry_in(const LoopSteps& iteration) const noexcept {
    std::int64_t result = index;
    for (std::size_t d = 0; d < max_loop_depth; ++d) result += iteration[d] * entry_step[d];
    return static_cast<std::size_t>(result);
  }

  friend bool operator==(const Place& a, const Place& b) noexcept = default;
};

/// Whether two places are in one storage: the slab, one input, one output or one constant.
inline bool same_storage(const Place& a, const Place& b) noexcept {
  return a.kind == b.kind && (a.kind == Place::Kind::slab || a.index == b.index);
}

struct Operand {
  Place place;
  Shape shape;        ///< static
  Strides strides{};  ///< in bytes

  bool is_contiguous() const noexcept { return tenon::is_contiguous(shape, strides); }

  /// The same bytes in the same order.
  friend bool operator==(const Operand& a, const Operand& b) noexcept {
    return a.place == b.place && a.shape == b.shape && a.strides == b.strides;
  }
};

/// One unit of work. Views are resolved: operands have strides.
struct Step {
  enum class Kind : std::uint8_t {
    op,    ///< compute `op`
    copy,  ///< copy inputs[0] to output, element by element
    loop,  ///< run `body` for the indices first .. first + count - 1
  };
  Kind kind = Kind::op;
  OpInstance op;
  /// Of a loop with a condition: first that, a bool[] which must be true for an iteration to begin,
  /// then all that the loop carries, which stays as it is where none does. Of other loops: nothing.
  std::vector<Operand> inputs;
  Operand output;
  std::string value;  ///< name of the value in the program; of a loop: of the repeated function
  /// The function of the value, whose names are its own; empty for the program's own values.
  std::string function;
  SourceLine line;
  // Loops.
  std::int64_t first = 0;
  std::int64_t count = 0;  ///< with a condition: at most
  int depth = 0;           ///< 0 for an outermost loop
  std::vector<Step> body;

  /// Of a loop; null: it runs `count` times.
  const Operand* condition() const noexcept {
    return kind == Kind::loop && !inputs.empty() ? &inputs.front() : nullptr;
  }
  /// How often a loop's body counts in sums of work, which nobody knows where there is a condition.
  std::int64_t counted_runs() const noexcept { return condition() != nullptr ? 1 : count; }
};

/// A constant that a run reads, by the name of its weight.
struct ConstantSlot {
  std::string name;
  Shape shape;
  bool folded = false;  ///< a constant of Program::folded, not a weight, or computed from one
  /// Computed from other constants: output `computed` of Lowered::constant_part. The name then says
  /// how, so that equal names of constants that are not `folded` are equal arrays of one WeightSet.
  std::optional<std::size_t> computed{};
};

struct InputSlot {
  std::string name;
  Shape shape;
  /// A step writes to it: updated in place if the caller passed its last handle.
  bool updated = false;
  /// A step could overwrite it if lower() were told that the caller gives it up.
  bool reusable = false;
  /// `updated` by what is no update of it: given up by the caller and overwritten, or replaced in some
  /// iterations of a loop that updates it in others. What a run that fails leaves there is no value.
  bool reused = false;
};

struct OutputSlot {
  Shape shape;
  std::optional<std::uint32_t> from_input;  ///< the output is this input, updated
};

/// A program lowered for one set of input shapes: all sizes static, all activations at offsets of
/// one slab, all views resolved.
struct Lowered {
  std::vector<InputSlot> inputs;
  std::vector<OutputSlot> outputs;
  std::vector<ConstantSlot> constants;
  std::vector<Step> steps;
  std::int64_t slab_bytes = 0;        ///< size of the slab
  std::int64_t activation_bytes = 0;  ///< size of the activations without memory reuse
  /// Steps without inputs that compute constants from constants, once for a set of weights; null
  /// where there are none.
  std::shared_ptr<const Lowered> constant_part{};
};

/// Type of a constant by its full name; nothing when the name is unknown.
using ConstantTypes = std::function<std::optional<Shape>(const std::string& name)>;

struct LowerOptions {
  /// By input: steps may overwrite it once nothing reads it any more. Missing: false.
  std::vector<bool> given_up{};
  /// What depends on constants alone moves to Lowered::constant_part, unless it is more than twice as
  /// large as what it is computed from (up to 64 KiB may be), or makes other numbers of codes of 8
  /// bits or less, with which backends compute.
  bool splits_constant_part = false;
  /// False for a value that stays a step. `path`: its name behind those of the results of the calls
  /// and loops that it is in, "layers/attention/scores".
  std::function<bool(const std::string& path)> may_be_constant{};
};

/// Lowers a verified program for these shapes of its inputs. Errc::bad_input, naming the input,
/// when a shape does not fit the declared type; Errc::shape_mismatch when a type assertion fails;
/// Errc::bad_reference for a constant whose type neither the program nor `types` has.
Lowered lower(const Program& program, std::span<const Shape> inputs,
              const ConstantTypes& types = {}, const LowerOptions& options = {});

/// The constants, by their numbers in ascending order, that `wanted`, consecutive steps somewhere in
/// `program`, read in any iteration of the loops around them.
std::vector<std::size_t> constants_read(const Lowered& program, std::span<const Step> wanted);

/// What of a Lowered::constant_part computes these of its outputs, which keep their order. Its
/// constants stay as they are.
Lowered part_for(const Lowered& constant_part, std::span<const std::size_t> outputs);

/// Bytes [begin, end) of a storage.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const noexcept { return end - begin; }
  bool is_empty() const noexcept { return begin >= end; }
  bool overlaps(const ByteRange& other) const noexcept {
    return begin < other.end && other.begin < end;
  }
  friend bool operator==(const ByteRange& a, const ByteRange& b) noexcept = default;
};

/// The bytes of an operand, from its first to its last, in an iteration of the enclosing loops.
ByteRange byte_range(const Operand& operand, const LoopSteps& iteration = {}) noexcept;

/// Data flow into and out of a range of steps.
struct StepEdges {
  std::vector<Operand> reads;   ///< inputs, and activations of other steps; no constants
  std::vector<Operand> writes;  ///< results that other steps read, or that are outputs
};

/// The edges of consecutive `steps` of `program`. Everything that steps inside a loop write counts
/// as read by other steps.
StepEdges edges(const Lowered& program, std::span<const Step> steps);

/// XXH3-128, in hexadecimal digits, of all that steps of `program` say: ops, shapes, names, and
/// where operands are. What was compiled for equal ones may be used again.
std::string digest_of(const Lowered& program, std::span<const Step> steps);

/// A mark of a profile: from `begin` to the next mark, a partition computed `values`: several where
/// they are computed together, none after its end. The names live as long as the partition.
struct StepMark {
  std::string_view function;  ///< the repeated function of the values; empty outside of loops
  std::span<const std::string> values;
  std::chrono::steady_clock::time_point begin;
};

/// Addresses of the operands of one run in CPU memory.
struct HostFrame {
  std::span<std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  std::span<const std::byte* const> constants;
  std::byte* slab = nullptr;
  std::byte* scratch = nullptr;         ///< Partition::scratch_bytes() of the running partition
  std::byte* shared_scratch = nullptr;  ///< shared between threads, where scratch is per thread
  LoopSteps iteration{};                ///< counted from 0
  LoopSteps loop_index{};               ///< counted from `first`
  /// When profiling: where a backend that runs several steps as one appends marks; otherwise null.
  std::vector<StepMark>* marks = nullptr;
  /// Null, or looked at often: once it is due, a backend ends early, and throws its error.
  const Interrupt* interrupt = nullptr;

  /// Never null, so that kernels may add offsets to it where there are no elements.
  std::byte* address(const Place& place) const noexcept {
    static constinit std::byte nothing{};
    const std::int64_t offset = place.offset_in(iteration);
    // An empty array may have no memory, whatever its offset.
    const auto from = [offset](std::byte* base) {
      return base == nullptr ? &nothing : base + offset;
    };
    switch (place.kind) {
      case Place::Kind::input:
        return from(inputs[place.index]);
      case Place::Kind::output:
        return from(outputs[place.index]);
      case Place::Kind::constant:
        return from(const_cast<std::byte*>(constants[place.entry_in(iteration)]));
      case Place::Kind::slab:
        return from(slab);
      case Place::Kind::loop_index:
        return reinterpret_cast<std::byte*>(const_cast<std::int64_t*>(&loop_index[place.index]));
      case Place::Kind::scratch:
        return from(scratch);
      case Place::Kind::shared_scratch:
        return from(shared_scratch);
    }
    return &nothing;
  }

  HostView view(const Operand& operand) const noexcept {
    HostView result;
    result.data = address(operand.place);
    result.shape = operand.shape;
    result.strides = operand.strides;
    return result;
  }
};

/// The same for a run on a device: inputs, outputs and activations are in the backend's region, at
/// the offsets of the plan. Constants stay where bind() put them.
struct DeviceFrame {
  std::span<const MemPtr> inputs;
  std::span<const MemPtr> outputs;
  MemPtr slab;
  LoopSteps iteration{};                 ///< counted from 0
  LoopSteps loop_index{};                ///< counted from `first`
  Trace* trace = nullptr;                ///< when tracing: receives the device's events
  const Interrupt* interrupt = nullptr;  ///< as in HostFrame
  /// Set by the backend: time that the device worked, by its own clock.
  std::chrono::nanoseconds device_time{};

  /// Address of an operand. Errc::bad_argument for constants and loop indices.
  MemPtr address(const Place& place) const;
};

}  // namespace tenon
