#include "bindings.hpp"

#include <tenon/error.hpp>

#include <nanobind/stl/string.h>

namespace tenon::python {
namespace {

const char* class_name(ErrorClass error_class) noexcept {
  switch (error_class) {
    case ErrorClass::input:
      return "InputError";
    case ErrorClass::argument:
      return "ArgumentError";
    case ErrorClass::unsupported:
      return "UnsupportedError";
    case ErrorClass::machine:
      return "MachineError";
    case ErrorClass::ended_early:
      return "EndedEarlyError";
    case ErrorClass::internal:
      return "InternalError";
  }
  return "InternalError";
}

}  // namespace

// The classes are in tenon/errors.py, which needs no compiled part.
void bind_errors(nb::module_& module) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const nb::object type =
          nb::module_::import_("tenon.errors").attr(class_name(error_class(error.code())));
      const std::string_view code = spelling(error.code());
      const nb::object value = type(nb::str(code.data(), code.size()), number(error.code()),
                                    error.where(), error.message());
      PyErr_SetObject(type.ptr(), value.ptr());
    } catch (const std::bad_cast&) {
      const nb::object type = nb::module_::import_("tenon.errors").attr("ArgumentError");
      const Errc code = Errc::bad_argument;
      const std::string_view word = spelling(code);
      const nb::object value = type(
          nb::str(word.data(), word.size()), number(code), nb::str("tenon"),
          nb::str("an argument, or an item of one, has a type that is not taken here, such as a "
                  "sequence for a number, or is an integer out of range"));
      PyErr_SetObject(type.ptr(), value.ptr());
    }
  });
  nb::list codes;
#define TENON_ERRC(id, name, value, kind) codes.append(name);
#include <tenon/error_codes.def>
#undef TENON_ERRC
  module.attr("error_codes") = nb::tuple(codes);
  module.def(
      "_raise_error",
      [](const std::string& code, const std::string& where, const std::string& message) {
#define TENON_ERRC(id, name, value, kind) \
  if (code == (name)) throw Error(Errc::id, where, message);
#include <tenon/error_codes.def>
#undef TENON_ERRC
        throw Error(Errc::internal, where, "no error code '" + code + "'");
      },
      nb::arg("code"), nb::arg("where"), nb::arg("message"),
      "Raises the error of a code, by its spelling");
}

}  // namespace tenon::python
