#include "bindings.hpp"
#include "cuda.hpp"

#include <tenon/error.hpp>
#include <tenon/object.hpp>

#include <array>
#include <chrono>
#include <cstring>
#include <sstream>

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

namespace tenon::python {
namespace {

using Code = nb::dlpack::dtype_code;

struct DlpackType {
  DType dtype;
  Code code;
};

constexpr std::array dlpack_types = {
    DlpackType{DType::boolean, Code::Bool},
    DlpackType{DType::i8, Code::Int},
    DlpackType{DType::i16, Code::Int},
    DlpackType{DType::i32, Code::Int},
    DlpackType{DType::i64, Code::Int},
    DlpackType{DType::u8, Code::UInt},
    DlpackType{DType::u16, Code::UInt},
    DlpackType{DType::u32, Code::UInt},
    DlpackType{DType::u64, Code::UInt},
    DlpackType{DType::f16, Code::Float},
    DlpackType{DType::bf16, Code::Bfloat},
    DlpackType{DType::f32, Code::Float},
    DlpackType{DType::f64, Code::Float},
    DlpackType{DType::c64, Code::Complex},
    DlpackType{DType::f8_e4m3, Code::Float8_E4M3FN},
    DlpackType{DType::f8_e5m2, Code::Float8_E5M2},
};

std::uint8_t bits_of(DType dtype) { return static_cast<std::uint8_t>(8 * block_bytes(dtype)); }

DType from_dlpack(nb::dlpack::dtype type) {
  for (const DlpackType& known : dlpack_types) {
    if (type.code == static_cast<std::uint8_t>(known.code) && type.bits == bits_of(known.dtype) &&
        type.lanes == 1) {
      return known.dtype;
    }
  }
  const bool is_complex = type.code == static_cast<std::uint8_t>(Code::Complex);
  throw Error(Errc::unsupported_dtype, "array",
              is_complex ? fmt::format("complex numbers of {} bits, where those of 64 are known: "
                                       "astype('complex64')",
                                       type.bits)
                         : fmt::format("DLPack type code {} of {} bits has no element type here",
                                       type.code, type.bits));
}

nb::dlpack::dtype to_dlpack(DType dtype) {
  for (const DlpackType& known : dlpack_types) {
    if (known.dtype == dtype) {
      return {static_cast<std::uint8_t>(known.code), bits_of(dtype), 1};
    }
  }
  if (is_object(dtype)) {
    throw Error(
        Errc::unsupported_dtype, "array",
        fmt::format("a {} is an object, no array: tenon.object_of() gives it", name(dtype)));
  }
  throw Error(Errc::unsupported_dtype, "array",
              fmt::format("{} is a type of blocks, which other libraries do not know: convert the "
                          "array, as by astype('f32')",
                          name(dtype)));
}

/// An object that keeps another one of Python's alive, and may be released on any thread.
std::shared_ptr<const void> keeper(nb::ndarray<nb::ro> array) {
  auto* held = new nb::ndarray<nb::ro>(std::move(array));
  return std::shared_ptr<const void>(static_cast<const void*>(held),
                                     [held](const void*) { drop_python([held] { delete held; }); });
}

struct Imported {
  nb::ndarray<nb::ro> array;
  Shape shape;
  Strides strides;
  bool is_copy = false;  // which nobody else holds
};

void require_on_cpu(const nb::ndarray<nb::ro>& array) {
  if (array.device_type() == nb::device::cpu::value) return;
  throw Error(Errc::unsupported, "array",
              fmt::format("an array on a device of DLPack's type {}: copy it to the CPU first",
                          array.device_type()));
}

Imported imported(nb::ndarray<nb::ro> array, DType dtype) {
  if (array.ndim() > static_cast<std::size_t>(max_rank)) {
    throw Error(Errc::bad_shape, "array",
                fmt::format("{} axes, and at most {} are possible", array.ndim(), max_rank));
  }
  std::vector<std::int64_t> dims;
  Strides strides{};
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    dims.push_back(static_cast<std::int64_t>(array.shape(i)));
    strides[i] = block_bytes(dtype) * array.stride(i);
  }
  const Shape shape(std::span<const std::int64_t>(dims), dtype);
  return {std::move(array), shape, strides, false};
}

std::string kind_of(nb::handle object) {
  return object.is_none()
             ? "None"
             : "an object of type " + nb::cast<std::string>(object.type().attr("__name__"));
}

/// numpy's array, dense where a stride is no multiple of an element, as of a field of a structure: DLPack has no such.
nb::object with_whole_strides(const nb::module_& numpy, const nb::object& array) {
  const auto item = nb::cast<std::int64_t>(array.attr("itemsize"));
  for (const nb::handle stride : nb::borrow<nb::tuple>(array.attr("strides"))) {
    if (item > 0 && nb::cast<std::int64_t>(stride) % item != 0) {
      return numpy.attr("ascontiguousarray")(array);
    }
  }
  return array;
}

/// torch's tensor with what it only notes, a conjugation or a negation, computed: DLPack has no
/// word for them.
nb::object resolved(nb::handle object) {
  if (!nb::hasattr(object, "resolve_conj")) return nb::borrow(object);
  return object.attr("resolve_conj")().attr("resolve_neg")();
}

/// Whether the object gives out its memory as an array does. Of other objects with Python's buffers, such as arrays of
/// ctypes and dates of numpy, nanobind reads formats that it does not know: numpy reads those first.
bool gives_out_memory(nb::handle object) {
  return nb::hasattr(object, "__dlpack__") || PyBytes_Check(object.ptr());
}

/// Integers of Python's, some of them beyond i64, which numpy makes f64 of: as u64.
nb::object large_integers(const nb::module_& numpy, nb::handle list, const nb::object& array) {
  if (!nb::bool_(array.attr("__ge__")(0x1p63).attr("any")())) return array;
  const nb::object objects = numpy.attr("asarray")(list, "O").attr("ravel")();
  for (const nb::handle one : objects) {
    if (PyLong_Check(one.ptr()) == 0) return array;
  }
  try {
    return numpy.attr("asarray")(list, "uint64");
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_OverflowError)) throw;
    throw Error(Errc::unsupported_dtype, "array",
                "integers below 0 and beyond 2^63 - 1, which no type holds together");
  }
}

