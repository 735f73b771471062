#include "server/responses.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

/// Makes a chat's messages of a response's input.
class Messages {
 public:
  explicit Messages(const std::optional<std::string>& instructions) {
    if (instructions) add("system", *instructions);
  }

  void add_input(const Json& input) {
    if (input.is_string()) return add("user", input);
    if (!input.is_array())
      throw MemberError(Errc::bad_type, "input", "is no text and no array of items");
    for (std::size_t i = 0; i < input.size(); ++i) {
      add_item(RequestFields(input[i], fmt::format("input[{}]", i)));
    }
  }

  Json take() { return std::move(messages_); }

 private:
  void add_item(const RequestFields& item) {
    const std::string type = item.text("type").value_or("message");
    if (type == "message") {
      add_message(item);
    } else if (type == "reasoning") {
      // Behind an answer or its calls it begins another turn.
      Json& turn = open_turn({"content", "tool_calls"});
      if (!turn.contains("reasoning_content")) turn["reasoning_content"] = "";
      auto& text = turn["reasoning_content"].get_ref<std::string&>();
      if (!text.empty()) text += '\n';
      text += reasoning(item);
    } else if (type == "function_call") {
      add_call(item);
    } else if (type == "function_call_output") {
      add_result(item);
    } else {
      throw MemberError(
          Errc::unsupported, item.path("type"),
          fmt::format("is '{}'; this server knows message, reasoning, function_call and "
                      "function_call_output",
                      type));
    }
  }

  void add_message(const RequestFields& item) {
    item.at("role");
    const std::string role = item.text("role").value_or("");
    Json content = parts(item, "content");
    if (role == "assistant") {
      open_turn({"content", "tool_calls"})["content"] = std::move(content);
    } else {
      add(role == "developer" ? "system" : role, std::move(content));
    }
  }

  void add_call(const RequestFields& item) {
    item.at("call_id");
    item.at("name");
    const std::string id = *item.text("call_id"), name = *item.text("name");
    names_[id] = name;
    open_turn({})["tool_calls"].push_back(
        {{"id", id},
         {"type", "function"},
         {"function", {{"name", name}, {"arguments", item.text("arguments").value_or("{}")}}}});
  }

  void add_result(const RequestFields& item) {
    item.at("call_id");
    const std::string id = *item.text("call_id");
    Json message{{"role", "tool"}, {"content", parts(item, "output")}, {"tool_call_id", id}};
    if (const auto name = names_.find(id); name != names_.end()) message["name"] = name->second;
    push(std::move(message));
  }

  static std::string reasoning(const RequestFields& item) {
    std::string text;
    for (const char* member : {"content", "summary"}) {
      const Json* parts = item.array(member);
      if (parts == nullptr || !text.empty()) continue;
      for (std::size_t i = 0; i < parts->size(); ++i) {
        const RequestFields part((*parts)[i], fmt::format("{}[{}]", item.path(member), i));
        if (!text.empty()) text += '\n';
        text += part.text("text").value_or("");
      }
    }
    return text;
  }

  /// A text, or parts as chats have them where there is an image among them.
  static Json parts(const RequestFields& item, const char* member) {
    const Json* given = item.find(member);
    if (given == nullptr || given->is_string()) return given == nullptr ? Json("") : *given;
    if (!given->is_array()) {
      throw MemberError(Errc::bad_type, item.path(member), "is no text and no array of parts");
    }
    Json made = Json::array();
    std::string texts;
    bool has_image = false;
    for (std::size_t i = 0; i < given->size(); ++i) {
      const RequestFields part((*given)[i], fmt::format("{}[{}]", item.path(member), i));
      const std::string type = part.text("type").value_or("");
      if (type == "input_image") {
        has_image = true;
        made.push_back({{"type", "image_url"}, {"image_url", {{"url", image_data(part)}}}});
      } else if (type == "input_text" || type == "output_text" || type == "refusal") {
        const std::string text = part.text(type == "refusal" ? "refusal" : "text").value_or("");
        if (!texts.empty()) texts += '\n';
        texts += text;
        made.push_back({{"type", "text"}, {"text", text}});
      } else {
        throw MemberError(Errc::unsupported, part.path("type"),
                          fmt::format("is '{}', not input_text, output_text or input_image", type));
      }
    }
    return has_image ? made : Json(texts);
  }

  static std::string image_data(const RequestFields& part) {
    std::string url = part.text("image_url").value_or("");
    if (!url.starts_with("data:")) {
      throw MemberError(Errc::unsupported, part.path("image_url"),
                        "images are given as \"data:image/png;base64,...\"; this server loads no "
                        "addresses and keeps no files");
    }
    return url;
  }

  /// The turn of the assistant that the input ends with, unless it has one of these members: then a new one.
  Json& open_turn(std::initializer_list<const char*> without) {
    bool is_open = !messages_.empty() && messages_.back().at("role") == "assistant";
    for (const char* member : without) is_open = is_open && !messages_.back().contains(member);
    if (!is_open) push({{"role", "assistant"}});
    return messages_.back();
  }

