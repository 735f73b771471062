// --prompt-cache: what a model has read of a prompt, kept in a file from one start to the next.
#pragma once

#include "command.hpp"

#include <tenon/models/language_model.hpp>

#include <string>

namespace tenon::tool {

class PromptCache {
 public:
  /// Adds --prompt-cache and --prompt-cache-ro, and `--prompt-cache-all` where answers may be kept,
  /// too.
  Option add_to(Command& command, const std::string& help, bool with_answers);

  bool is_used() const noexcept { return !path_.empty(); }
  bool has_answers() const noexcept { return with_answers_; }

  /// To be called before the work begins: Errc::io_error where the file could not be written, for
  /// want of its folder or of the right to write there.
  void check() const;
  /// The conversation of the file; a new one where there is no file, or an empty one, as mktemp makes
  /// it. Errors: those of LanguageModel::restore().
  models::Conversation conversation(const models::LanguageModel& model) const;
  /// Writes it, unless there is no file to write.
  void save(const models::Conversation& conversation) const;

 private:
  std::string path_;
  bool with_answers_ = false;
  bool is_read_only_ = false;
};

}  // namespace tenon::tool
