#include "server/language_api.hpp"

#include "server/chat_completion.hpp"
#include "server/responses.hpp"
#include "server/text_completion.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a wait for an answer is before somebody looks whether the client is still there.
constexpr std::chrono::milliseconds patience{250};
/// How long a stream is silent before it sends a comment, by which both ends see that the other is there.
constexpr std::chrono::milliseconds silence{5000};

HttpResponse whole(TextRequest& asked, PendingAnswers pending, const HttpRequest& request,
                   std::size_t count) {
  std::vector<models::Generated> answers(count);
  auto looked = Clock::now();
  while (pending.is_pending()) {
    std::optional<AnswerEvent> event = pending.next(patience);
    if (Clock::now() - looked >= patience) {
      looked = Clock::now();
      if (!request.is_client_there()) throw Error(Errc::cancelled, "server", "the client has gone");
    }
    if (!event || !event->end) continue;
    if (const std::exception_ptr error = failure(*event->end)) std::rethrow_exception(error);
    answers[event->index] = std::move(event->end->answer);
  }
  return json_response(asked.response(answers));
}

/// The events of a stream, one after the other.
class EventStream {
 public:
  EventStream(std::unique_ptr<TextRequest> asked, PendingAnswers pending)
      : asked_(std::move(asked)), pending_(std::move(pending)) {}

  /// The next ones; empty at the end.
  std::string next() {
    if (has_ended_) return {};
    try {
      return more();
    } catch (...) {
      has_ended_ = true;
      return asked_->failed(std::current_exception());
    }
  }

 private:
  std::string more() {
    if (!has_begun_) {
      has_begun_ = true;
      if (std::string events = asked_->beginning(); !events.empty()) return events;
    }
    const auto until = Clock::now() + silence;
    while (pending_.is_pending()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
      const std::optional<AnswerEvent> next = pending_.next(std::max(left, patience));
      if (next) {
        if (std::string events = asked_->piece(*next); !events.empty()) return events;
      }
      if (Clock::now() >= until) return ":\n\n";
    }
    has_ended_ = true;
    return asked_->ending();
  }

  std::unique_ptr<TextRequest> asked_;
  PendingAnswers pending_;
  bool has_begun_ = false, has_ended_ = false;
};

template <class Kind>
HttpResponse answer(const ServedModel& served, AnswerService& answers, const HttpRequest& request) {
  const Json body = parse_request(request.body);
  std::unique_ptr<TextRequest> asked = std::make_unique<Kind>(served, RequestFields(body));
  std::vector<models::AnswerRequest> requests = asked->requests();
  const std::size_t count = requests.size();
  PendingAnswers pending = answers.answer(std::move(requests));
  if (!asked->is_stream()) return whole(*asked, std::move(pending), request, count);
  auto stream = std::make_shared<EventStream>(std::move(asked), std::move(pending));
  return {.type = "text/event-stream", .next = [stream] { return stream->next(); }};
}

Json tokenize(const text::Tokenizer& tokenizer, const RequestFields& fields) {
  const bool add_special = fields.flag("add_special").value_or(false);
  const auto content = fields.text("content");
  return {{"tokens", tokenizer.encode(content.value_or(""), {.add_special = add_special})}};
}

Json detokenize(const text::Tokenizer& tokenizer, const RequestFields& fields) {
  std::vector<std::int32_t> tokens;
  if (const Json* ids = fields.array("tokens")) {
    const auto count = static_cast<std::int64_t>(tokenizer.vocab_size());
    for (const Json& id : *ids) {
      if (!id.is_number_integer())
        throw MemberError(Errc::bad_type, "tokens", "is no array of token ids");
      const auto token = id.get<std::int64_t>();
      if (token < 0 || token >= count) {
        throw MemberError(
            Errc::out_of_range, "tokens",
            fmt::format("token {} is outside of the vocabulary of {}", id.dump(), count));
      }
      tokens.push_back(static_cast<std::int32_t>(token));
    }
  }
  return {{"content", tokenizer.decode(tokens)}};
}

}  // namespace

void add_language_routes(Routes& routes, const ServedModel& served, AnswerService& answers) {
  routes.post("/v1/chat/completions", [&](const HttpRequest& request) {
    return answer<ChatCompletion>(served, answers, request);
  });
  routes.post("/v1/completions", [&](const HttpRequest& request) {
    return answer<TextCompletion>(served, answers, request);
  });
  routes.post("/v1/responses", [&](const HttpRequest& request) {
    return answer<Responses>(served, answers, request);
  });
  routes.post_json("/tokenize", [&](const RequestFields& fields) {
    return tokenize(served.model.tokenizer(), fields);
  });
  routes.post_json("/detokenize", [&](const RequestFields& fields) {
    return detokenize(served.model.tokenizer(), fields);
  });
}

}  // namespace tenon::tool
