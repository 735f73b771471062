#include "tool.hpp"

#include "base/atomic_file.hpp"
#include "terminal.hpp"

#include <tenon/error.hpp>
#include <tenon/io/network.hpp>
#include <tenon/object.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

/// A bar on stderr while a model loads, on a terminal only.
std::function<void(const io::LoadProgress&)> progress_bar() {
  if (!is_terminal(STDERR_FILENO)) return {};
  return [last = -1](const io::LoadProgress& progress) mutable {
    const auto percent = static_cast<int>(100 * progress.done_bytes /
                                          std::max<std::uint64_t>(progress.total_bytes, 1));
    if (percent == last) return;
    last = percent;
    fmt::print(stderr, "\rloading {:3}% [{:<25}]{}", percent,
               std::string(static_cast<std::size_t>(percent / 4), '='),
               percent == 100 ? "\r\033[K" : "");
    std::fflush(stderr);
  };
}

/// "TOKEN=BIAS".
std::pair<std::int32_t, float> parse_bias(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const char* const end = text.data() + text.size();
  std::pair<std::int32_t, float> bias;
  const auto token = std::from_chars(text.data(), text.data() + equals, bias.first);
  const auto value = std::from_chars(std::min(text.data() + equals + 1, end), end, bias.second);
  const bool reads = token.ec == std::errc() && token.ptr == text.data() + equals &&
                     value.ec == std::errc() && value.ptr == end;
  if (!reads) {
    throw Error(Errc::bad_argument, "--logit-bias",
                fmt::format("'{}' is not TOKEN=BIAS, such as 42=-5 or 42=-inf", text));
  }
  return bias;
}

}  // namespace

void Tool::print(const Json& object) const {
  // Texts may be cut inside a character or hold any bytes: those become U+FFFD. Output to a
  // terminal is ASCII, since some other characters control it.
  const bool ascii = is_terminal(STDOUT_FILENO);
  fmt::print("{}\n", object.dump(2, ' ', ascii, Json::error_handler_t::replace));
}

DevicePtr Tool::open_device() const {
  if (device.find(':') == std::string::npos) {
    throw Error(Errc::bad_argument, "--device",
                fmt::format("'{}' is no URL of a device, such as cpu:", device));
  }
  return Device::open(device);
}
BackendOptions Tool::backend() const { return {.threads = threads, .exact = precision == "exact"}; }

namespace {

/// PATH or PATH:SCALE: a number behind the last colon is a scale, unless a file has all of it as its name.
models::AdapterSource adapter_source(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::error_code unknown;
  if (colon == std::string::npos || std::filesystem::exists(text, unknown)) return {text};
  double scale = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, scale);
  if (error != std::errc() || rest != end || colon == 0) return {text};
  return {text.substr(0, colon), scale};
}

}  // namespace

models::LanguageModelOptions Tool::language_model(std::stop_token stop) const {
  models::LanguageModelOptions options;
  options.context = context;
  if (cache != "auto") options.cache = find_dtype(cache);
  options.device = open_device();
  options.cpu_fallback = cpu_fallback;
  options.backend = backend();
  options.load.progress = progress_bar();
  options.load.stop = std::move(stop);
  options.packed_folder = packed;
  for (const std::string& source : lora) options.adapters.push_back(adapter_source(source));
  return options;
}

Json Tool::options(const models::LanguageModel& loaded) const {
  return {{"device", device},
          {"threads", threads},
          {"precision", precision},
          {"context", loaded.context()},
          {"cache", cache}};
}

void Tool::require_context(std::string_view command, std::int64_t tokens) const {
  if (context == 0 || tokens <= context) return;
  throw Error(Errc::bad_argument, std::string(command),
              fmt::format("{} tokens do not fit a context of {}: give --ctx {} or more", tokens,
                          context, tokens));
}

