#include "server/chat_completion.hpp"

#include "base/base64.hpp"
#include "picture.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

constexpr std::int64_t max_top_logprobs = 20;
constexpr std::size_t max_images = 16;
constexpr std::int64_t max_pixels = std::int64_t{1} << 26;  // of all images

/// An image in a request: "data:image/png;base64,...". A server that loaded addresses would load its own network's for
/// strangers.
HostBuffer read_image(const std::string& url, const std::string& name, std::int64_t pixels_left) {
  const std::size_t comma = url.find(";base64,");
  if (!url.starts_with("data:") || comma == std::string::npos) {
    throw MemberError(
        Errc::unsupported, name,
        "images are given as \"data:image/png;base64,...\"; this server loads no addresses");
  }
  auto bytes =
      from_base64(std::string_view(url).substr(comma + std::string_view(";base64,").size()));
  if (!bytes) throw MemberError(Errc::bad_encoding, name, "is no base64");
  return decode_picture(*std::move(bytes), name, pixels_left);
}

/// Why an answer ended: one that was cut after a call may have wanted to make another.
std::string_view reason(const text::ChatAnswer& parts, const models::Generated& answer) {
  const std::string_view reason = finish_reason(answer.end);
  return reason == "stop" && !parts.calls.empty() ? "tool_calls" : reason;
}

std::string random_id() { return fmt::format("call_{:016x}", random_number()); }

/// What grammars and templates take for granted. Errors: those of RequestFields; unsupported for what is no function.
void check_tools(const Json& tools) {
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const RequestFields tool(tools[i], fmt::format("tools[{}]", i));
    const std::string type = tool.text("type").value_or("function");
    if (type != "function") {
      throw MemberError(Errc::unsupported, tool.path("type"),
                        fmt::format("is '{}'; this server knows functions alone", type));
    }
    check_function(RequestFields(tool.at("function"), tool.path("function")));
  }
}

/// Calls that an assistant's message has.
void check_calls(const RequestFields& message) {
  const Json* calls = message.array("tool_calls");
  for (std::size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
    const RequestFields call((*calls)[i], fmt::format("{}[{}]", message.path("tool_calls"), i));
    const RequestFields function(call.at("function"), call.path("function"));
    function.at("name");
    function.text("name");
    // A text, as OpenAI's clients have it, or the object itself.
    if (!function.at("arguments").is_object()) function.text("arguments");
  }
}

/// Whether the arguments of a tool are to be as its schema has them, whoever decides to call it.
bool has_strict(const Json& tools) {
  return std::ranges::any_of(tools, [](const Json& tool) {
    return RequestFields(tool.at("function")).flag("strict").value_or(false);
  });
}

}  // namespace

void check_function(const RequestFields& function) {
  function.at("name");
  if (function.text("name")->empty()) {
    throw MemberError(Errc::bad_argument, function.path("name"), "is empty");
  }
  function.text("description");
  function.object("parameters");
  function.flag("strict");
}

ChatCompletion::ChatCompletion(const ServedModel& served, const RequestFields& fields,
                               std::string* prompt)
    : Completion(served, fields,
                 {.id = "chatcmpl",
                  .whole = "chat.completion",
                  .chunk = "chat.completion.chunk",
                  .prompt = "messages"}) {
  const Json choice =
      fields.find("tool_choice") == nullptr ? Json("auto") : fields.at("tool_choice");
  const Json* tools = fields.array("tools");
  if (tools != nullptr) check_tools(*tools);
  Json values = Json::object();
  if (const Json* given = fields.object("chat_template_kwargs")) values = *given;
  const bool has_tools = tools != nullptr && !tools->empty() && choice != "none";
  if (has_tools) values["tools"] = *tools;
  if (!has_tools && choice != "none" && choice != "auto") {
    throw MemberError(Errc::bad_argument, "tool_choice", "there are no tools to choose of");
  }
  const auto& format = has_tools && served.tool_chat ? served.tool_chat : served.chat;
  if (!format) {
    throw Error(Errc::template_error, served.name,
                "the model has no chat template; start the server with --chat-template");
  }
  fields.refuse_other_than("modalities", Json::array({"text"}));
  add_messages(fields.at("messages"), *format);
  const std::string text = values.empty() ? std::string() : values.dump();
  answers_.emplace(*format, text);
  if (has_tools && !answers_->has_calls()) {
    throw MemberError(Errc::unsupported, "tools",
                      "cannot be called: the model's chat template shows no calls of tools");
  }
  for (const std::string& token : answers_->stop_tokens()) options().stop.push_back(token);
  options().preserved_tokens = answers_->preserved_tokens();
  if (has_tools) choose_tools(fields, choice);
  if (options().grammar && options().grammar_after.empty() && answers_->starts_in_reasoning()) {
    options().grammar_after = {std::string(answers_->reasoning_end())};
  }
  if (fields.flag("logprobs").value_or(false)) {
    options().logprobs = fields.integer("top_logprobs", 0, max_top_logprobs).value_or(0);
  }
  text::Prompt made = prompt_of_messages(*format, text);
  if (prompt != nullptr) {
    *prompt = std::move(made.text);
  } else {
    add_prompt_of(made);
  }
}

