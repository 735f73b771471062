// Objects as values of programs: those of the library's classes, and of the user's, which are Python's.

#include "bindings.hpp"

#include <tenon/error.hpp>
#include <tenon/nn/objects.hpp>
#include <tenon/object.hpp>
#include <tenon/text/objects.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

namespace tenon::python {
namespace {

/// An object of Python's. It may be released by a thread that does not hold the lock.
struct Held {
  explicit Held(nb::object given) : object(std::move(given)) {}
  Held(const Held&) = delete;
  ~Held() {
    drop_python([this] { object.reset(); });
    static_cast<void>(object.release());  // where it is too late for Python
  }
  nb::object object;
};

/// A registered class of Python's. Never freed, as the registration.
struct OwnClass {
  nb::object type;
  DType dtype{};
};

std::vector<OwnClass>& own_classes() {
  static auto* const classes = new std::vector<OwnClass>();
  return *classes;
}

const OwnClass* find_own(DType dtype) {
  for (const OwnClass& one : own_classes()) {
    if (one.dtype == dtype) return &one;
  }
  return nullptr;
}

std::shared_ptr<void> held(nb::object object) { return std::make_shared<Held>(std::move(object)); }

const nb::object& python_object(const void* object) {
  return static_cast<const Held*>(object)->object;
}

/// Registers a class; `copy`, `save` and `load` are Python functions or None.
ElementType register_class(nb::object type, std::string name, bool is_linear, nb::object copy,
                           nb::object save, nb::object load) {
  ObjectClass made;
  made.name = std::move(name);
  made.is_linear = is_linear;
  if (!copy.is_none()) {
    made.copy = [copy](const void* object) {
      const PythonCall call;
      return held(copy(python_object(object)));
    };
  }
  if (!save.is_none()) {
    made.save = [save](const void* object) {
      const PythonCall call;
      const auto bytes = nb::cast<nb::bytes>(save(python_object(object)));
      return std::string(bytes.c_str(), bytes.size());
    };
  }
  if (!load.is_none()) {
    made.load = [load](std::string_view bytes) {
      const PythonCall call;
      return held(load(nb::bytes(bytes.data(), bytes.size())));
    };
  }
  const DType dtype = register_object_class(std::move(made));
  own_classes().push_back({std::move(type), dtype});
  return {dtype};
}

template <class T>
std::optional<Buffer> library_buffer(nb::handle object) {
  if (!nb::isinstance<T>(object)) return std::nullopt;
  return object_buffer(nb::cast<std::shared_ptr<T>>(object));
}

nb::object as_python(DType dtype, const std::shared_ptr<void>& object) {
  if (find_own(dtype) != nullptr) return python_object(object.get());
  if (dtype == object_type<nn::Generator>()) {
    return nb::cast(std::static_pointer_cast<nn::Generator>(object));
  }
  if (dtype == object_type<nn::GrowingCache>()) {
    return nb::cast(std::static_pointer_cast<nn::GrowingCache>(object));
  }
  if (dtype == object_type<text::TokenizerObject>()) {
    return nb::cast(std::static_pointer_cast<text::TokenizerObject>(object)->tokenizer);
  }
  throw Error(Errc::unsupported, "Buffer",
              fmt::format("{} is a class that Python does not know", name(dtype)));
}

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

}  // namespace

std::optional<Buffer> object_to_buffer(nb::handle object) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) {  // an array is none of these
    if (auto made = library_buffer<nn::Generator>(object)) return made;
    if (auto made = library_buffer<nn::GrowingCache>(object)) return made;
    if (nb::isinstance<text::Tokenizer>(object)) {
      return object_buffer(text::TokenizerObject(nb::cast<text::Tokenizer>(object)));
    }
  }
  for (const OwnClass& one : own_classes()) {
    if (object.type().is(one.type)) {
      return object_buffer(one.dtype, held(nb::borrow(object)));
    }
  }
  return std::nullopt;
}

nb::object operand_object(const HostView& operand) {
  const DType dtype = operand.shape.dtype();
  if (find_own(dtype) != nullptr) return python_object(object_at(operand, dtype));
  if (dtype == object_type<nn::Generator>()) {
    return nb::cast(object_at<nn::Generator>(operand), nb::rv_policy::copy);
  }
  if (dtype == object_type<text::TokenizerObject>()) {
    return nb::cast(object_at<text::TokenizerObject>(operand).tokenizer);
  }
  throw Error(
      Errc::unsupported, "op",
      fmt::format("ops of Python's take objects of Python's classes, not a {}", name(dtype)));
}