namespace {

using Sampler = nn::SamplerOptions;

constexpr std::int64_t most_tokens = 1 << 24;  // of an answer

/// An option of sampling: its names on the command line are llama.cpp's.
template <class T>
struct SamplingOption {
  const char* names;
  const char* key;  ///< in JSON
  T Sampler::* field;
  const char* help;
};

constexpr SamplingOption<double> number_options[] = {
    {"--temp", "temperature", &Sampler::temperature,
     "Temperature; 0: greedy, without a penalty unless one is given. Defaults of the options of "
     "sampling: what the model's files recommend, else 0.7, top-p 0.95, penalty 1.1, the rest off"},
    {"--top-p", "top_p", &Sampler::top_p, "Sample from the most probable tokens up to this sum"},
    {"--min-p", "min_p", &Sampler::min_p, "Drop tokens below this times the highest probability"},
    {"--typical,--typical-p", "typical_p", &Sampler::typical_p,
     "Keep the tokens closest to the mean of -log(probability) up to this sum"},
    {"--top-nsigma,--top-n-sigma", "top_n_sigma", &Sampler::top_n_sigma,
     "Keep logits within so many standard deviations of the largest"},
    {"--xtc-probability", "xtc_probability", &Sampler::xtc_probability,
     "XTC: how often all probable tokens but the least of them are dropped"},
    {"--xtc-threshold", "xtc_threshold", &Sampler::xtc_threshold,
     "XTC: tokens of at least this probability are probable (0.1)"},
    {"--repeat-penalty", "repetition_penalty", &Sampler::repetition_penalty,
     "Above 1: recent tokens become less probable"},
    {"--frequency-penalty", "frequency_penalty", &Sampler::frequency_penalty,
     "Subtracted from a token's logit for each time it is among the recent tokens"},
    {"--presence-penalty", "presence_penalty", &Sampler::presence_penalty,
     "Subtracted from a token's logit once if it is among the recent tokens"},
    {"--dry-multiplier", "dry_multiplier", &Sampler::dry_multiplier,
     "DRY: what is subtracted from the logit of a token that continues a repetition"},
    {"--dry-base", "dry_base", &Sampler::dry_base,
     "DRY: that grows by this factor with each token of the repetition (1.75)"},
    {"--dynatemp-range", "dynatemp_range", &Sampler::dynatemp_range,
     "The temperature is up to this much lower or higher, by the entropy; it is applied last then"},
    {"--dynatemp-exp", "dynatemp_exponent", &Sampler::dynatemp_exponent,
     "Exponent of the entropy's part of the largest possible one (1)"},
    {"--mirostat-ent", "mirostat_tau", &Sampler::mirostat_tau,
     "Mirostat: the mean surprise to keep, in bits (5)"},
    {"--mirostat-lr", "mirostat_eta", &Sampler::mirostat_eta, "Mirostat: learning rate (0.1)"},
    {"--adaptive-target", "adaptive_target", &Sampler::adaptive_target,
     "adaptive-p: prefer tokens of about this probability; use it with --min-p"},
    {"--adaptive-decay", "adaptive_decay", &Sampler::adaptive_decay,
     "adaptive-p: how slowly tokens drawn before are forgotten (0.9)"},
};
constexpr SamplingOption<std::int64_t> count_options[] = {
    {"--top-k", "top_k", &Sampler::top_k, "Sample from the K most probable tokens; 0: all"},
    {"--repeat-last-n", "repetition_window", &Sampler::repetition_window,
     "How many tokens are the recent ones (64); -1: all of the context"},
    {"--dry-allowed-length", "dry_allowed_length", &Sampler::dry_allowed_length,
     "DRY: a repetition may be shorter than this (2)"},
    {"--dry-penalty-last-n", "dry_window", &Sampler::dry_window,
     "DRY: how many tokens are searched for repetitions (64); -1: all of the context"},
};

/// Line feeds and the like, which a shell makes hard to write.
std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    constexpr std::string_view letters = "ntr\\\"'", meant = "\n\t\r\\\"'";
    const std::size_t place =
        text[i] == '\\' && i + 1 < text.size() ? letters.find(text[i + 1]) : std::string_view::npos;
    result += place == std::string_view::npos ? text[i] : meant[place];
    i += place == std::string_view::npos ? 0 : 1;
  }
  return result;
}

}  // namespace

models::SamplingDefaults SamplingOptions::over(models::SamplingDefaults defaults) const {
  Sampler& sampler = defaults.sampler;
  // A greedy answer is what --temp 0 asks for, whatever penalty is recommended for sampling.
  if (numbers.front() == 0) sampler.repetition_penalty = 1;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    double& value = sampler.*number_options[i].field;
    value = numbers[i].value_or(value);
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::int64_t& value = sampler.*count_options[i].field;
    value = counts[i].value_or(value);
  }
  if (mirostat) sampler.mirostat = static_cast<int>(*mirostat);
  sampler.temperature_last = temperature_last;
  sampler.seed =
      seed == -1 ? std::uint64_t{std::random_device{}()} : static_cast<std::uint64_t>(seed);
  for (const std::string& text : logit_bias) sampler.logit_bias.push_back(parse_bias(text));
  return defaults;
}

