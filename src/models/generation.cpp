#include "generation.hpp"

#include <tenon/error.hpp>
#include <tenon/nn/token_sampling.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace tenon::models {
namespace {

/// The token that was drawn from these logits, and the `count` most probable ones, best first.
Generated::Choice choice_of(std::span<const float> logits, std::int32_t drawn, std::int64_t count) {
  const double normalizer = nn::log_sum_exp(logits);
  const auto entry = [&](std::int32_t id) -> Generated::LogProbability {
    return {id, static_cast<double>(logits[static_cast<std::size_t>(id)]) - normalizer};
  };
  Generated::Choice choice{entry(drawn), {}};
  for (const std::int32_t id : nn::top_k(logits, count)) choice.top.push_back(entry(id));
  return choice;
}

/// As Conversation::read_all_greedy(): the lowest id among equals, a NaN as the largest, -1 where all are NaN.
std::int32_t best_of(std::span<const float> logits) {
  const auto is_nan = [](float logit) { return std::isnan(logit); };
  auto best = std::ranges::find_if(logits, is_nan);
  if (best == logits.end()) {
    best = std::ranges::max_element(logits);
  } else if (std::ranges::all_of(logits, is_nan)) {
    return -1;
  }
  return static_cast<std::int32_t>(best - logits.begin());
}

void check_rows(const Shape& shape, std::int64_t width) {
  if (shape.rank() == 2 && shape[1] == width) return;
  throw Error(Errc::bad_shape, "generate",
              fmt::format("{}: wanted are embeddings [count, {}]", to_string(shape), width));
}

text::DecodeOptions decode_options(const text::Tokenizer& tokenizer,
                                   const GenerateOptions& options) {
  text::DecodeOptions decode;
  for (const std::string& spelling : options.preserved_tokens) {
    const std::optional<std::int32_t> id = tokenizer.find(spelling);
    if (id && tokenizer.type(*id) == text::TokenType::control) decode.kept.push_back(*id);
  }
  return decode;
}

}  // namespace

Generation::Generation(const LanguageModel& model, Conversation& conversation,
                       const GenerateOptions& options, const Emit& emit, EmitChoice emit_choice)
    : model_(model),
      conversation_(conversation),
      options_(options),
      emit_(emit),
      emit_choice_(std::move(emit_choice)),
      sampler_(options.sampler),
      decoder_(model.tokenizer(), decode_options(model.tokenizer(), options)),
      stop_text_(options.stop) {
  if (!conversation.is_of(model)) {
    throw Error(Errc::bad_argument, "generate", "the conversation is one of another model");
  }
  if (options.max_tokens < 0) {
    throw Error(Errc::bad_argument, "generate",
                fmt::format("max_tokens is {}, allowed: 0 and more", options.max_tokens));
  }
  if (options.logprobs && *options.logprobs < 0) {
    throw Error(Errc::bad_argument, "generate",
                fmt::format("logprobs is {}, allowed: 0 and more", *options.logprobs));
  }
  if (options.logprobs && options.sample_on_device) {
    throw Error(Errc::unsupported, "generate",
                "logprobs with sample_on_device: they are computed of logits on the host");
  }
  if (options.grammar && options.sample_on_device) {
    throw Error(Errc::unsupported, "generate",
                "a grammar with sample_on_device: it chooses among logits on the host");
  }
  if (options.sample_on_device) nn::check_in_program(options.sampler, "generate");
  for (const std::string& spelling : options.stop) {
    if (const auto id = model.tokenizer().find(spelling)) stop_tokens_.push_back(*id);
  }
  if (options.grammar) {
    constraint_.emplace(*options.grammar, model.tokenizer(),
                        decode_options(model.tokenizer(), options));
  }
  is_constrained_ = options.grammar_after.empty() && constraint_;
  if (!options.grammar_after.empty() && !constraint_) {
    throw Error(Errc::bad_argument, "generate", "grammar_after without a grammar");
  }
  if (std::ranges::any_of(options.grammar_after, &std::string::empty)) {
    throw Error(Errc::bad_argument, "generate", "an empty text of grammar_after");
  }
  check(options.draft);
  if (!options.draft.is_used()) return;
  if (samples_on_device()) {
    throw Error(Errc::unsupported, "generate",
                "drafts with sample_on_device: it draws one token a step");
  }
  drafter_.emplace(
      options.draft, model, conversation, [this](std::int32_t token) { return ends(token); },
      options.interrupt);
}

