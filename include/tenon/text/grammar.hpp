#pragma once

#include <tenon/held.hpp>
#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tenon::text {

/// The texts that a model may write: a context-free grammar in GBNF, the notation of llama.cpp.
///
///     root   ::= answer ("," ws answer)*    # a line holds a rule; "root" is where texts begin
///     answer ::= "yes" | "no" | [0-9]{1,3}
///     ws     ::= [ \t]?
///
/// Literals and sets of characters ([a-z], [^"\\], and . for any) with the escapes \n \r \t \\ \" \[ \] \xHH
/// \uHHHH \UHHHHHHHH, rules by name (letters, digits, - and _), ( ), |, and the repetitions * + ? {m} {m,} {m,n}.
/// A rule may go on in the next lines within parentheses, and where they begin with |.
///
/// A handle; immutable and thread-safe.
class Grammar {
 public:
  /// Errors, with line and column:
  ///
  ///   syntax          the text is not GBNF, or defines a rule twice
  ///   bad_encoding    the text is not UTF-8
  ///   bad_reference   a rule that is not defined, or no rule `root`
  ///   cycle           a rule that begins with itself, which no text could get past
  ///   depth_limit     more than 100 nested parentheses
  ///   limit_exceeded  more than 65536 repetitions, or a program of more than a million instructions
  ///   unsupported     <token> and !<token>
  static Grammar parse(std::string_view gbnf, std::string_view root = "root");

  /// The JSON texts that a schema allows; "{}" allows each. Members come in the schema's order; white
  /// space between values is at most a space, or a line break with spaces; docs/grammars.md lists the
  /// keywords, and where a grammar allows less than the schema.
  ///
  /// Errors: syntax, duplicate_name, depth_limit (malformed JSON), bad_type and bad_argument (a keyword's
  /// value that the specification excludes), bad_reference ($ref), unsupported (a keyword that restricts
  /// texts and is not implemented, by name), limit_exceeded.
  static Grammar from_json_schema(std::string_view schema);

  /// What it was made of, in GBNF.
  const std::string& text() const;

 private:
  friend class GrammarMatcher;
  struct Impl;
  explicit Grammar(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  tenon::detail::Held<const Impl, "Grammar"> impl_;
};

/// A text that grows, and what a grammar allows behind it. Works on bytes: a text may end within a
/// character. Not thread-safe; a moved-from one may only be assigned to and destroyed.
///
/// Each step from a set of positions in the grammar is computed once and kept, up to some megabytes.
/// Errc::limit_exceeded, from all of them, for a grammar that can be read in too many ways at once.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(const Grammar& grammar);
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  /// Adds `bytes` and returns true where the text may go on so; else it stays as it is.
  bool push(std::string_view bytes);
  /// Whether the text so far is one of the grammar's.
  bool may_end() const;
  /// Whether some byte may follow.
  bool may_continue() const;

 private:
  friend class TokenConstraint;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The tokens that a grammar allows behind those before: what masks a model's logits.
///
///     text::TokenConstraint constraint(grammar, model.tokenizer());
///     while (...) {
///       const auto allowed = constraint.allowed();  // bit i % 64 of word i / 64 is token i's
///       constraint.push(chosen);
///     }
///
/// A token stands for what StreamDecoder makes of it with these options. Tokens without text, such as control tokens that
/// are not DecodeOptions::kept, are never allowed, tokens that end a generation where the text may end. Not
/// thread-safe; moved as GrammarMatcher.
class TokenConstraint {
 public:
  /// The first one of a tokenizer puts its vocabulary in order, which copies of the tokenizer share.
  TokenConstraint(const Grammar& grammar, Tokenizer tokenizer, DecodeOptions options = {});
  TokenConstraint(TokenConstraint&&) noexcept;
  TokenConstraint& operator=(TokenConstraint&&) noexcept;
  ~TokenConstraint();

  /// A bit per token of the vocabulary, those beyond it 0; valid until the next call. Without any bit
  /// set, no token of this vocabulary can go on (or end) as the grammar wants. Errors: limit_exceeded.
  std::span<const std::uint64_t> allowed();
  /// Whether one token is allowed, without looking at the others. Errors: out_of_range, limit_exceeded.
  bool allows(std::int32_t id);
  /// Adds a token. Errors: bad_argument unless it is allowed, out_of_range, limit_exceeded.
  void push(std::int32_t id);
  /// Adds text that is no token, such as what a token has behind the text that a grammar begins after; false, and nothing
  /// changes, where the grammar does not allow it. What follows is not the beginning of a text.
  bool push(std::string_view bytes);

  /// As those of GrammarMatcher.
  bool may_end() const;
  bool may_continue() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::text
