#include "prompt_cache.hpp"

#include <tenon/error.hpp>

#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon::tool {

Option PromptCache::add_to(Command& command, const std::string& help, bool with_answers) {
  Option file = command.option("--prompt-cache", path_, help).not_empty();
  Option read_only = command.flag("--prompt-cache-ro", is_read_only_,
                                  "Use the file of --prompt-cache, do not write it");
  read_only.needs(file);
  if (with_answers) {
    command
        .flag(
            "--prompt-cache-all", with_answers_,
            "Write the answer to the file of --prompt-cache, too: the next prompt may continue it")
        .needs(file)
        .excludes(read_only);
  }
  return file;
}

void PromptCache::check() const {
  if (!is_used() || is_read_only_) return;
  const std::filesystem::path given = std::filesystem::path(path_).parent_path();
  const std::filesystem::path folder = given.empty() ? "." : given;
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown)) {
    throw Error(Errc::io_error, path_,
                fmt::format("--prompt-cache is to be written there, but there is no folder '{}'",
                            folder.string()));
  }
  if (std::filesystem::is_directory(path_, unknown)) {
    throw Error(Errc::io_error, path_, "--prompt-cache names a folder, not a file");
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    throw Error(Errc::io_error, path_,
                fmt::format("--prompt-cache is to be written there, but '{}' is not writable",
                            folder.string()));
  }
}

models::Conversation PromptCache::conversation(const models::LanguageModel& model) const {
  std::error_code unknown;
  const bool is_new = !is_used() || !std::filesystem::exists(path_, unknown) ||
                      (std::filesystem::is_regular_file(path_, unknown) &&
                       std::filesystem::file_size(path_, unknown) == 0);
  return is_new ? model.conversation() : model.restore(path_);
}

void PromptCache::save(const models::Conversation& conversation) const {
  if (is_used() && !is_read_only_) conversation.save(path_);
}

}  // namespace tenon::tool
