// Running one op on literals, and saying what came out.
#pragma once

#include "support/expect_error.hpp"

#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {

inline constexpr float inf = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// infer + allocate + reference. The output starts as garbage, so an element that the op forgets
/// shows.
HostBuffer run_reference(const OpInstance& op, std::span<const HostBuffer> inputs);

/// run_reference, and checks on the way what holds for every op:
/// - inputs of odd strides give the same bytes as dense ones;
/// - an input that `traits.in_place_inputs` names may be overwritten by the output;
/// - a view places the very elements that the reference copies, and shares a dense input.
HostBuffer apply_op(const OpInstance& op, std::span<const HostBuffer> inputs);

template <OpStruct Op>
HostBuffer apply(const Op& op, std::initializer_list<HostBuffer> inputs) {
  return apply_op(OpInstance(op), std::span<const HostBuffer>(inputs.begin(), inputs.size()));
}

/// What `op.infer` says of these input types; arity is checked first, as when an op is recorded.
Shape infer_op(const OpInstance& op, std::span<const Shape> inputs);
template <OpStruct Op>
Shape infer(const Op& op, std::initializer_list<Shape> inputs) {
  return infer_op(OpInstance(op), std::span<const Shape>(inputs.begin(), inputs.size()));
}

/// The same elements at other places: axes in reverse storage order, gaps between elements, the
/// first axis running backwards. Block types come back as they are. The bytes live until the
/// program ends.
HostBuffer strided(const HostBuffer& dense);

/// The elements of an array, in row-major order, as double.
std::vector<double> elements(const HostBuffer& array);

/// For finite differences: the sum of products of their elements, and x + by * direction, of x's
/// dtype.
double dot(const HostBuffer& a, const HostBuffer& b);
HostBuffer moved(const HostBuffer& x, const HostBuffer& direction, double by);

/// Checks the elements in row-major order: |got - want| <= eps * max(1, |want|); NaN equals NaN,
/// and infinities equal themselves.
void expect_near(const HostBuffer& got, std::initializer_list<double> want, double eps = 1e-6);
/// Checks the elements exactly.
void expect_equal(const HostBuffer& got, std::initializer_list<double> want);
/// Checks shape and dtype, then every element: |got - want| <= absolute + relative * |want|.
void expect_close(const HostBuffer& got, const HostBuffer& want, double absolute, double relative);
/// Checks sizes, dtype and tags; write the type as to_string prints it: "f32[b=2, 3]".
void expect_type(const Shape& got, std::string_view want);

/// Random arrays. The seed is TENON_TEST_SEED, or fresh; it is printed once per process.
class Random {
 public:
  Random();
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// Uniform in [low, high), rounded to the dtype; integers are rounded down first.
  HostBuffer uniform(const Shape& shape, double low = -2.0, double high = 2.0);
  std::int64_t integer(std::int64_t low, std::int64_t high);  ///< in [low, high]
  std::mt19937_64& engine() noexcept { return engine_; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tenon::testing
