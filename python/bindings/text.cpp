#include "bindings.hpp"

#include <tenon/error.hpp>
#include <tenon/text/stream_decoder.hpp>
#include <tenon/text/tokenizer.hpp>

#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

/// Text of tokens, whose bytes need not be whole characters.
nb::str to_str(const std::string& bytes) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

}  // namespace

std::string to_utf8(nb::handle text, std::string_view where, std::string_view what) {
  Py_ssize_t size = 0;
  if (const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) {
    return {bytes, static_cast<std::size_t>(size)};
  }
  nb::python_error error;
  if (!error.matches(PyExc_UnicodeEncodeError)) throw error;
  const auto at = nb::cast<std::int64_t>(error.value().attr("start"));
  throw Error(Errc::bad_encoding, std::string(where),
              fmt::format("{} has a lone surrogate, half a character, at {}: "
                          "text.encode('utf-8', 'replace').decode() puts '?' there",
                          what, at));
}

void bind_text(nb::module_& module) {
  using text::Tokenizer;
  auto tokenizer = nb::class_<Tokenizer>(module, "Tokenizer", "Text to token ids and back");
  tokenizer.def_static("from_json", &Tokenizer::from_json, nb::arg("path"),
                       "Reads a Hugging Face tokenizer.json");
  tokenizer.def_static(
      "from_json_text", [](std::string_view json) { return Tokenizer::from_json_text(json); },
      nb::arg("json"));
  tokenizer.def(
      "encode",
      [](const Tokenizer& self, const nb::str& text, bool add_special, bool parse_special) {
        const std::string utf8 = to_utf8(text, "Tokenizer::encode", "the text");
        const nb::gil_scoped_release no_gil;
        return self.encode(utf8, {.add_special = add_special, .parse_special = parse_special});
      },
      nb::arg("text"), nb::arg("add_special") = true, nb::arg("parse_special") = true);
  tokenizer.def(
      "decode",
      [](const Tokenizer& self, const std::vector<std::int32_t>& ids, bool skip_special) {
        return to_str(self.decode(ids, {.skip_special = skip_special}));
      },
      nb::arg("ids"), nb::arg("skip_special") = true, "Bytes that are not UTF-8 become U+FFFD");
  tokenizer.def(
      "decode_bytes",
      [](const Tokenizer& self, const std::vector<std::int32_t>& ids, bool skip_special) {
        const std::string bytes = self.decode(ids, {.skip_special = skip_special});
        return nb::bytes(bytes.data(), bytes.size());
      },
      nb::arg("ids"), nb::arg("skip_special") = true);
  tokenizer.def(
      "piece",
      [](const Tokenizer& self, std::int32_t id) {
        const std::string bytes = self.piece(id);
        return nb::bytes(bytes.data(), bytes.size());
      },
      nb::arg("id"), "The bytes that one token adds to a text");
  tokenizer.def(
      "token",
      [](const Tokenizer& self, std::int32_t id) { return to_str(std::string(self.token(id))); },
      nb::arg("id"), "A token as the vocabulary spells it");
  tokenizer.def(
      "find", [](const Tokenizer& self, std::string_view token) { return self.find(token); },
      nb::arg("token"), "The id of a token by its spelling; None where there is none");
  tokenizer.def("__len__", &Tokenizer::vocab_size);
  tokenizer.def_prop_ro("bos", &Tokenizer::bos);
  tokenizer.def_prop_ro("eos", &Tokenizer::eos);
  tokenizer.def_prop_ro("eot", &Tokenizer::eot);
  tokenizer.def_prop_ro("unk", &Tokenizer::unk);
  tokenizer.def_prop_ro("sep", &Tokenizer::sep);
  tokenizer.def_prop_ro("pad", &Tokenizer::pad);
  tokenizer.def_prop_ro("cls", &Tokenizer::cls);
  tokenizer.def_prop_ro("mask", &Tokenizer::mask);
  tokenizer.def("is_eog", &Tokenizer::is_eog, nb::arg("id"), "Whether a token ends a generation");
}

}  // namespace tenon::python
