#include "generation.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/answer_batch.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace tenon::models {
namespace {

/// An answer under way. It stays where it is: its parts refer to each other.
struct Answer {
  Answer(const LanguageModel& model, AnswerRequest asked)
      : request(std::move(asked)),
        generation(model, request.conversation, request.options, request.emit) {
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
  Impl(const LanguageModel& of, std::int64_t most) : model(of), at_once(most) {
    if (most < 1) {
      throw Error(Errc::bad_argument, "AnswerBatch", fmt::format("{} answers at once", most));
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

  /// Those that take part in the next step.
  std::vector<Answer*> active() {
    const std::scoped_lock lock(mutex);
    std::vector<Answer*> first;
    for (const std::unique_ptr<Answer>& answer : answers) {
      if (static_cast<std::int64_t>(first.size()) == at_once) break;
      first.push_back(answer.get());
    }
    return first;
  }

  std::vector<FinishedAnswer> step() {
    const std::vector<Answer*> all = active();
    std::vector<FinishedAnswer> finished;
    finished.reserve(all.size());
    std::vector<Answer*> ready;
    ready.reserve(all.size());
    const auto reads_prompt = [](const Answer* answer) { return answer->generation.has_prompt(); };
    if (const auto first = std::ranges::find_if(all, reads_prompt); first != all.end()) {
      Answer& answer = **first;
      answer.run(
          [&] { return answer.generation.check_interrupt() && answer.generation.read_prompt(); });
    }
    for (Answer* const answer : all) {
      if (answer->has_ended) continue;
      answer->run([&] { return answer->generation.check_interrupt(); });
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

  /// The next token of each. What all of them share and fails ends them all.
  void read_tokens(const std::vector<Answer*>& ready) {
    try {
      with_memory_errors("generate", [&] { read_together(ready); });
    } catch (...) {
      for (Answer* const answer : ready) answer->end_with(std::current_exception());
    }
  }

  void read_together(const std::vector<Answer*>& ready) const {
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
    const HostBuffer logits = model.read_each(conversations, tokens);
    const auto rows = logits.values<float>();
    const std::size_t width = rows.size() / ready.size();
    for (std::size_t i = 0; i < ready.size(); ++i) {
      const auto row = rows.subspan(i * width, width);
      ready[i]->run([&] { return ready[i]->generation.continue_with(row); });
    }
  }

  LanguageModel model;
  std::int64_t at_once;
  mutable ForkAwareMutex mutex{"AnswerBatch"};
  std::deque<std::unique_ptr<Answer>> answers;  // in the order of their numbers
  std::int64_t next_id = 0;
  std::atomic_flag is_stepping;
};

AnswerBatch::AnswerBatch(const LanguageModel& model, std::int64_t at_once)
    : impl_(std::make_shared<Impl>(model, at_once)) {}

std::int64_t AnswerBatch::add(AnswerRequest request) {
  return with_memory_errors("AnswerBatch::add", [&] { return impl_->add(std::move(request)); });
}

std::vector<FinishedAnswer> AnswerBatch::step() {
  return with_memory_errors("AnswerBatch::step", [&] {
    Impl& impl = *impl_;
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