void read_sampler(nn::SamplerOptions& sampler,
                  const std::function<std::optional<double>(std::string_view)>& number,
                  const std::function<std::optional<std::int64_t>(std::string_view)>& count) {
  for (const auto& option : number_options) {
    double& value = sampler.*option.field;
    value = number(option.key).value_or(value);
  }
  for (const auto& option : count_options) {
    std::int64_t& value = sampler.*option.field;
    value = count(option.key).value_or(value);
  }
}

std::optional<text::Grammar> GrammarOptions::read() const {
  if (!grammar.empty()) return text::Grammar::parse(grammar);
  if (!grammar_file.empty()) return text::Grammar::parse(read_text(grammar_file));
  if (!json_schema.empty()) return text::Grammar::from_json_schema(json_schema);
  if (!json_schema_file.empty())
    return text::Grammar::from_json_schema(read_text(json_schema_file));
  return std::nullopt;
}

std::vector<std::vector<std::int32_t>> SamplingOptions::breakers(
    const text::Tokenizer& tokenizer) const {
  if (dry_breakers.empty()) return models::dry_breakers(tokenizer);
  std::vector<std::string> texts;
  for (const std::string& text : dry_breakers) {
    if (text != "none") texts.push_back(unescaped(text));
  }
  return models::dry_breakers(tokenizer, std::vector<std::string_view>(texts.begin(), texts.end()));
}

models::GenerateOptions GenerationOptions::for_model(const models::LanguageModel& model,
                                                     std::string& source) const {
  models::GenerateOptions options = generate;
  models::SamplingDefaults chosen = sampling.over(models::sampling_defaults(model.file()));
  options.sampler = std::move(chosen.sampler);
  if (options.max_tokens == -1) options.max_tokens = most_tokens;
  for (std::int64_t* window : {&options.sampler.repetition_window, &options.sampler.dry_window}) {
    if (*window == -1) *window = model.context();
  }
  if (options.sampler.dry_multiplier > 0) {
    options.sampler.dry_breakers = sampling.breakers(model.tokenizer());
  }
  source = std::move(chosen.source);
  return options;
}

Json described(const models::GenerateOptions& options, const std::string& source) {
  const nn::SamplerOptions& sampler = options.sampler;
  Json bias = Json::object();
  for (const auto& [token, value] : sampler.logit_bias) {
    const bool is_number = std::isfinite(value);
    bias[std::to_string(token)] = is_number ? Json(value) : Json(fmt::format("{}", value));
  }
  Json json{{"max_tokens", options.max_tokens},
            {"grammar", options.grammar ? Json(options.grammar->text()) : Json(nullptr)},
            {"stop", options.stop},
            {"defaults_of", source},
            {"logit_bias", bias},
            {"seed", sampler.seed},
            {"temperature_last", sampler.temperature_last},
            {"mirostat", sampler.mirostat},
            {"dry_breakers", sampler.dry_breakers.size()},
            {"sample_on_device", options.sample_on_device}};
  for (const auto& option : number_options) json[option.key] = sampler.*option.field;
  for (const auto& option : count_options) json[option.key] = sampler.*option.field;
  return json;
}

Json load_times(const models::LoadTimes& times) {
  return {{"load_s", seconds(times.total())},
          {"map_s", seconds(times.map)},
          {"plan_s", seconds(times.plan)},
          {"pack_s", seconds(times.pack)},
          {"tokenizer_s", seconds(times.tokenizer)}};
}

Json described(const models::Generated& result, const text::Tokenizer& tokenizer) {
  Json json{{"prompt_tokens", result.prompt_tokens},
            {"tokens", result.tokens},
            {"stopped", stopped_by(result.end)},
            {"prompt_plan_s", seconds(result.plan_time)},
            {"prefill_s", seconds(result.prefill_time)},
            {"decode_s", seconds(result.decode_time)},
            {"prefill_tok_s", result.prefill_tokens_per_second()},
            {"decode_tok_s", result.decode_tokens_per_second()},
            {"drafted_tokens", result.drafted_tokens},
            {"accepted_tokens", result.accepted_tokens}};
  if (result.choices.empty()) return json;
  const auto entry = [&](const models::Generated::LogProbability& of) -> Json {
    // A token that the bias excludes has none that JSON could spell.
    const Json value = std::isfinite(of.value) ? Json(of.value) : Json(nullptr);
    return {{"id", of.token}, {"token", tokenizer.piece(of.token)}, {"logprob", value}};
  };
  Json& choices = json["logprobs"] = Json::array();
  for (const models::Generated::Choice& choice : result.choices) {
    Json one = entry(choice.drawn);
    Json& top = one["top"] = Json::array();
    for (const auto& likely : choice.top) top.push_back(entry(likely));
    choices.push_back(std::move(one));
  }
  return json;
}