/// numpy's array of numbers, lists and of types that it does not give out by itself.
Imported imported(nb::handle object, std::optional<DType> dtype) {
  nb::ndarray<nb::ro> given;
  if (gives_out_memory(object) && nb::try_cast(resolved(object), given, false)) {
    require_on_cpu(given);
    const DType type = from_dlpack(given.dtype());
    return imported(std::move(given), type);
  }
  const nb::module_ numpy = nb::module_::import_("numpy");
  nb::object array;
  try {
    array = numpy.attr("asarray")(object);
  } catch (nb::python_error& error) {  // lists of different lengths, for example
    if (!error.matches(PyExc_ValueError)) throw;
    throw Error(Errc::bad_argument, "array",
                fmt::format("{} is no array: {}", kind_of(object),
                            nb::cast<std::string>(nb::str(error.value()))));
  }
  auto type_name = nb::cast<std::string>(array.attr("dtype").attr("name"));
  const bool is_list =
      PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) || PyRange_Check(object.ptr());
  if (is_list && type_name == "float64" && !(dtype && is_floating(*dtype))) {
    array = large_integers(numpy, object, array);
    type_name = nb::cast<std::string>(array.attr("dtype").attr("name"));
  }
  for (const DType narrow : {DType::bf16, DType::f8_e4m3, DType::f8_e5m2}) {
    if (type_name != numpy_name(narrow)) continue;
    const char* bits = bits_of(narrow) == 16 ? "uint16" : "uint8";
    return imported(nb::cast<nb::ndarray<nb::ro>>(array.attr("view")(bits)), narrow);
  }
  // Python's floats are f32 here: f64 is asked for by numpy arrays, or by name.
  if (!dtype && !nb::hasattr(object, "dtype")) {
    if (type_name == "float64") array = array.attr("astype")("float32");
    if (type_name == "complex128") array = array.attr("astype")("complex64");
  }
  if (!nb::cast<bool>(array.attr("dtype").attr("isnative"))) {
    array = array.attr("astype")(array.attr("dtype").attr("newbyteorder")("="));
  }
  nb::ndarray<nb::ro> view;
  if (!nb::try_cast(array, view, false)) array = with_whole_strides(numpy, array);
  if (!view.is_valid() && !nb::try_cast(array, view, false)) {
    if (!nb::hasattr(object, "dtype") && (type_name == "object" || type_name.starts_with("str"))) {
      throw Error(Errc::unsupported_dtype, "array",
                  fmt::format("{} is no array of numbers", kind_of(object)));
    }
    throw Error(Errc::unsupported_dtype, "array",
                fmt::format("numpy's type {} has no element type here", type_name));
  }
  const DType type = from_dlpack(view.dtype());
  Imported made = imported(std::move(view), type);
  made.is_copy = is_list || (PyNumber_Check(object.ptr()) != 0 && !nb::hasattr(object, "dtype"));
  return made;
}

