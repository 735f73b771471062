#pragma once

#include <tenon/attributes.hpp>
#include <tenon/error.hpp>
#include <tenon/host_view.hpp>
#include <tenon/shape.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace tenon {

class Tensor;

/// Properties of an op that passes query instead of its name.
struct OpTraits {
  bool pointwise = false;    ///< each output element depends on one (broadcast) element per input
  bool reduction = false;    ///< reduces axes of input 0
  bool view = false;         ///< the output can share the storage of input 0; see `OpDef::view`
  bool commutative = false;  ///< the first two inputs may be swapped
  /// Selects the entry input 1 (a scalar) of axis 0 of input 0: a view when input 1 is a loop
  /// index.
  bool selects = false;
  /// The input that the op consumes (a linear value) and returns, updated in place. -1: none.
  int updates_input = -1;
  /// Inputs (bit i: input i) that the output may overwrite, if shape and dtype agree and this is
  /// the input's last use.
  std::uint32_t in_place_inputs = 0;
  /// Inputs (bit i: input i) of which only as many elements are read as the output has, chosen by
  /// other inputs.
  std::uint32_t picked_inputs = 0;
  /// Takes objects (tenon/object.hpp), which every other op refuses.
  bool takes_objects = false;

  friend bool operator==(const OpTraits& a, const OpTraits& b) noexcept = default;
};

/// Where a view's elements are in its input's storage.
struct ViewPlacement {
  std::int64_t offset_bytes = 0;
  Strides strides{};
};

/// What the gradient of a recorded op is made from. `inputs` and `output` are those of the op,
/// `upstream` is the gradient of the loss with respect to `output`, with its sizes and dtype. None
/// has axis tags. Lives during the call of `gradient`.
struct Backward {
  std::span<const Tensor> inputs;
  const Tensor& output;
  const Tensor& upstream;
};

/// The device-independent definition of an op, type-erased. Made by `make_op_def` from the op's
/// struct: those of the library's ops are listed in `src/ops/ops.def`, others are registered.
struct OpDef {
  std::string_view name;
  OpTraits traits;
  int min_inputs = 0;
  int max_inputs = 0;
  std::size_t attribute_bytes = 0;
  const void* defaults = nullptr;  ///< the attributes' default values
  std::span<const AttributeField> fields;

  /// Output type from input types. Throws the errors of the numbered constraints. Sizes may be
  /// symbolic.
  Shape (*infer)(const void* op, std::span<const Shape> inputs) = nullptr;
  /// Computes the output, which is dense, from inputs of any strides. Sizes are static. Throws only
  /// errors that depend on data (an index out of range). Null for views.
  void (*reference)(const void* op, std::span<const HostView> inputs,
                    const HostView& output) = nullptr;
  /// Views only: sets `placement` to where the output's elements are; false where the input's
  /// strides do not allow sharing.
  bool (*view)(const void* op, const HostView& input, const Shape& output,
               ViewPlacement& placement) = nullptr;
  /// Records the gradients of the loss with respect to the inputs (tenon/grad.hpp): one tensor per
  /// input, with its sizes and dtype; an empty one where the gradient is zero everywhere or the
  /// input has none (indices, masks). Null: the op has no gradient.
  std::vector<Tensor> (*gradient)(const void* op, const Backward& at) = nullptr;
  /// Multiplications and additions for inputs of these static shapes; NaN where the number depends
  /// on data. Null: about one per element of the output, or of the reduced input.
  double (*flops)(const void* op, std::span<const Shape> inputs, const Shape& output) = nullptr;
  /// The op's struct, by which ops of one name are told apart. Null where there is none.
  const std::type_info* type = nullptr;
};

template <class Op>
concept OpStruct =
    std::is_trivially_copyable_v<Op> && requires(const Op& op, std::span<const Shape> in) {
      { Op::name } -> std::convertible_to<std::string_view>;
      { Op::min_inputs } -> std::convertible_to<int>;
      { Op::max_inputs } -> std::convertible_to<int>;
      { op.infer(in) } -> std::same_as<Shape>;
      Op::fields.size();
    };

