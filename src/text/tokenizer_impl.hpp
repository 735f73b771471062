#pragma once

#include "recipe.hpp"
#include "subword_model.hpp"
#include "tables.hpp"
#include "token_matcher.hpp"

#include <tenon/fork_aware_mutex.hpp>
#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

class TokenPieces;

/// The state that copies of a tokenizer share. Never moved: it has pointers to its own members.
struct Tokenizer::Impl {
  /// With tables that were made before, where they are of this vocabulary.
  explicit Impl(Recipe completed, TokenizerTables kept = {});
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check(std::int32_t id) const;
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options) const;

  /// Appends a token's bytes. `at_start` says that nothing was decoded yet, and is cleared.
  void append_decoded(std::string& out, std::int32_t id, const DecodeOptions& options,
                      bool& at_start) const;

  bool is_eog(std::int32_t id) const;
  /// What tokens that end no generation add to a text; made when it is first asked for.
  std::shared_ptr<const TokenPieces> pieces() const;

  Recipe recipe;
  Tables tables;
  std::shared_ptr<const void> keeper;  ///< of tables that are kept
  std::unique_ptr<SubwordModel> model;
  TokenMatcher raw_tokens;                    ///< looked for in the text as it comes
  TokenMatcher normalized_tokens;             ///< looked for after normalisation
  std::vector<std::int32_t> ends_generation;  ///< sorted

 private:
  mutable ForkAwareMutex pieces_mutex_{"Tokenizer"};
  mutable std::shared_ptr<const TokenPieces> pieces_;
};

}  // namespace tenon::text