HostBuffer host_view_of(Imported&& source) {
  const void* const bytes = source.array.data();
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes) %
                              static_cast<std::uintptr_t>(block_bytes(source.shape.dtype())) ==
                          0;
  if (!source.is_copy && is_aligned && is_contiguous(source.shape, source.strides)) {
    return HostBuffer::mapped(bytes, source.shape, keeper(std::move(source.array)));
  }
  // Of others the elements are read now.
  return HostBuffer::borrow(const_cast<void*>(bytes), source.shape, source.strides).contiguous();
}

/// An array on a CUDA device, where `object` is one of another library: it shares the memory, and
/// keeps the other array alive. What filled it has ended.
std::optional<Buffer> from_cuda(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack_device__")) return std::nullopt;
  const auto [type, number] = nb::cast<std::pair<int, int>>(object.attr("__dlpack_device__")());
  if (type != nb::device::cuda::value) return std::nullopt;
  const DevicePtr device = cuda_device(number);
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(resolved(object), array, false)) {
    throw Error(Errc::unsupported, "array", "DLPack does not give out this array");
  }
  const DType dtype = from_dlpack(array.dtype());
  Imported source = imported(std::move(array), dtype);
  if (!is_contiguous(source.shape, source.strides)) {
    throw Error(
        Errc::unsupported, "array",
        fmt::format("{} on a GPU with strides: make it contiguous first", to_string(source.shape)));
  }
  MemRegion& region = device->default_mem_region();
  const auto bytes = static_cast<std::uint64_t>(source.shape.bytes());
  if (bytes == 0) return Buffer::allocate(source.shape, region);
  const MemPtr begin(
      static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(source.array.data())));
  std::shared_ptr<const void> keep = keeper(std::move(source.array));
  {
    const nb::gil_scoped_release no_gil;
    synchronize_cuda(*device);
  }
  // The same array again is the same memory.
  if (std::optional<MemChunk> known = region.chunk(begin, bytes)) {
    return Buffer(source.shape, std::move(*known));
  }
  return Buffer(source.shape,
                region.malloc_at(begin, bytes, [keep = std::move(keep)](const MemPtr&) {}));
}

/// What keeps an array alive that another library reads on a CUDA device. Its work there has ended
/// before the memory is reused.
struct Lent {
  explicit Lent(Buffer buffer) : array(std::move(buffer)) {}
  Lent(Lent&& other) noexcept = default;
  ~Lent() {
    if (!array.has_data()) return;
    try {
      const nb::gil_scoped_release no_gil;
      synchronize_cuda(array.region().device());
    } catch (const std::exception&) {  // the device failed: nothing works on it any more
    }
  }
  Buffer array;
};

struct DlpackDevice {
  int type = nb::device::cpu::value;
  int number = 0;
};

template <class... Config>
nb::object exported(void* data, const Shape& shape, const Strides& strides, nb::handle owner,
                    const DlpackDevice& device = {}) {
  std::array<std::size_t, max_rank> sizes{};
  std::array<std::int64_t, max_rank> steps{};
  const std::int64_t item = block_bytes(shape.dtype());
  for (int i = 0; i < shape.rank(); ++i) {
    const auto axis = static_cast<std::size_t>(i);
    sizes[axis] = static_cast<std::size_t>(shape[i]);
    steps[axis] = strides[axis] / item;
  }
  return nb::cast(nb::ndarray<Config...>(data, static_cast<std::size_t>(shape.rank()), sizes.data(),
                                         owner, steps.data(), to_dlpack(shape.dtype()), device.type,
                                         device.number));
}

