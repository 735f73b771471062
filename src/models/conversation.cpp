#include "conversation_impl.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::models {
namespace {

// Logits of every position are large: rows at once so that they take at most this much.
constexpr std::int64_t all_logits_bytes = std::int64_t{64} << 20;

}  // namespace

Conversation Conversation::fork() const {
  return with_memory_errors("Conversation::fork", [&] {
    const Impl::Use use(*impl_);
    auto made = Impl::make(impl_->model);
    made->tokens = impl_->tokens;
    made->images = impl_->images;
    copy_parts(impl_->used(), made->used());
    return Conversation(std::move(made));
  });
}

void Conversation::save(const std::filesystem::path& path) const {
  with_memory_errors(path.native(), [&] {
    const Impl::Use use(*impl_);
    write_conversation(path, impl_->model->origin(), capacity(), impl_->tokens, impl_->images,
                       impl_->used());
  });
}

std::span<const float> Conversation::read(std::span<const std::int32_t> tokens,
                                          const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read", [&] {
    const Impl::Use use(*impl_);  // also while the logits change
    impl_->check(tokens);
    impl_->logits = impl_->steps(impl_->next, tokens, interrupt).logits.to_host();
    return impl_->logits.values<float>();
  });
}

std::int32_t Conversation::read_greedy(std::span<const std::int32_t> tokens,
                                       const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_greedy", [&] {
    const std::int32_t best = impl_->most_probable(tokens, interrupt);
    if (best >= 0) return best;
    throw Error(Errc::bad_input, "Conversation", "no logit is a number");
  });
}

std::int32_t Conversation::read_sampled(std::span<const std::int32_t> tokens,
                                        const nn::SamplerOptions& sampler,
                                        std::span<const std::int32_t> history,
                                        const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_sampled", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    return impl_->sample(tokens, sampler, history, interrupt);
  });
}

void Conversation::read_all(std::span<const std::int32_t> tokens,
                            const std::function<void(std::span<const float>, std::int64_t)>& take,
                            const Interrupt& interrupt) {
  with_memory_errors("Conversation::read_all", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    LanguageModel::Impl& model = *impl_->model;
    const std::int64_t rows = std::clamp<std::int64_t>(
        all_logits_bytes / (model.config.vocabulary * 4), 1, model.options.chunk);
    auto& all = impl_->own(impl_->all, model.all,
                           std::min<std::int64_t>(rows, static_cast<std::int64_t>(tokens.size())));
    impl_->each_step(all, tokens, static_cast<std::size_t>(rows), interrupt,
                     [&](const auto& state, std::size_t count) {
                       const HostBuffer logits = state.logits.to_host();
                       take(logits.values<float>(), static_cast<std::int64_t>(count));
                     });
  });
}

std::span<const float> Conversation::read_all(std::span<const std::int32_t> tokens,
                                              const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_all", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    const LanguageModel::Impl& model = *impl_->model;
    auto& all = impl_->own(impl_->all, impl_->model->all, impl_->first_piece(tokens));
    const auto count = static_cast<std::int64_t>(tokens.size());
    const bool is_one = count <= model.options.chunk;
    HostBuffer whole;
    if (!is_one) whole = HostBuffer::uninitialized(Shape({count, model.config.vocabulary}, f32));
    std::size_t written = 0;
    impl_->each_step(all, tokens, static_cast<std::size_t>(model.options.chunk), interrupt,
                     [&](const auto& state, std::size_t) {
                       HostBuffer logits = state.logits.to_host();
                       if (is_one) {
                         whole = std::move(logits);
                         return;
                       }
                       const auto values = logits.template values<float>();
                       std::ranges::copy(values,
                                         whole.mutable_values<float>().subspan(written).begin());
                       written += values.size();
                     });
    impl_->logits = std::move(whole);
    return impl_->logits.values<float>();
  });
}