template <class Op>
constexpr OpTraits traits_of() noexcept {
  if constexpr (requires { Op::traits; }) {
    return Op::traits;
  } else {
    return {};
  }
}

namespace detail {

template <class Op, std::size_t... I>
constexpr auto attribute_fields(std::index_sequence<I...>) noexcept {
  return std::array<AttributeField, sizeof...(I)>{AttributeField{
      Op::fields.template get<I>().name,
      [](const void* op) {
        return AttributeValue(static_cast<const Op*>(op)->*Op::fields.template get<I>().member);
      },
      [](void* op, const AttributeValue& value) {
        return assign_attribute(static_cast<Op*>(op)->*Op::fields.template get<I>().member, value);
      }}...};
}

/// Throws Errc::unsupported_dtype when an op without OpTraits::takes_objects is given an object, when
/// one makes an object that it does not update, or updates one of a class that is not linear;
/// Errc::bad_shape for an array of objects.
void check_objects(std::string_view op, const OpTraits& traits, std::span<const Shape> inputs,
                   const Shape* output);

// Hidden, here and below: the loader would otherwise make one of two libraries' variables, whose structs have the same
// name and may be different, also where each library has a copy of the core.
template <class Op>
[[gnu::visibility("hidden")]] inline constexpr Op op_defaults{};

template <class Op>
[[gnu::visibility("hidden")]] inline constexpr auto op_fields =
    attribute_fields<Op>(std::make_index_sequence<Op::fields.size()>());

}  // namespace detail

/// The descriptor of an op's struct.
template <OpStruct Op>
constexpr OpDef make_op_def() noexcept {
  OpDef def;
  def.name = Op::name;
  def.traits = traits_of<Op>();
  def.min_inputs = Op::min_inputs;
  def.max_inputs = Op::max_inputs;
  def.attribute_bytes = sizeof(Op);
  def.defaults = &detail::op_defaults<Op>;
  def.fields = detail::op_fields<Op>;
  def.type = &typeid(Op);
  def.infer = [](const void* op, std::span<const Shape> in) {
    constexpr OpTraits traits = traits_of<Op>();
    detail::check_objects(Op::name, traits, in, nullptr);
    const Shape output = static_cast<const Op*>(op)->infer(in);
    if (is_object(output.dtype())) detail::check_objects(Op::name, traits, in, &output);
    return output;
  };
  if constexpr (requires(const Op& op, std::span<const HostView> in, HostView out) {
                  op.reference(in, out);
                }) {
    def.reference = [](const void* op, std::span<const HostView> in, const HostView& out) {
      static_cast<const Op*>(op)->reference(in, out);
    };
  }
  if constexpr (requires(const Op& op, HostView in, Shape out, ViewPlacement& placement) {
                  op.view(in, out, placement);
                }) {
    def.view = [](const void* op, const HostView& in, const Shape& out, ViewPlacement& placement) {
      return static_cast<const Op*>(op)->view(in, out, placement);
    };
  }
  if constexpr (requires(const Op& op, const Backward& at) { op.gradient(at); }) {
    def.gradient = [](const void* op, const Backward& at) {
      return static_cast<const Op*>(op)->gradient(at);
    };
  }
  if constexpr (requires(const Op& op, std::span<const Shape> in, Shape out) {
                  op.flops(in, out);
                }) {
    def.flops = [](const void* op, std::span<const Shape> in, const Shape& out) {
      return static_cast<const Op*>(op)->flops(in, out);
    };
  }
  return def;
}

namespace detail {
template <OpStruct Op>
[[gnu::visibility("hidden")]] inline constexpr OpDef own_op_def = make_op_def<Op>();
}

/// The descriptor of an op: `op_def<Softmax>()`. Specialised by the sources of the library's ops;
/// of any other struct it is made where it is asked for.
template <class Op>
const OpDef& op_def() noexcept {
  return detail::own_op_def<Op>;
}