/// As an array of numpy's that shares the memory and keeps `owner` alive.
nb::object to_numpy(void* data, const Shape& shape, const Strides& strides, bool read_only,
                    nb::handle owner) {
  const DType dtype = shape.dtype();
  to_dlpack(dtype);  // refuses block types
  const bool is_narrow = dtype == DType::bf16 || dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2;
  Shape plain = shape;
  nb::object narrow;
  if (is_narrow) {
    try {
      narrow = nb::module_::import_("ml_dtypes").attr(numpy_name(dtype));
    } catch (nb::python_error&) {
      throw Error(Errc::unsupported, "numpy",
                  fmt::format("numpy has {} only with the package ml_dtypes: install that, or "
                              "convert the array, as by astype('f32')",
                              name(dtype)));
    }
    plain = shape.with_dtype(bits_of(dtype) == 16 ? DType::u16 : DType::u8);
  }
  nb::object array = read_only ? exported<nb::numpy, nb::ro>(data, plain, strides, owner)
                               : exported<nb::numpy>(data, plain, strides, owner);
  return is_narrow ? array.attr("view")(narrow) : array;
}

/// Complete, since the consumer knows no stream of ours: its own streams need not wait.
nb::object to_dlpack_on_cuda(const Buffer& array, int number) {
  {
    const nb::gil_scoped_release no_gil;
    array.wait();
  }
  const Shape& shape = array.shape();
  void* const data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(array.data().addr()));
  return exported<nb::array_api>(data, shape, dense_strides(shape), nb::cast(Lent(array)),
                                 {nb::device::cuda::value, number});
}

nb::object to_dlpack_object(void* data, const Shape& shape, const Strides& strides, bool read_only,
                            nb::handle owner) {
  return read_only ? exported<nb::array_api, nb::ro>(data, shape, strides, owner)
                   : exported<nb::array_api>(data, shape, strides, owner);
}

HostView waited_view(const Buffer& buffer) {
  const nb::gil_scoped_release no_gil;
  return buffer.host_view();
}

/// Whether others may see the memory of a buffer change under them: memory that it only wraps.
bool is_read_only(const Buffer& buffer) {
  if (!buffer.has_data() || !buffer.chunk().is_placed()) return false;
  return is_object(buffer.shape().dtype()) || !buffer.region().is_host() ||
         waited_host(buffer).is_read_only();
}

std::string text_of(const HostBuffer& array) {
  return is_block(array.shape().dtype()) || array.is_empty() ? to_string(array.shape())
                                                             : to_string(array);
}

/// What numpy and DLPack ask arrays for, and pickling, which keeps blocks as they are.
template <class Array>
void bind_protocols(nb::class_<Array>& type) {
  type.def("__reduce__", [](nb::handle self) {
    return nb::make_tuple(nb::type<Array>(),
                          nb::make_tuple(self.attr("tobytes")(), self.attr("type")));
  });
  type.def("__dlpack__", [](nb::handle self, nb::kwargs options) {
    const auto option = [&](const char* name) {
      return options.contains(name) ? nb::object(options[name]) : nb::none();
    };
    // Before DLPack 1.0 consumers cannot be told that memory is read only: they get a copy.
    const nb::object copy = option("copy"), version = option("max_version");
    const bool knows_read_only = !version.is_none() && nb::cast<int>(version[0]) >= 1;
    const bool is_on_cpu =
        nb::cast<int>(self.attr("__dlpack_device__")()[0]) == nb::device::cpu::value;
    const bool must_copy =
        is_on_cpu && !knows_read_only && nb::cast<bool>(self.attr("is_read_only"));
    if (must_copy && copy.is(nb::bool_(false))) {
      throw nb::buffer_error("memory that is read only, which DLPack says from 1.0 on");
    }
    if (!is_on_cpu || !(must_copy || copy.is(nb::bool_(true)))) {
      return self.attr("_dlpack")().attr("__dlpack__")(**options);
    }
    options["copy"] = nb::none();
    return self.attr("copy")().attr("_dlpack")().attr("__dlpack__")(**options);
  });
  type.def("__dlpack_device__", [](const Array& self) {
    if constexpr (std::is_same_v<Array, Buffer>) {
      if (const std::optional<int> number = cuda_number(self)) {
        return nb::make_tuple(nb::device::cuda::value, *number);
      }
    }
    return nb::make_tuple(nb::device::cpu::value, 0);
  });
  type.def(
      "__array__",
      [](nb::handle self, nb::handle dtype, nb::handle copy) {
        const nb::object array = self.attr("numpy")();
        bool is_copy = false;
        if constexpr (std::is_same_v<Array, Buffer>) {
          const auto& buffer = nb::cast<const Buffer&>(self);
          is_copy = buffer.has_data() && !buffer.region().is_host();
        }
        nb::object made = array;
        if (!dtype.is_none()) made = array.attr("astype")(dtype, nb::arg("copy") = false);
        is_copy = is_copy || !made.is(array);
        if (copy.is_none() || nb::cast<bool>(copy) == is_copy) return made;
        if (!is_copy) return nb::object(made.attr("copy")());
        throw nb::value_error("copy=False: another type, or memory that the CPU cannot address");
      },
      nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none());
}