std::vector<std::int32_t> Conversation::read_all_greedy(std::span<const std::int32_t> tokens,
                                                        const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_all_greedy", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    auto& all_greedy =
        impl_->own(impl_->all_greedy, impl_->model->all_greedy, impl_->first_piece(tokens));
    std::vector<std::int32_t> chosen;
    impl_->each_step(all_greedy, tokens, static_cast<std::size_t>(impl_->model->options.chunk),
                     interrupt, [&](const auto& choice, std::size_t count) {
                       const std::vector<std::int32_t> some = chosen_tokens(choice, count);
                       chosen.insert(chosen.end(), some.begin(), some.end());
                     });
    return chosen;
  });
}

Conversation::Guess Conversation::read_guess(std::span<const std::int32_t> tokens,
                                             const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_guess", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    auto& guess = impl_->own(impl_->guess, impl_->model->guess, impl_->first_piece(tokens));
    auto made = impl_->steps(guess, tokens, interrupt);
    const float probability = made.probability.to_host().template values<float>()[0];
    return Guess{impl_->taken(std::move(made.token)), probability};
  });
}

std::span<const float> Conversation::read_embeddings(std::span<const float> rows,
                                                     RowAttention attention,
                                                     const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_embeddings", [&] {
    const Impl::Use use(*impl_);
    impl_->logits = impl_->read_rows(rows, attention, interrupt).logits.to_host();
    return impl_->logits.values<float>();
  });
}

std::span<const float> Conversation::read_image(std::span<const float> rows, const ImageGrid& grid,
                                                const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_image", [&] {
    const Impl::Use use(*impl_);
    impl_->logits = impl_->read_image(rows, grid, interrupt).logits.to_host();
    return impl_->logits.values<float>();
  });
}

std::span<const std::int32_t> Conversation::tokens() const { return impl_->tokens; }
std::int64_t Conversation::position() const { return impl_->position(); }
std::int64_t Conversation::capacity() const { return impl_->model->options.context; }
std::chrono::nanoseconds Conversation::plan_time() const { return impl_->plan_time; }

void Conversation::enable_time_profile(bool enable) {
  const Impl::Use use(*impl_);
  impl_->set_watch(enable, impl_->trace);
}
void Conversation::set_trace(std::shared_ptr<Trace> trace) {
  const Impl::Use use(*impl_);
  impl_->set_watch(impl_->profile, std::move(trace));
}
std::span<const StepTime> Conversation::step_times() const { return impl_->times; }

void Conversation::rewind(std::int64_t position) {
  const Impl::Use use(*impl_);
  if (position < 0 || position > impl_->position()) {
    throw Error(Errc::out_of_range, "Conversation::rewind",
                fmt::format("to {} of {} tokens", position, impl_->position()));
  }
  if (position != impl_->rewindable(position)) {
    const std::string why =
        impl_->model->config.is_recurrent()
            ? fmt::format("states of {} go back to 0 only", impl_->model->config.architecture)
            : fmt::format("it is among embeddings that were read at once, from {} on",
                          impl_->rewindable(position));
    throw Error(Errc::unsupported, "Conversation::rewind",
                fmt::format("to {} of {} tokens: {}", position, impl_->position(), why));
  }
  impl_->rewind(position);
}

std::int64_t Conversation::rewindable(std::int64_t position) const {
  return impl_->rewindable(position);
}

std::size_t Conversation::keep_prefix_of(std::span<const std::int32_t> tokens) {
  const Impl::Use use(*impl_);
  if (tokens.empty()) throw Error(Errc::bad_argument, "Conversation::keep_prefix_of", "no tokens");
  const auto [held, unused] = std::ranges::mismatch(
      impl_->tokens, tokens.first(tokens.size() - 1),
      [](std::int32_t one, std::int32_t other) { return one == other && one >= 0; });
  impl_->rewind(impl_->rewindable(held - impl_->tokens.begin()));
  return impl_->tokens.size();
}

bool Conversation::is_of(const LanguageModel& model) const {
  return impl_->model == model.impl_.shared();
}

LanguageModel Conversation::model() const { return LanguageModel(impl_->model); }

bool Conversation::is_same(const Conversation& other) const {
  return impl_.shared() == other.impl_.shared();
}

}  // namespace tenon::models