std::string_view stopped_by(models::Generated::End end) {
  using End = models::Generated::End;
  switch (end) {
    case End::token:
      return "end token";
    case End::stop:
      return "stop text";
    case End::grammar:
      return "end of the grammar";
    case End::length:
      return "length";
    case End::context:
      return "context full";
    case End::cancelled:
      return "cancelled";
    case End::deadline:
      return "deadline";
  }
  return "";
}

void add_model(Command& command) {
  command
      .option("MODEL", command.tool().model,
              "A model file (.gguf, .safetensors) or a model's folder")
      .required()
      .not_empty();
}

void add_json(Command& command) {
  command.flag("--json", command.tool().json,
               "Print one JSON object on standard output and nothing else");
}

void add_compute(Command& command) {
  command.option("--device", command.tool().device,
                 "URL of the device to run on, as `tenon devices` lists them");
  command.flag("--cpu-fallback", command.tool().cpu_fallback,
               "Run ops that the device refuses on the CPU");
  command.option("-t,--threads", command.tool().threads, "Threads; 0: one per CPU").range(0, 256);
  command
      .option("--precision", command.tool().precision,
              "fast, or exact: activations and cache in f32")
      .one_of({"fast", "exact"});
}

void add_context(Command& command) {
  command
      .option("--ctx", command.tool().context,
              "Context length in positions; 0: the model's own, at most 4096")
      .range(0, 1 << 24);
  command
      .option("--cache", command.tool().cache,
              "Type of the KV cache; auto: f16, with --precision exact f32")
      .one_of({"auto", "f32", "f16", "q8_0"});
  command.option("--packed", command.tool().packed,
                 "A folder for packed weights: the next start maps them");
  command
      .option(
          "--lora", command.tool().lora,
          "Low-rank adapters beside the weights: a GGUF file, or a folder of PEFT's; PATH:SCALE "
          "for a part of their change; given again, they add up")
      .not_empty()
      .one_value_each();
}

void add_generation(Command& command, GenerationOptions& options) {
  SamplingOptions& sampling = options.sampling;
  command
      .option("-n,--max-tokens", options.generate.max_tokens,
              "Maximal number of generated tokens; -1: as many as the context holds")
      .range(-1, most_tokens);
  sampling.numbers.resize(std::size(number_options));
  sampling.counts.resize(std::size(count_options));
  for (std::size_t i = 0; i < sampling.numbers.size(); ++i) {
    command.option(number_options[i].names, sampling.numbers[i], number_options[i].help);
  }
  for (std::size_t i = 0; i < sampling.counts.size(); ++i) {
    command.option(count_options[i].names, sampling.counts[i], count_options[i].help);
  }
  command
      .option("--dry-sequence-breaker", sampling.dry_breakers,
              "DRY: a text that no repetition goes across, in the place of line feeds, colons, "
              "quotation marks and asterisks; \\n and the like are read; none: no text; may be "
              "repeated")
      .not_empty()
      .one_value_each();
  command
      .option("--mirostat", sampling.mirostat,
              "1 or 2: Mirostat chooses how many tokens are kept, in the place of the other bounds")
      .range(0, 2);
  command.flag("--temperature-last", sampling.temperature_last,
               "Apply the temperature behind the bounds, as llama.cpp does");
  command.option("--seed", sampling.seed, "Seed of sampling; -1: another one in each run")
      .range(-1, std::numeric_limits<std::int64_t>::max());
  command.flag("--sample-on-device", options.generate.sample_on_device,
               "Draw tokens where the model runs, with other random numbers");
  command
      .option("--logit-bias", sampling.logit_bias,
              "TOKEN=BIAS: added to a token's logit; -inf: excluded; may be repeated")
      .one_value_each();
  GrammarOptions& grammar = options.grammar;
  Option choices[] = {
      command.option("--grammar", grammar.grammar,
                     "What the answer may be, as llama.cpp's GBNF: root ::= \"yes\" | \"no\""),
      command.option("--grammar-file", grammar.grammar_file, "A file that holds it"),
      command.option("-j,--json-schema", grammar.json_schema,
                     "The answer is JSON that this schema allows; {} allows any"),
      command.option("--json-schema-file", grammar.json_schema_file,
                     "A file that holds the schema")};
  for (std::size_t i = 0; i < std::size(choices); ++i) {
    choices[i].not_empty();
    for (std::size_t j = 0; j < i; ++j) choices[i].excludes(choices[j]);
  }
  command
      .option("--grammar-after", options.generate.grammar_after,
              "A text that the grammar or schema begins after, such as </think>; may be repeated")
      .one_value_each();
  command
      .option("--stop", options.generate.stop,
              "A text that ends the answer and is not part of it; may be repeated")
      .one_value_each();
}

