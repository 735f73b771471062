#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Tokenization algorithms.
enum class TokenizerModel {
  bpe,        ///< byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM); GGUF calls it "gpt2"
  spm,        ///< BPE over characters ranked by score, bytes as fallback; GGUF calls it "llama"
  wordpiece,  ///< greedy longest match inside words (BERT); GGUF calls it "bert"
  unigram,    ///< the most probable sequence of pieces (T5, XLM-RoBERTa); GGUF calls it "t5"
  rwkv,       ///< greedy longest match over bytes (RWKV "world")
  plamo2,     ///< the most probable sequence of pieces, from right to left (PLaMo-2 and 3)
  hybriddna,  ///< bpe, and bases by six between <dna> and </dna>
  wordlevel,  ///< whole words; only in tokenizer.json files
};

/// A token's role; the numbers are those of GGUF's tokenizer.ggml.token_type.
enum class TokenType : std::int32_t {
  normal = 1,
  unknown = 2,       ///< replaces text that the vocabulary cannot represent
  control = 3,       ///< such as <bos>; matched in text only where a caller allows it
  user_defined = 4,  ///< always matched as a whole in text
  unused = 5,        ///< never produced
  byte = 6,          ///< "<0x0A>": one byte of a character that has no token of its own
};

/// Two adjacent tokens that BPE may merge into one. A merge's rank is its index.
struct Merge {
  std::string_view left;
  std::string_view right;
};

/// Parses GGUF's "left right"; the result views `line`. Errors: bad_tokenizer.
Merge parse_merge(std::string_view line);

/// How a token that is matched as a whole treats the text around it.
struct AddedToken {
  std::uint32_t id = 0;
  bool strip_left = false;   ///< also matches the white space before it
  bool strip_right = false;  ///< also matches the white space after it
  bool single_word = false;  ///< matches only without an adjacent word character
  bool normalized = false;   ///< is matched after normalisation instead of before
};

/// WordPiece's normalisation of text, as Hugging Face's BertNormalizer defines it.
struct BertOptions {
  bool clean_text = true;
  bool split_chinese = true;
  bool lowercase = true;
  std::optional<bool> strip_accents;     ///< unset: as lowercase
  std::string continuing_prefix = "##";  ///< marks a piece inside a word; GGUF files leave it out
  std::string word_prefix;               ///< marks a piece that starts a word; "▁" in GGUF files
  std::uint32_t max_word_chars = 100;    ///< longer words become the unknown token
};

/// The data of a tokenizer, from GGUF metadata or a tokenizer.json.
///
/// Views point into memory that `storage` keeps alive, or that outlives the tokenizer. The name in
/// brackets is the GGUF key after "tokenizer.ggml.".
struct Vocabulary {
  TokenizerModel model = TokenizerModel::bpe;  ///< [model]
  std::string pretokenizer = "default";        ///< [pre]; bpe only, see pretokenizer_names()

  std::vector<std::string_view> tokens;  ///< [tokens] in id order, unique; an empty one is no token
  std::vector<float> scores;             ///< [scores]; one per token: unigram, plamo2, and spm
                                         ///< without merges
  std::vector<TokenType> types;          ///< [token_type]; one per token, or empty: all normal
  std::vector<Merge> merges;             ///< [merges], best first
  std::vector<AddedToken> added;         ///< refines control and user-defined tokens

  std::optional<std::uint32_t> bos;   ///< [bos_token_id]; of wordpiece: the classifier token
  std::optional<std::uint32_t> eos;   ///< [eos_token_id]
  std::optional<std::uint32_t> eot;   ///< [eot_token_id], the end of a chat turn
  std::optional<std::uint32_t> unk;   ///< [unknown_token_id]
  std::optional<std::uint32_t> sep;   ///< [seperator_token_id] (spelled so in GGUF)
  std::optional<std::uint32_t> pad;   ///< [padding_token_id]
  std::optional<std::uint32_t> cls;   ///< [cls_token_id]
  std::optional<std::uint32_t> mask;  ///< [mask_token_id]
  std::vector<std::uint32_t> eog;     ///< further tokens that end a generation

  std::optional<bool> add_bos;  ///< [add_bos_token]; unset: spm, llama-bpe, wordpiece do
  std::optional<bool> add_eos;  ///< [add_eos_token]; unset: wordpiece (sep), unigram do
  /// [add_sep_token] between two texts, behind what ends the first; unset: some of RoBERTa's do
  std::optional<bool> add_sep;
  std::optional<bool> add_space_prefix;  ///< [add_space_prefix]; unset: spm does
  std::optional<bool> ignore_merges;     ///< whole words first; unset: llama-bpe does
  std::optional<bool> lowercase;         ///< [normalizer.lowercase]; "whitespace" only
  /// [remove_extra_whitespaces] unigram: no spaces at the ends, and one instead of several.
  std::optional<bool> remove_extra_spaces;
  /// [precompiled_charsmap] unigram: SentencePiece's replacements of characters.
  std::string_view precompiled_charsmap;
  BertOptions bert;  ///< wordpiece only

  std::shared_ptr<const void> storage;  ///< owner of the memory behind the views, or null
};

/// The pre-tokenizers that byte-level BPE knows, by their names in GGUF files, sorted.
std::vector<std::string_view> pretokenizer_names();

}  // namespace tenon::text
