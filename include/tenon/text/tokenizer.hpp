#pragma once

#include <tenon/held.hpp>
#include <tenon/text/vocabulary.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// What happens to bytes that are not UTF-8.
enum class InvalidUtf8 {
  preserve,  ///< bpe and spm keep the bytes, so decode(encode(x)) gives them back; wordpiece drops
  replace,   ///< each maximal ill-formed part becomes U+FFFD, as Python's errors="replace" has it
};

/// A part of a text, in bytes: [begin, end).
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct EncodeOptions {
  bool add_special = true;    ///< put BOS, EOS, [CLS], [SEP] around the text as the model wants
  bool parse_special = true;  ///< spellings of control tokens become those tokens
  InvalidUtf8 invalid_utf8 = InvalidUtf8::preserve;
  /// Where parse_special does not reach, ascending: what a user typed into a prompt.
  std::span<const TextRange> plain = {};
};

struct DecodeOptions {
  bool skip_special = true;  ///< control tokens leave nothing behind
};

/// What Tokenizer::tables() gave, for the next tokenizer of the same vocabulary.
struct TokenizerTables {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  ///< the bytes are valid as long as it
};

/// Turns text into token ids and back. Immutable and safe to share between threads; copies are
/// cheap and share everything. One that was moved from: Errc::call_order.
///
/// Results equal Hugging Face's `tokenizers`. Encoding takes O(n log n) time and O(n) memory in the
/// text's bytes and no recursion. A byte that the vocabulary has no token for becomes the unknown
/// token where the model defines one and is dropped otherwise.
class Tokenizer {
 public:
  /// Checks and indexes a vocabulary.
  ///
  /// Errors: bad_tokenizer (empty or uneven tables, a text twice, ids out of range, add_bos without
  /// a bos token, merges of unknown tokens), unsupported (an unknown pre-tokenizer).
  ///
  /// `kept` spares it the indexing: tables that tables() gave for a vocabulary with the same
  /// tokens, types and merges are used where they lie. Others, of another version or not aligned to
  /// 8 bytes, are passed over. Bytes that have changed since may give other ids, nothing worse.
  explicit Tokenizer(Vocabulary vocabulary, TokenizerTables kept = {});

  /// Reads a Hugging Face tokenizer.json. Its truncation and padding settings are left to callers.
  ///
  /// Errors: those above, syntax, duplicate_name, depth_limit (malformed JSON), not_found,
  /// io_error, limit_exceeded (a file beyond 256 MiB), unsupported (a component that is not
  /// implemented).
  static Tokenizer from_json(const std::filesystem::path& file);
  static Tokenizer from_json_text(std::string_view json, std::string_view where = "tokenizer.json");

  /// Errors: limit_exceeded (a text of 1 GiB or more).
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// The bytes that the tokens spell; not always whole UTF-8 characters, see StreamDecoder.
  ///
  /// Errors: out_of_range (an id outside the vocabulary).
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;

  /// What one token adds to a text, e.g. " the" or the single byte of "<0x0A>".
  ///
  /// Errors: out_of_range.
  std::string piece(std::int32_t id) const;

  /// A token as the vocabulary spells it, e.g. "Ġthe". Lives as long as the tokenizer.
  std::string_view token(std::int32_t id) const;
  TokenType type(std::int32_t id) const;

  /// The id of a vocabulary spelling.
  std::optional<std::int32_t> find(std::string_view token) const;

  /// The tables that the tokenizer looks tokens and merges up in, to be kept: 16 to 32 bytes per
  /// token, 32 to 64 per merge.
  std::vector<std::byte> tables() const;
  /// Whether it was given tables that it uses.
  bool uses_kept_tables() const;

  std::size_t vocab_size() const;
  TokenizerModel model() const;

  std::optional<std::int32_t> bos() const;
  std::optional<std::int32_t> eos() const;
  std::optional<std::int32_t> eot() const;
  std::optional<std::int32_t> unk() const;
  std::optional<std::int32_t> sep() const;
  std::optional<std::int32_t> pad() const;
  std::optional<std::int32_t> cls() const;
  std::optional<std::int32_t> mask() const;

  /// Whether encode() with add_special starts a text with bos().
  bool adds_bos() const;

  /// Whether a token ends a generation: eos, eot, and control tokens known to close a turn.
  bool is_eog(std::int32_t id) const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);

  tenon::detail::Held<const Impl, "Tokenizer"> impl_;
};

}  // namespace tenon::text
