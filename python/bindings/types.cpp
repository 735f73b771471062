#include "bindings.hpp"

#include <tenon/error.hpp>
#include <tenon/object.hpp>
#include <tenon/program.hpp>

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

namespace tenon::python {
namespace {

struct NumpyType {
  DType dtype;
  const char* name;
};

constexpr std::array numpy_types = {
    NumpyType{DType::boolean, "bool"},        NumpyType{DType::i8, "int8"},
    NumpyType{DType::i16, "int16"},           NumpyType{DType::i32, "int32"},
    NumpyType{DType::i64, "int64"},           NumpyType{DType::u8, "uint8"},
    NumpyType{DType::u16, "uint16"},          NumpyType{DType::u32, "uint32"},
    NumpyType{DType::u64, "uint64"},          NumpyType{DType::f16, "float16"},
    NumpyType{DType::bf16, "bfloat16"},       NumpyType{DType::f32, "float32"},
    NumpyType{DType::f64, "float64"},         NumpyType{DType::f8_e4m3, "float8_e4m3fn"},
    NumpyType{DType::f8_e5m2, "float8_e5m2"}, NumpyType{DType::c64, "complex64"},
};

std::optional<DType> find_type(std::string_view word) {
  if (const auto known = find_dtype(word)) return known;
  if (const auto object = find_object_type(word)) return object;
  for (const NumpyType& type : numpy_types) {
    if (word == type.name) return type.dtype;
  }
  return std::nullopt;
}

/// A name that programs may have, as sizes of inputs do.
bool is_identifier(std::string_view word) {
  const auto is_letter = [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return !word.empty() && is_letter(word[0]) &&
         std::ranges::all_of(word, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

/// A size as a text has it: a number, a name, or "_".
std::int64_t named_dim(const std::string& word, std::string_view text) {
  if (word == "_") return unknown_dim;
  if (!is_identifier(word)) {
    throw Error(Errc::bad_shape, "Shape",
                fmt::format("'{}' in '{}' is no size: a size is a number, a name, or _ where it is "
                            "not known",
                            word, text));
  }
  return symbol(Name(word));
}

std::int64_t to_dim(nb::handle object) {
  if (object.is_none()) return unknown_dim;
  if (!nb::isinstance<nb::str>(object)) return nb::cast<std::int64_t>(object);
  const auto word = nb::cast<std::string>(object);
  return named_dim(word, word);
}

nb::object from_dim(std::int64_t dim) {
  if (is_static(dim)) return nb::int_(dim);
  if (!is_symbol(dim)) return nb::none();
  const std::string_view name = symbol_name(dim).text();
  return nb::str(name.data(), name.size());
}

std::string_view without_spaces(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

/// The type of a text such as "f32[B, 64]", which programs spell in the same way.
Shape parsed_shape(const std::string& text) {
  const std::size_t bracket = text.find('[');
  const std::optional<DType> dtype = find_type(text.substr(0, bracket));
  const auto fail = [&] {
    throw Error(Errc::bad_shape, "Shape", fmt::format("'{}' is no type such as f32[B, 64]", text));
  };
  if (dtype && bracket == std::string::npos) return Shape({}, *dtype);
  if (!dtype || text.back() != ']') fail();
  std::vector<std::int64_t> dims;
  std::string_view rest = without_spaces(std::string_view(text).substr(bracket + 1));
  rest = without_spaces(rest.substr(0, rest.size() - 1));
  for (bool is_last = rest.empty(); !is_last;) {
    const std::size_t comma = rest.find(',');
    const std::string word(without_spaces(rest.substr(0, comma)));
    if (word.empty()) fail();
    const bool is_number =
        word.find_first_not_of("0123456789") == std::string::npos && word.size() < 19;
    dims.push_back(is_number ? std::stoll(word) : named_dim(word, text));
    is_last = comma == std::string::npos;
    if (!is_last) rest.remove_prefix(comma + 1);
  }
  return Shape(std::span<const std::int64_t>(dims), *dtype);
}

}  // namespace

const char* numpy_name(DType dtype) noexcept {
  for (const NumpyType& type : numpy_types) {
    if (dtype == type.dtype) return type.name;
  }
  return "";
}

nb::object from_dtype(DType dtype) { return nb::cast(ElementType{dtype}); }

namespace {

/// An object's element type where it has one, and what it is called.
std::optional<DType> find_dtype_of(nb::handle object, std::string& word) {
  if (nb::isinstance<ElementType>(object)) return nb::cast<ElementType>(object).dtype;
  if (nb::isinstance<nb::str>(object)) {
    word = nb::cast<std::string>(object);
  } else if (nb::hasattr(object, "__name__")) {  // numpy.float32, bool, float, int
    word = nb::cast<std::string>(object.attr("__name__"));
    if (word == "float") word = "float32";
    if (word == "int") word = "int64";
  } else if (nb::hasattr(object, "name")) {  // numpy.dtype
    word = nb::cast<std::string>(object.attr("name"));
  } else {
    word = nb::cast<std::string>(nb::str(object));
    if (const std::size_t dot = word.rfind('.'); dot != std::string::npos) {  // torch.float32
      word.erase(0, dot + 1);
    }
  }
  return find_type(word);
}

}  // namespace

std::optional<DType> find_dtype_of(nb::handle object) {
  std::string word;
  return find_dtype_of(object, word);
}

DType to_dtype(nb::handle object) {
  std::string word;
  if (const auto dtype = find_dtype_of(object, word)) return *dtype;
  // numpy counts bytes where types are numbers of bits here: its "i8" is i64.
  const bool is_code = word.size() == 2 && word.find_first_of("1248", 1) == 1;
  const std::string meant = is_code ? fmt::format("{}{}", word[0], 8 * (word[1] - '0')) : "";
  throw Error(Errc::bad_type, "dtype",
              fmt::format("'{}' is no element type{}", word,
                          find_type(meant) ? fmt::format(": numpy's is {} here", meant) : ""));
}

Shape to_shape(nb::handle object, DType dtype) {
  if (nb::isinstance<Shape>(object)) return nb::cast<Shape>(object);
  if (nb::isinstance<nb::str>(object)) return parsed_shape(nb::cast<std::string>(object));
  std::vector<std::int64_t> dims;
  if (nb::isinstance<nb::int_>(object)) {
    dims.push_back(nb::cast<std::int64_t>(object));
  } else {
    for (const nb::handle dim : object) {
      dims.push_back(to_dim(dim));
      if (nb::isinstance<nb::int_>(dim) && dims.back() < 0) {
        throw Error(Errc::bad_shape, "Shape", fmt::format("{} is no size", dims.back()));
      }
    }
  }
  return Shape(std::span<const std::int64_t>(dims), dtype);
}

nb::tuple to_tuple(const Shape& shape) {
  nb::list dims;
  for (const std::int64_t dim : shape.dims()) dims.append(from_dim(dim));
  return nb::tuple(dims);
}

AttributeValue to_attribute(nb::handle object) {
  if (nb::isinstance<nb::bool_>(object)) return nb::cast<bool>(object);
  if (nb::isinstance<nb::int_>(object)) return nb::cast<std::int64_t>(object);
  if (nb::isinstance<nb::float_>(object)) return nb::cast<double>(object);
  if (nb::isinstance<nb::str>(object)) return Name(nb::cast<std::string>(object));
  if (nb::isinstance<ElementType>(object)) return nb::cast<ElementType>(object).dtype;
  if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
    IntList values;
    for (const nb::handle item : object) values.push_back(to_dim(item));
    return values;
  }
  const auto number = [](PyObject* made) {  // null where Python has raised an error
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
  };
  if (nb::hasattr(object, "__index__")) {  // numpy's integers
    return nb::cast<std::int64_t>(number(PyNumber_Index(object.ptr())));
  }
  if (nb::hasattr(object, "__float__") && !nb::hasattr(object, "shape")) {
    return nb::cast<double>(number(PyNumber_Float(object.ptr())));
  }
  return to_dtype(object);
}

nb::object from_attribute(const AttributeValue& value) {
  return std::visit(
      [](const auto& held) -> nb::object {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, Name>) {
          return nb::str(held.text().data(), held.text().size());
        } else if constexpr (std::is_same_v<T, IntList>) {
          nb::list items;
          for (const std::int64_t item : held) items.append(from_dim(item));
          return nb::tuple(items);
        } else if constexpr (std::is_same_v<T, DType>) {
          return from_dtype(held);
        } else {
          return nb::cast(held);
        }
      },
      value);
}

void bind_types(nb::module_& module) {
  using Type = const ElementType&;
  auto dtype = nb::class_<ElementType>(module, "DType",
                                       "An element type. Text is one, too: tenon.f32 == \"f32\"");
  dtype.def("__init__",
            [](ElementType* self, nb::handle name) { new (self) ElementType{to_dtype(name)}; });
  dtype.def_prop_ro("name", [](Type self) { return std::string(name(self.dtype)); });
  dtype.def_prop_ro("is_block", [](Type self) { return is_block(self.dtype); });
  dtype.def_prop_ro("is_object", [](Type self) { return is_object(self.dtype); });
  dtype.def_prop_ro("is_floating", [](Type self) { return is_floating(self.dtype); });
  dtype.def_prop_ro(
      "block_size", [](Type self) { return block_size(self.dtype); },
      "Elements per block; 1 for plain types");
  dtype.def_prop_ro(
      "block_bytes", [](Type self) { return block_bytes(self.dtype); },
      "Bytes per block: of plain types, per element");
  dtype.def_prop_ro(
      "numpy_name", [](Type self) { return std::string(numpy_name(self.dtype)); },
      "What numpy or ml_dtypes calls it; empty for block types");
  dtype.def("__repr__", [](Type self) { return std::string(name(self.dtype)); });
  dtype.def("__hash__", [](Type self) { return nb::hash(nb::str(name(self.dtype).data())); });
  dtype.def(
      "__eq__",
      [](Type self, nb::handle other) {
        return !other.is_none() && find_dtype_of(other) == self.dtype;
      },
      nb::arg("other").none(), "Also of numpy's types, and of words");
  dtype.def("__reduce__", [](Type self) {
    return nb::make_tuple(nb::type<ElementType>(), nb::make_tuple(std::string(name(self.dtype))));
  });
  nb::list all;
  for (int i = 0; i < dtype_count; ++i) all.append(from_dtype(static_cast<DType>(i)));
  module.attr("dtypes") = nb::tuple(all);

  auto shape = nb::class_<Shape>(module, "Shape", "Sizes, outermost first, and an element type");
  shape.def(
      "__init__",
      [](Shape* self, nb::handle dims, nb::handle type) {
        new (self) Shape(to_shape(dims, to_dtype(type)));
      },
      nb::arg("dims"), nb::arg("dtype") = "f32",
      "Sizes as a sequence, where a word is a symbol and None unknown, or text: \"f32[B, 64]\"");
  shape.def_prop_ro("dims", &to_tuple);
  shape.def_prop_ro("dtype", [](const Shape& self) { return from_dtype(self.dtype()); });
  shape.def_prop_ro("rank", &Shape::rank);
  shape.def_prop_ro("is_static", &Shape::is_static, "Whether every size is known");
  shape.def_prop_ro("elements", &Shape::elements);
  shape.def_prop_ro("bytes", &Shape::bytes);
  shape.def("__repr__", [](const Shape& self) { return to_string(self); });
  shape.def(nb::self == nb::self);
  shape.def("__hash__",
            [](const Shape& self) { return std::hash<std::string>()(to_string(self)); });
  shape.def("__reduce__", [](const Shape& self) {
    return nb::make_tuple(nb::type<Shape>(),
                          nb::make_tuple(to_tuple(self), from_dtype(self.dtype())));
  });
}

}  // namespace tenon::python
