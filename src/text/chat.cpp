#include "base/utf8.hpp"
#include "unicode.hpp"

#include <tenon/error.hpp>
#include <tenon/text/chat.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

[[noreturn]] void refuse_template(std::string message) {
  throw Error(Errc::template_error, "chat template", std::move(message));
}

/// Python's str.strip(), which is Jinja's trim.
std::string_view trim(std::string_view text) {
  const auto is_space = [](char32_t c) { return has(c, trait_space) || (c >= 0x1C && c <= 0x1F); };
  std::size_t begin = 0;
  while (begin < text.size()) {
    const CodePoint c = code_point_at(text, begin);
    if (!is_space(c.value)) break;
    begin += c.length;
  }
  std::size_t end = begin;
  for (std::size_t i = begin; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.length;
    if (!is_space(c.value)) end = i;
  }
  return text.substr(begin, end - begin);
}

/// Takes one character of a Jinja string literal, undoing its escape.
char take_literal_character(std::string_view& text) {
  char c = text.front();
  text.remove_prefix(1);
  if (c != '\\' || text.empty()) return c;
  c = text.front();
  text.remove_prefix(1);
  if (c == 'n') return '\n';
  if (c == 't') return '\t';
  return c;
}

/// The literal between `opening` and `closing` that stands in one string of the template. Those
/// that a quote ends first are pieced together from variables and are not it.
std::optional<std::string> find_literal(std::string_view jinja, std::string_view opening,
                                        std::string_view closing) {
  for (std::size_t at = jinja.find(opening); at != std::string_view::npos;
       at = jinja.find(opening, at + 1)) {
    const char quote = at == 0 ? '\0' : jinja[at - 1];
    if (quote != '\'' && quote != '"') continue;
    std::string_view rest = jinja.substr(at + opening.size());
    if (rest.empty() || take_literal_character(rest) != '\n') continue;
    std::string literal;
    while (!rest.empty() && !rest.starts_with(closing) && rest.front() != quote) {
      literal.push_back(take_literal_character(rest));
    }
    if (rest.starts_with(closing)) return literal;
  }
  return std::nullopt;
}

/// The string that follows `opening` up to its quote.
std::optional<std::string> find_string_after(std::string_view jinja, std::string_view opening) {
  const std::size_t at = jinja.find(opening);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = jinja.substr(at + opening.size());
  if (rest.empty() || (rest.front() != '\'' && rest.front() != '"')) return std::nullopt;
  const char quote = rest.front();
  rest.remove_prefix(1);
  std::string literal;
  while (!rest.empty() && rest.front() != quote) literal.push_back(take_literal_character(rest));
  return literal;
}

std::optional<ChatFamily> recognise(std::string_view jinja) {
  // Phi-4 has <|im_start|>user<|im_sep|>: similar, but not ChatML.
  if (contains(jinja, "<|im_start|>") && contains(jinja, "<|im_end|>") &&
      !contains(jinja, "<|im_sep|>")) {
    return ChatFamily::chatml;
  }
  if (contains(jinja, "<start_of_turn>") && contains(jinja, "<end_of_turn>")) {
    return ChatFamily::gemma;
  }
  if (contains(jinja, "<|turn>") && contains(jinja, "<turn|>")) return ChatFamily::gemma4;
  if (contains(jinja, "<|start_header_id|>") && contains(jinja, "<|eot_id|>")) {
    return ChatFamily::llama3;
  }
  if (contains(jinja, "[INST]") && contains(jinja, "<<SYS>>")) return ChatFamily::llama2;
  return std::nullopt;
}

void append_content(Prompt& prompt, std::string_view content) {
  const std::size_t begin = prompt.text.size();
  prompt.text.append(content);
  if (!content.empty()) prompt.content.push_back({begin, prompt.text.size()});
}

/// What Gemma 4 said aloud: without what lies between "<|channel>" and "<channel|>", trimmed.
std::string without_thoughts(std::string_view content) {
  constexpr std::string_view opening = "<|channel>", closing = "<channel|>";
  std::string said;
  while (!content.empty()) {
    const std::string_view part = content.substr(0, content.find(closing));
    said += part.substr(0, part.find(opening));
    content.remove_prefix(std::min(content.size(), part.size() + closing.size()));
  }
  return std::string(trim(said));
}

/// Gemma's and Llama 2's templates raise an exception where turns do not alternate.
void check_alternation(std::span<const ChatMessage> turns) {
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::string_view expected = i % 2 == 0 ? "user" : "assistant";
    if (turns[i].role != expected) {
      refuse_template(fmt::format("turn {} has the role \"{}\" where \"{}\" is due", i,
                                  turns[i].role, expected));
    }
  }
}

}  // namespace