Generated Generation::run(std::span<const std::int32_t> prompt,
                          std::span<const PromptPart> beginning) {
  try {
    answer(prompt, beginning);
  } catch (...) {
    settle();
    throw;
  }
  settle();
  model_.file().check_pages();  // spellings of tokens are read from its pages
  return std::move(result_);
}

void Generation::start_history(std::span<const std::int32_t> prompt) {
  const auto held = conversation_.tokens();
  std::ranges::copy_if(held, std::back_inserter(history_),
                       [](std::int32_t id) { return id >= 0; });  // embeddings are none
  history_.insert(history_.end(), prompt.begin(), prompt.end());
}

void Generation::answer(std::span<const std::int32_t> prompt,
                        std::span<const PromptPart> beginning) {
  const std::int64_t before = conversation_.position();
  const auto plan_before = conversation_.plan_time();
  const auto start = Clock::now();
  std::optional<std::int32_t> token;
  if (read_parts(beginning)) {
    start_history(prompt);
    token = draw_after(prompt);
  }
  read_until_ = Clock::now();
  result_.prompt_tokens = conversation_.position() - before;
  result_.plan_time = conversation_.plan_time() - plan_before;
  result_.prefill_time = read_until_ - start - result_.plan_time;
  while (token && take(*token)) {
    token = draw_after({&*token, 1});
    result_.decode_time = Clock::now() - read_until_;
  }
  put_rest();
}

void Generation::check_stepwise() const {
  const auto refuse = [](std::string_view why) {
    throw Error(Errc::unsupported, "AnswerBatch", std::string(why));
  };
  if (drafter_) refuse("drafts: each answer reads one token a step");
  if (samples_on_device()) refuse("sample_on_device: tokens are drawn of logits on the host");
}

void Generation::begin(std::vector<std::int32_t> prompt, std::vector<PromptPart> beginning) {
  if (prompt.empty()) throw Error(Errc::bad_argument, "AnswerBatch", "a prompt without tokens");
  prompt_ = std::move(prompt);
  beginning_ = std::move(beginning);
}

void Generation::reuse(KeptPrompts& kept) {
  const bool is_first = prompt_read_ == 0 && beginning_.empty() && conversation_.position() == 0;
  if (!is_first) return;
  const auto start = Clock::now();
  prompt_read_ = kept.start(conversation_, prompt_);
  result_.reused_tokens = result_.prompt_tokens = static_cast<std::int64_t>(prompt_read_);
  result_.prefill_time += Clock::now() - start;
}

bool Generation::holds_prompt() const {
  return beginning_.empty() && std::ranges::equal(conversation_.tokens(), prompt_);
}

bool Generation::read_piece() {
  if (parts_read_ < beginning_.size()) {
    return read_parts(std::span(beginning_).subspan(parts_read_++, 1));
  }
  const auto rest = std::span<const std::int32_t>(prompt_).subspan(prompt_read_);
  if (static_cast<std::int64_t>(prompt_read_) == result_.reused_tokens) start_history(rest);
  const auto chunk = static_cast<std::size_t>(model_.chunk());
  const auto piece = rest.first(std::min(rest.size(), chunk - prompt_read_ % chunk));
  prompt_read_ += piece.size();
  return completes([&] { read(piece); });
}

bool Generation::read_prompt() {
  const std::int64_t before = conversation_.position();
  const auto plan_before = conversation_.plan_time();
  const auto start = Clock::now();
  const bool is_read = read_piece();
  read_until_ = Clock::now();
  const auto plan_time = conversation_.plan_time() - plan_before;
  result_.prompt_tokens += conversation_.position() - before;
  result_.plan_time += plan_time;
  result_.prefill_time += read_until_ - start - plan_time;
  return is_read && (has_prompt() || take_choice());
}

void Generation::draw_of(std::span<const float> logits) {
  logits_ = logits;
  if (is_greedy()) most_probable_ = {best_of(logits.first(model_.tokenizer().vocab_size()))};
  pending_ = choose();
}

bool Generation::take_drawn() {
  result_.decode_time = Clock::now() - read_until_;
  return take(pending_);
}

bool Generation::continue_with(std::int32_t most_probable) {
  most_probable_ = {most_probable};
  return take_choice();
}

bool Generation::take_choice() {
  pending_ = choose();
  return take_drawn();
}

bool Generation::check_interrupt() {
  return completes([&] { options_.interrupt.check("generate"); });
}

