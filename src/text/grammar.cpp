#include "grammar_automaton.hpp"
#include "grammar_program.hpp"
#include "grammar_syntax.hpp"
#include "json_schema.hpp"
#include "token_pieces.hpp"
#include "tokenizer_impl.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/text/grammar.hpp>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::text {

struct Grammar::Impl {
  std::string text;
  std::shared_ptr<const GrammarProgram> program;
};

Grammar Grammar::parse(std::string_view gbnf, std::string_view root) {
  return with_memory_errors("grammar", [&] {
    auto program =
        std::make_shared<const GrammarProgram>(compile_grammar(parse_grammar(gbnf, root)));
    return Grammar(std::make_shared<const Impl>(Impl{std::string(gbnf), std::move(program)}));
  });
}

Grammar Grammar::from_json_schema(std::string_view schema) {
  return with_memory_errors("JSON schema", [&] { return parse(grammar_of_json_schema(schema)); });
}

const std::string& Grammar::text() const { return impl_->text; }

struct GrammarMatcher::Impl {
  explicit Impl(std::shared_ptr<const GrammarProgram> program)
      : automaton(std::move(program)), state(automaton.start()) {}

  /// The state behind these bytes; GrammarAutomaton::none where they are not allowed.
  GrammarAutomaton::State after(std::string_view bytes) {
    GrammarAutomaton::State reached = state;
    for (const char byte : bytes) {
      reached = automaton.next(reached, static_cast<unsigned char>(byte));
      if (reached == GrammarAutomaton::none) break;
    }
    return reached;
  }

  bool push(std::string_view bytes) {
    automaton.trim({&state});
    GrammarAutomaton::State reached = state;
    for (const char byte : bytes) {
      reached = automaton.next(reached, static_cast<unsigned char>(byte));
      if (reached == GrammarAutomaton::none) return false;
      automaton.trim({&state, &reached});
    }
    state = reached;
    return true;
  }

  GrammarAutomaton automaton;
  GrammarAutomaton::State state;
};

GrammarMatcher::GrammarMatcher(const Grammar& grammar)
    : impl_(with_memory_errors("grammar",
                               [&] { return std::make_unique<Impl>(grammar.impl_->program); })) {}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;

bool GrammarMatcher::push(std::string_view bytes) {
  return with_memory_errors("grammar", [&] { return impl_->push(bytes); });
}
bool GrammarMatcher::may_end() const { return impl_->automaton.may_end(impl_->state); }
bool GrammarMatcher::may_continue() const { return impl_->automaton.may_continue(impl_->state); }

struct TokenConstraint::Impl {
  using State = GrammarAutomaton::State;
  static constexpr std::size_t kept_masks = 256;

  Impl(const Grammar& grammar, Tokenizer of, DecodeOptions with)
      : tokenizer(std::move(of)),
        options(std::move(with)),
        pieces(tokenizer.impl_->pieces()),
        matcher(grammar) {}

  GrammarMatcher::Impl& position() const { return *matcher.impl_; }

  /// What a token that ends no generation adds to the text.
  std::string spelling(std::int32_t id) const {
    std::string text;
    bool starts = at_start;
    tokenizer.impl_->append_decoded(text, id, options, starts);
    return text;
  }

  std::span<const std::uint64_t> allowed() {
    if (has_ended) return no_tokens();
    GrammarAutomaton& automaton = position().automaton;
    if (generation != automaton.generation() || masks.size() >= kept_masks) masks.clear();
    generation = automaton.generation();
    if (at_start) return mask = make_first_mask();
    const auto known = masks.find(position().state);
    if (known != masks.end()) return known->second;
    return masks.emplace(position().state, make_mask()).first->second;
  }

