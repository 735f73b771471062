#include "chat_template.hpp"
#include "draft_options.hpp"
#include "interrupts.hpp"
#include "picture.hpp"
#include "prompt_cache.hpp"
#include "terminal.hpp"
#include "tool.hpp"
#include "vision_options.hpp"

#include <tenon/error.hpp>
#include <tenon/models/vision.hpp>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string prompt;
  std::string prompt_file;
  bool chat = false;
  ChatTemplateOptions chat_template;
  VisionOptions vision;
  std::vector<std::string> images;
  double timeout_s = 0;
  std::optional<std::int64_t> logprobs;
  GenerationOptions generation;
  DraftOptions draft;
  PromptCache cache;
};

/// The model's chat format, whose stop tokens are added to the options.
text::ChatFormat chat_format(const Tool& tool, const ChatTemplateOptions& options,
                             const models::LanguageModel& model,
                             models::GenerateOptions& generate) {
  auto format = options.format(model);
  if (!format)
    throw Error(Errc::template_error, tool.model,
                "the file has no chat template; give --chat-template, or leave out --chat");
  for (std::string& token : format->stop_tokens()) generate.stop.push_back(std::move(token));
  return *std::move(format);
}

text::Prompt chat_prompt(const text::ChatFormat& format, const std::string& text) {
  const text::ChatMessage message{"user", text};
  return format.format({&message, 1});
}

void check_prompt(const models::LanguageModel& model, std::int64_t tokens) {
  if (tokens == 0) throw Error(Errc::bad_argument, "generate", "the prompt has no tokens");
  if (tokens <= model.context()) return;
  throw Error(Errc::bad_argument, "generate",
              fmt::format("the prompt's {} tokens do not fit a context of {}: shorten it, or give "
                          "--ctx {} or more",
                          tokens, model.context(), tokens + 1));
}

/// The prompt's tokens, those of the cache for an empty prompt; adds the chat format's stop tokens to
/// the options.
std::vector<std::int32_t> read_prompt(const Tool& tool, const Options& options, bool from_file,
                                      const models::LanguageModel& model,
                                      const models::Conversation& cached,
                                      models::GenerateOptions& generate) {
  const std::string prompt = from_file ? read_text(options.prompt_file) : options.prompt;
  std::vector<std::int32_t> ids;
  if (prompt.empty() && !options.chat && cached.position() > 0) {
    ids.assign(cached.tokens().begin(), cached.tokens().end());
  } else if (options.chat) {
    ids = chat_prompt(chat_format(tool, options.chat_template, model, generate), prompt)
              .encode(model.tokenizer());
  } else {
    ids = model.tokenizer().encode(prompt);
  }
  check_prompt(model, static_cast<std::int64_t>(ids.size()));
  return ids;
}

/// The same of a prompt with images, which stand before it unless it has markers for them.
std::vector<models::PromptPart> read_image_prompt(Tool& tool, const Options& options,
                                                  bool from_file,
                                                  std::span<const HostBuffer> pictures,
                                                  const models::LanguageModel& model,
                                                  models::GenerateOptions& generate) {
  std::string prompt = from_file ? read_text(options.prompt_file) : options.prompt;
  if (prompt.find(models::image_marker) == std::string::npos) {
    for (std::size_t i = 0; i < pictures.size(); ++i) prompt.insert(0, models::image_marker);
  }
  const auto encoder = options.vision.load(tool);
  auto parts =
      options.chat
          ? models::image_prompt(
                model, encoder,
                chat_prompt(chat_format(tool, options.chat_template, model, generate), prompt),
                pictures, generate.interrupt)
          : models::image_prompt(model, encoder, prompt, pictures, generate.interrupt);
  std::int64_t positions = 0;
  for (const models::PromptPart& part : parts) positions += part.positions();
  check_prompt(model, positions);
  return parts;
}