std::string_view spelling(ChatFamily family) noexcept {
  switch (family) {
    case ChatFamily::chatml:
      return "chatml";
    case ChatFamily::gemma:
      return "gemma";
    case ChatFamily::gemma4:
      return "gemma4";
    case ChatFamily::llama2:
      return "llama2";
    case ChatFamily::llama3:
      return "llama3";
  }
  return "unknown";
}

std::vector<std::int32_t> Prompt::encode(const Tokenizer& tokenizer) const {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true, .plain = content});
}

ChatFormat::ChatFormat(ChatFamily family, ChatVariables variables) : family_(family) {
  switch (family) {
    case ChatFamily::chatml:
      break;
    case ChatFamily::gemma:
    case ChatFamily::gemma4:
      bos_ = "<bos>";
      eos_ = "<eos>";
      starts_with_bos_ = trims_content_ = true;
      break;
    case ChatFamily::llama2:
      bos_ = "<s>";
      eos_ = "</s>";
      trims_content_ = true;
      break;
    case ChatFamily::llama3:
      bos_ = "<|begin_of_text|>";
      eos_ = "<|eot_id|>";
      starts_with_bos_ = trims_content_ = true;
      break;
  }
  if (variables.bos_token) bos_ = std::move(*variables.bos_token);
  if (variables.eos_token) eos_ = std::move(*variables.eos_token);
  today_ = std::move(variables.date).value_or("26 Jul 2024");
}

ChatFormat ChatFormat::from_template(std::string_view jinja, ChatVariables variables) {
  const auto family = recognise(jinja);
  if (!family) {
    refuse_template(
        "not one of the known families (chatml, gemma, gemma4, llama2, llama3); use raw mode, "
        "which sends "
        "the text as it is, or name a family");
  }
  const bool has_date = variables.date.has_value();
  ChatFormat format(*family, std::move(variables));
  switch (*family) {
    case ChatFamily::chatml:
      format.default_system_ = find_literal(jinja, "<|im_start|>system", "<|im_end|>");
      format.starts_with_bos_ = contains(jinja, "bos_token");
      format.trims_content_ = contains(jinja, "| trim") || contains(jinja, "|trim");
      break;
    case ChatFamily::gemma:
      format.allows_system_ = contains(jinja, "first_user_prefix");
      format.starts_with_bos_ = contains(jinja, "bos_token");
      break;
    case ChatFamily::gemma4:
      format.starts_with_bos_ = contains(jinja, "bos_token");
      format.joins_model_turns_ = contains(jinja, "continue_same_model_turn");
      format.opens_with_no_thought_ = contains(jinja, "'<|channel>thought\\n<channel|>'");
      break;
    case ChatFamily::llama2:
      break;
    case ChatFamily::llama3:
      format.starts_with_bos_ = contains(jinja, "bos_token");
      format.trims_content_ = contains(jinja, "| trim") || contains(jinja, "|trim");
      if (const std::size_t at = jinja.find("Cutting Knowledge Date: ");
          at != std::string_view::npos) {
        const std::string_view line = jinja.substr(at);
        format.knowledge_date_ = line.substr(0, line.find_first_of("\\\n'\""));
        const auto date = find_string_after(jinja, "set date_string = ");
        if (date && !has_date) format.today_ = *date;
      }
      break;
  }
  return format;
}

Prompt ChatFormat::format(std::span<const ChatMessage> messages, bool add_generation_prompt) const {
  if (messages.empty()) throw Error(Errc::bad_argument, "chat", "a conversation without messages");
  Prompt prompt;
  switch (family_) {
    case ChatFamily::chatml:
      prompt = format_chatml(messages);
      if (add_generation_prompt) prompt.text += "<|im_start|>assistant\n";
      break;
    case ChatFamily::gemma:
      prompt = format_gemma(messages);
      if (add_generation_prompt) prompt.text += "<start_of_turn>model\n";
      break;
    case ChatFamily::gemma4:
      prompt = format_gemma4(messages);
      if (add_generation_prompt) {
        prompt.text += "<|turn>model\n";
        if (opens_with_no_thought_) prompt.text += "<|channel>thought\n<channel|>";
      }
      break;
    case ChatFamily::llama2:
      prompt = format_llama2(messages);  // "[/INST]" itself hands over
      break;
    case ChatFamily::llama3:
      prompt = format_llama3(messages);
      if (add_generation_prompt) prompt.text += "<|start_header_id|>assistant<|end_header_id|>\n\n";
      break;
  }
  return prompt;
}

