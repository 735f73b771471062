#pragma once

#include <tenon/buffer.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tenon {

/// How far an array is from the one that is right. Distances are |got - want|: 0 where both are NaN
/// or the same infinity, infinite where only one of them is.
struct Difference {
  std::int64_t elements = 0;
  double max = 0, mean = 0;
  double p50 = 0, p90 = 0, p99 = 0;  ///< distances that 50, 90 and 99 % of the elements keep within
  std::int64_t worst = -1;           ///< row-major index of the largest distance; -1: no elements
  double got = 0, want = 0;          ///< the elements there
  double scale = 0;                  ///< the largest finite |want|
};

/// Errc::shape_mismatch for other sizes, Errc::call_order for a HostBuffer that is none. Dtypes may differ, and be block
/// types, which are decoded.
Difference difference(const HostBuffer& got, const HostBuffer& want);

/// A distance is within the tolerance up to absolute + relative * Difference::scale.
struct Tolerance {
  double absolute = 0;
  double relative = 1e-3;

  bool holds(const Difference& found) const noexcept {
    return found.max <= absolute + relative * found.scale;
  }
};

/// Arrays by the names of a program's values.
///
/// The names are those of the unrolled program (`unroll`). "layer[3]" is what layer 3 of a stack
/// (`repeat`) returns first, and "layer[3].1" what it returns second, whichever of the functions
/// layer0, layer1, ... the layers of the stack became. Values that are views of others have no step
/// that computes them; those in loops with a condition count the first time.
using RecordedValues = std::map<std::string, HostBuffer>;

/// Runs a program once and gives the values of these names; of every step if there are none.
///
/// The session has its weights bound. A fork of it runs, without merging, so that every step runs
/// by itself. `inputs` are those of Session::forward. Errors: Errc::bad_reference, naming the names
/// that the program has not; Errc::call_order for a session from a snapshot; those of running.
RecordedValues record_activations(Session session, std::span<const Buffer> inputs,
                                  std::span<const std::string> names = {});

struct ValueDifference {
  std::string name;   ///< as in the recorded activations
  std::string value;  ///< in the unrolled program
  std::string op;     ///< that computes it
  Difference difference;
  bool is_within = true;  ///< the tolerance
};

struct Comparison {
  std::vector<ValueDifference> values;  ///< in the order that they are computed
  std::vector<std::string> unknown;     ///< recorded names that are none of the program's

  /// The first value that is out of tolerance; null where every one is within.
  const ValueDifference* first() const noexcept;
  /// One row for each value: at most `rows` of them, the first out of tolerance among them.
  std::string table(std::size_t rows = 40) const;
};

/// Runs a program once and compares its values with recorded ones: from another framework, another
/// backend, or an earlier version. Which layer is the first to differ is then known.
///
/// The session as for record_activations(). Errc::shape_mismatch, naming the value, for recorded
/// activations of other sizes; Errc::bad_reference where no recorded name is one of the program's.
Comparison compare_activations(Session session, std::span<const Buffer> inputs,
                               const RecordedValues& recorded, const Tolerance& tolerance = {});

}  // namespace tenon
