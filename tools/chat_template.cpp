#include "chat_template.hpp"

#include "tool.hpp"

#include <tenon/models/vocabulary.hpp>

namespace tenon::tool {

void ChatTemplateOptions::add_to(Command& command) {
  const Option text = command.option(
      "--chat-template", text_,
      "A chat template in place of the file's: chatml, gemma, gemma4, llama2, llama3, or Jinja");
  command.option("--chat-template-file", file_, "A file that holds one").excludes(text);
  command.option("--chat-template-kwargs", values_,
                 "Variables of the template, as a JSON object: '{\"enable_thinking\": false}'");
}

std::optional<text::ChatFormat> ChatTemplateOptions::format(
    const models::LanguageModel& model) const {
  const text::ChatVariables variables{.more = values_};
  if (!is_given()) return model.chat_format(variables);
  for (const auto family :
       {text::ChatFamily::chatml, text::ChatFamily::gemma, text::ChatFamily::gemma4,
        text::ChatFamily::llama2, text::ChatFamily::llama3}) {
    if (text_ == spelling(family)) {
      return text::ChatFormat(family, models::chat_variables(model.tokenizer(), variables));
    }
  }
  return text::ChatFormat::from_template(file_.empty() ? text_ : read_text(file_),
                                         models::chat_variables(model.tokenizer(), variables));
}

}  // namespace tenon::tool