Prompt ChatFormat::format_chatml(std::span<const ChatMessage> messages) const {
  Prompt prompt;
  if (starts_with_bos_) prompt.text = bos_;
  if (default_system_ && messages.front().role != "system") {
    prompt.text += fmt::format("<|im_start|>system\n{}<|im_end|>\n", *default_system_);
  }
  for (const ChatMessage& message : messages) {
    prompt.text += "<|im_start|>";
    append_content(prompt, message.role);
    prompt.text += '\n';
    append_content(prompt, trims_content_ ? trim(message.content) : message.content);
    prompt.text += "<|im_end|>\n";
  }
  return prompt;
}

Prompt ChatFormat::format_gemma(std::span<const ChatMessage> messages) const {
  Prompt prompt;
  if (starts_with_bos_) prompt.text = bos_;
  std::string system;
  if (messages.front().role == "system") {
    if (!allows_system_) refuse_template("this template has no system role");
    system = messages.front().content + "\n\n";
    messages = messages.subspan(1);
  }
  check_alternation(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    prompt.text +=
        messages[i].role == "assistant" ? "<start_of_turn>model\n" : "<start_of_turn>user\n";
    if (i == 0) append_content(prompt, system);
    append_content(prompt, trim(messages[i].content));
    prompt.text += "<end_of_turn>\n";
  }
  return prompt;
}

Prompt ChatFormat::format_gemma4(std::span<const ChatMessage> messages) const {
  Prompt prompt;
  if (starts_with_bos_) prompt.text = bos_;
  bool was_model = false;
  for (const ChatMessage& message : messages) {
    const bool is_model = message.role == "assistant";
    if (!(is_model && was_model && joins_model_turns_)) {
      prompt.text += "<|turn>";
      append_content(prompt, is_model ? "model" : message.role);
      prompt.text += '\n';
    }
    append_content(
        prompt, is_model ? without_thoughts(message.content) : std::string(trim(message.content)));
    prompt.text += "<turn|>\n";
    was_model = is_model;
  }
  return prompt;
}

Prompt ChatFormat::format_llama2(std::span<const ChatMessage> messages) const {
  Prompt prompt;
  std::optional<std::string_view> system;
  if (messages.front().role == "system") {
    system = messages.front().content;
    messages = messages.subspan(1);
  }
  check_alternation(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "assistant") {
      prompt.text += ' ';
      append_content(prompt, trim(messages[i].content));
      prompt.text += ' ' + eos_;
      continue;
    }
    prompt.text += bos_ + "[INST] ";
    if (i == 0 && system) {
      // The template trims system and user text as one.
      const std::string joined =
          fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n{}", *system, messages[i].content);
      append_content(prompt, trim(joined));
    } else {
      append_content(prompt, trim(messages[i].content));
    }
    prompt.text += " [/INST]";
  }
  return prompt;
}

Prompt ChatFormat::format_llama3(std::span<const ChatMessage> messages) const {
  Prompt prompt;
  if (starts_with_bos_) prompt.text = bos_;
  const auto trimmed = [this](std::string_view content) {
    return trims_content_ ? trim(content) : content;
  };
  if (knowledge_date_) {
    prompt.text +=
        fmt::format("<|start_header_id|>system<|end_header_id|>\n\n{}\nToday Date: {}\n\n",
                    *knowledge_date_, today_);
    if (messages.front().role == "system") {
      append_content(prompt, trimmed(messages.front().content));
      messages = messages.subspan(1);
    }
    prompt.text += "<|eot_id|>";
  }
  for (const ChatMessage& message : messages) {
    prompt.text += "<|start_header_id|>";
    append_content(prompt, message.role);
    prompt.text += "<|end_header_id|>\n\n";
    append_content(prompt, trimmed(message.content));
    prompt.text += "<|eot_id|>";
  }
  return prompt;
}

std::vector<std::string> ChatFormat::stop_tokens() const {
  switch (family_) {
    case ChatFamily::chatml:
      return {"<|im_end|>", "<|endoftext|>"};
    case ChatFamily::gemma:
      return {"<end_of_turn>", eos_};
    case ChatFamily::gemma4:
      return {"<turn|>", eos_};
    case ChatFamily::llama2:
      return {eos_};
    case ChatFamily::llama3:
      return {"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"};
  }
  return {};
}

}  // namespace tenon::text