/// Reads all but the last token of a prompt, as far as the conversation does not hold them, and adds
/// what it took to `result`. The answer then begins with the same step whether the prompt was in the
/// cache or not, and so has the same tokens. Returns the number of tokens that were in the cache.
std::size_t read_beginning(const models::LanguageModel& model, const PromptCache& cache,
                           models::Conversation& conversation, std::span<const std::int32_t> prompt,
                           const models::Interrupt& interrupt, models::Generated& result) {
  const std::size_t kept = conversation.keep_prefix_of(prompt);
  const auto rest = prompt.subspan(kept, prompt.size() - 1 - kept);
  if (rest.empty()) return kept;
  result =
      models::generate(model, conversation, rest,
                       {.max_tokens = 0, .sampler = {.temperature = 0}, .interrupt = interrupt});
  if (!cache.has_answers()) cache.save(conversation);
  return kept;
}

bool is_interrupted(const models::Generated& result) {
  return result.end == models::Generated::End::cancelled ||
         result.end == models::Generated::End::deadline;
}

struct Answer {
  models::Generated generated;
  std::optional<std::size_t>
      cached;              ///< tokens of the prompt that the cache held, where one is used
  double first_token = 0;  ///< seconds from the program's start on; 0: there was none
};

void print_summary(const models::LanguageModel& model, const Answer& answer,
                   const models::GenerateOptions& options, const std::string& source) {
  const models::Generated& result = answer.generated;
  const models::LoadTimes& load = model.load_times();
  const nn::SamplerOptions& sampler = options.sampler;
  fmt::print(
      stderr,
      "\nload {:.3f} s (map {:.3f}, plan {:.3f}, pack {:.3f}, tokenizer {:.3f}), first token "
      "{:.3f} s after the start\n"
      "prompt {} tokens{} at {:.1f} tokens/s after {:.3f} s of planning, answer {} tokens at "
      "{:.1f} tokens/s{}\n"
      "temperature {:g}, top-k {}, top-p {:g}, repetition penalty {:g} (defaults of {}), "
      "seed {}; stopped: {}\n",
      seconds(load.total()), seconds(load.map), seconds(load.plan), seconds(load.pack),
      seconds(load.tokenizer), answer.first_token, result.prompt_tokens,
      answer.cached ? fmt::format(" after {} in the cache", *answer.cached) : std::string(),
      result.prefill_tokens_per_second(), seconds(result.plan_time), result.tokens.size(),
      result.decode_tokens_per_second(), drafts_of(result), sampler.temperature, sampler.top_k,
      sampler.top_p, sampler.repetition_penalty, source, sampler.seed, stopped_by(result.end));
}

/// How to generate, but for the grammar; `source` says where what the command line leaves open
/// comes from.
models::GenerateOptions options_of(const Tool& tool, const Options& options,
                                   const models::LanguageModel& model, const std::stop_token& stop,
                                   std::string& source) {
  models::GenerateOptions generate = options.generation.for_model(model, source);
  generate.logprobs = options.logprobs;
  generate.draft = options.draft.for_model(tool, model, stop);
  generate.interrupt.cancel = stop;
  if (options.timeout_s > 0) {
    constexpr double most_s = 1e9;  // 31 years; the clock ends after 292
    generate.interrupt.deadline =
        tool.started + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(std::min(options.timeout_s, most_s)));
  }
  return generate;
}

/// The answer to a prompt, which is shown as it grows unless it is printed as JSON.
Answer answer_to(const Tool& tool, const Options& options, const models::LanguageModel& model,
                 models::Conversation& conversation, std::vector<models::PromptPart> parts,
                 const models::GenerateOptions& generate) {
  Answer answer;
  models::Generated beginning;
  if (options.cache.is_used()) {
    std::vector<std::int32_t>& ids = parts.front().tokens;
    answer.cached =
        read_beginning(model, options.cache, conversation, ids, generate.interrupt, beginning);
    ids.erase(ids.begin(), ids.end() - 1);
  }
  if (is_interrupted(beginning)) {
    answer.generated = std::move(beginning);
    return answer;
  }
  const auto emit = [&](std::string_view text) {
    if (answer.first_token == 0) {
      answer.first_token = seconds(std::chrono::steady_clock::now() - tool.started);
    }
    if (!tool.json) show(text);
  };
  answer.generated = models::generate(model, conversation, parts, generate, emit);
  answer.generated.prompt_tokens += beginning.prompt_tokens;
  answer.generated.plan_time += beginning.plan_time;
  answer.generated.prefill_time += beginning.prefill_time;
  return answer;
}