Generated Generation::finish() {
  put_rest();
  model_.file().check_pages();  // spellings of tokens are read from its pages
  return std::move(result_);
}

void Generation::put_rest() {
  put(stop_text_.push(decoder_.finish()));
  put(stop_text_.finish());
}

/// Whether `read` was not interrupted.
template <class Read>
bool Generation::completes(Read&& read) {
  try {
    std::forward<Read>(read)();
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::cancelled && error.code() != Errc::timeout) throw;
    result_.end =
        error.code() == Errc::cancelled ? Generated::End::cancelled : Generated::End::deadline;
    return false;
  }
}

/// Whether all parts were read.
bool Generation::read_parts(std::span<const PromptPart> parts) {
  return std::ranges::all_of(parts, [&](const PromptPart& part) {
    return completes([&] {
      if (part.rows.is_empty()) {
        conversation_.read(part.tokens, options_.interrupt);
      } else {
        const bool is_image = part.grid.embeddings() > 0;
        check_rows(part.rows.shape(),
                   is_image ? model_.config().image_row() : model_.config().width);
        const auto rows = part.rows.values<float>();
        if (is_image) {
          conversation_.read_image(rows, part.grid, options_.interrupt);
        } else {
          conversation_.read_embeddings(rows, part.attention, options_.interrupt);
        }
      }
    });
  });
}

std::optional<std::int32_t> Generation::draw_after(std::span<const std::int32_t> tokens) {
  std::optional<std::int32_t> token;
  completes([&] { token = draw(tokens); });
  return token;
}

bool Generation::is_greedy() const {
  return options_.sampler.is_greedy() && !options_.logprobs && !constraint_;
}

bool Generation::samples_on_device() const { return !is_greedy() && options_.sample_on_device; }

std::int32_t Generation::draw(std::span<const std::int32_t> tokens) {
  if (row_ < draft_.size() && tokens.size() == 1 && tokens.front() == draft_[row_]) {
    options_.interrupt.check("generate");
    ++row_;
    ++result_.accepted_tokens;
  } else {
    settle();
    read(tokens);
  }
  return choose();
}

std::int32_t Generation::choose() {
  if (is_greedy()) {
    if (most_probable_[row_] >= 0) return most_probable_[row_];
    throw Error(Errc::bad_input, "Conversation", "no logit is a number");
  }
  if (samples_on_device()) return drawn_on_device_;
  // The vocabulary may have padding rows: only tokens can be drawn.
  const auto size = static_cast<std::size_t>(model_.config().vocabulary);
  const auto logits = logits_.subspan(row_ * size, size).first(model_.tokenizer().vocab_size());
  const std::int32_t token =
      is_constrained_ ? constrained_token(logits) : sampler_.sample(logits, history_);
  if (options_.logprobs) choice_ = choice_of(logits, token, *options_.logprobs);
  return token;
}

/// Draws one of the tokens that the grammar allows.
std::int32_t Generation::constrained_token(std::span<const float> logits) {
  if (options_.sampler.is_greedy()) {  // as a rule the best token is one that is allowed
    const std::int32_t best = sampler_.sample(logits, history_);
    if (is_allowed(best)) return best;
  }
  const auto allowed = constraint_->allowed();
  bool is_any = false;
  constrained_.assign(logits.begin(), logits.end());
  for (std::size_t i = 0; i < constrained_.size(); ++i) {
    if (((allowed[i / 64] >> (i % 64)) & 1) != 0) {
      is_any = true;
    } else {
      constrained_[i] = -std::numeric_limits<float>::infinity();
    }
  }
  if (constraint_->may_end()) {
    for (const std::int32_t stop : stop_tokens_) {
      const auto i = static_cast<std::size_t>(stop);
      constrained_[i] = logits[i];
      is_any = true;
    }
  }
  if (!is_any) {
    throw Error(Errc::bad_input, "generate",
                "no token of the vocabulary goes on as the grammar wants");
  }
  const std::int32_t token = sampler_.sample(constrained_, history_);
  if (is_allowed(token)) return token;
  throw Error(Errc::bad_input, "generate",
              "no token that the grammar allows has a logit that is a number");
}

bool Generation::is_allowed(std::int32_t token) {
  return constraint_->allows(token) || (constraint_->may_end() && is_stop(token));
}