  std::vector<std::uint64_t> empty_mask() const {
    return std::vector<std::uint64_t>((tokenizer.vocab_size() + 63) / 64);
  }
  std::span<const std::uint64_t> no_tokens() { return mask = empty_mask(); }
  static void add(std::vector<std::uint64_t>& tokens, std::int32_t id) {
    tokens[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
  }
  void add_ends(std::vector<std::uint64_t>& tokens) const {
    if (!matcher.may_end()) return;
    for (const std::int32_t id : tokenizer.impl_->ends_generation) add(tokens, id);
  }

  /// Many tokenizers drop the space of the first token.
  std::vector<std::uint64_t> make_first_mask() {
    std::vector<std::uint64_t> tokens = make_mask();
    for (const std::int32_t id : pieces->other_at_start()) {
      const std::uint64_t bit = std::uint64_t{1} << (id % 64);
      std::uint64_t& word = tokens[static_cast<std::size_t>(id) / 64];
      word = is_text_allowed(id) ? word | bit : word & ~bit;
    }
    return tokens;
  }

  bool is_text_allowed(std::int32_t id) {
    const std::string text = spelling(id);
    return !text.empty() && position().after(text) != GrammarAutomaton::none;
  }

  /// Goes through all pieces in order, with the states behind the bytes of the one before: what pieces begin
  /// with in common is read once, and pieces that begin with what was refused are skipped.
  std::vector<std::uint64_t> make_mask() {
    GrammarAutomaton& automaton = position().automaton;
    std::vector<std::uint64_t> tokens = empty_mask();
    std::vector<State> states{position().state};  // behind so many bytes
    std::size_t refused = 0;                      // so many bytes are allowed, the next one is not
    bool is_refused = false;
    for (std::size_t i = 0; i < pieces->size(); ++i) {
      const std::size_t shared = (*pieces)[i].shared;
      if (is_refused && shared > refused) continue;
      const std::string_view text = pieces->text(i);
      states.resize(shared + 1);
      is_refused = false;
      for (std::size_t at = shared; at < text.size(); ++at) {
        const State next = automaton.next(states[at], static_cast<unsigned char>(text[at]));
        if (next == GrammarAutomaton::none) {
          is_refused = true;
          refused = at;
          break;
        }
        states.push_back(next);
      }
      if (!is_refused) add(tokens, (*pieces)[i].id);
    }
    for (const std::int32_t id : options.kept) {
      tokenizer.impl_->check(id);
      if (!tokenizer.is_eog(id) && is_text_allowed(id)) add(tokens, id);
    }
    add_ends(tokens);
    return tokens;
  }

  bool allows(std::int32_t id) {
    tokenizer.impl_->check(id);
    if (has_ended) return false;
    if (tokenizer.is_eog(id)) return matcher.may_end();
    return is_text_allowed(id);
  }

  void push(std::int32_t id) {
    tokenizer.impl_->check(id);
    const bool ends = tokenizer.is_eog(id);
    const std::string text = ends ? std::string() : spelling(id);
    const bool is_taken =
        !has_ended && (ends ? matcher.may_end() : !text.empty() && position().push(text));
    if (!is_taken) {
      throw Error(Errc::bad_argument, "grammar",
                  fmt::format("token {} (\"{}\") is not allowed here", id, tokenizer.token(id)));
    }
    has_ended = ends;
    at_start = false;
  }

  bool push(std::string_view bytes) {
    if (has_ended || (!bytes.empty() && !position().push(bytes))) return false;
    at_start = false;
    return true;
  }

  Tokenizer tokenizer;
  DecodeOptions options;
  std::shared_ptr<const TokenPieces> pieces;
  GrammarMatcher matcher;
  bool at_start = true;
  bool has_ended = false;
  std::unordered_map<State, std::vector<std::uint64_t>> masks;
  std::uint64_t generation = 0;  // of the states that have masks
  std::vector<std::uint64_t> mask;
};

TokenConstraint::TokenConstraint(const Grammar& grammar, Tokenizer tokenizer, DecodeOptions options)
    : impl_(with_memory_errors("grammar", [&] {
        return std::make_unique<Impl>(grammar, std::move(tokenizer), std::move(options));
      })) {}
TokenConstraint::TokenConstraint(TokenConstraint&&) noexcept = default;
TokenConstraint& TokenConstraint::operator=(TokenConstraint&&) noexcept = default;
TokenConstraint::~TokenConstraint() = default;

std::span<const std::uint64_t> TokenConstraint::allowed() {
  return with_memory_errors("grammar", [&] { return impl_->allowed(); });
}
bool TokenConstraint::allows(std::int32_t id) {
  return with_memory_errors("grammar", [&] { return impl_->allows(id); });
}
void TokenConstraint::push(std::int32_t id) {
  with_memory_errors("grammar", [&] { impl_->push(id); });
}
bool TokenConstraint::push(std::string_view bytes) {
  return with_memory_errors("grammar", [&] { return impl_->push(bytes); });
}
bool TokenConstraint::may_end() const { return !impl_->has_ended && impl_->matcher.may_end(); }
bool TokenConstraint::may_continue() const {
  return !impl_->has_ended && impl_->matcher.may_continue();
}

}  // namespace tenon::text
