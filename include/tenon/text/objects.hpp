#pragma once

#include <tenon/attributes.hpp>
#include <tenon/object.hpp>
#include <tenon/op.hpp>
#include <tenon/tensor.hpp>
#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tenon::text {

/// A tokenizer as an object of a program (tenon/object.hpp), "Tokenizer" in texts: shared, so that it
/// may be a constant. Saved as the tokenizer.json that it was read from; one that was made of
/// another vocabulary, such as a GGUF file's, cannot be saved (Errc::unsupported).
struct TokenizerObject {
  explicit TokenizerObject(Tokenizer made) : tokenizer(std::move(made)) {}
  /// Reads a tokenizer.json; errors of Tokenizer::from_json_text().
  static TokenizerObject from_json_text(std::string_view json);

  Tokenizer tokenizer;
  std::string json{};
};

/// The ids of a text, as Tokenizer::encode() gives them.
///
/// Inputs    tokenizer: Tokenizer; text: u8[N], UTF-8
/// Output    ids: i32[capacity], `fill` behind the last
/// Attributes capacity; add_special and parse_special as in EncodeOptions; fill
/// Errors    C1 no Tokenizer                                Errc::bad_type
///           C2 text not u8[N]                              Errc::shape_mismatch
///           C3 a negative capacity                         Errc::bad_attribute
///           when run: more ids than the capacity           Errc::out_of_range
struct Tokenize {
  static constexpr std::string_view name = "tokenize";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.takes_objects = true};
  std::int64_t capacity = 0;
  bool add_special = true;
  bool parse_special = true;
  std::int64_t fill = -1;
  static constexpr auto fields = FieldList{
      field("capacity", &Tokenize::capacity), field("add_special", &Tokenize::add_special),
      field("parse_special", &Tokenize::parse_special), field("fill", &Tokenize::fill)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// The bytes that ids spell, as Tokenizer::decode() gives them.
///
/// Inputs    tokenizer: Tokenizer; ids: i32[S]; negative ones are left out
/// Output    text: u8[capacity], 0 behind the last byte
/// Attributes capacity; skip_special as in DecodeOptions
/// Errors    C1 no Tokenizer                                Errc::bad_type
///           C2 ids not i32[S]                              Errc::shape_mismatch
///           C3 a negative capacity                         Errc::bad_attribute
///           when run: an id outside of the vocabulary, more bytes than the capacity
///                                                          Errc::out_of_range
struct Detokenize {
  static constexpr std::string_view name = "detokenize";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.takes_objects = true};
  std::int64_t capacity = 0;
  bool skip_special = true;
  static constexpr auto fields = FieldList{field("capacity", &Detokenize::capacity),
                                           field("skip_special", &Detokenize::skip_special)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

Tensor tokenize(const Tensor& tokenizer, const Tensor& text, const Tokenize& attributes,
                const std::source_location& where = std::source_location::current());
Tensor detokenize(const Tensor& tokenizer, const Tensor& ids, const Detokenize& attributes,
                  const std::source_location& where = std::source_location::current());

/// A text as u8[N] in CPU memory, and back: without the zeros at its end, which detokenize() leaves.
/// Errc::bad_type for another array.
Buffer text_buffer(std::string_view text);
std::string text_of(const Buffer& buffer);

/// Makes the class "Tokenizer" and its ops known to programs. Doing so again does nothing.
void register_objects();

}  // namespace tenon::text
