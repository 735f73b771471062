#include "chat_template.hpp"
#include "encoders.hpp"
#include "interrupts.hpp"
#include "server/completion.hpp"
#include "server/encoder_api.hpp"
#include "server/http.hpp"
#include "server/language_api.hpp"
#include "server/metrics.hpp"
#include "server/routes.hpp"
#include "tool.hpp"
#include "vision_options.hpp"

#include <tenon/error.hpp>
#include <tenon/models/encoder.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

struct Options {
  std::string host = "127.0.0.1";
  std::int64_t port = 8080;
  std::int64_t parallel = 16;
  std::int64_t kept_prompts = 256;  // MiB
  std::int64_t connections = 256;
  std::string key;
  std::string alias;
  std::string cors;
  std::string weights;
  std::string pooling;
  ChatTemplateOptions chat_template;
  VisionOptions vision;
  GenerationOptions generation;
};

/// What clients see of the model's path.
std::string model_name(const Tool& tool, const Options& options) {
  return options.alias.empty() ? std::filesystem::path(tool.model).filename().string()
                               : options.alias;
}

/// The key is best not given on the command line, which others on the machine can see.
std::string api_key(const Options& options) {
  const char* variable = std::getenv("TENON_API_KEY");
  return options.key.empty() && variable != nullptr ? variable : options.key;
}

void wait_for(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait(lock, stop, [] { return false; });
}

/// What lets pages of an origin read responses; nothing without one. Errors: bad_argument for what is no origin.
std::vector<std::pair<std::string, std::string>> cors_headers(const std::string& origin) {
  if (origin.empty()) return {};
  const std::size_t scheme = origin.find("://");
  const bool is_origin =
      scheme != 0 && scheme != std::string::npos && scheme + 3 < origin.size() &&
      origin.find('/', scheme + 3) == std::string::npos &&
      std::ranges::all_of(origin, [](char c) { return c > ' ' && c < '\x7f' && c != ','; });
  if (!is_origin && origin != "*" && origin != "null") {
    throw Error(Errc::bad_argument, "--cors",
                fmt::format("'{}' is no origin, such as https://example.org, and not *", origin));
  }
  return {{"Access-Control-Allow-Origin", origin}, {"Vary", "Origin"}};
}

/// Answers requests until a signal comes; then `end` ends those under way.
void listen(const Tool& tool, const Options& options, Routes routes, const std::string& name,
            const std::stop_token& stop, const std::function<void()>& end) {
  const Json model{
      {"id", name}, {"object", "model"}, {"created", seconds_since_1970()}, {"owned_by", "tenon"}};
  const auto models = [model] { return Json{{"object", "list"}, {"data", Json::array({model})}}; };
  routes.get("/v1/models", models);
  routes.get("/models", models);
  routes.get("/v1/models/" + name, [model] { return model; });
  const auto cors = cors_headers(options.cors);
  if (!cors.empty()) routes.answer_preflights();
  const HttpServer server({.host = options.host,
                           .port = static_cast<std::uint16_t>(options.port),
                           .connections = static_cast<unsigned>(options.connections),
                           .headers = cors,
                           .check = [&](const HttpRequest& head) { return routes.refused(head); }},
                          [&](const HttpRequest& request) { return routes(request); });
  const bool is_v6 = options.host.find(':') != std::string::npos;
  const std::string url =
      fmt::format("http://{}:{}", is_v6 ? "[" + options.host + "]" : options.host, server.port());
  if (tool.json) {
    tool.print({{"url", url}, {"model", name}});
  } else {
    fmt::print("{} at {}/v1 (Ctrl-C ends it)\n", name, url);
  }
  std::fflush(stdout);
  wait_for(stop);
  end();
}

