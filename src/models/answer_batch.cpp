#include "generation.hpp"
#include "kept_prompts.hpp"
#include "language_model_impl.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/answer_batch.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tenon::models {
namespace {

/// An answer under way. It stays where it is: its parts refer to each other.
struct Answer {
  Answer(const LanguageModel& model, AnswerRequest asked)
      : request(std::move(asked)),
        generation(model, request.conversation, request.options, request.emit,
                   std::move(request.emit_choice)) {
    generation.check_stepwise();
    generation.begin(std::move(request.prompt), std::move(request.beginning));
  }

  /// `advance` returns whether the answer continues.
  template <class Advance>
  void run(const Advance& advance) noexcept {
    try {
      has_ended = !with_memory_errors("generate", advance);
    } catch (...) {
      end_with(std::current_exception());
    }
  }
  void end_with(std::exception_ptr why) noexcept {
    error = std::move(why);
    has_ended = true;
  }
  /// Whether a step that failed has emptied the conversation, of which the prompt was read.
  bool has_lost_states() const { return request.conversation.position() == 0; }
  FinishedAnswer finish() {
    FinishedAnswer done;
    done.id = id;
    try {
      done.answer = with_memory_errors("generate", [&] { return generation.finish(); });
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
    done.error = error;
    return done;
  }

  std::int64_t id = 0;
  AnswerRequest request;
  Generation generation;
  bool has_ended = false;
  std::exception_ptr error{};
};

}  // namespace

struct AnswerBatch::Impl {
  Impl(const LanguageModel& of, const AnswerBatchOptions& options)
      : model(of), at_once(options.at_once), kept(of, options.prompt_bytes) {
    if (at_once < 1) {
      throw Error(Errc::bad_argument, "AnswerBatch", fmt::format("{} answers at once", at_once));
    }
  }

  std::int64_t add(AnswerRequest request) {
    auto answer = std::make_unique<Answer>(model, std::move(request));
    const std::scoped_lock lock(mutex);
    const auto uses_it = [&](const std::unique_ptr<Answer>& other) {
      return other->request.conversation.is_same(answer->request.conversation);
    };
    if (std::ranges::any_of(answers, uses_it)) {
      throw Error(Errc::bad_argument, "AnswerBatch::add",
                  "another answer of the batch uses the conversation; fork() makes a second one");
    }
    answer->id = next_id;
    answers.push_back(std::move(answer));
    return next_id++;
  }

  /// All answers, in the order of their numbers.
  std::vector<Answer*> present() {
    const std::scoped_lock lock(mutex);
    std::vector<Answer*> all;
    all.reserve(answers.size());
    for (const std::unique_ptr<Answer>& answer : answers) all.push_back(answer.get());
    return all;
  }

  /// Memory that runs out here, before anything is read, ends no answer.
  std::vector<FinishedAnswer> step() {
    const std::vector<Answer*> all = present();
    std::vector<FinishedAnswer> finished;
    finished.reserve(all.size());
    std::vector<Answer*> ready;
    ready.reserve(all.size());
    // Those that wait can be interrupted, too.
    for (Answer* const answer : all) {
      answer->run([&] { return answer->generation.check_interrupt(); });
    }
    std::int64_t taking_part = 0;
    bool has_read_prompt = false;
    for (Answer* const answer : all) {
      if (answer->has_ended) continue;
      if (taking_part++ == at_once) break;
      if (!has_read_prompt && answer->generation.has_prompt()) {
        has_read_prompt = true;
        read_prompt(*answer);
      }
      if (!answer->has_ended && !answer->generation.has_prompt()) ready.push_back(answer);
    }
    if (!ready.empty()) read_tokens(ready);
    for (Answer* const answer : all) {
      if (answer->has_ended) finished.push_back(answer->finish());
    }
    const std::scoped_lock lock(mutex);
    std::erase_if(answers, [](const std::unique_ptr<Answer>& answer) { return answer->has_ended; });
    return finished;
  }

  /// A piece of a prompt.
  void read_prompt(Answer& answer) {
    answer.run([&] {
      Generation& generation = answer.generation;
      generation.reuse(kept);
      const bool continues = generation.read_prompt();
      if (!generation.has_prompt() && generation.holds_prompt()) {
        kept.keep(answer.request.conversation);
      }
      return continues;
    });
  }

