#include "server/completion.hpp"

#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/models/sampling.hpp>
#include <tenon/text/grammar.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <new>
#include <random>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

constexpr std::int64_t max_choices = 128, max_answers = 128;
constexpr std::size_t max_biases = 1024, max_stops = 32, max_stop_bytes = 1024;
constexpr std::size_t max_breakers = 16, max_breaker_bytes = 64;

/// OpenAI has an object of token ids and biases, llama.cpp a list of pairs, too.
std::vector<std::pair<std::int32_t, float>> read_biases(const RequestFields& fields,
                                                        std::size_t vocabulary) {
  std::vector<std::pair<std::int32_t, float>> biases;
  const auto refuse = [&] {
    throw MemberError(Errc::bad_type, fields.path("logit_bias"),
                      "is not an object of token ids and numbers, such as {\"42\": -5}");
  };
  const auto add = [&](std::int64_t token, const Json& bias) {
    // `false` is llama.cpp's for a token that is excluded.
    if (!bias.is_number() && bias != false) refuse();
    const double value = bias.is_number() ? bias.get<double>() : 0;
    if (std::abs(value) > std::numeric_limits<float>::max()) {
      throw MemberError(Errc::bad_argument, fields.path("logit_bias"),
                        fmt::format("has {}, which is no number of 32 bits", value));
    }
    if (token < 0 || token >= static_cast<std::int64_t>(vocabulary)) {
      throw MemberError(
          Errc::bad_argument, fields.path("logit_bias"),
          fmt::format("token {} is outside of the vocabulary of {}", token, vocabulary));
    }
    biases.emplace_back(static_cast<std::int32_t>(token),
                        bias.is_number() ? static_cast<float>(value) : -INFINITY);
  };
  const Json* given = fields.find("logit_bias");
  if (given == nullptr) return biases;
  if (given->size() > max_biases) {
    throw MemberError(Errc::limit_exceeded, fields.path("logit_bias"),
                      fmt::format("has more than {} tokens", max_biases));
  }
  if (given->is_object()) {
    for (const auto& [name, bias] : given->items()) {
      std::int64_t token = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
      if (error != std::errc() || end != name.data() + name.size()) refuse();
      add(token, bias);
    }
  } else if (given->is_array()) {
    for (const Json& pair : *given) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer()) refuse();
      add(pair[0].get<std::int64_t>(), pair[1]);
    }
  } else {
    refuse();
  }
  return biases;
}

/// What would change the answer and is not done here: members of OpenAI's older API, llama.cpp's
/// server and vLLM, and what there is in their places.
constexpr std::pair<std::string_view, std::string_view> not_done[] = {
    {"functions", "tools"},
    {"function_call", "tool_choice"},
    {"guided_choice", "grammar"},
    {"guided_regex", "response_format"},
    {"guided_grammar", "grammar"},
    {"structured_outputs", "response_format"},
    {"samplers", ""},
    {"chat_template", "chat_template_kwargs"},
    {"min_tokens", ""},
    {"stop_token_ids", "stop"},
    {"allowed_token_ids", "logit_bias"},
    {"bad_words", "logit_bias"},
    {"use_beam_search", ""},
    {"include_stop_str_in_output", ""},
    {"prompt_logprobs", ""},
    {"truncate_prompt_tokens", ""},
    {"n_probs", "logprobs"},
    {"t_max_predict_ms", ""},
    {"lora", ""},
    {"audio", ""},
    {"web_search_options", ""},
};

void refuse_not_done(const RequestFields& fields) {
  for (const auto& [member, other] : not_done) {
    const Json* value = fields.find(member);
    if (value == nullptr || value->empty() || *value == false || *value == 0 || *value == "")
      continue;
    throw MemberError(Errc::unsupported, fields.path(member),
                      other.empty() ? "this server does not do that"
                                    : fmt::format("this server has {} in its place", other));
  }
}

}  // namespace

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string_view finish_reason(models::Generated::End end) {
  using End = models::Generated::End;
  return end == End::length || end == End::context ? "length" : "stop";
}

Json described(const text::Tokenizer& tokenizer, const models::Generated::LogProbability& token) {
  const std::string bytes = tokenizer.piece(token.token);
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  // JSON has no infinities; a token that cannot be is as good as this.
  constexpr double least = -9999.0;
  return {{"token", bytes},
          {"logprob", std::isfinite(token.value) ? token.value : least},
          {"bytes", std::move(numbers)}};
}

