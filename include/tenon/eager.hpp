#pragma once

#include <tenon/backend.hpp>
#include <tenon/buffer.hpp>
#include <tenon/held.hpp>
#include <tenon/host_view.hpp>
#include <tenon/interrupt.hpp>
#include <tenon/op.hpp>
#include <tenon/session.hpp>
#include <tenon/shape.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tenon {

/// What an Eager computes with: a handle to elements in CPU memory. Copies share the elements; those
/// of a view (a slice, a permutation) are the ones of the array that it was taken from.
class EagerArray {
 public:
  EagerArray() = default;  ///< nothing
  /// The elements of a buffer, shared; waits for them. Errc::call_order without data,
  /// Errc::bad_argument for memory that the CPU cannot address.
  EagerArray(Buffer buffer);  // NOLINT(google-explicit-constructor): buffers read as arrays
  /// An i64[], such as a loop's counter.
  explicit EagerArray(std::int64_t value);

  bool has_data() const noexcept { return storage_.has_data(); }
  const Shape& shape() const noexcept { return shape_; }
  /// Valid while a handle is. Errc::call_order for an array that was moved from.
  HostView view() const;
  /// The elements as a dense buffer: shared where they are dense, copied otherwise.
  Buffer to_buffer() const;
  /// The one element of an array of integers or truth values. Errc::bad_type for another dtype,
  /// Errc::bad_shape for another number of elements.
  std::int64_t to_int() const;

 private:
  friend class Eager;

  void require_data() const;

  Buffer storage_;
  std::int64_t offset_ = 0;  // bytes from the beginning of the storage
  Shape shape_;
  Strides strides_{};
  std::shared_ptr<const std::string>
      weight_;               // its name, owned by the set of weights that it is of
  bool is_counter_ = false;  // made of a number, not computed
};

/// An operand. An array that is moved in is given up: its memory is freed or used for the result.
class EagerInput {
 public:
  EagerInput(const EagerArray& array) : array_(&array) {}  // NOLINT(google-explicit-constructor)
  EagerInput(EagerArray&& array)                           // NOLINT(google-explicit-constructor)
      : array_(&array), given_up_(&array) {}

 private:
  friend class Eager;
  const EagerArray* array_;
  EagerArray* given_up_ = nullptr;
};

/// A prefix of the names of weights: `Scope("blk").at(3)` with "norm" names "blk.3.norm".
struct EagerScope {
  std::string prefix{};

  EagerScope at(std::int64_t index) const { return {prefix + "." + std::to_string(index)}; }
  EagerScope inner(std::string_view name) const;
  std::string name(std::string_view weight) const { return inner(weight).prefix; }
};

/// A parameter of a function as its text declares it, and what it was called with.
struct EagerParameter {
  std::string_view name;
  Shape type;  ///< sizes may be symbols
  const EagerArray& value;
};

namespace detail {

/// What distinguishes one call from another: attributes and the operands' types, as words.
using CallKey = std::vector<std::int64_t>;

inline void append_key(CallKey& key, std::int64_t value) { key.push_back(value); }
inline void append_key(CallKey& key, double value) {
  key.push_back(std::bit_cast<std::int64_t>(value));
}
inline void append_key(CallKey& key, bool value) { key.push_back(value ? 1 : 0); }
inline void append_key(CallKey& key, DType value) {
  key.push_back(static_cast<std::int64_t>(value));
}
inline void append_key(CallKey& key, Name value) {
  key.push_back(static_cast<std::int64_t>(value.id()));
}
inline void append_key(CallKey& key, const IntList& values) {
  key.push_back(static_cast<std::int64_t>(values.size()));
  for (const std::int64_t value : values) key.push_back(value);
}

}  // namespace detail

/// An op on dense operands of some types, as an Eager has compiled it. Valid until the Eager's next
/// call that compiles.
struct EagerKernel {
  Shape output;
  std::optional<ViewPlacement> view;  ///< of the result in the first operand: nothing is computed
  /// Whether it is done in microseconds, by the calling thread alone.
  bool is_brief = false;
};

/// Runs each op when it is called, on the backends of a session and with their bits: without a
/// graph, a parser or a plan. What `tenon codegen` writes calls it, and so may programs:
///
///     Eager eager(weights);
///     EagerArray h = eager.run(RmsNorm{.eps = 1e-5}, x, eager.weight("norm"));
///     EagerArray y = eager.run(Linear{}, std::move(h), eager.weight("out"));
///
/// What an op, its attributes, the operands' types and its weights need is compiled by the first
/// such call and kept. Ops that are views copy nothing. Compared with a session there is no work
/// that several ops share, and each waits for its own threads.
///
/// One thread at a time uses an Eager and its copies, which are handles of one.
class Eager {
 public:
  /// `weights`: null for none. `backends`: in order of priority, all in CPU memory
  /// (Errc::bad_argument); empty: all registered ones.
  explicit Eager(std::shared_ptr<const WeightSet> weights = nullptr,
                 std::vector<BackendPtr> backends = {});

  /// Errc::bad_reference when there is none of that name.
  EagerArray weight(const std::string& name) const;
  EagerArray weight(const EagerScope& scope, std::string_view name) const {
    return weight(scope.name(name));
  }
  /// A weight that is an object (tenon/object.hpp), or the bytes of one, which is made once. Errors as
  /// above; Errc::bad_type for another class, and those of load_object().
  EagerArray object(const std::string& name, DType dtype) const;

  /// The result of an op. An op that updates an operand does so in place where that was moved in
  /// and no other handle or view of it is left, and in a copy otherwise. Errors: those of the op;
  /// Errc::unsupported where no backend takes it.
  template <OpStruct Op, class... Inputs>
  EagerArray run(const Op& op, Inputs&&... inputs) {
    const std::array<EagerInput, sizeof...(Inputs)> list{
        EagerInput(std::forward<Inputs>(inputs))...};
    detail::CallKey& key = new_key(op_def<Op>());
    Op::fields.apply(
        [&](const auto&... fields) { (detail::append_key(key, op.*fields.member), ...); });
    return run(op_def<Op>(), &op, list);
  }
  EagerArray run(const OpInstance& op, std::span<const EagerInput> inputs);

  /// What run() compiled of an op for dense operands of these types that nobody gave up; null where
  /// it has not yet, and for an op that updates an operand.
  const EagerKernel* find(const OpInstance& op, std::span<const Shape* const> operands);
  /// Runs one that is no view on the operands' elements, in CPU memory, into those of a dense result.
  void run(const EagerKernel& kernel, std::span<std::byte* const> operands, std::byte* result);

  /// Checks arguments against a function's parameters, where equal symbols must be equal sizes:
  /// Errc::bad_input, naming the parameter.
  void check(std::string_view function, std::initializer_list<EagerParameter> parameters) const;

  /// From now on, a call ends with Errc::cancelled or Errc::timeout once the interrupt is due.
  void set_interrupt(Interrupt interrupt);

  /// The ops, each once, that ran on another backend than the first, and why.
  const std::vector<PlanReport::Fallback>& fallbacks() const;
  /// How many bytes were copied so far because an op updates them and there were other handles.
  std::int64_t copied_bytes() const;

 private:
  struct State;

  /// Of the call to come: the op, then its attributes, without the bytes between them, which nobody
  /// sets.
  detail::CallKey& new_key(const OpDef& def);
  void append_attributes(const OpInstance& op);
  EagerArray run(const OpDef& def, const void* attributes, std::span<const EagerInput> inputs);

  detail::Held<State, "Eager"> state_;
};

}  // namespace tenon