void Generation::follow(std::int32_t token, std::string_view text) {
  if (is_constrained_) {
    constraint_->push(token);
    return;
  }
  before_grammar_ += text;
  std::size_t begin = std::string::npos;  // of the grammar
  for (const std::string& after : options_.grammar_after) {
    const std::size_t found = before_grammar_.find(after);
    if (found != std::string::npos) begin = std::min(begin, found + after.size());
    // Tokens without text, and those whose text is another, count by their spelling.
    if (model_.tokenizer().find(after) == token) begin = std::min(begin, before_grammar_.size());
  }
  if (begin == std::string::npos) return;
  const std::size_t rest =
      std::min(before_grammar_.find_first_not_of(" \n\r\t", begin), before_grammar_.size());
  if (!constraint_->push(std::string_view(before_grammar_).substr(rest))) {
    throw Error(
        Errc::bad_input, "generate",
        fmt::format("\"{}\", behind the text that the grammar begins after, is not allowed by it",
                    before_grammar_.substr(rest)));
  }
  is_constrained_ = true;
}

bool Generation::is_stop(std::int32_t token) const {
  return std::ranges::find(stop_tokens_, token) != stop_tokens_.end();
}

/// Reads `tokens`, and with the last one of the answer tokens that may follow it: what they give is drawn of row
/// by row, as long as they do.
void Generation::read(std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> rows(tokens.begin(), tokens.end()), draft;
  if (drafter_ && !result_.tokens.empty()) draft = drafter_->draft(history_, room_for_draft());
  rows.insert(rows.end(), draft.begin(), draft.end());
  if (!draft.empty()) {
    read_rows(rows);
  } else if (is_greedy()) {
    most_probable_ = {conversation_.read_greedy(rows, options_.interrupt)};
  } else if (samples_on_device()) {
    drawn_on_device_ =
        conversation_.read_sampled(rows, options_.sampler, history_, options_.interrupt);
  } else {
    logits_ = conversation_.read(rows, options_.interrupt);
  }
  result_.drafted_tokens += static_cast<std::int64_t>(draft.size());
  draft_ = std::move(draft);
}

void Generation::read_rows(std::span<const std::int32_t> rows) {
  const std::int64_t before = conversation_.position();
  try {
    if (is_greedy()) {
      most_probable_ = conversation_.read_all_greedy(rows, options_.interrupt);
    } else {
      logits_ = conversation_.read_all(rows, options_.interrupt);
    }
  } catch (...) {
    conversation_.rewind(before);  // of rows in several chunks, the first may have been read
    throw;
  }
}

/// Tokens that may be drafted behind the last one: as many as fit the context and are asked for.
std::int64_t Generation::room_for_draft() const {
  return std::min(conversation_.capacity() - conversation_.position(),
                  options_.max_tokens - static_cast<std::int64_t>(result_.tokens.size())) -
         1;
}

/// Of the conversation, without drafted tokens that were not drawn.
std::int64_t Generation::position() const {
  return conversation_.position() - static_cast<std::int64_t>(draft_.size() - row_);
}

/// Takes back the drafted tokens that were read and not drawn.
void Generation::settle() {
  if (!draft_.empty()) conversation_.rewind(position());
  if (drafter_) drafter_->settle(static_cast<std::int64_t>(row_));
  draft_.clear();
  row_ = 0;
}

/// Whether a token ends the answer, of which it is no part.
bool Generation::ends(std::int32_t token) const {
  return model_.tokenizer().is_eog(token) || is_stop(token);
}

bool Generation::take(std::int32_t token) {
  const auto end_by = [&](Generated::End end) {
    result_.end = end;
    return false;
  };
  if (options_.max_tokens <= 0) return end_by(Generated::End::length);
  if (ends(token)) return end_by(Generated::End::token);
  const std::string text = decoder_.push(token);
  if (constraint_) follow(token, text);
  history_.push_back(token);
  result_.tokens.push_back(token);
  if (options_.logprobs) {
    if (emit_choice_) emit_choice_(choice_);
    result_.choices.push_back(std::move(choice_));
  }
  put(stop_text_.push(text));
  if (stop_text_.found()) return end_by(Generated::End::stop);
  if (is_constrained_ && !constraint_->may_continue()) return end_by(Generated::End::grammar);
  if (static_cast<std::int64_t>(result_.tokens.size()) >= options_.max_tokens) {
    return end_by(Generated::End::length);
  }
  if (position() == conversation_.capacity()) return end_by(Generated::End::context);
  return true;
}

void Generation::put(std::string text) {
  if (text.empty()) return;
  if (emit_) emit_(text);
  result_.text += text;
}

}  // namespace tenon::models