std::string event(const Json& data) {
  return fmt::format("data: {}\n\n", data.dump(-1, ' ', false, Json::error_handler_t::replace));
}

namespace {

/// Calls `use` with the error as one of the library.
template <class Use>
auto with_error(const std::exception_ptr& error, const Use& use) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return use(known);
  } catch (const std::bad_alloc&) {
    return use(Error(Errc::out_of_memory, "server", "no memory is left"));
  } catch (const std::exception& other) {
    return use(Error(Errc::internal, "server", other.what()));
  } catch (...) {
    return use(Error(Errc::internal, "server", "an unknown exception"));
  }
}

bool is_of_request(const Error& error) {
  constexpr int wrong_call = 2, malformed = 3, unsupported = 4;
  const int status = exit_status(error.code());
  return status == wrong_call || status == malformed || status == unsupported;
}

}  // namespace

Json described(const std::exception_ptr& error) {
  return with_error(error, [](const Error& known) {
    const bool is_of_member = dynamic_cast<const MemberError*>(&known) != nullptr;
    const bool is_context = dynamic_cast<const PromptTooLong*>(&known) != nullptr;
    return Json{{"error",
                 {{"message", fmt::format("{}: {}", known.where(), known.message())},
                  {"type", is_of_request(known) ? "invalid_request_error" : "server_error"},
                  {"param", is_of_member ? Json(known.where()) : Json()},
                  {"code", is_context ? "context_length_exceeded" : spelling(known.code())}}}};
  });
}

std::exception_ptr failure(const models::FinishedAnswer& answer) {
  if (answer.error || answer.answer.end != models::Generated::End::cancelled) return answer.error;
  return std::make_exception_ptr(Error(Errc::cancelled, "server", "the server is stopping"));
}

int http_status(const std::exception_ptr& error) {
  return with_error(error, [](const Error& known) {
    if (known.code() == Errc::busy) return 503;
    if (is_of_request(known)) return 400;
    return known.code() == Errc::cancelled || known.code() == Errc::timeout ? 503 : 500;
  });
}

Completion::Completion(const ServedModel& served, const RequestFields& fields, const Kind& kind)
    : served_(served),
      kind_(kind),
      id_(fmt::format("{}-{:016x}", kind.id, random_number())),
      created_(seconds_since_1970()),
      options_(served.defaults) {
  refuse_not_done(fields);
  choices_ = fields.integer("n", 1, max_choices).value_or(1);
  is_stream_ = fields.flag("stream").value_or(false);
  if (const Json* stream = fields.object("stream_options")) {
    has_usage_ = RequestFields(*stream, "stream_options").flag("include_usage").value_or(false);
  }
  read_sampling(fields);
  read_limits(fields);
  read_grammar(fields);
}

void Completion::read_sampling(const RequestFields& fields) {
  nn::SamplerOptions& sampler = options_.sampler;
  const double penalty = sampler.repetition_penalty;
  read_sampler(
      sampler, [&](std::string_view name) { return fields.number(name); },
      [&](std::string_view name) {
        if (name == "top_k") return fields.integer(name);
        return fields.integer(name, name.ends_with("_window") ? -1 : 0);
      });
  // As other servers have them: no bound, and the most probable token alone.
  sampler.top_k = std::max<std::int64_t>(sampler.top_k, 0);
  if (sampler.top_p == 0) sampler.top_p = std::numeric_limits<double>::min();
  sampler.mirostat = static_cast<int>(fields.integer("mirostat", 0, 2).value_or(sampler.mirostat));
  sampler.temperature_last = fields.flag("temperature_last").value_or(sampler.temperature_last);
  if (sampler.dry_multiplier > 0) read_breakers(fields);
  if (sampler.dry_window == -1) sampler.dry_window = served_.model.context();
  // As llama.cpp calls them.
  const auto other = fields.number("repeat_penalty");
  if (other) {
    if (!(*other > 0)) {
      throw MemberError(Errc::bad_argument, fields.path("repeat_penalty"),
                        fmt::format("is {}, and must be more than 0", *other));
    }
    sampler.repetition_penalty = *other;
  }
  sampler.repetition_window =
      fields.integer("repeat_last_n", -1).value_or(sampler.repetition_window);
  if (sampler.repetition_window == -1) sampler.repetition_window = served_.model.context();
  // As on the command line: a greedy answer has no penalty unless one is asked for.
  const bool asks_for_penalty = other || fields.number("repetition_penalty");
  if (fields.number("temperature") == 0.0 && !asks_for_penalty &&
      sampler.repetition_penalty == penalty)
    sampler.repetition_penalty = 1;
  const text::Tokenizer& tokenizer = served_.model.tokenizer();
  const auto biases = read_biases(fields, tokenizer.vocab_size());
  sampler.logit_bias.insert(sampler.logit_bias.end(), biases.begin(), biases.end());
  if (fields.flag("ignore_eos").value_or(false)) {
    const auto count = static_cast<std::int32_t>(tokenizer.vocab_size());
    for (std::int32_t token = 0; token < count; ++token) {
      if (tokenizer.is_eog(token)) sampler.logit_bias.emplace_back(token, -INFINITY);
    }
  }
  const auto seed = fields.integer("seed");
  if (seed && *seed != -1) {  // llama.cpp's for any
    sampler.seed = static_cast<std::uint64_t>(*seed);
  } else if (!served_.has_seed) {
    sampler.seed = random_number();
  }
  check_sampler(fields);
}