/// The array of these bytes.
HostBuffer from_bytes(const nb::bytes& bytes, nb::handle type) {
  const Shape shape = to_shape(type);
  HostBuffer array = HostBuffer::uninitialized(shape);
  if (bytes.size() != static_cast<std::size_t>(shape.bytes())) {
    throw Error(Errc::bad_shape, "array",
                fmt::format("{} bytes for {}", bytes.size(), to_string(shape)));
  }
  if (bytes.size() > 0) std::memcpy(array.view().data, bytes.c_str(), bytes.size());
  return array;
}

nb::bytes dumped(const Buffer& self, const std::string& format) {
  std::ostringstream out;
  {
    const nb::gil_scoped_release no_gil;
    self.dump(out, format);
  }
  const std::string bytes = std::move(out).str();
  return nb::bytes(bytes.data(), bytes.size());
}

/// `where`: what the caller asked for, "bool" or "item".
nb::object to_number(const HostBuffer& number, const char* where = "item") {
  const DType dtype = number.shape().dtype();
  if (number.shape().elements() != 1 || is_block(dtype)) {
    const bool is_truth = std::string_view(where) == "bool" && number.shape().elements() > 1;
    throw Error(Errc::bad_shape, where,
                fmt::format("{} is not one number{}", to_string(number.shape()),
                            is_truth ? ": .any() or .all() says which of them are meant" : ""));
  }
  const HostBuffer dense = number.is_contiguous() ? number : number.contiguous();
  if (dtype == DType::boolean) return nb::bool_(load_as_int64(dtype, dense.bytes()) != 0);
  if (dtype == DType::u64) {
    std::uint64_t value = 0;
    std::memcpy(&value, dense.bytes(), sizeof(value));
    return nb::int_(value);
  }
  if (is_integer(dtype)) return nb::int_(load_as_int64(dtype, dense.bytes()));
  if (is_complex(dtype)) {
    complex64 value{};
    std::memcpy(&value, dense.bytes(), sizeof(value));
    return nb::steal(PyComplex_FromDoubles(value.real, value.imag));
  }
  return nb::float_(load_as_double(dtype, dense.bytes()));
}

/// Of an array of one number, as the kind that Python asks for: float(x), int(x). Complex numbers are refused.
template <class Kind>
nb::object as_python(const HostBuffer& array, const char* where) {
  const nb::object number = to_number(array, where);
  if (PyComplex_Check(number.ptr()) != 0) {
    throw nb::type_error(
        fmt::format("{} is complex: complex(x), or x.real", to_string(array.shape())).c_str());
  }
  return Kind(number);
}

/// What arrays of either kind have as numbers.
template <class Array, class Host>
void bind_numbers(nb::class_<Array>& type, Host host) {
  type.def(
      "item", [host](const Array& self) { return to_number(host(self)); },
      "The number of an array of one element");
  type.def(
      "item",
      [](nb::handle self, const nb::args& at) { return self.attr("numpy")().attr("item")(*at); },
      "The number at one place, counted along all elements, or at one for each axis");
  type.def("__bool__", [host](const Array& self) {
    return nb::cast<bool>(nb::bool_(to_number(host(self), "bool")));
  });
  type.def("__float__",
           [host](const Array& self) { return as_python<nb::float_>(host(self), "float"); });
  type.def("__int__", [host](const Array& self) { return as_python<nb::int_>(host(self), "int"); });
  type.def("__complex__", [host](const Array& self) {
    nb::object number = to_number(host(self), "complex");
    if (PyComplex_Check(number.ptr()) != 0) return number;
    return nb::steal(PyComplex_FromDoubles(nb::cast<double>(nb::float_(number)), 0));
  });
}