/// Makes an op of the user's known by its name to texts, networks and snapshots, for as long as the
/// process lives, and so must `def`. An op that is not registered is recorded, run and printed like
/// any other, but what was written with it cannot be read. Registering an op again does nothing,
/// also from another library that includes its header: a descriptor of a struct with the same C++
/// name, inputs, attributes, traits and optional members is taken for the same. Thread-safe. Errors:
/// Errc::duplicate_name when another op, with what it has otherwise, or a word of the language has
/// the name; Errc::bad_argument naming what the descriptor lacks.
void register_op(const OpDef& def);
template <OpStruct Op>
const OpDef& register_op() {
  register_op(op_def<Op>());
  return op_def<Op>();
}

/// Every op that is known: the library's in the order of ops.def, then those registered; and the
/// one of a name, or null. Thread-safe.
std::vector<const OpDef*> all_ops();
const OpDef* find_op(std::string_view name) noexcept;

/// Whether two descriptors are of the same struct. Compares its C++ name, because a plugin with its own
/// copy of the core has descriptors at other addresses; a struct of an unnamed namespace is one
/// library's. Descriptors without a struct are of the same if their functions are.
bool same_struct(const OpDef& a, const OpDef& b) noexcept;

/// Whether two descriptors are of the same op: of one name and struct.
inline bool same_op(const OpDef* a, const OpDef* b) noexcept {
  return a == b || (a != nullptr && b != nullptr && a->name == b->name && same_struct(*a, *b));
}

/// An op with its attributes, by value.
class OpInstance {
 public:
  OpInstance() = default;
  /// `attributes` points to the struct that `def` describes; it is copied.
  OpInstance(const OpDef& def, const void* attributes);
  explicit OpInstance(const OpDef& def) : OpInstance(def, def.defaults) {}
  template <OpStruct Op>
  explicit OpInstance(const Op& op) : OpInstance(op_def<Op>(), &op) {}
  OpInstance(const OpInstance& other) = default;
  OpInstance& operator=(const OpInstance& other) = default;
  // A moved-from instance holds no op.
  OpInstance(OpInstance&& other) noexcept
      : def_(std::exchange(other.def_, nullptr)), bytes_(std::move(other.bytes_)) {}
  OpInstance& operator=(OpInstance&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    def_ = std::exchange(other.def_, nullptr);
    return *this;
  }

  const OpDef* def() const noexcept { return def_; }
  const void* attributes() const noexcept { return bytes_.data(); }
  void* attributes() noexcept { return bytes_.data(); }

  /// The attributes as the op's struct; null for another op.
  template <OpStruct Op>
  const Op* as() const noexcept {
    return same_op(def_, &op_def<Op>()) ? static_cast<const Op*>(attributes()) : nullptr;
  }

  friend bool operator==(const OpInstance& a, const OpInstance& b) noexcept;

 private:
  const OpDef* def_ = nullptr;
  std::vector<std::byte> bytes_;
};

/// "softmax(axis=1)": with every attribute, as texts spell it.
std::string to_string(const OpInstance& op);

/// Whether two attribute structs of one op are equal, field by field.
bool equal_attributes(const OpDef& def, const void* a, const void* b) noexcept;

// Throws an error of `infer`: at the op's name, with a sentence that states the facts.
[[noreturn]] void fail(Errc code, std::string_view op, std::string message);

}  // namespace tenon

/// For the library's own ops, whose members are defined in a source: in the header, says that
/// `op_def<Struct>()` is there too; in the source, with the op's text name as an identifier,
/// defines the descriptor that ops.def lists. Both inside namespace tenon.
#define TENON_DECLARE_OP(Struct) \
  template <>                    \
  const OpDef& op_def<Struct>() noexcept
#define TENON_DEFINE_OP(id, Struct)                       \
  namespace ops {                                         \
  extern const OpDef id##_def;                            \
  constinit const OpDef id##_def = make_op_def<Struct>(); \
  }                                                       \
  template <>                                             \
  const OpDef& op_def<Struct>() noexcept {                \
    return ops::id##_def;                                 \
  }                                                       \
  static_assert(Struct::name == #id)