void ChatCompletion::add_messages(const Json& messages, const text::ChatFormat& format) {
  const bool has_developer = format.source().find("developer") != std::string_view::npos;
  if (!messages.is_array() || messages.empty()) {
    throw MemberError(Errc::bad_type, "messages", "has no array of messages");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const RequestFields fields(messages[i], fmt::format("messages[{}]", i));
    text::ChatMessage message{.role = fields.text("role").value_or(""), .content = {}};
    if (message.role.empty()) throw MemberError(Errc::bad_key, fields.path("role"), "is missing");
    if (message.role == "developer" && !has_developer) message.role = "system";
    const Json* content = fields.find("content");
    if (content != nullptr && content->is_array()) {
      message.content = read_parts(*content, fields.path("content"));
    } else {
      message.content = fields.text("content").value_or("");
    }
    for (const char* member : {"name", "tool_call_id", "reasoning_content"}) fields.text(member);
    check_calls(fields);
    Json more = Json::object();
    auto& members = more.get_ref<Json::object_t&>();  // whose emplace() would compare all names
    for (const auto& [name, value] : messages[i].items()) {
      if (name != "role" && name != "content" && !value.is_null())
        members.emplace_back(name, value);
    }
    if (!more.empty()) message.more = more.dump();
    messages_.push_back(std::move(message));
  }
}

std::string ChatCompletion::read_parts(const Json& parts, const std::string& name) {
  std::string content;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const RequestFields part(parts[i], fmt::format("{}[{}]", name, i));
    const std::string type = part.text("type").value_or("");
    if (!content.empty()) content += '\n';
    if (type == "text") {
      content += part.text("text").value_or("");
    } else if (type == "image_url") {
      if (!served().vision) {
        throw MemberError(Errc::unsupported, part.path("type"),
                          "this model reads no images; start the server with --mmproj");
      }
      const RequestFields image(part.at("image_url"), part.path("image_url"));
      add_image(image.text("url").value_or(""), image.path("url"));
      content += models::image_marker;
    } else {
      throw MemberError(Errc::unsupported, part.path("type"),
                        fmt::format("is '{}', not text or image_url", type));
    }
  }
  return content;
}

void ChatCompletion::add_image(const std::string& url, const std::string& name) {
  if (images_.size() == max_images) {
    throw MemberError(Errc::limit_exceeded, name,
                      fmt::format("is one of more than {} images", max_images));
  }
  std::int64_t pixels_left = max_pixels;
  for (const HostBuffer& image : images_) pixels_left -= image.shape()[0] * image.shape()[1];
  try {
    images_.push_back(read_image(url, name, pixels_left));
  } catch (const Error& error) {
    if (error.where() != name) throw;  // such as memory that runs out
    if (error.code() != Errc::limit_exceeded || images_.empty()) {
      throw MemberError(error.code(), error.where(), error.message());
    }
    throw MemberError(Errc::limit_exceeded, name,
                      fmt::format("the images have more than {} pixels in all", max_pixels));
  }
}

void ChatCompletion::choose_tools(const RequestFields& fields, const Json& choice) {
  const bool several = fields.flag("parallel_tool_calls").value_or(true);
  if (choice == "required") {
    allow_only_calls({.several = several});
  } else if (choice.is_object()) {
    const RequestFields chosen(choice, "tool_choice");
    chosen.refuse_other_than("type", "function");
    const RequestFields function(chosen.at("function"), "tool_choice.function");
    function.at("name");
    allow_only_calls({.tool = function.text("name").value_or(""), .several = false});
  } else if (choice != "auto") {
    throw MemberError(Errc::bad_type, "tool_choice",
                      "is not auto, none, required or {\"type\": \"function\", \"function\": ...}");
  } else if (const std::string mark = answers_->call_mark();
             has_strict(fields.at("tools")) && !mark.empty() && !options().grammar) {
    options().grammar = with_member(
        "tools", [&] { return answers_->call_grammar({.several = several, .after = mark}); });
    options().grammar_after = {mark};
  }
}