void serve_language_model(Tool& tool, const Options& options, const std::stop_token& stop) {
  const auto grammar = options.generation.grammar.read();
  auto model = models::LanguageModel::load(tool.model, tool.language_model(stop));
  std::string source;
  ServedModel served{.model = model,
                     .name = model_name(tool, options),
                     .defaults = options.generation.for_model(model, source)};
  served.defaults.grammar = grammar;
  served.dry_breakers = options.generation.sampling.breakers(model.tokenizer());
  served.has_seed = options.generation.sampling.seed > 0;
  served.chat = options.chat_template.format(model);
  if (!options.chat_template.is_given()) served.tool_chat = model.chat_format({}, "tool_use");
  if (options.vision.is_given()) {
    served.vision = std::make_unique<SharedVision>(options.vision.load(tool));
    models::check_compatible(model, served.vision->encoder);
  }
  AnswerService answers(model,
                        {.at_once = options.parallel,
                         .prompt_bytes = static_cast<std::uint64_t>(options.kept_prompts) << 20});
  Routes routes(api_key(options));
  add_language_routes(routes, served, answers);
  const auto health = [&] {
    return Json{{"status", "ok"}, {"answers", answers.counts().under_way}};
  };
  routes.get("/health", health, true);
  routes.get("/v1/health", health, true);
  // As llama.cpp's server has it: what its clients look for.
  routes.get("/props", [&] {
    const std::string chat = served.chat ? std::string(served.chat->source()) : std::string();
    return Json{{"default_generation_settings",
                 {{"n_ctx", model.context()}, {"params", described(served.defaults, source)}}},
                {"total_slots", options.parallel},
                {"model_alias", served.name},
                {"model_path", served.name},
                {"modalities", {{"vision", served.vision != nullptr}, {"audio", false}}},
                {"chat_template", chat}};
  });
  routes.get_text("/metrics", metrics_type, [&] { return metrics_text(answers.counts()); });
  listen(tool, options, std::move(routes), served.name, stop, [&] {
    answers.stop();
    if (served.vision) served.vision->stop.request_stop();
  });
}

void serve_encoder(Tool& tool, const Options& options, const std::stop_token& stop) {
  ServedEncoder served{.encoder = models::SentenceEncoder::load(
                           tool.model, encoder_options(tool, "serve", options.weights),
                           {.pooling = models::find_pooling(options.pooling)}),
                       .name = model_name(tool, options)};
  Routes routes(api_key(options));
  add_encoder_routes(routes, served);
  for (const char* path : {"/health", "/v1/health"}) {
    routes.get(path, [] { return Json{{"status", "ok"}}; }, true);
  }
  listen(tool, options, std::move(routes), served.name, stop, [&] { served.stop.request_stop(); });
}

void run(Tool& tool, const Options& options) {
  static_cast<void>(cors_headers(options.cors));  // refused before a model is loaded
  Interrupts interrupts;
  const std::stop_token stop = interrupts.begin();
  if (is_encoder(tool.model) || !options.pooling.empty()) {
    serve_encoder(tool, options, stop);
  } else {
    serve_language_model(tool, options, stop);
  }
}

}  // namespace

void add_serve(CLI::App& app, Tool& tool) {
  Command command(app, tool, "serve", "Answer requests over HTTP, as OpenAI's API has them");
  auto options = std::make_shared<Options>();
  options->generation.generate.max_tokens = -1;  // what requests leave out: the context ends it
  add_model(command);
  command.option("--host", options->host,
                 "The address to listen at; 0.0.0.0 or :: for all of the machine's");
  command.option("--port", options->port, "The port; 0: any that is free").range(0, 65535);
  command
      .option("--parallel", options->parallel,
              "Answers that are generated at the same time; further ones wait")
      .range(1, 1024);
  command
      .option("--keep-prompts", options->kept_prompts,
              "MiB of prompts that are kept, so that what begins alike is read once; 0: none")
      .range(0, 1 << 20);
  command
      .option("--connections", options->connections,
              "Connections at the same time; further ones are closed")
      .range(1, 1 << 16);
  command
      .option("--api-key", options->key,
              "Requests need this key; better given as the variable TENON_API_KEY")
      .not_empty();
  command.option("--alias", options->alias, "What clients see as the model's name");
  command.option("--cors", options->cors,
                 "The origin whose pages may use the server, such as https://example.org; *: any");
  options->chat_template.add_to(command);
  options->vision.add_to(command,
                         "A GGUF file with the model's vision encoder: messages may have images");
  add_generation(command, options->generation);
  command.option("--weights", options->weights,
                 "Of an encoder: quantise the layers' weights to this block type, such as q8_0");
  command
      .option("--pooling", options->pooling,
              "What an embedding is made of; of a language model, embeddings are what is served")
      .one_of({"", "mean", "cls", "last", "rank"});
  add_compute(command);
  add_context(command);
  add_json(command);
  command.runs([&tool, options] { run(tool, *options); });
}

}  // namespace tenon::tool