/// What to() is given: an element type, a device, or a device's URL.
std::optional<DType> named_dtype(nb::handle target) {
  if (target.is_none() || nb::isinstance<Device>(target)) return std::nullopt;
  return find_dtype_of(target);
}

std::int64_t length_of(const Shape& shape) {
  if (shape.rank() == 0) throw nb::type_error("an array without axes has no length");
  return shape[0];
}

}  // namespace

HostBuffer to_host_buffer(nb::handle object) {
  if (nb::isinstance<HostBuffer>(object)) return nb::cast<HostBuffer>(object);
  if (nb::isinstance<Buffer>(object)) return waited_host(nb::cast<Buffer>(object));
  return host_view_of(imported(object, std::nullopt));
}

HostBuffer waited_host(const Buffer& buffer) {
  const Buffer held = buffer;  // Python may let go of it, or donate it, meanwhile
  const nb::gil_scoped_release no_gil;
  return held.to_host();
}

Buffer to_buffer(nb::handle object, std::optional<DType> dtype) {
  if (nb::isinstance<Buffer>(object)) return nb::cast<Buffer>(object);
  if (std::optional<Buffer> there = from_cuda(object)) return *std::move(there);
  if (std::optional<Buffer> made = object_to_buffer(object)) {
    // Python keeps its handle: what changes the object changes a copy.
    return is_linear_object(made->shape().dtype()) ? copied_object(*made) : *std::move(made);
  }
  const HostBuffer host = nb::isinstance<HostBuffer>(object)
                              ? nb::cast<HostBuffer>(object)
                              : host_view_of(imported(object, dtype));
  return host.to_device(cpu_device());
}

std::vector<Buffer> to_buffers(nb::handle sequence) {
  std::vector<Buffer> buffers;
  for (const nb::handle item : sequence) buffers.push_back(to_buffer(item));
  return buffers;
}

std::vector<std::pair<std::string, nb::object>> named_items(nb::handle mapping) {
  const auto fail = [&] {
    throw Error(Errc::bad_argument, "arrays",
                fmt::format("{} is no mapping from names to arrays", kind_of(mapping)));
  };
  if (mapping.is_none() || !nb::hasattr(mapping, "keys")) fail();
  std::vector<std::pair<std::string, nb::object>> items;
  for (const nb::handle key : mapping) {
    std::string name;
    if (!nb::try_cast(key, name)) fail();
    items.emplace_back(std::move(name), mapping[key]);
  }
  return items;
}

std::map<std::string, Buffer> to_named_buffers(nb::handle mapping) {
  std::map<std::string, Buffer> named;
  for (const auto& [name, array] : named_items(mapping)) named.emplace(name, to_buffer(array));
  return named;
}