void Completion::read_breakers(const RequestFields& fields) {
  const std::vector<std::string> texts = fields.texts("dry_sequence_breakers");
  const auto is_long = [](const std::string& text) { return text.size() > max_breaker_bytes; };
  if (texts.size() > max_breakers || std::ranges::any_of(texts, is_long)) {
    throw MemberError(Errc::limit_exceeded, fields.path("dry_sequence_breakers"),
                      fmt::format("has more than {} texts, or one of more than {} bytes",
                                  max_breakers, max_breaker_bytes));
  }
  options_.sampler.dry_breakers = served_.dry_breakers;
  if (fields.find("dry_sequence_breakers") == nullptr) return;
  options_.sampler.dry_breakers = with_member(fields.path("dry_sequence_breakers"), [&] {
    return models::dry_breakers(served_.model.tokenizer(),
                                std::vector<std::string_view>(texts.begin(), texts.end()));
  });
}

/// The sampler's members have the names of the request's.
void Completion::check_sampler(const RequestFields& fields) const try {
  options_.sampler.check(static_cast<std::int64_t>(served_.model.tokenizer().vocab_size()));
} catch (const Error& error) {
  const std::string member = error.where().substr(error.where().find('.') + 1);
  if (fields.find(member) == nullptr) throw;  // of the server's defaults
  throw MemberError(error.code(), fields.path(member), error.message());
}

void Completion::read_limits(const RequestFields& fields) {
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    const auto most = fields.integer(name, -1);
    if (most && *most >= 0)
      options_.max_tokens = *most;  // -1, llama.cpp's for no limit: the server's own
  }
  std::vector<std::string> stops = fields.texts("stop");
  const auto is_long = [](const std::string& text) { return text.size() > max_stop_bytes; };
  if (stops.size() > max_stops || std::ranges::any_of(stops, is_long)) {
    throw MemberError(Errc::limit_exceeded, fields.path("stop"),
                      fmt::format("has more than {} texts, or one of more than {} bytes", max_stops,
                                  max_stop_bytes));
  }
  if (std::ranges::find(stops, "") != stops.end()) {
    throw MemberError(Errc::bad_argument, fields.path("stop"), "has an empty text");
  }
  std::ranges::move(stops, std::back_inserter(options_.stop));
}

void Completion::read_grammar(const RequestFields& fields) {
  std::vector<text::Grammar> grammars;
  const auto add_schema = [&](const std::string& path, const std::string& schema) {
    grammars.push_back(with_member(path, [&] { return text::Grammar::from_json_schema(schema); }));
  };
  if (const auto text = fields.text("grammar")) {
    grammars.push_back(
        with_member(fields.path("grammar"), [&] { return text::Grammar::parse(*text); }));
  }
  for (const char* name : {"json_schema", "guided_json"}) {  // llama.cpp's and vLLM's
    if (const Json* schema = fields.find(name)) {
      add_schema(fields.path(name),
                 schema->is_string() ? schema->get<std::string>() : schema->dump());
    }
  }
  if (const Json* format = fields.object("response_format")) {
    const RequestFields members(*format, "response_format");
    const std::string type = members.text("type").value_or("text");
    if (type == "json_schema") {
      const RequestFields named(members.at("json_schema"), "response_format.json_schema");
      add_schema(named.path("schema"), named.at("schema").dump());
    } else if (type == "json_object") {
      const Json* schema = members.object("schema");
      add_schema(members.path("schema"),
                 schema == nullptr ? R"({"type": "object"})" : schema->dump());
    } else if (type != "text") {
      throw MemberError(Errc::unsupported, members.path("type"),
                        fmt::format("is '{}', not text, json_object or json_schema", type));
    }
  }
  if (grammars.size() > 1) {
    throw Error(Errc::bad_argument, "request",
                "more than one of grammar, json_schema, guided_json and response_format");
  }
  if (!grammars.empty()) options_.grammar = std::move(grammars.front());
}

