#pragma once

// What the sources of the extension `tenon._tenon` share: one function per area, which adds its classes to
// the module, and the conversions between Python's objects and the library's values.

#include <tenon/buffer.hpp>
#include <tenon/device.hpp>
#include <tenon/dtype.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/interrupt.hpp>
#include <tenon/op.hpp>
#include <tenon/session.hpp>
#include <tenon/shape.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

namespace tenon::python {

namespace nb = nanobind;

void bind_errors(nb::module_& module);
void bind_types(nb::module_& module);
void bind_arrays(nb::module_& module);
void bind_devices(nb::module_& module);
void bind_programs(nb::module_& module);
void bind_sessions(nb::module_& module);
void bind_graphs(nb::module_& module);
void bind_ops(nb::module_& module);
void bind_builders(nb::module_& module);
void bind_own_ops(nb::module_& module);
void bind_files(nb::module_& module);
void bind_text(nb::module_& module);
void bind_models(nb::module_& module);
void bind_objects(nb::module_& module);

/// The interpreter's lock, for a call of a function of Python's that a run makes on any thread. The
/// interpreter ends once such calls have, and where it is ending there are no more of them:
/// Errc::call_order.
class PythonCall {
 public:
  PythonCall() = default;
  PythonCall(const PythonCall&) = delete;

 private:
  struct Counted {
    Counted();
    ~Counted();
    Counted(const Counted&) = delete;
  };
  Counted counted_;
  nb::gil_scoped_acquire lock_;
};
/// Lets go of what is Python's on any thread: under the lock, and not at all where the interpreter
/// is ending, as the process then does.
void drop_python(const std::function<void()>& drop) noexcept;
/// Lets the interpreter wait for both when it ends.
void end_with_python_calls();

/// Lets the library's messages come to the logger "tenon" of Python's logging, from the main thread.
void forward_log_to_python();

/// What Python knows as tenon.DType.
struct ElementType {
  DType dtype;
};
nb::object from_dtype(DType dtype);
/// An element type given as tenon.f32, "f32", numpy.float32, numpy.dtype("float32") or "float32".
DType to_dtype(nb::handle object);
/// The same; nothing where the object is none.
std::optional<DType> find_dtype_of(nb::handle object);
/// What numpy, with ml_dtypes for bf16 and fp8, calls a type: "float32". Empty for block types.
const char* numpy_name(DType dtype) noexcept;

/// A tenon.Shape, text as programs have it ("f32[B, 64]"), or a sequence of sizes, where a word is a
/// symbol and None unknown.
Shape to_shape(nb::handle object, DType dtype = DType::f32);
/// A tuple of sizes: integers, words for symbols, None for unknown ones.
nb::tuple to_tuple(const Shape& shape);

/// Buffer.donate(): an array whose memory the next call may overwrite. The buffer is empty from then on.
struct Donated {
  nb::object owner;  // the Buffer, which has its array again where the call throws
};

/// An array of any kind as the library takes it: a Buffer as it is; everything with DLPack or the buffer
/// protocol, which shares the memory where it is dense; numbers and lists, as numpy.asarray() reads them, with
/// Python's floats as f32. `dtype` is for numbers and lists.
Buffer to_buffer(nb::handle object, std::optional<DType> dtype = std::nullopt);
/// The same; a number becomes one of `type`, which must be able to hold it.
Buffer to_operand(nb::handle object, std::optional<DType> type);
/// The same in CPU memory, of any strides.
HostBuffer to_host_buffer(nb::handle object);
/// buffer.to_host(), called with the interpreter's lock, which is released meanwhile: the work that
/// fills the array may call Python.
HostBuffer waited_host(const Buffer& buffer);

/// An object of a registered class, which shares it; nothing where it is none.
std::optional<Buffer> object_to_buffer(nb::handle object);
/// For ops of Python's: an object that is an operand, as Python knows it; and what the function made
/// of the one that the op updates, None where it changed that itself. Under the interpreter's lock.
nb::object operand_object(const HostView& operand);
void update_operand(const HostView& operand, const HostView& output, nb::object made);

/// Python's operators of arrays and tensors, which call ops.
const PyType_Slot* operator_slots();

std::vector<Buffer> to_buffers(nb::handle sequence);
std::map<std::string, Buffer> to_named_buffers(nb::handle mapping);
/// What a mapping from names has; Errc::bad_argument where it is none.
std::vector<std::pair<std::string, nb::object>> named_items(nb::handle mapping);

/// An attribute of an op: int, float, bool, str, a dtype, or a sequence of integers.
AttributeValue to_attribute(nb::handle object);
nb::object from_attribute(const AttributeValue& value);

inline double seconds(std::chrono::nanoseconds time) noexcept {
  return std::chrono::duration<double>(time).count();
}
/// A time limit in seconds; infinity is 30 years, and so is all that is longer. Errc::bad_argument for
/// a NaN.
std::chrono::nanoseconds to_limit(double timeout);
/// A deadline in seconds from now, or none.
Interrupt to_interrupt(std::optional<double> timeout);

/// A str in UTF-8. Errc::bad_encoding, naming `what` and the place, for a lone surrogate: half a
/// character, which has no UTF-8.
std::string to_utf8(nb::handle text, std::string_view where, std::string_view what);

/// Backends: None for the registered ones, a device or its URL, a backend or its name, or a sequence of them.
std::vector<BackendPtr> to_backends(nb::handle object, const BackendOptions& options = {},
                                    bool for_saved = false);
DevicePtr to_device(nb::handle object);

/// Weights by name: a tenon.Weights, or a mapping from names to arrays.
std::shared_ptr<const WeightSet> to_weights(nb::handle object);

}  // namespace tenon::python
