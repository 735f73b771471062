#pragma once

#include <tenon/buffer.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/models/language_model.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

namespace tenon::models {

/// Where a prompt that is read in pieces can be divided further without other results. On the CPU a row's numbers do
/// not depend on the rows beside it, but few rows are computed by other kernels than many, and attention within a
/// window by tiles of rows, which begin where the piece does.
struct PromptPieces {
  std::size_t chunk;  ///< tokens of a piece, but for the last one's
  std::size_t step;   ///< a piece is divided behind a multiple of these tokens; 0: nowhere
  std::size_t least;  ///< tokens of each part at least

  static PromptPieces of(const DecoderConfig& config, std::int64_t chunk);

  /// The most of `common` tokens, with which two prompts of these sizes begin, that both compute alike.
  std::size_t shared(std::size_t common, std::size_t kept, std::size_t prompt) const;
};

/// What prompts that were read have left in the cache, so that others which begin alike need not be read from the
/// beginning: memory of its own, the tokens' and no more. What was not used for longest is dropped first.
///
/// A prompt gives the same bits with and without, on the CPU: only what an answer has read in the pieces in which
/// generate() reads a prompt is kept, none of its own tokens, which are read one by one.
class KeptPrompts {
 public:
  KeptPrompts(LanguageModel model, std::uint64_t most_bytes);

  /// Fills a conversation without tokens with what some prompt has in common with this one, all but its last token at
  /// most. Returns how many tokens that is.
  std::size_t start(Conversation& conversation, std::span<const std::int32_t> prompt);
  /// Keeps a prompt: all that the conversation holds. Not where it does not fit the limit, or the memory.
  void keep(const Conversation& conversation);

 private:
  struct Kept {
    std::vector<std::int32_t> tokens;
    DecoderCache<Buffer> cache;  // of so many positions
    std::uint64_t bytes = 0;
  };
  using Place = std::list<Kept>::iterator;

  std::size_t shared(const Kept& kept, std::span<const std::int32_t> prompt) const;
  void add(const Conversation& conversation);
  void drop(Place place);

  LanguageModel model_;
  PromptPieces pieces_;
  std::uint64_t most_bytes_, bytes_ = 0;
  std::list<Kept> kept_;  // used last: at the front
};

}  // namespace tenon::models