void Completion::add_prompt(std::vector<models::PromptPart> prompt) {
  std::int64_t positions = 0;
  for (const models::PromptPart& part : prompt) positions += part.positions();
  if (positions == 0)
    throw MemberError(Errc::bad_argument, std::string(kind_.prompt), "has no tokens");
  if (positions > served_.model.context()) {
    throw PromptTooLong(
        Errc::limit_exceeded, std::string(kind_.prompt),
        fmt::format("has {} tokens, and the context {}", positions, served_.model.context()));
  }
  if ((std::ssize(prompts_) + 1) * choices_ > max_answers) {
    throw Error(Errc::limit_exceeded, "request",
                fmt::format("asks for more than {} answers", max_answers));
  }
  prompt_tokens_ += positions;
  prompts_.push_back(std::move(prompt));
}

std::vector<models::AnswerRequest> Completion::requests() {
  std::vector<models::AnswerRequest> requests;
  for (std::vector<models::PromptPart>& prompt : prompts_) {
    for (std::int64_t choice = 0; choice < choices_; ++choice) {
      models::AnswerRequest request{.conversation = served_.model.conversation(),
                                    .prompt = prompt.back().tokens,
                                    .options = options_};
      request.beginning.assign(prompt.begin(), std::prev(prompt.end()));
      request.options.sampler.seed += static_cast<std::uint64_t>(choice);
      requests.push_back(std::move(request));
    }
  }
  prompts_.clear();
  count_ = requests.size();
  return requests;
}

Json Completion::frame(std::string_view object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", served_.name}};
}

void Completion::count(std::size_t index, const models::Generated& answer) {
  answer_tokens_ += std::ssize(answer.tokens);
  // A prompt is counted once, whatever the number of its choices.
  if (index % static_cast<std::size_t>(choices_) == 0) reused_tokens_ += answer.reused_tokens;
}

Json Completion::usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", answer_tokens_},
          {"total_tokens", prompt_tokens_ + answer_tokens_},
          {"prompt_tokens_details", {{"cached_tokens", reused_tokens_}}}};
}

Json Completion::response(const std::vector<models::Generated>& answers) {
  Json choices = Json::array();
  for (std::size_t index = 0; index < answers.size(); ++index) {
    count(index, answers[index]);
    Json made{{"index", index}};
    made.update(choice(index, answers[index]));
    choices.push_back(std::move(made));
  }
  Json response = frame(kind_.whole);
  response["choices"] = std::move(choices);
  response["usage"] = usage();
  return response;
}

std::string Completion::chunk(std::size_t index, Json members) const {
  if (members.is_null()) return {};
  Json made{{"index", index}};
  made.update(members);
  Json data = frame(kind_.chunk);
  data["choices"] = Json::array({std::move(made)});
  if (has_usage_) data["usage"] = nullptr;
  return event(data);
}

std::string Completion::beginning() {
  std::string events;
  for (std::size_t index = 0; index < count_; ++index) events += chunk(index, first_delta(index));
  return events;
}

std::string Completion::piece(const AnswerEvent& next) {
  if (!next.end) return chunk(next.index, delta(next.index, next.text, next.choices));
  if (const std::exception_ptr error = failure(*next.end)) return failed(error);
  count(next.index, next.end->answer);
  return chunk(next.index, last_delta(next.index, next.end->answer));
}

std::string Completion::failed(const std::exception_ptr& error) { return event(described(error)); }

std::string Completion::ending() {
  std::string events;
  if (has_usage_) {
    Json data = frame(kind_.chunk);
    data["choices"] = Json::array();
    data["usage"] = usage();
    events += event(data);
  }
  return events + "data: [DONE]\n\n";
}

}  // namespace tenon::tool
