#include "server/language_api.hpp"

#include "server/chat_completion.hpp"
#include "server/responses.hpp"
#include "server/text_completion.hpp"
#include "server/token_api.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a wait for an answer is before somebody looks whether the client is still there.
constexpr std::chrono::milliseconds patience{250};
/// How long a stream is silent before it sends a comment, by which both ends see that the other is there.
constexpr std::chrono::milliseconds silence{1000};

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
  routes.post_json("/apply-template", [&](const RequestFields& fields) {
    std::string prompt;
    static_cast<void>(ChatCompletion(served, fields, &prompt));
    return Json{{"prompt", prompt}};
  });
  add_token_routes(routes, served.model.tokenizer());
}

}  // namespace tenon::tool
