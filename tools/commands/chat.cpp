#include "base/suggestion.hpp"
#include "chat_template.hpp"
#include "dialogue.hpp"
#include "draft_options.hpp"
#include "interrupts.hpp"
#include "line_reader.hpp"
#include "picture.hpp"
#include "prompt_cache.hpp"
#include "terminal.hpp"
#include "tool.hpp"
#include "vision_options.hpp"

#include <tenon/error.hpp>
#include <tenon/printable.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string system;
  bool raw = false;
  ChatTemplateOptions chat_template;
  VisionOptions vision;
  GenerationOptions generation{.generate = {.max_tokens = 512}};
  DraftOptions draft;
  PromptCache cache;
};

constexpr std::string_view help =
    "/system TEXT  set the system message; without TEXT, none\n"
    "/clear        forget the conversation, keep the system message\n"
    "/image FILE   a picture for the next message (with --mmproj): at its next <__media__>, or "
    "before a\n"
    "              text without any; without FILE, none of those that were given for it\n"
    "/save FILE    write the conversation to a file of JSON\n"
    "/help         this list\n"
    "/exit         end, as the end of the input (Ctrl-D) does\n"
    "//TEXT        a message that begins with /\n"
    "A line that ends in \\ continues in the next one; between lines of \"\"\" a message may have "
    "any\n"
    "number of lines. Ctrl-C ends an answer, at the prompt the program.\n";

const std::vector<std::string_view> commands = {"/system", "/clear", "/image",
                                                "/save",   "/help",  "/exit"};

/// Reads messages from standard input, answers them, and executes the commands /WORD.
class ChatLoop {
 public:
  /// `encoder`: null where there is none.
  ChatLoop(const Tool& tool, const models::LanguageModel& model,
           const models::VisionEncoder* encoder, Dialogue& dialogue, Interrupts& interrupts)
      : tool_(tool),
        model_(model),
        encoder_(encoder),
        dialogue_(dialogue),
        interrupts_(interrupts) {}

  void run() {
    if (lines_.is_terminal() && !tool_.json) {
      fmt::print(stderr, "/help lists commands; Ctrl-C ends an answer, Ctrl-D the chat\n");
    }
    while (!ended_) {
      std::optional<std::string> message = read_message();
      if (!message) break;
      if (message->empty()) continue;
      if (message->starts_with("//")) {
        message->erase(0, 1);
      } else if (message->front() == '/') {
        obey(*message);
        continue;
      }
      answer(*message);
    }
  }
  const Json& turns() const { return turns_; }

 private:
  static void say(std::string_view text) {
    fmt::print(stderr, "{}\n", text);
    std::fflush(stderr);
  }

  /// One or several lines; nothing at the end of the input.
  std::optional<std::string> read_message() {
    constexpr std::string_view fence = "\"\"\"";
    constexpr const char* more = "... ";
    std::optional<std::string> line = lines_.read("> ");
    if (!line) return line;
    std::string message;
    if (line->starts_with(fence)) {
      line->erase(0, fence.size());
      while (line && !line->ends_with(fence)) {
        message += *line + '\n';
        line = lines_.read(more);
      }
      if (line) message += line->substr(0, line->size() - fence.size());
      const std::size_t begin = std::min(message.find_first_not_of('\n'), message.size());
      message.erase(0, begin);
      while (message.ends_with('\n')) message.pop_back();
      return message;
    }
    while (line && line->ends_with('\\')) {
      line->back() = '\n';
      message += *line;
      line = lines_.read(more);
    }
    return message + line.value_or("");
  }

  void obey(const std::string& line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string command = line.substr(0, space);
    const std::string argument =
        line.substr(std::min(line.find_first_not_of(' ', space), line.size()));
    try {
      if (command == "/help") {
        say(help);
      } else if (command == "/exit") {
        ended_ = true;
      } else if (command == "/clear") {
        dialogue_.clear();
        say("[the conversation is forgotten]");
      } else if (command == "/system") {
        dialogue_.set_system(argument);
        say(argument.empty() ? "[no system message]" : "[system message set]");
      } else if (command == "/image") {
        add_picture(argument);
      } else if (command == "/save") {
        save(argument);
      } else {
        say(fmt::format("[no command {}{}; /help lists them, // begins a message with /]",
                        printable(command), suggestion(command, commands)));
      }
    } catch (const Error& error) {
      say(fmt::format("[{}]", error.what()));
    }
  }

  void save(const std::string& path) const {
    if (path.empty()) throw Error(Errc::bad_argument, "/save", "needs the name of a file");
    Json messages = Json::array();
    for (const text::ChatMessage& message : dialogue_.messages()) {
      messages.push_back({{"role", message.role}, {"content", message.content}});
    }
    Json saved{{"model", tool_.model}, {"messages", messages}};
    if (const auto paths = dialogue_.pictures(); !paths.empty()) saved["images"] = paths;
    std::ofstream out(path, std::ios::binary);
    out << saved.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    out.close();
    if (!out) throw Error(Errc::io_error, path, "cannot be written");
    say(fmt::format("[{} messages in {}]", messages.size(), path));
  }

  void add_picture(const std::string& path) {
    if (encoder_ == nullptr) {
      throw Error(Errc::bad_argument, "/image", "the chat was started without --mmproj");
    }
    if (path.empty()) {
      pictures_.clear();
      say("[no pictures for the next message]");
      return;
    }
    const HostBuffer pixels = read_picture(path);
    Interrupts& interrupts = interrupts_;
    const std::stop_token stop = interrupts.begin();
    try {
      pictures_.push_back(
          {path, models::encode_image(model_, *encoder_, pixels, {.cancel = stop})});
    } catch (...) {
      interrupts.end();
      throw;
    }
    interrupts.end();
    std::int64_t embeddings = 0;
    for (const models::PromptPart& part : pictures_.back().image.parts) {
      embeddings += part.positions();
    }
    say(fmt::format("[{}: {} x {} pixels, {} embeddings]", printable(path), pixels.shape()[1],
                    pixels.shape()[0], embeddings));
  }