void ChatCompletion::allow_only_calls(const text::CallGrammarOptions& of) {
  if (options().grammar) {
    throw MemberError(Errc::bad_argument, "tool_choice",
                      "is a grammar of its own: there is another one");
  }
  options().grammar = with_member("tools", [&] { return answers_->call_grammar(of); });
}

text::Prompt ChatCompletion::prompt_of_messages(const text::ChatFormat& format,
                                                const std::string& values) {
  // An answer that has begun is continued: its turn has no end in the prompt.
  std::optional<text::ChatMessage> begun;
  if (messages_.size() > 1 && messages_.back().role == "assistant" &&
      messages_.back().more.empty()) {
    begun = std::move(messages_.back());
    messages_.pop_back();
  }
  text::Prompt prompt = format.format(messages_, true, values);
  if (begun) {
    prompt.content.push_back({prompt.text.size(), prompt.text.size() + begun->content.size()});
    prompt.text += begun->content;
  }
  return prompt;
}

void ChatCompletion::add_prompt_of(const text::Prompt& prompt) {
  const models::LanguageModel& model = served().model;
  if (images_.empty()) {
    add_prompt({{.tokens = prompt.encode(model.tokenizer())}});
    return;
  }
  SharedVision& vision = *served().vision;
  const std::scoped_lock lock(vision.mutex);
  add_prompt(models::image_prompt(model, vision.encoder, prompt, images_,
                                  {.cancel = vision.stop.get_token()}));
}

Json ChatCompletion::call(const text::ToolCall& call) const {
  return {{"id", call.id.empty() ? random_id() : call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json ChatCompletion::logprobs(Choices choices) const {
  if (!options().logprobs) return nullptr;
  const text::Tokenizer& tokenizer = served().model.tokenizer();
  Json tokens = Json::array();
  for (const models::Generated::Choice& of : choices) {
    Json token = described(tokenizer, of.drawn);
    token["top_logprobs"] = Json::array();
    for (const auto& other : of.top) token["top_logprobs"].push_back(described(tokenizer, other));
    tokens.push_back(std::move(token));
  }
  return {{"content", std::move(tokens)}};
}

Json ChatCompletion::choice(std::size_t, const models::Generated& answer) {
  const text::ChatAnswer parts = answers_->read(answer.text);
  const bool has_calls = !parts.calls.empty();
  Json message{{"role", "assistant"},
               {"content", has_calls && parts.content.empty() ? Json() : Json(parts.content)}};
  if (!parts.reasoning.empty()) message["reasoning_content"] = parts.reasoning;
  for (const text::ToolCall& made : parts.calls) message["tool_calls"].push_back(call(made));
  return {{"message", std::move(message)},
          {"logprobs", logprobs(answer.choices)},
          {"finish_reason", reason(parts, answer)}};
}

Json ChatCompletion::first_delta(std::size_t) {
  sent_.emplace_back();
  return {{"delta", {{"role", "assistant"}, {"content", ""}}}, {"finish_reason", nullptr}};
}

Json ChatCompletion::news(Sent& sent, const text::ChatAnswer& answer) const {
  Json delta = Json::object();
  const auto add = [&](const char* name, const std::string& whole, std::size_t& before) {
    if (whole.size() > before) delta[name] = whole.substr(before);
    before = std::max(before, whole.size());
  };
  add("reasoning_content", answer.reasoning, sent.reasoning);
  add("content", answer.content, sent.content);
  for (; sent.calls < answer.calls.size(); ++sent.calls) {
    Json made{{"index", sent.calls}};
    made.update(call(answer.calls[sent.calls]));
    delta["tool_calls"].push_back(std::move(made));
  }
  return delta;
}

Json ChatCompletion::delta(std::size_t index, std::string_view text, Choices drawn) {
  Sent& sent = sent_[index];
  sent.text += text;
  sent.drawn.insert(sent.drawn.end(), drawn.begin(), drawn.end());
  Json delta = news(sent, answers_->read(sent.text, false));
  if (delta.empty()) return nullptr;
  Json made{{"delta", std::move(delta)}};
  if (!sent.drawn.empty()) {
    sent.choices += sent.drawn.size();
    made["logprobs"] = logprobs(std::exchange(sent.drawn, {}));
  }
  made["finish_reason"] = nullptr;
  return made;
}

Json ChatCompletion::last_delta(std::size_t index, const models::Generated& answer) {
  const text::ChatAnswer parts = answers_->read(answer.text);
  Json made{{"delta", news(sent_[index], parts)}};
  if (options().logprobs) {
    made["logprobs"] = logprobs(Choices(answer.choices).subspan(sent_[index].choices));
  }
  made["finish_reason"] = reason(parts, answer);
  return made;
}

}  // namespace tenon::tool
