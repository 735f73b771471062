#include "line_reader.hpp"

#include "terminal.hpp"

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string_view>

#include <fmt/format.h>
#include <langinfo.h>
#include <unistd.h>

#ifdef TENON_WITH_LIBEDIT
#include <histedit.h>
#endif

namespace tenon::tool {

#ifdef TENON_WITH_LIBEDIT

namespace {

/// The editor reads characters as the locale encodes them; what models read is UTF-8.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineReader::Editor {
  Editor() {
    use_utf8();
    history = history_init();
    line = el_init("tenon", stdin, stderr, stderr);
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(line, EL_CLIENTDATA, this);
    el_set(line, EL_PROMPT, &prompt_of);
    el_set(line, EL_HIST, ::history, history);
    el_set(line, EL_EDITOR, "emacs");
    // Ctrl-C and Ctrl-Z are keys here, so that the terminal is given back as it was.
    el_set(line, EL_SETTY, "-d", "-isig", nullptr);
    el_set(line, EL_ADDFN, "tenon-end", "Ends the input", &end_input);
    el_set(line, EL_BIND, "^C", "tenon-end", nullptr);
    el_set(line, EL_ADDFN, "tenon-stop", "Stops the program until the shell continues it", &stop);
    el_set(line, EL_BIND, "^Z", "tenon-stop", nullptr);
    el_source(line, nullptr);  // ~/.editrc
  }
  ~Editor() {
    el_end(line);
    history_end(history);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  std::optional<std::string> read(const std::string& shown) {
    prompt = shown;
    interrupted = false;
    int count = 0;
    const char* const text = el_gets(line, &count);
    if (text == nullptr || count <= 0 || interrupted) {
      std::fputs("\n", stderr);
      return std::nullopt;
    }
    std::string result(text, static_cast<std::size_t>(count));
    HistEvent event;
    if (result.find_first_not_of(" \t\n") != std::string::npos) {
      ::history(history, &event, H_ENTER, text);
    }
    if (result.ends_with('\n')) result.pop_back();
    return result;
  }

  static Editor& of(EditLine* line) {
    Editor* self = nullptr;
    el_get(line, EL_CLIENTDATA, &self);
    return *self;
  }
  static char* prompt_of(EditLine* line) { return of(line).prompt.data(); }
  static unsigned char end_input(EditLine* line, int) {
    of(line).interrupted = true;
    return CC_EOF;
  }
  static unsigned char stop(EditLine* line, int) {
    el_set(line, EL_PREP_TERM, 0);
    ::kill(0, SIGTSTP);  // whatever runs with it in one job
    el_set(line, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }

  History* history = nullptr;
  EditLine* line = nullptr;
  std::string prompt;
  bool interrupted = false;
};

#else

struct LineReader::Editor {
  static std::optional<std::string> read(const std::string&) { return std::nullopt; }
};

#endif

LineReader::LineReader() : is_terminal_(tool::is_terminal(STDIN_FILENO)) {
#ifdef TENON_WITH_LIBEDIT
  if (is_terminal_ && tool::is_terminal(STDERR_FILENO)) editor_ = std::make_unique<Editor>();
#endif
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::read(const std::string& prompt) {
  if (editor_ != nullptr) return editor_->read(prompt);
  if (is_terminal_) fmt::print(stderr, "{}", prompt);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

}  // namespace tenon::tool