  void answer(const std::string& message) {
    models::Interrupt interrupt;
    interrupt.cancel = interrupts_.begin();
    Dialogue::Answer answer;
    try {
      answer = dialogue_.answer(
          message, pictures_, interrupt,
          tool_.json ? std::function<void(std::string_view)>()
                     : [](std::string_view text) { show(text); });
    } catch (const Error& error) {
      interrupts_.end();
      // Such as a message that does not fit, or that the template refuses: another one may do.
      if (tool_.json) {
        turns_.push_back({{"user", message}, {"error", error.message()}});
      } else {
        say(fmt::format("[{}]", error.what()));
      }
      return;
    }
    interrupts_.end();
    pictures_.clear();
    if (tool_.json) {
      Json turn{{"user", message}, {"assistant", answer.generated.text}};
      turn.update(described(answer.generated, model_.tokenizer()));
      turn["turns_left_out"] = answer.left_out;
      turns_.push_back(std::move(turn));
    } else {
      print_facts(answer);
    }
  }

  void print_facts(const Dialogue::Answer& answer) {
    using End = models::Generated::End;
    const models::Generated& made = answer.generated;
    fmt::print("\n");
    std::fflush(stdout);
    std::string facts =
        fmt::format("prompt {} tokens at {:.1f} tokens/s, answer {} tokens at {:.1f} tokens/s{}",
                    made.prompt_tokens, made.prefill_tokens_per_second(), made.tokens.size(),
                    made.decode_tokens_per_second(), drafts_of(made));
    if (made.end == End::cancelled) facts += "; cancelled";
    if (made.end == End::length) facts += "; cut at --max-tokens";
    if (made.end == End::context) facts += "; cut, since the context is full";
    if (answer.left_out > left_out_) {
      facts += fmt::format("; the context is full: the oldest {} turns are left out from now on",
                           answer.left_out);
    }
    left_out_ = answer.left_out;
    say(fmt::format("[{}]", facts));
  }

  const Tool& tool_;
  const models::LanguageModel& model_;
  const models::VisionEncoder* encoder_;
  Dialogue& dialogue_;
  Interrupts& interrupts_;
  LineReader lines_;
  std::vector<MessagePicture> pictures_;  // of the next message
  Json turns_ = Json::array();
  std::size_t left_out_ = 0;
  bool ended_ = false;
};

void run(const Tool& tool, const Options& options) {
  const auto grammar = options.generation.grammar.read();
  options.cache.check();
  Interrupts interrupts;
  const auto model =
      models::LanguageModel::load(tool.model, tool.language_model(interrupts.begin()));
  std::optional<models::VisionEncoder> encoder;
  if (options.vision.is_given()) {
    encoder = options.vision.load(tool);
    models::check_compatible(model, *encoder);
  }
  interrupts.end();
  auto format = options.raw ? std::nullopt : options.chat_template.format(model);
  if (!format && !options.raw) {
    throw Error(Errc::template_error, tool.model,
                "the file has no chat template; give --chat-template, or --raw for plain text");
  }
  std::string source;
  models::GenerateOptions generate = options.generation.for_model(model, source);
  generate.grammar = grammar;
  generate.draft = options.draft.for_model(tool, model, interrupts.begin());
  interrupts.end();
  Dialogue dialogue(model, std::move(format), generate, options.cache.conversation(model),
                    encoder.has_value());
  dialogue.set_system(options.system);
  Dialogue::Opening opening;
  if (options.cache.is_used()) {
    opening = dialogue.read_opening({.cancel = interrupts.begin()});
    interrupts.end();
    if (opening.read > 0) options.cache.save(dialogue.conversation());
  }
  if (!tool.json) {
    fmt::print(stderr, "model loaded in {:.2f} s; context {} tokens; seed {}{}\n",
               seconds(model.load_times().total()), model.context(), generate.sampler.seed,
               options.cache.is_used()
                   ? fmt::format("; the chat's beginning: {} tokens in the cache, {} read",
                                 opening.kept, opening.read)
                   : std::string());
  }
  ChatLoop loop(tool, model, encoder ? &*encoder : nullptr, dialogue, interrupts);
  loop.run();
  if (!tool.json) return;
  Json json = load_times(model.load_times());
  json["options"] = tool.options(model);
  json["options"].update(described(generate, source));
  json["options"].update(options.draft.described());
  if (options.cache.is_used()) {
    json["cached_tokens"] = opening.kept;
    json["opening_tokens"] = opening.kept + opening.read;
  }
  json["turns"] = loop.turns();
  tool.print(json);
}

}  // namespace

void add_chat(CLI::App& app, Tool& tool) {
  Command command(app, tool, "chat",
                  "Talk to a model: a message a line on standard input; /help lists commands");
  auto options = std::make_shared<Options>();
  add_model(command);
  const Option system = command.option("--system", options->system,
                                       "A system message; the template's own without it");
  const Option raw =
      command
          .flag("--raw", options->raw,
                "Plain text instead of the file's chat template; each line is continued")
          .excludes(system);
  options->chat_template.add_to(command);
  options->vision
      .add_to(
          command,
          "A GGUF file with the model's vision encoder, as llama.cpp takes it: /image FILE gives "
          "the next message a picture")
      .excludes(raw);
  add_generation(command, options->generation);
  options->draft.add_to(command);
  options->cache
      .add_to(
          command,
          "A file of the beginning of the chat, with the system message: read once, not at each "
          "start",
          false)
      .excludes(raw);
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