void update_operand(const HostView& operand, const HostView& output, nb::object made) {
  const DType dtype = operand.shape.dtype();
  const OwnClass* const own = find_own(dtype);
  if (own == nullptr) {
    throw Error(
        Errc::unsupported, "op",
        fmt::format("ops of Python's update objects of Python's classes, not a {}", name(dtype)));
  }
  auto* const kept = static_cast<Held*>(update_object(operand, output, dtype));
  if (made.is_none()) return;
  if (!made.type().is(own->type)) {
    throw Error(Errc::bad_type, "op",
                fmt::format("the function returned {}, not the {} that it updates",
                            nb::cast<std::string>(nb::repr(made)), name(dtype)));
  }
  kept->object = std::move(made);
}

void bind_objects(nb::module_& module) {
  nn::register_objects();
  text::register_objects();

  auto generator = nb::class_<nn::Generator>(
      module, "Generator", "A generator of random numbers (MT19937) as a value of programs");
  generator.def(nb::init<std::uint32_t>(), nb::arg("seed"));
  generator.def("next_float", &nn::Generator::next_float,
                "The next number of [0, 1), as torch.rand() gives it on the CPU");
  generator.def("next_double", &nn::Generator::next_double,
                "The next number of [0, 1), as numpy's RandomState.random_sample() gives it");
  generator.def("skip", &nn::Generator::skip, nb::arg("words"));
  generator.def("__getstate__", [](const nn::Generator& self) { return to_bytes(self.save()); });
  generator.def("__setstate__", [](nn::Generator& self, const nb::bytes& bytes) {
    new (&self) nn::Generator(nn::Generator::load(view_of(bytes)));
  });

  auto cache = nb::class_<nn::GrowingCache>(
      module, "KvCache", "Keys and values of past positions, which grow, as a value of programs");
  cache.def(nb::init<std::int64_t>(), nb::arg("layers"));
  cache.def_prop_ro("layers", &nn::GrowingCache::layers);
  cache.def("length", &nn::GrowingCache::length, nb::arg("layer"), "Positions of a layer");
  cache.def("__getstate__", [](const nn::GrowingCache& self) { return to_bytes(self.save()); });
  cache.def("__setstate__", [](nn::GrowingCache& self, const nb::bytes& bytes) {
    new (&self) nn::GrowingCache(nn::GrowingCache::load(view_of(bytes)));
  });

  module.def("_register_class", &register_class, nb::arg("type"), nb::arg("name"),
             nb::arg("is_linear"), nb::arg("copy").none(), nb::arg("save").none(),
             nb::arg("load").none());
  module.def(
      "object_of",
      [](const Buffer& buffer) {
        const DType dtype = buffer.shape().dtype();
        std::shared_ptr<void> object;
        {
          const nb::gil_scoped_release no_gil;
          object = object_of(buffer, dtype);
        }
        return as_python(dtype, object);
      },
      nb::arg("buffer"), "The object of a result or of another buffer, after waiting for it");
  module.def(
      "object_buffer",
      [](nb::handle object) {
        if (std::optional<Buffer> made = object_to_buffer(object)) return *std::move(made);
        throw Error(Errc::bad_type, "object_buffer",
                    fmt::format("{} is an object of no registered class",
                                nb::cast<std::string>(nb::repr(object))));
      },
      nb::arg("object"),
      "An object as an input that shares it: a run to which the buffer is donated changes the "
      "object itself. Objects "
      "that are given as they are, are copied where a run changes them");
  module.def(
      "save_object", [](const Buffer& buffer) { return save_object(buffer); }, nb::arg("buffer"),
      "An object as bytes, u8[n]: what files have of it");
  module.def(
      "load_object",
      [](nb::handle dtype, nb::handle bytes) {
        return load_object(to_dtype(dtype), to_host_buffer(bytes));
      },
      nb::arg("dtype"), nb::arg("bytes"), "The object that save_object() made these bytes of");
  module.def(
      "object_types",
      [] {
        nb::list all;
        for (const DType dtype : object_types()) all.append(from_dtype(dtype));
        return all;
      },
      "The classes that are known, as element types");
}

}  // namespace tenon::python