  /// The next token of each. Where reading together fails, each reads by itself: what one of them cannot do, or what
  /// only one of them has memory for, ends no other.
  void read_tokens(const std::vector<Answer*>& ready) {
    try {
      with_memory_errors("generate", [&] { read_together(ready); });
      return;
    } catch (...) {
      const bool has_lost = std::ranges::any_of(
          ready, [](const Answer* answer) { return answer->has_lost_states(); });
      if (ready.size() == 1 || has_lost) {
        for (Answer* const answer : ready) answer->end_with(std::current_exception());
        return;
      }
    }
    for (Answer* const answer : ready) {
      answer->run([&] {
        read_together({&answer, 1});
        return !answer->has_ended;
      });
    }
  }

  void read_together(std::span<Answer* const> ready) const {
    std::vector<Conversation> conversations;
    std::vector<std::int32_t> tokens;
    for (const Answer* const answer : ready) {
      conversations.push_back(answer->request.conversation);
      tokens.push_back(answer->generation.pending());
    }
    const auto is_greedy = [](const Answer* answer) { return answer->generation.is_greedy(); };
    if (std::ranges::all_of(ready, is_greedy)) {
      const std::vector<std::int32_t> best = model.read_each_greedy(conversations, tokens);
      for (std::size_t i = 0; i < ready.size(); ++i) {
        ready[i]->run([&] { return ready[i]->generation.continue_with(best[i]); });
      }
      return;
    }
    // Nothing is allocated between reading and drawing: who has read draws.
    std::span<const float> rows;
    std::vector<std::uint8_t> has_drawn(ready.size());
    const std::function<void(std::int64_t)> draw = [&](std::int64_t number) {
      const auto at = static_cast<std::size_t>(number);
      if (has_drawn[at] != 0) return;
      has_drawn[at] = 1;
      const std::size_t width = rows.size() / ready.size();
      ready[at]->run([&] {
        ready[at]->generation.draw_of(rows.subspan(at * width, width));
        return true;
      });
    };
    const HostBuffer logits = model.read_each(conversations, tokens);
    rows = logits.values<float>();
    const auto count = static_cast<std::int64_t>(ready.size());
    try {
      model.impl_->share(count, draw);
    } catch (...) {  // no threads
      for (std::int64_t i = 0; i < count; ++i) draw(i);
    }
    for (Answer* const answer : ready) {
      if (answer->has_ended) continue;
      answer->run([&] { return answer->generation.take_drawn(); });
    }
  }

  LanguageModel model;
  std::int64_t at_once;
  KeptPrompts kept;
  mutable ForkAwareMutex mutex{"AnswerBatch"};
  std::deque<std::unique_ptr<Answer>> answers;  // in the order of their numbers
  std::int64_t next_id = 0;
  std::atomic_flag is_stepping;
};

AnswerBatch::AnswerBatch(const LanguageModel& model, const AnswerBatchOptions& options)
    : impl_(std::make_shared<Impl>(model, options)) {}
AnswerBatch::AnswerBatch(const LanguageModel& model, std::int64_t at_once)
    : AnswerBatch(model, AnswerBatchOptions{.at_once = at_once}) {}

std::int64_t AnswerBatch::add(AnswerRequest request) {
  return with_memory_errors("AnswerBatch::add", [&] { return impl_->add(std::move(request)); });
}

std::vector<FinishedAnswer> AnswerBatch::step() {
  return with_memory_errors("AnswerBatch::step", [&] {
    const std::shared_ptr<Impl> held = impl_.shared();  // also where `emit` drops the last handle
    Impl& impl = *held;
    if (impl.is_stepping.test_and_set()) {
      throw Error(Errc::busy, "AnswerBatch", "a step is under way");
    }
    struct Done {
      std::atomic_flag& flag;
      ~Done() { flag.clear(); }
    } const done{impl.is_stepping};
    return impl.step();
  });
}

std::int64_t AnswerBatch::size() const {
  const std::scoped_lock lock(impl_->mutex);
  return static_cast<std::int64_t>(impl_->answers.size());
}

std::vector<FinishedAnswer> generate_each(const LanguageModel& model,
                                          std::vector<AnswerRequest> requests,
                                          std::int64_t at_once) {
  return with_memory_errors("generate_each", [&] {
    AnswerBatch batch(model, at_once);
    for (AnswerRequest& request : requests) batch.add(std::move(request));
    std::vector<FinishedAnswer> finished(requests.size());
    while (batch.size() > 0) {
      for (FinishedAnswer& done : batch.step()) {
        finished[static_cast<std::size_t>(done.id)] = std::move(done);
      }
    }
    return finished;
  });
}

}  // namespace tenon::models
