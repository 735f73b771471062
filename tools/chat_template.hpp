// The chat template of the commands that format messages: --chat-template and what belongs to it.
#pragma once

#include "command.hpp"

#include <tenon/models/language_model.hpp>

#include <optional>
#include <string>

namespace tenon::tool {

class ChatTemplateOptions {
 public:
  void add_to(Command& command);

  /// Whether a template is given in place of the file's.
  bool is_given() const { return !text_.empty() || !file_.empty(); }
  /// The template that is given, or the file's; none without both. Errors: those of
  /// text::ChatFormat::from_template.
  std::optional<text::ChatFormat> format(const models::LanguageModel& model) const;

 private:
  std::string text_, file_, values_;
};

}  // namespace tenon::tool
