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

/// Treatment of bytes that are not UTF-8.
enum class InvalidUtf8 {
  /// bpe, spm, rwkv and plamo2 keep the bytes, so that decode(encode(x)) == x; wordpiece drops them,
  /// unigram and wordlevel make them unknown.
  preserve,
  replace,  ///< each maximal ill-formed part becomes U+FFFD, as with Python's errors="replace"
};

/// A part of a text, in bytes: [begin, end).
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct EncodeOptions {
  bool add_special = true;    ///< add BOS, EOS, [CLS], [SEP] as the model requires
  bool parse_special = true;  ///< spellings of control tokens become those tokens
  InvalidUtf8 invalid_utf8 = InvalidUtf8::preserve;
  /// Ranges in which parse_special does not apply, ascending: the user's input in a prompt.
  std::span<const TextRange> plain = {};
};

struct DecodeOptions {
  bool skip_special = true;          ///< leave out control tokens
  std::vector<std::int32_t> kept{};  ///< but not these
};

/// The result of Tokenizer::tables(), for the next tokenizer of the same vocabulary.
struct TokenizerTables {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  ///< the bytes are valid as long as it
};

/// Converts text to token ids and back. Immutable and thread-safe; copies are cheap and share
/// everything. Use of a moved-from one throws Errc::call_order.
///
/// Results equal those of Hugging Face's `tokenizers`. Encoding takes O(n log n) time and O(n)
/// memory for n bytes of text, without recursion. A byte without a token becomes the unknown token
/// where the model defines one, and is dropped otherwise.
class Tokenizer {
 public:
  /// Checks and indexes a vocabulary.
  ///
  /// Errors: bad_tokenizer (tables that are empty or of different lengths, duplicate tokens, ids
  /// out of range, add_bos without a bos token, merges of unknown tokens), unsupported (an unknown
  /// pre-tokenizer).
  ///
  /// `kept` avoids the indexing: the result of tables() for a vocabulary with the same tokens,
  /// types and merges is used in place. Tables of another vocabulary or version, or not aligned to
  /// 8 bytes, are ignored. Every entry is range-checked: corrupted tables may give other ids, but
  /// no invalid memory access.
  explicit Tokenizer(Vocabulary vocabulary, TokenizerTables kept = {});

  /// Reads a Hugging Face tokenizer.json. Its truncation and padding settings are ignored.
  ///
  /// Errors: those above, syntax, duplicate_name, depth_limit (malformed JSON), not_found,
  /// io_error, limit_exceeded (a file beyond 256 MiB), unsupported (a component that is not
  /// implemented).
  static Tokenizer from_json(const std::filesystem::path& file);
  static Tokenizer from_json_text(std::string_view json, std::string_view where = "tokenizer.json");

  /// Errors: limit_exceeded (a text of 1 GiB or more).
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Two texts as one input, such as a query and a document: with add_special framed and separated as
  /// the tokenizer does it, "[CLS] first [SEP] second [SEP]" or "<s> first </s></s> second </s>".
  /// EncodeOptions::plain does not apply.
  ///
  /// Errors: limit_exceeded, as encode(); unsupported for a tokenizer.json whose template of pairs
  /// is missing, or no such frame.
  std::vector<std::int32_t> encode_pair(std::string_view first, std::string_view second,
                                        const EncodeOptions& options = {}) const;

  /// The bytes that the tokens spell; not always whole UTF-8 characters, see StreamDecoder.
  ///
  /// Errors: out_of_range (an id outside the vocabulary).
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;

  /// What one token adds to a text, e.g. " the" or the single byte of "<0x0A>".
  ///
  /// Errors: out_of_range.
  std::string piece(std::int32_t id) const;

  /// A token as the vocabulary spells it, e.g. "Ġthe". Valid as long as the tokenizer.
  std::string_view token(std::int32_t id) const;
  TokenType type(std::int32_t id) const;

  /// The id of a token by its spelling in the vocabulary.
  std::optional<std::int32_t> find(std::string_view token) const;

  /// The lookup tables of tokens and merges, to be kept for a later start: 16 to 32 bytes per
  /// token, 32 to 64 per merge.
  std::vector<std::byte> tables() const;
  /// Whether it uses the tables that the constructor was given.
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

  /// Whether a token ends a generation: eos, eot, and control tokens that end a turn.
  bool is_eog(std::int32_t id) const;

 private:
  friend class StreamDecoder;
  friend class TokenConstraint;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);

  tenon::detail::Held<const Impl, "Tokenizer"> impl_;
};

}  // namespace tenon::text