  /// Templates take one system message: texts of several at the beginning are one.
  void add(const std::string& role, Json content) {
    if (role == "system" && messages_.size() == 1 && messages_[0].at("role") == "system" &&
        messages_[0].at("content").is_string() && content.is_string()) {
      auto& text = messages_[0]["content"].get_ref<std::string&>();
      (text += "\n\n") += content.get_ref<const std::string&>();
      return;
    }
    push({{"role", role}, {"content", std::move(content)}});
  }

  void push(Json message) { messages_.push_back(std::move(message)); }

  Json messages_ = Json::array();
  std::map<std::string, std::string>
      names_;  // of the functions that were called, by the calls' ids
};

/// {"type": "function", "name": ...} as chats have it: with a member "function".
Json chat_tool(const RequestFields& tool) {
  const std::string type = tool.text("type").value_or("");
  if (type != "function") {
    throw MemberError(Errc::unsupported, tool.path("type"),
                      fmt::format("is '{}'; this server knows functions alone", type));
  }
  check_function(tool);
  Json function = Json::object();
  for (const char* member : {"name", "description", "parameters", "strict"}) {
    if (const Json* value = tool.find(member)) function[member] = *value;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

/// text.format as chats have it: response_format.
Json chat_format(const RequestFields& format) {
  format.at("type");
  const std::string type = *format.text("type");
  if (type == "text" || type == "json_object") return {{"type", type}};
  if (type != "json_schema") {
    throw MemberError(Errc::unsupported, format.path("type"),
                      fmt::format("is '{}', not text, json_object or json_schema", type));
  }
  return {{"type", type}, {"json_schema", {{"schema", format.at("schema")}}}};
}

void refuse(const RequestFields& fields, std::string_view member, std::string_view why) {
  if (fields.find(member) != nullptr) {
    throw MemberError(Errc::unsupported, fields.path(member), std::string(why));
  }
}

bool wants_logprobs(const RequestFields& fields) {
  for (const std::string& what : fields.texts("include")) {
    if (what == "message.output_text.logprobs") return true;
  }
  return false;
}

/// Members of a chat as the response that it was made of calls them.
std::string member_of_response(std::string_view member) {
  if (member.starts_with("messages")) return "input";
  if (member.starts_with("response_format")) return "text.format";
  if (member == "max_tokens") return "max_output_tokens";
  if (member == "logprobs") return "include";
  constexpr std::string_view function =
      "].function";  // a response's tools have its members themselves
  std::string name(member);
  if (const std::size_t at = name.find(function); name.starts_with("tools[") && at != name.npos) {
    name.erase(at + 1, function.size() - 1);
  }
  return name;
}

/// A chat of a response's request, whose errors name the response's members.
ChatCompletion chat_of(const ServedModel& served, const Json& chat) try {
  return {served, RequestFields(chat)};
} catch (const PromptTooLong& error) {
  throw PromptTooLong(error.code(), member_of_response(error.where()), error.message());
} catch (const MemberError& error) {
  throw MemberError(error.code(), member_of_response(error.where()), error.message());
}

}  // namespace

Json chat_request(const RequestFields& fields) {
  for (const char* member : {"previous_response_id", "conversation"}) {
    refuse(fields, member, "names what this server would have kept: it keeps no responses");
  }
  refuse(fields, "prompt", "names a prompt that this server would have kept");
  fields.refuse_other_than("background", false);
  fields.refuse_other_than("truncation", "disabled");
  // The response has these as the request does.
  if (const Json* reasoning = fields.object("reasoning")) {
    const RequestFields members(*reasoning, "reasoning");
    for (const char* member : {"effort", "summary"}) members.text(member);
  }
  if (const Json* metadata = fields.object("metadata")) {
    const RequestFields members(*metadata, "metadata");
    for (const auto& member : metadata->items()) members.text(member.key());
  }
  fields.flag("parallel_tool_calls");
  Json chat = fields.all();
  for (const char* member : {"input", "instructions", "tools", "tool_choice", "text", "include",
                             "max_output_tokens", "top_logprobs",
                             // A chat's own members, which are none of a response's:
                             "n", "stream_options", "max_tokens", "max_completion_tokens",
                             "logprobs", "response_format", "messages"}) {
    chat.erase(member);
  }
  Messages messages(fields.text("instructions"));
  messages.add_input(fields.at("input"));
  chat["messages"] = messages.take();
  if (const Json* tools = fields.array("tools"); tools != nullptr && !tools->empty()) {
    for (std::size_t i = 0; i < tools->size(); ++i) {
      chat["tools"].push_back(chat_tool(RequestFields((*tools)[i], fmt::format("tools[{}]", i))));
    }
  }
  if (const Json* choice = fields.find("tool_choice")) {
    chat["tool_choice"] =
        choice->is_object() ? chat_tool(RequestFields(*choice, "tool_choice")) : *choice;
  }
  if (const Json* text = fields.object("text")) {
    if (const Json* format = RequestFields(*text, "text").object("format")) {
      chat["response_format"] = chat_format(RequestFields(*format, "text.format"));
    }
  }
  if (const auto most = fields.integer("max_output_tokens", 1)) chat["max_tokens"] = *most;
  if (wants_logprobs(fields)) {
    chat["logprobs"] = true;
    if (const Json* top = fields.find("top_logprobs")) chat["top_logprobs"] = *top;
  }
  return chat;
}

Responses::Responses(const ServedModel& served, const RequestFields& fields)
    : Responses(served, fields, chat_request(fields)) {}

Responses::Responses(const ServedModel& served, const RequestFields& fields, const Json& chat)
    : chat_(chat_of(served, chat)),
      tokenizer_(served.model.tokenizer()),
      items_([this](Json event) { emit(std::move(event)); }) {
  const nn::SamplerOptions& sampler = std::as_const(chat_).options().sampler;
  const auto given = [&](const char* member, Json otherwise) {
    const Json* value = fields.find(member);
    return value == nullptr ? std::move(otherwise) : *value;
  };
  frame_ = {{"id", fmt::format("resp_{:016x}", random_number())},
            {"object", "response"},
            {"created_at", seconds_since_1970()},
            {"status", ""},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", given("instructions", nullptr)},
            {"max_output_tokens", given("max_output_tokens", nullptr)},
            {"model", served.name},
            {"output", Json::array()},
            {"parallel_tool_calls", given("parallel_tool_calls", true)},
            {"previous_response_id", nullptr},
            {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
            {"store", false},
            {"temperature", sampler.temperature},
            {"text", given("text", {{"format", {{"type", "text"}}}})},
            {"tool_choice", given("tool_choice", "auto")},
            {"tools", given("tools", Json::array())},
            {"top_p", given("top_p", sampler.top_p)},
            {"truncation", "disabled"},
            {"usage", nullptr},
            {"metadata", given("metadata", Json::object())}};
}

void Responses::emit(Json event) {
  if (!is_stream()) return;
  const std::string type = event.at("type");
  event["sequence_number"] = sequence_++;
  events_ += fmt::format("event: {}\n{}", type, tool::event(event));
}

std::string Responses::take_events() { return std::exchange(events_, {}); }

Json Responses::as_json(std::string_view status) const {
  Json made = frame_;
  made["status"] = status;
  made["output"] = items_.items();
  made["usage"] = usage_;
  if (status == "incomplete") made["incomplete_details"] = {{"reason", "max_output_tokens"}};
  return made;
}

void Responses::finish(const models::Generated& answer) {
  const Json last = chat_.last_delta(0, answer);
  status_ = last.at("finish_reason") == "length" ? "incomplete" : "completed";
  items_.add(last.at("delta"));
  const auto logprobs = last.find("logprobs");
  items_.end(status_, logprobs == last.end() ? Json::array() : logprobs->at("content"));
  const auto reasoning =
      std::min(std::ssize(tokenizer_.encode(items_.reasoning(), {.add_special = false})),
               std::ssize(answer.tokens));
  usage_ = {{"input_tokens", answer.prompt_tokens},
            {"input_tokens_details",
             {{"cached_tokens", answer.reused_tokens}, {"cache_write_tokens", 0}}},
            {"output_tokens", answer.tokens.size()},
            {"output_tokens_details", {{"reasoning_tokens", reasoning}}},
            {"total_tokens", answer.prompt_tokens + std::ssize(answer.tokens)}};
}

Json Responses::response(const std::vector<models::Generated>& answers) {
  chat_.first_delta(0);
  finish(answers.at(0));
  return as_json(status_);
}

std::string Responses::beginning() {
  chat_.first_delta(0);
  for (const char* type : {"response.created", "response.in_progress"}) {
    emit({{"type", type}, {"response", as_json(status_)}});
  }
  return take_events();
}

std::string Responses::failed(const std::exception_ptr& error) {
  const Json what = described(error).at("error");
  emit({{"type", "error"},
        {"code", what.at("code")},
        {"message", what.at("message")},
        {"param", what.at("param")}});
  Json response = as_json("failed");
  response["error"] = {{"code", what.at("code")}, {"message", what.at("message")}};
  emit({{"type", "response.failed"}, {"response", std::move(response)}});
  return take_events();
}

std::string Responses::piece(const AnswerEvent& next) {
  if (!next.end) {
    const Json delta = chat_.delta(0, next.text, {});  // log-probabilities come with the item
    if (!delta.is_null()) items_.add(delta.at("delta"));
  } else if (const std::exception_ptr error = failure(*next.end)) {
    return failed(error);
  } else {
    finish(next.end->answer);
    emit({{"type", fmt::format("response.{}", status_)}, {"response", as_json(status_)}});
  }
  return take_events();
}

}  // namespace tenon::tool