Json report_of(const Tool& tool, const Options& options, const models::LanguageModel& model,
               const Answer& answer, const models::GenerateOptions& generate,
               const std::string& source) {
  Json json = described(answer.generated, model.tokenizer());
  json["text"] = answer.generated.text;
  if (answer.cached) json["cached_tokens"] = *answer.cached;
  json.update(load_times(model.load_times()));
  json["first_token_s"] = answer.first_token > 0 ? Json(answer.first_token) : Json(nullptr);
  json["options"] = tool.options(model);
  json["options"].update(described(generate, source));
  json["options"].update(options.draft.described());
  return json;
}

void run(Tool& tool, const Options& options, bool from_file) {
  const auto grammar = options.generation.grammar.read();
  if (options.logprobs && !tool.json) {
    throw Error(Errc::bad_argument, "command line", "--logprobs needs --json, which prints them");
  }
  if (!(options.timeout_s >= 0)) {  // "+nan", too
    throw Error(Errc::bad_argument, "--timeout", fmt::format("{} s is no time", options.timeout_s));
  }
  options.cache.check();
  Interrupts interrupts;
  const std::stop_token stop = interrupts.begin();
  std::vector<HostBuffer> pictures;
  for (const std::string& path : options.images) pictures.push_back(read_picture(path));
  const auto model = models::LanguageModel::load(tool.model, tool.language_model(stop));
  std::string source;
  models::GenerateOptions generate = options_of(tool, options, model, stop, source);
  generate.grammar = grammar;
  auto conversation = options.cache.conversation(model);
  std::vector<models::PromptPart> parts;
  if (!options.vision.is_given()) {
    parts.push_back(
        {.tokens = read_prompt(tool, options, from_file, model, conversation, generate)});
  } else {
    parts = read_image_prompt(tool, options, from_file, pictures, model, generate);
  }
  const Answer answer = answer_to(tool, options, model, conversation, std::move(parts), generate);
  interrupts.end();
  using End = models::Generated::End;
  if (answer.generated.end == End::cancelled) tool.status = exit_status(Errc::cancelled);
  if (answer.generated.end == End::deadline) tool.status = exit_status(Errc::timeout);
  if (tool.json) {
    tool.print(report_of(tool, options, model, answer, generate, source));
  } else {
    fmt::print("\n");
    std::fflush(stdout);
    print_summary(model, answer, generate, source);
  }
  if (options.cache.has_answers()) options.cache.save(conversation);
}

}  // namespace

void add_generate(CLI::App& app, Tool& tool) {
  Command command(app, tool, "generate", "Continue a text");
  auto options = std::make_shared<Options>();
  add_model(command);
  Option prompt = command.option("-p,--prompt", options->prompt, "The text to continue");
  Option file = command.option("--prompt-file", options->prompt_file,
                               "A file that holds the text; - for standard input");
  command.either(prompt, file);
  command.flag("--chat", options->chat,
               "The prompt is a user's message: format it with the model's chat template");
  options->chat_template.add_to(command);
  Option mmproj = options->vision.add_to(
      command, "A GGUF file with the model's vision encoder, as llama.cpp takes it");
  Option images =
      command
          .option("--image", options->images,
                  "A picture that stands at the next <__media__> of the text, or before "
                  "a text without any; PPM, PNG or JPEG")
          .one_value_each();
  images.needs(mmproj);
  mmproj.needs(images);
  add_generation(command, options->generation);
  options->draft.add_to(command);
  command
      .option("--logprobs", options->logprobs,
              "With --json: log-probabilities of the tokens, and of the N most probable ones at "
              "each position")
      .range(0, 1000);
  command
      .option("--timeout", options->timeout_s, "Seconds after the start at which to stop; 0: none")
      .not_negative();
  options->cache
      .add_to(command,
              "A file of what the model has read: tokens that the prompt has at its beginning are "
              "not read again; then the prompt is written to it",
              true)
      .excludes(images);
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options, file] { run(tool, *options, file.is_given()); });
}

}  // namespace tenon::tool