void bind_arrays(nb::module_& module) {
  nb::class_<Lent>(module, "_Lent");
  auto host = nb::class_<HostBuffer>(
      module, "HostBuffer",
      "An array in CPU memory: its own, borrowed, or pages of a file, which are read only",
      nb::type_slots(operator_slots()));
  host.def(
      "__init__",
      [](HostBuffer* self, nb::handle array) { new (self) HostBuffer(to_host_buffer(array)); },
      nb::arg("array").none());
  host.def(
      "__init__",
      [](HostBuffer* self, const nb::bytes& bytes, nb::handle type) {
        new (self) HostBuffer(from_bytes(bytes, type));
      },
      nb::arg("bytes"), nb::arg("type"), "The array of these bytes, such as tobytes() gives");
  host.def_prop_ro("shape", [](const HostBuffer& self) { return to_tuple(self.shape()); });
  host.def_prop_ro("type", [](const HostBuffer& self) { return self.shape(); });
  host.def_prop_ro("dtype",
                   [](const HostBuffer& self) { return from_dtype(self.shape().dtype()); });
  host.def_prop_ro("ndim", [](const HostBuffer& self) { return self.shape().rank(); });
  host.def_prop_ro("nbytes", [](const HostBuffer& self) { return self.shape().bytes(); });
  host.def_prop_ro("is_read_only", &HostBuffer::is_read_only);
  host.def_prop_ro("is_contiguous", &HostBuffer::is_contiguous);
  host.def_prop_ro(
      "ownership",
      [](const HostBuffer& self) {
        constexpr std::array words = {"owned", "borrowed", "mapped"};
        return words[static_cast<std::size_t>(self.ownership())];
      },
      "\"owned\", \"borrowed\", or \"mapped\": pages of a file, or memory of another library");
  host.def(
      "numpy",
      [](nb::handle self) {
        const auto& array = nb::cast<const HostBuffer&>(self);
        return to_numpy(array.view().data, array.shape(), array.strides(), array.is_read_only(),
                        self);
      },
      "As an array of numpy's, which shares the memory");
  host.def("_dlpack", [](nb::handle self) {
    const auto& array = nb::cast<const HostBuffer&>(self);
    return to_dlpack_object(array.view().data, array.shape(), array.strides(), array.is_read_only(),
                            self);
  });
  host.def(
      "astype",
      [](const HostBuffer& self, nb::handle dtype) {
        const DType type = to_dtype(dtype);
        const nb::gil_scoped_release no_gil;
        return self.to(type);
      },
      nb::arg("dtype"), "A copy with another element type; from and to block types, too");
  host.def("contiguous", &HostBuffer::contiguous, "A dense copy");
  host.def(
      "tobytes",
      [](const HostBuffer& self) {
        const HostBuffer dense = self.is_contiguous() ? self : self.contiguous();
        return nb::bytes(dense.bytes(), static_cast<std::size_t>(dense.shape().bytes()));
      },
      "The bytes, row-major; of block types, their blocks");
  host.def(
      "to",
      [](const HostBuffer& self, nb::handle target) -> nb::object {
        if (const std::optional<DType> dtype = named_dtype(target)) {
          return nb::cast(self.to(*dtype));
        }
        return nb::cast(self.to_device(to_device(target)));
      },
      nb::arg("device"),
      "The array on a device, which shares the memory where that is the CPU's; or, as astype(), "
      "with another element type");
  host.def("__repr__", [](const HostBuffer& self) {
    return fmt::format("HostBuffer {}\n{}", to_string(self.shape()), text_of(self));
  });
  host.def("__len__", [](const HostBuffer& self) { return length_of(self.shape()); });
  bind_numbers(host, [](const HostBuffer& self) -> const HostBuffer& { return self; });
  bind_protocols(host);

  nb::class_<Donated>(module, "Donated", "An array that the next call may overwrite");
  auto buffer = nb::class_<Buffer>(module, "Buffer",
                                   "An array in the memory of a device. The work that fills it may "
                                   "still be running: reading waits for it",
                                   nb::type_slots(operator_slots()));
  buffer.def(
      "__init__",
      [](Buffer* self, const nb::bytes& bytes, nb::handle type) {
        new (self) Buffer(from_bytes(bytes, type).to_device(cpu_device()));
      },
      nb::arg("bytes"), nb::arg("type"), "The array of these bytes, such as tobytes() gives");
  buffer.def(
      "__init__",
      [](Buffer* self, nb::handle array, nb::handle dtype) {
        std::optional<DType> type;
        if (!dtype.is_none()) type = to_dtype(dtype);
        Buffer made = to_buffer(array, type);
        if (type && made.shape().dtype() != *type) {
          made = waited_host(made).to(*type).to_device(cpu_device());
        }
        new (self) Buffer(std::move(made));
      },
      nb::arg("array").none(), nb::arg("dtype") = nb::none());
  buffer.def_prop_ro("shape", [](const Buffer& self) { return to_tuple(self.shape()); });
  buffer.def_prop_ro("type", [](const Buffer& self) { return self.shape(); });
  buffer.def_prop_ro("dtype", [](const Buffer& self) { return from_dtype(self.shape().dtype()); });
  buffer.def_prop_ro("ndim", [](const Buffer& self) { return self.shape().rank(); });
  buffer.def_prop_ro("nbytes", [](const Buffer& self) { return self.shape().bytes(); });
  buffer.def_prop_ro("device",
                     [](const Buffer& self) { return self.region().device().shared_from_this(); });
  buffer.def_prop_ro(
      "region", [](const Buffer& self) { return self.region().name(); },
      "The name of the memory region on its device");
  buffer.def_prop_ro("is_read_only", &is_read_only,
                     "Whether the memory belongs to a file or another library");
  buffer.def_prop_ro("is_ready", &Buffer::is_ready,
                     "Whether the work that fills it has ended: reading will not wait");
  buffer.def(
      "wait",
      [](const Buffer& self, std::optional<double> timeout) {
        const auto limit = timeout ? std::optional(to_limit(*timeout)) : std::nullopt;
        const nb::gil_scoped_release no_gil;
        if (limit) return self.wait_for(*limit);
        self.wait();
        return true;
      },
      nb::arg("timeout") = nb::none(),
      "Waits until it is ready, at most `timeout` seconds; returns whether it is. Raises the error "
      "of the work");
  buffer.def(
      "numpy",
      [](nb::handle self) {
        const auto& array = nb::cast<const Buffer&>(self);
        if (array.has_data() && !array.region().is_host()) {
          return nb::cast(waited_host(array)).attr("numpy")();
        }
        const HostView view = waited_view(array);
        // With a handle of its own, since this one may be donated.
        return to_numpy(view.data, view.shape, view.strides, is_read_only(array),
                        nb::cast(Buffer(array)));
      },
      "As an array of numpy's: shares the memory where the CPU can address it");
  buffer.def("_dlpack", [](nb::handle self) {
    const auto& array = nb::cast<const Buffer&>(self);
    if (const std::optional<int> number = cuda_number(array)) {
      return to_dlpack_on_cuda(array, *number);
    }
    const HostView view = waited_view(array);
    return to_dlpack_object(view.data, view.shape, view.strides, is_read_only(array),
                            nb::cast(Buffer(array)));
  });
  buffer.def(
      "donate", [](nb::handle self) { return Donated{nb::borrow(self)}; },
      "For Session.forward: gives the array up, so that the call may overwrite its memory (a KV "
      "cache is then "
      "updated in place). The buffer is empty afterwards, unless the call raises an error");
  buffer.def("to_host", &waited_host,
             "The values in CPU memory: shared where the CPU can address them, else copied");
  const auto astype = [](const Buffer& self, DType type) {
    const nb::gil_scoped_release no_gil;
    return self.to_host().to(type).to_device(
        self.region().is_host() ? cpu_device() : self.region().device().shared_from_this());
  };
  buffer.def(
      "to",
      [astype](const Buffer& self, nb::handle target) {
        if (const std::optional<DType> dtype = named_dtype(target)) return astype(self, *dtype);
        const DevicePtr device = to_device(target);
        const nb::gil_scoped_release no_gil;
        return self.to(device->default_mem_region());
      },
      nb::arg("device"),
      "The array on a device: itself where it is there already; or, as astype(), with another "
      "element type");
  buffer.def(
      "astype",
      [astype](const Buffer& self, nb::handle dtype) { return astype(self, to_dtype(dtype)); },
      nb::arg("dtype"), "A copy with another element type; from and to block types, too");
  buffer.def(
      "tobytes", [](const Buffer& self) { return dumped(self, ""); },
      "The bytes as they lie in memory");
  buffer.def("dump", &dumped, nb::arg("format") = "",
             "The values as bytes; `format` as the C++ class's, such as \"SFT\"");
  buffer.def("__repr__", [](const Buffer& self) {
    if (!self.has_data()) return fmt::format("Buffer {} without memory", to_string(self.shape()));
    if (!self.is_ready()) return fmt::format("Buffer {} not ready", to_string(self.shape()));
    return fmt::format("Buffer {} on {}\n{}", to_string(self.shape()), self.region().device().url(),
                       text_of(waited_host(self)));
  });
  buffer.def("__len__", [](const Buffer& self) { return length_of(self.shape()); });
  bind_numbers(buffer, &waited_host);
  bind_protocols(buffer);
}

}  // namespace tenon::python
