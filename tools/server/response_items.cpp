#include "server/response_items.hpp"

#include "server/completion.hpp"

#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

std::string new_id(std::string_view kind) {
  return fmt::format("{}_{:016x}", kind, random_number());
}

}  // namespace

void ResponseItems::add(const Json& delta) {
  const RequestFields fields(delta);
  if (const auto text = fields.text("reasoning_content")) add_text(Kind::reasoning, *text);
  if (const auto text = fields.text("content")) add_text(Kind::message, *text);
  if (const Json* calls = fields.array("tool_calls")) {
    for (const Json& call : *calls) add_call(call);
  }
}

void ResponseItems::add_text(Kind kind, const std::string& text) {
  if (text.empty()) return;
  if (kind_ != kind) {
    end_text("completed", Json::array());
    kind_ = kind;
    id_ = new_id(kind == Kind::message ? "msg" : "rs");
    begin_item(item(Json::array(), "in_progress"));
    Json added = of_text("response.content_part.added");
    added["part"] = part("", Json::array());
    emit_(std::move(added));
  }
  text_ += text;
  if (kind == Kind::reasoning) reasoning_ += text;
  Json grown = of_text(fmt::format("{}.delta", text_event()));
  grown["delta"] = text;
  if (kind == Kind::message) grown["logprobs"] = Json::array();
  emit_(std::move(grown));
}

void ResponseItems::end(std::string_view status, const Json& logprobs) {
  if (kind_ == Kind::message) return end_text(status, logprobs);
  end_text(status, Json::array());
  for (auto item = items_.rbegin(); item != items_.rend(); ++item) {
    if (item->at("type") != "message") continue;
    (*item)["content"][0]["logprobs"] = logprobs;
    return;
  }
}

void ResponseItems::end_text(std::string_view status, const Json& logprobs) {
  if (kind_ == Kind::none) return;
  Json done = of_text(fmt::format("{}.done", text_event()));
  done["text"] = text_;
  if (kind_ == Kind::message) done["logprobs"] = logprobs;
  emit_(std::move(done));
  Json part_done = of_text("response.content_part.done");
  part_done["part"] = part(text_, logprobs);
  emit_(std::move(part_done));
  end_item(item(Json::array({part(text_, logprobs)}), status));
  kind_ = Kind::none;
  text_.clear();
}

void ResponseItems::add_call(const Json& call) {
  end_text("completed", Json::array());
  const Json& function = call.at("function");
  Json made{{"id", new_id("fc")},          {"type", "function_call"}, {"call_id", call.at("id")},
            {"name", function.at("name")}, {"arguments", ""},         {"status", "in_progress"}};
  begin_item(made);
  Json event{{"type", "response.function_call_arguments.delta"},
             {"item_id", made["id"]},
             {"output_index", items_.size()},
             {"delta", function.at("arguments")}};
  emit_(event);
  event["type"] = "response.function_call_arguments.done";
  event.erase("delta");
  event["name"] = made["name"];
  event["arguments"] = made["arguments"] = function.at("arguments");
  emit_(std::move(event));
  made["status"] = "completed";
  end_item(std::move(made));
}

void ResponseItems::begin_item(Json item) {
  emit_({{"type", "response.output_item.added"},
         {"output_index", items_.size()},
         {"item", std::move(item)}});
}

void ResponseItems::end_item(Json item) {
  emit_({{"type", "response.output_item.done"}, {"output_index", items_.size()}, {"item", item}});
  items_.push_back(std::move(item));
}

Json ResponseItems::item(Json content, std::string_view status) const {
  Json made{{"id", id_}};
  if (kind_ == Kind::message) {
    made.update({{"type", "message"}, {"role", "assistant"}});
  } else {
    made.update({{"type", "reasoning"}, {"summary", Json::array()}});
  }
  made["content"] = std::move(content);
  made["status"] = status;
  return made;
}

Json ResponseItems::part(const std::string& text, const Json& logprobs) const {
  if (kind_ == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", logprobs}};
}

Json ResponseItems::of_text(std::string type) const {
  return {{"type", std::move(type)},
          {"item_id", id_},
          {"output_index", items_.size()},
          {"content_index", 0}};
}

std::string_view ResponseItems::text_event() const {
  return kind_ == Kind::message ? "response.output_text" : "response.reasoning_text";
}

}  // namespace tenon::tool
