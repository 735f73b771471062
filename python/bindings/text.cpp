#include "bindings.hpp"

#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/io/file.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/text/grammar.hpp>
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

namespace {

/// Text or bytes; a text may end within a character only as bytes.
std::string bytes_of(nb::handle text, std::string_view where) {
  if (nb::isinstance<nb::bytes>(text)) {
    const auto bytes = nb::borrow<nb::bytes>(text);
    return {bytes.c_str(), bytes.size()};
  }
  if (nb::isinstance<nb::str>(text)) return to_utf8(text, where, "the text");
  throw Error(Errc::bad_argument, std::string(where), "wanted is a text or bytes");
}

/// A schema as a text, or as json.dumps() writes it.
std::string schema_text(nb::handle schema) {
  if (nb::isinstance<nb::str>(schema)) return to_utf8(schema, "JSON schema", "the text");
  const nb::object text = nb::module_::import_("json").attr("dumps")(schema);
  return to_utf8(text, "JSON schema", "the text");
}

void bind_grammars(nb::module_& module) {
  using text::Grammar, text::GrammarMatcher, text::TokenConstraint;
  nb::class_<Grammar>(module, "Grammar", "The texts that a model may write, as llama.cpp's GBNF")
      .def_static(
          "parse",
          [](const nb::str& gbnf, const nb::str& root) {
            return Grammar::parse(to_utf8(gbnf, "grammar", "the text"),
                                  to_utf8(root, "grammar", "the rule"));
          },
          nb::arg("gbnf"), nb::arg("root") = "root")
      .def_static(
          "from_json_schema",
          [](nb::handle schema) { return Grammar::from_json_schema(schema_text(schema)); },
          nb::arg("schema"),
          "The JSON texts that a schema, a dict or a text, allows; {} allows each")
      .def_prop_ro("text", &Grammar::text, "What it was made of, in GBNF");
  nb::class_<GrammarMatcher>(module, "GrammarMatcher",
                             "A text that grows, and what a grammar allows behind it")
      .def(nb::init<const Grammar&>(), nb::arg("grammar"))
      .def(
          "push",
          [](GrammarMatcher& self, nb::handle text) {
            return self.push(bytes_of(text, "GrammarMatcher.push"));
          },
          nb::arg("text"),
          "Adds a text or bytes and returns True where the grammar allows it; else nothing changes")
      .def_prop_ro("may_end", &GrammarMatcher::may_end, "Whether the text may end")
      .def_prop_ro("may_continue", &GrammarMatcher::may_continue, "Whether a byte may follow");
  nb::class_<TokenConstraint>(module, "TokenConstraint",
                              "The tokens that a grammar allows behind those before")
      .def(
          "__init__",
          [](TokenConstraint* self, const Grammar& grammar, const text::Tokenizer& tokenizer) {
            new (self) TokenConstraint(grammar, tokenizer);
          },
          nb::arg("grammar"), nb::arg("tokenizer"), nb::keep_alive<1, 3>())
      .def(
          "allowed",
          [](TokenConstraint& self) {
            const auto words = self.allowed();
            HostBuffer flags =
                HostBuffer::zeros(Shape({static_cast<std::int64_t>(words.size()) * 64}, boolean));
            const auto values = flags.mutable_values<bool>();
            for (std::size_t i = 0; i < values.size(); ++i) {
              values[i] = ((words[i / 64] >> (i % 64)) & 1) != 0;
            }
            return nb::cast(std::move(flags)).attr("numpy")();
          },
          "An array of bool, one for each token, filled up with False to a multiple of 64")
      .def("allows", &TokenConstraint::allows, nb::arg("token"))
      .def("push", nb::overload_cast<std::int32_t>(&TokenConstraint::push), nb::arg("token"),
           "Adds a token; an error unless it is allowed")
      .def(
          "push",
          [](TokenConstraint& self, const nb::str& text) {
            return self.push(std::string_view(to_utf8(text, "push", "the text")));
          },
          nb::arg("text"), "Adds text that is no token; False where it is not allowed")
      .def_prop_ro("may_end", &TokenConstraint::may_end)
      .def_prop_ro("may_continue", &TokenConstraint::may_continue);
}

}  // namespace

void bind_text(nb::module_& module) {
  using text::Tokenizer;
  bind_grammars(module);
  auto tokenizer = nb::class_<Tokenizer>(module, "Tokenizer", "Text to token ids and back");
  tokenizer.def_static("from_json", &Tokenizer::from_json, nb::arg("path"),
                       "Reads a Hugging Face tokenizer.json");
  tokenizer.def_static(
      "from_file",
      [](const std::filesystem::path& path) {
        const nb::gil_scoped_release no_gil;
        if (path.extension() == ".json") return Tokenizer::from_json(path);
        return models::load_tokenizer(io::open(path));
      },
      nb::arg("path"),
      "The tokenizer of a model: a GGUF file, the tokenizer.json beside a safetensors file or in a "
      "folder, or a tokenizer.json");
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
      "encode_pair",
      [](const Tokenizer& self, const nb::str& first, const nb::str& second, bool add_special,
         bool parse_special) {
        const std::string one = to_utf8(first, "Tokenizer::encode_pair", "the first text");
        const std::string other = to_utf8(second, "Tokenizer::encode_pair", "the second text");
        const nb::gil_scoped_release no_gil;
        return self.encode_pair(one, other,
                                {.add_special = add_special, .parse_special = parse_special});
      },
      nb::arg("first"), nb::arg("second"), nb::arg("add_special") = true,
      nb::arg("parse_special") = true, "Two texts as one input, framed and separated");
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
