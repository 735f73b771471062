#pragma once

#include <tenon/buffer.hpp>
#include <tenon/dtype.hpp>
#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/host_view.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Objects of C++ classes as values of a program, beside tensors: a tokenizer, a cache that grows, a
// generator of random numbers, a class of the user's. A registered class is an element type, and an
// object is a scalar of it, so that objects are recorded, printed, carried by loops, given to
// sessions and returned by them as tensors are: docs/objects.md.
//
//   struct Counter { std::int64_t count = 0; };
//   register_object<Counter>("Counter", {.is_linear = true});
//   const Tensor counter = graph.input("counter", object_shape<Counter>());  // "counter: Counter"
//   results = session.forward({object_buffer(Counter{}), x});
//
// Only ops with OpTraits::takes_objects have objects as operands. An op makes none: it reads one, or
// updates one in place and returns it (OpTraits::updates_input).

namespace tenon {

/// A class, type-erased.
struct ObjectClass {
  std::string name;  ///< as texts spell it: an identifier that begins with a capital letter
  /// Objects change: they are updated in place, and a value that was updated cannot be used again.
  /// Otherwise objects are shared: constants, too, may be of the class, and it must bear being read
  /// by several threads at once.
  bool is_linear = false;
  /// A copy for a run that updates an object of which its caller keeps a handle; null: such a run
  /// throws Errc::unsupported.
  std::function<std::shared_ptr<void>(const void* object)> copy{};
  /// The object as bytes, and what load() makes of them; null: it cannot be saved. `load` gets what
  /// a file has, and throws an Error for what `save` never wrote.
  std::function<std::string(const void* object)> save{};
  std::function<std::shared_ptr<void>(std::string_view bytes)> load{};
};

/// Makes a class known, as an element type, for as long as the process lives. Thread-safe.
/// Errors: Errc::bad_argument for a name that is none, Errc::duplicate_name when a class or a word of
/// the language has it, Errc::limit_exceeded beyond 128 classes.
DType register_object_class(ObjectClass object_class);

/// The class of an element type. Errc::bad_type for other types.
const ObjectClass& object_class(DType dtype);
/// The class of this name, if there is one; the same, or Errc::bad_type; and all of them, in the order
/// of their registration.
std::optional<DType> find_object_type(std::string_view name) noexcept;
DType object_type(std::string_view name);
std::vector<DType> object_types();
bool is_linear_object(DType dtype) noexcept;

/// How objects of T are saved; see ObjectClass.
template <class T>
struct ObjectOptions {
  bool is_linear = false;
  std::function<std::string(const T& object)> save{};
  std::function<T(std::string_view bytes)> load{};
};

namespace detail {
template <class T>
inline std::atomic<int> object_number{-1};
[[noreturn]] void throw_unknown_class();
/// register_object_class(), which keeps the type's number in `number`; nothing new where that has it
/// under this name.
DType register_class(ObjectClass object_class, std::atomic<int>& number);
}  // namespace detail

/// Registers a C++ class under a name; copied by its copy constructor, if it has one. Registering it
/// again under the same name does nothing; Errc::duplicate_name for another name, and for the name of
/// another class.
template <class T>
DType register_object(std::string name, ObjectOptions<T> options = {}) {
  ObjectClass made;
  made.name = std::move(name);
  made.is_linear = options.is_linear;
  if constexpr (std::is_copy_constructible_v<T>) {
    made.copy = [](const void* object) {
      return std::make_shared<T>(*static_cast<const T*>(object));
    };
  }
  if (options.save) {
    made.save = [save = std::move(options.save)](const void* object) {
      return save(*static_cast<const T*>(object));
    };
  }
  if constexpr (std::is_move_constructible_v<T>) {
    if (options.load) {
      made.load = [load = std::move(options.load)](std::string_view bytes) {
        return std::make_shared<T>(load(bytes));
      };
    }
  }
  return detail::register_class(std::move(made), detail::object_number<T>);
}

/// The element type of a registered C++ class, and the type of a value. Errc::call_order before.
template <class T>
DType object_type() {
  const int number = detail::object_number<T>.load();
  if (number < 0) detail::throw_unknown_class();
  return static_cast<DType>(number);
}
template <class T>
Shape object_shape() {
  return Shape(std::span<const Axis>(), object_type<T>());
}

/// An object as an input or a weight: a scalar in CPU memory that shares it. A linear one is updated
/// by the runs it is moved into. Errc::bad_argument for null.
Buffer object_buffer(DType dtype, std::shared_ptr<void> object);
template <class T>
Buffer object_buffer(std::shared_ptr<T> object) {
  return object_buffer(object_type<T>(), std::move(object));
}
template <class T>
Buffer object_buffer(T object) {
  return object_buffer(object_type<T>(), std::make_shared<T>(std::move(object)));
}

/// Another object, of a class that can be copied (Errc::unsupported).
Buffer copied_object(const Buffer& buffer);

/// The object of a buffer, after waiting for it. Errc::bad_type when it is of another class,
/// Errc::call_order when there is none.
std::shared_ptr<void> object_of(const Buffer& buffer, DType dtype);
template <class T>
std::shared_ptr<T> object_of(const Buffer& buffer) {
  return std::static_pointer_cast<T>(object_of(buffer, object_type<T>()));
}

/// An object as u8[n], and back: what files and snapshots have of a constant of the class.
/// Errc::unsupported where the class has no such function; what `load` throws.
HostBuffer save_object(const Buffer& buffer);
Buffer load_object(DType dtype, const HostBuffer& bytes);

/// For references and kernels: the object that is an operand. Errc::bad_type as above.
void* object_at(const HostView& operand, DType dtype);
template <class T>
const T& object_at(const HostView& operand) {
  return *static_cast<const T*>(object_at(operand, object_type<T>()));
}
/// The same of the operand that the op updates: makes it the op's result.
void* update_object(const HostView& operand, const HostView& output, DType dtype);
template <class T>
T& update_object(const HostView& operand, const HostView& output) {
  return *static_cast<T*>(update_object(operand, output, object_type<T>()));
}

}  // namespace tenon