std::vector<Buffer> program_inputs(const Program& program, const io::File& file,
                                   const DevicePtr& device, RecordedValues& rest) {
  for (const io::TensorEntry& entry : file.tensors()) rest.emplace(entry.name, entry.data());
  const Function& main = program.main();
  std::vector<Buffer> inputs;
  for (ValueId i = 0; i < main.parameter_count; ++i) {
    const auto found = rest.find(main.values[i].name);
    if (found == rest.end()) {
      throw Error(Errc::bad_reference, file.path().string(),
                  fmt::format("no array '{}', which the program takes ({})", main.values[i].name,
                              main.values[i].shape ? to_string(*main.values[i].shape) : ""));
    }
    HostBuffer input = std::move(found->second);
    rest.erase(found);
    const std::optional<Shape>& type = main.values[i].shape;
    if (type && is_object(type->dtype())) {
      inputs.push_back(load_object(type->dtype(), input));
      continue;
    }
    if (type && input.shape().dtype() != type->dtype()) input = input.to(type->dtype());
    inputs.push_back(input.to_device(device));
  }
  return inputs;
}

bool is_network(const std::string& path) {
  // A safetensors file that begins with the same byte goes on with the length of its header, in which
  // zeros are.
  char head[8] = {};
  return std::ifstream(path, std::ios::binary).read(head, sizeof head) && head[0] == '{' &&
         std::ranges::find(head, '\0') == std::end(head);
}

namespace {

std::string first_bytes(const std::string& path, std::size_t count) {
  std::string head(count, '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), static_cast<std::streamsize>(count));
  return head;
}

}  // namespace

bool is_text(const std::string& path) {
  constexpr std::string_view magic = "# tenon", mark = "\xef\xbb\xbf";
  if (path == "-") return true;
  const std::string head = first_bytes(path, mark.size() + magic.size());
  return head.starts_with(magic) || (head.starts_with(mark) && head.ends_with(magic));
}

Program read_program(const std::string& path) {
  if (path != "-" && first_bytes(path, 4) == "GGUF") {
    throw Error(Errc::bad_magic, path,
                "a GGUF file, where a program's text is read; tenon graph prints a model's");
  }
  if (is_network(path)) return io::load_network(path).program;
  return parse(read_text(path), path);
}

namespace {

/// All of an input, which may have no end: of more than `limit` bytes, some of them.
std::string read_up_to(std::istream& in, std::size_t limit) {
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  do {
    in.read(piece.data(), std::ssize(piece));
    text.append(piece.data(), static_cast<std::size_t>(in.gcount()));
  } while (in && text.size() <= limit);
  return text;
}

}  // namespace

std::string read_text(const std::string& path) {
  constexpr std::size_t limit = std::size_t{1} << 30;
  if (path.empty())
    throw Error(Errc::bad_argument, "command line", "the path of a file to read is empty");
  std::string text;
  if (path == "-") {
    text = read_up_to(std::cin, limit);
  } else {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Error(Errc::not_found, path, std::strerror(errno));
    if (std::filesystem::is_directory(path)) {
      throw Error(Errc::bad_argument, path, "a folder, where a file is read");
    }
    text = read_up_to(in, limit);
    if (in.bad()) throw Error(Errc::io_error, path, "cannot be read");
  }
  if (text.size() > limit) throw Error(Errc::limit_exceeded, path, "more than 1 GiB of text");
  return text;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  io::AtomicFile file(path);
  file.write(text);
  file.commit();
}

void require_writable(const std::filesystem::path& path) { io::AtomicFile{path}; }

void require_other_file(const std::filesystem::path& out,
                        std::span<const std::filesystem::path> read) {
  for (const std::filesystem::path& path : read) {
    std::error_code missing;
    if (!std::filesystem::equivalent(path, out, missing)) continue;
    throw Error(Errc::bad_argument, out.string(), "is read: the file to write is another one");
  }
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary) {
  std::mt19937 random(1);  // NOLINT: the same tokens in every run
  std::uniform_int_distribution<std::int32_t> draw(0, static_cast<std::int32_t>(vocabulary - 1));
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(draw(random));
  return tokens;
}

double seconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-9; }

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace tenon::tool
