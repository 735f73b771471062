#include "kept_prompts.hpp"

#include "conversation_impl.hpp"
#include "used_cache.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace tenon::models {
namespace {

std::size_t common_size(std::span<const std::int32_t> one, std::span<const std::int32_t> other) {
  return static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
}

std::uint64_t bytes_of(const DecoderCache<Shape>& shapes) {
  std::uint64_t bytes = 0;
  visit_fields(shapes, [&](const std::string&, const Shape& shape) {
    bytes += static_cast<std::uint64_t>(shape.bytes());
  });
  return bytes;
}

}  // namespace

PromptPieces PromptPieces::of(const DecoderConfig& config, std::int64_t chunk) {
  // Every product and attention has its kernels of many rows for so many.
  constexpr std::size_t many_rows = 32;
  // Attention has tiles of so many rows at most, a multiple of the smaller ones.
  constexpr std::size_t tile_rows = 128;
  const bool has_windows = config.window > 0 || config.attention_chunk > 0;
  PromptPieces pieces{.chunk = static_cast<std::size_t>(chunk), .step = 1, .least = many_rows};
  if (has_windows) pieces.step = tile_rows;
  // ALiBi's biases are counted from a piece's last token.
  if (config.max_alibi_bias != 0) pieces.step = 0;
  return pieces;
}

std::size_t PromptPieces::shared(std::size_t common, std::size_t kept, std::size_t prompt) const {
  common = std::min({common, kept, prompt - 1});
  const std::size_t begin = common / chunk * chunk;
  if (step == 0 || common == begin) return begin;
  // The pieces that the tokens behind `begin` belong to, without this division.
  const std::size_t in_kept = std::min(kept - begin, chunk);
  const std::size_t in_prompt = std::min(prompt - begin, chunk);
  if (in_kept < least || in_prompt < least) return begin;
  return begin + std::min(common - begin, in_prompt - least) / step * step;
}

KeptPrompts::KeptPrompts(LanguageModel model, std::uint64_t most_bytes)
    : model_(std::move(model)),
      pieces_(PromptPieces::of(model_.config(), model_.chunk())),
      most_bytes_(most_bytes) {}

std::size_t KeptPrompts::shared(const Kept& kept, std::span<const std::int32_t> prompt) const {
  const std::size_t size = kept.tokens.size();
  const std::size_t most = pieces_.shared(common_size(kept.tokens, prompt), size, prompt.size());
  // Where states only move on, they are those behind all of the tokens.
  return model_.config().is_recurrent() && most != size ? 0 : most;
}

std::size_t KeptPrompts::start(Conversation& conversation, std::span<const std::int32_t> prompt) {
  std::size_t most = 0;
  auto best = kept_.end();
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    const std::size_t size = shared(*kept, prompt);
    if (size > most) {
      most = size;
      best = kept;
    }
  }
  if (most == 0) return 0;
  conversation.impl_->fill(std::span(best->tokens).first(most), best->cache);
  kept_.splice(kept_.begin(), kept_, best);
  return most;
}

void KeptPrompts::keep(const Conversation& conversation) {
  const std::span<const std::int32_t> tokens = conversation.tokens();
  constexpr std::size_t endless = std::numeric_limits<std::size_t>::max();
  if (pieces_.shared(tokens.size(), tokens.size(), endless) == 0) return;
  // One that does not fit drops none that it begins with.
  if (bytes_of(model_.impl_->cache_shapes(conversation.position())) > most_bytes_) return;
  const auto begins_with = [](std::span<const std::int32_t> one,
                              std::span<const std::int32_t> other) {
    return common_size(one, other) == other.size();
  };
  const bool moves_on = model_.config().is_recurrent();
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const bool is_same = kept->tokens.size() == tokens.size();
    if ((is_same || !moves_on) && begins_with(kept->tokens, tokens)) {
      kept_.splice(kept_.begin(), kept_, kept);
      return;
    }
    const auto next = std::next(kept);
    if (!moves_on && begins_with(tokens, kept->tokens)) drop(kept);
    kept = next;
  }
  try {
    add(conversation);
  } catch (const Error& error) {
    if (error.code() != Errc::out_of_memory && error.code() != Errc::out_of_device_memory) throw;
  } catch (const std::bad_alloc&) {
  }
}

void KeptPrompts::add(const Conversation& conversation) {
  const LanguageModel::Impl& model = *model_.impl_;
  const std::uint64_t bytes = bytes_of(model.cache_shapes(conversation.position()));
  while (bytes_ + bytes > most_bytes_) drop(std::prev(kept_.end()));
  std::list<Kept> made(1);
  Kept& kept = made.front();
  const auto tokens = conversation.tokens();
  kept.tokens.assign(tokens.begin(), tokens.end());
  kept.cache = model.empty_cache(conversation.position());
  kept.bytes = bytes;
  conversation.impl_->copy_to(kept.cache);
  kept_.splice(kept_.begin(), made);
  bytes_ += bytes;
}

void KeptPrompts::drop(Place place) {
  bytes_ -= place->bytes;
  kept_.erase(place);
}

}  // namespace tenon::models
