#include "bindings.hpp"
#include "interruptible.hpp"

#include <tenon/error.hpp>
#include <tenon/models/answer_batch.hpp>
#include <tenon/models/encoder.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/sampling.hpp>
#include <tenon/models/vision.hpp>
#include <tenon/text/chat_answer.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <stop_token>

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

using models::Conversation;
using models::Generated;
using models::GenerateOptions;
using models::LanguageModel;
using models::PromptPart;
using models::RowAttention;
using models::SentenceEncoder;
using models::VisionEncoder;

const char* word(Generated::End end) {
  switch (end) {
    case Generated::End::token:
      return "token";
    case Generated::End::stop:
      return "stop";
    case Generated::End::grammar:
      return "grammar";
    case Generated::End::length:
      return "length";
    case Generated::End::context:
      return "context";
    case Generated::End::cancelled:
      return "cancelled";
    case Generated::End::deadline:
      return "deadline";
  }
  return "";
}

/// Ends a generation from another thread.
struct Cancellation {
  std::stop_source source;
};

/// What LanguageModel.image_prompt() makes.
struct ImagePrompt {
  std::vector<PromptPart> parts;
};

BackendOptions backend_options(int threads, bool exact) {
  BackendOptions options;
  options.threads = threads;
  options.exact = exact;
  return options;
}

/// The text of a message: a text, or parts of it as {"type": "text", "text": ...} and {"type": "image"}.
std::string content_of(nb::handle content, std::size_t message) {
  const std::string what = fmt::format("'content' of message {}", message);
  if (nb::isinstance<nb::str>(content)) return to_utf8(content, "chat", what);
  const auto fail = [&](const std::string& why) {
    throw Error(Errc::bad_argument, "chat", what + why);
  };
  if (!nb::isinstance<nb::list>(content)) fail(" is neither a text nor a list of parts");
  std::string text;
  for (const nb::handle each : nb::borrow<nb::list>(content)) {
    if (nb::isinstance<nb::str>(each)) {
      text += to_utf8(each, "chat", what);
      continue;
    }
    if (!nb::isinstance<nb::dict>(each)) fail(": a part is neither a text nor a dict");
    const auto part = nb::borrow<nb::dict>(each);
    const std::string type =
        part.contains("type") ? nb::cast<std::string>(nb::str(part["type"])) : "";
    if (type == "image") {
      text += models::image_marker;
    } else if (type == "text" && part.contains("text") && nb::isinstance<nb::str>(part["text"])) {
      text += to_utf8(part["text"], "chat", what);
    } else {
      fail(
          fmt::format(": a part of type '{}'; known are 'text' with a 'text', and 'image' for the "
                      "next of images=",
                      type));
    }
  }
  return text;
}

/// Of a dict, as Python's json has it; empty for an empty one.
std::string json_of(const nb::dict& values) {
  if (values.size() == 0) return {};
  const nb::object dumps = nb::module_::import_("json").attr("dumps");
  return to_utf8(dumps(values, nb::arg("ensure_ascii") = false), "chat", "the values");
}

std::vector<text::ChatMessage> to_messages(nb::handle messages) {
  if (nb::isinstance<nb::str>(messages)) return {{"user", to_utf8(messages, "chat", "the text")}};
  std::vector<text::ChatMessage> list;
  const auto fail = [] {
    throw Error(
        Errc::bad_argument, "chat",
        "messages are a user's text, or a list of dicts with a text 'role' and a 'content'");
  };
  if (messages.is_none() || nb::isinstance<nb::dict>(messages)) fail();
  for (const nb::handle message : messages) {
    if (!nb::isinstance<nb::dict>(message)) fail();
    const auto parts = nb::borrow<nb::dict>(message);
    if (!parts.contains("role") || !nb::isinstance<nb::str>(parts["role"])) fail();
    const bool calls_tools = parts.contains("tool_calls");
    if (!parts.contains("content") && !calls_tools) fail();
    nb::dict more;
    for (const auto& [key, value] : parts) {
      const bool is_own = key.equal(nb::str("role")) || key.equal(nb::str("content"));
      if (!is_own || value.is_none()) more[key] = value;
    }
    const bool has_text = parts.contains("content") && !(calls_tools && parts["content"].is_none());
    list.push_back(
        {to_utf8(parts["role"], "chat", fmt::format("'role' of message {}", list.size())),
         has_text ? content_of(parts["content"], list.size()) : std::string(), json_of(more)});
  }
  return list;
}

/// With tools, a file's template for them, where it has one.
text::ChatFormat chat_format_of(const LanguageModel& model, bool has_tools = false) {
  if (has_tools) {
    if (auto format = model.chat_format({}, "tool_use")) return *format;
  }
  if (auto format = model.chat_format()) return *format;
  throw Error(Errc::unsupported, model.file().path().string(), "the file has no chat template");
}

using Sampler = nn::SamplerOptions;

struct SamplerNumber {
  std::string_view name;
  double Sampler::* field;
};
struct SamplerCount {
  std::string_view name;
  std::int64_t Sampler::* field;
};
constexpr SamplerNumber sampler_numbers[] = {
    {"temperature", &Sampler::temperature},
    {"top_p", &Sampler::top_p},
    {"min_p", &Sampler::min_p},
    {"repetition_penalty", &Sampler::repetition_penalty},
    {"frequency_penalty", &Sampler::frequency_penalty},
    {"presence_penalty", &Sampler::presence_penalty},
    {"dry_multiplier", &Sampler::dry_multiplier},
    {"dry_base", &Sampler::dry_base},
    {"top_n_sigma", &Sampler::top_n_sigma},
    {"dynatemp_range", &Sampler::dynatemp_range},
    {"dynatemp_exponent", &Sampler::dynatemp_exponent},
    {"typical_p", &Sampler::typical_p},
    {"xtc_probability", &Sampler::xtc_probability},
    {"xtc_threshold", &Sampler::xtc_threshold},
    {"adaptive_target", &Sampler::adaptive_target},
    {"adaptive_decay", &Sampler::adaptive_decay},
    {"mirostat_tau", &Sampler::mirostat_tau},
    {"mirostat_eta", &Sampler::mirostat_eta},
};
constexpr SamplerCount sampler_counts[] = {
    {"top_k", &Sampler::top_k},
    {"repetition_window", &Sampler::repetition_window},
    {"dry_allowed_length", &Sampler::dry_allowed_length},
    {"dry_window", &Sampler::dry_window},
};

/// Sets one option. `tokenizer`: for DRY's breakers that are texts; null where DRY is refused anyway.
void set_option(Sampler& options, const std::string& name, nb::handle value,
                const text::Tokenizer* tokenizer) {
  const auto number = std::ranges::find(sampler_numbers, name, &SamplerNumber::name);
  const auto count = std::ranges::find(sampler_counts, name, &SamplerCount::name);
  if (number != std::end(sampler_numbers)) {
    options.*number->field = nb::cast<double>(value);
  } else if (count != std::end(sampler_counts)) {
    options.*count->field = nb::cast<std::int64_t>(value);
  } else if (name == "mirostat") {
    options.mirostat = nb::cast<int>(value);
  } else if (name == "temperature_last") {
    options.temperature_last = nb::cast<bool>(value);
  } else if (name == "seed") {
    options.seed = nb::cast<std::uint64_t>(value);
  } else if (name == "logit_bias") {
    for (const auto& [token, bias] : nb::cast<nb::dict>(value)) {
      options.logit_bias.emplace_back(nb::cast<std::int32_t>(token), nb::cast<float>(bias));
    }
  } else if (name == "dry_breakers") {
    if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value))
      throw std::bad_cast();
    for (const nb::handle one : value) {
      std::string text;
      if (nb::isinstance<nb::str>(one)) {
        text = to_utf8(one, "generate", "a text of dry_breakers");
      } else if (nb::isinstance<nb::bytes>(one)) {  // as Tokenizer.piece() gives
        const auto bytes = nb::borrow<nb::bytes>(one);
        text.assign(bytes.c_str(), bytes.size());
      } else {
        options.dry_breakers.push_back(nb::cast<std::vector<std::int32_t>>(one));
        continue;
      }
      if (tokenizer == nullptr) continue;
      const std::string_view texts[] = {text};
      for (auto& breaker : models::dry_breakers(*tokenizer, texts)) {
        options.dry_breakers.push_back(std::move(breaker));
      }
    }
  } else {
    throw Error(Errc::bad_argument, "generate", fmt::format("no option '{}'", name));
  }
}

/// Options that were not given are as in `options`.
Sampler sampler_of(Sampler options, const nb::dict& given,
                   const text::Tokenizer* tokenizer = nullptr) {
  for (const auto& [key, value] : given) try {
      set_option(options, nb::cast<std::string>(key), value, tokenizer);
    } catch (const std::bad_cast&) {
      throw Error(Errc::bad_argument, "generate",
                  fmt::format("'{}' cannot be {}", nb::cast<std::string>(key),
                              nb::cast<std::string>(nb::repr(value))));
    }
  if (options.dry_multiplier > 0 && !given.contains("dry_breakers") && tokenizer != nullptr) {
    options.dry_breakers = models::dry_breakers(*tokenizer);
  }
  // A greedy answer is what temperature 0 asks for, whatever else the publisher recommends.
  if (given.contains("temperature") && options.temperature == 0 &&
      !given.contains("repetition_penalty")) {
    options.repetition_penalty = 1;
  }
  return options;
}

/// Of tenon.Draft's fields, whose model is a Conversation or None.
models::DraftOptions draft_of(const nb::dict& given) {
  models::DraftOptions options;
  for (const auto& [key, value] : given) try {
      const auto name = nb::cast<std::string>(key);
      if (name == "model") {
        if (!value.is_none()) options.model = nb::cast<Conversation>(value);
      } else if (name == "min_probability") {
        options.min_probability = nb::cast<double>(value);
      } else if (name == "lookup") {
        options.lookup = nb::cast<std::int64_t>(value);
      } else if (name == "min_lookup") {
        options.min_lookup = nb::cast<std::int64_t>(value);
      } else {
        options.max_tokens = nb::cast<std::int64_t>(value);
      }
    } catch (const std::bad_cast&) {
      throw Error(Errc::bad_argument, "generate",
                  fmt::format("'{}' of the draft cannot be {}", nb::cast<std::string>(key),
                              nb::cast<std::string>(nb::repr(value))));
    }
  return options;
}

models::EncoderOptions encoder_options(nb::handle device, bool cpu_fallback, int threads,
                                       bool exact, nb::handle weights) {
  models::EncoderOptions options;
  if (!device.is_none()) options.device = to_device(device);
  options.cpu_fallback = cpu_fallback;
  options.backend = backend_options(threads, exact);
  if (!weights.is_none()) options.weights = to_dtype(weights);
  return options;
}

models::EmbeddingOptions embedding_options(const std::optional<std::string>& pooling,
                                           const std::string& normalize) {
  models::EmbeddingOptions options;
  if (pooling) {
    options.pooling = models::find_pooling(*pooling);
    if (!options.pooling) {
      throw Error(Errc::bad_argument, "SentenceEncoder",
                  fmt::format("no pooling '{}'; there are none, mean, cls, last, rank", *pooling));
    }
  }
  const auto normalization = models::find_normalization(normalize);
  if (!normalization) {
    throw Error(
        Errc::bad_argument, "SentenceEncoder",
        fmt::format("normalize is '{}'; there are none, euclidean, taxicab, max_int16", normalize));
  }
  options.normalization = *normalization;
  return options;
}

std::vector<std::string> to_texts(const std::vector<nb::str>& texts, const char* call,
                                  const char* what) {
  std::vector<std::string> utf8;
  for (const nb::str& text : texts) {
    utf8.push_back(to_utf8(text, call, fmt::format("{} {}", what, utf8.size())));
  }
  return utf8;
}

/// What the classes of encoders share.
template <class Encoder>
void bind_encoder(nb::class_<Encoder>& encoder) {
  encoder.def_static(
      "load",
      [](const std::filesystem::path& path, nb::handle device, bool cpu_fallback, int threads,
         bool exact, nb::handle weights) {
        const auto options = encoder_options(device, cpu_fallback, threads, exact, weights);
        const nb::gil_scoped_release no_gil;
        return Encoder::load(path, options);
      },
      nb::arg("path"), nb::kw_only(), nb::arg("device") = nb::none(),
      nb::arg("cpu_fallback") = false, nb::arg("threads") = 0, nb::arg("exact") = false,
      nb::arg("weights") = nb::none(), "`weights`: a block type to which the layers are quantised");
  encoder.def("fork", &Encoder::fork, "Another encoder for another thread");
  encoder.def_prop_ro("file", [](const Encoder& self) { return self.file(); });
  encoder.def_prop_ro("program", [](const Encoder& self) { return self.program(); });
}

nb::dict to_dict(const Generated& result) {
  nb::dict facts;
  facts["text"] = nb::steal<nb::str>(PyUnicode_DecodeUTF8(
      result.text.data(), static_cast<Py_ssize_t>(result.text.size()), "replace"));
  facts["tokens"] = result.tokens;
  facts["end"] = word(result.end);
  facts["prompt_tokens"] = result.prompt_tokens;
  facts["reused_tokens"] = result.reused_tokens;
  facts["plan_time"] = seconds(result.plan_time);
  facts["prefill_time"] = seconds(result.prefill_time);
  facts["decode_time"] = seconds(result.decode_time);
  facts["drafted_tokens"] = result.drafted_tokens;
  facts["accepted_tokens"] = result.accepted_tokens;
  if (!result.choices.empty()) {
    nb::list choices;
    for (const Generated::Choice& choice : result.choices) {
      nb::list top;
      for (const Generated::LogProbability& one : choice.top) {
        top.append(nb::make_tuple(one.token, one.value));
      }
      choices.append(nb::make_tuple(choice.drawn.token, choice.drawn.value, top));
    }
    facts["choices"] = choices;
  }
  return facts;
}

/// What interruptible() counts calls of, for such a read: steps of one token are most of them.
const void* step_of(const Conversation& conversation, const std::vector<std::int32_t>& tokens) {
  return tokens.size() == 1 ? &conversation : nullptr;
}

/// Logits as an array of numpy's, of its own.
nb::object logits_array(std::span<const float> logits, std::int64_t rows) {
  const auto columns = static_cast<std::int64_t>(logits.size()) / std::max<std::int64_t>(rows, 1);
  const Shape shape = rows < 0 ? Shape({static_cast<std::int64_t>(logits.size())}, f32)
                               : Shape({rows, columns}, f32);
  return nb::cast(HostBuffer::of(shape, logits)).attr("numpy")();
}

/// Options as LanguageModel.generate() takes them.
struct Asked {
  std::int64_t max_tokens;
  const std::vector<nb::str>& stop;
  std::optional<std::int64_t> logprobs;
  std::optional<double> timeout;
  bool sample_on_device;
  std::optional<text::Grammar> grammar;
  const std::vector<nb::str>& grammar_after;
  const std::vector<nb::str>& preserved_tokens;
  const nb::dict& draft;
  const nb::dict& sampler;
  const Cancellation& cancellation;

  GenerateOptions options(const LanguageModel& model) const {
    GenerateOptions made;
    made.grammar = grammar;
    made.max_tokens = max_tokens;
    made.sampler =
        sampler_of(models::sampling_defaults(model.file()).sampler, sampler, &model.tokenizer());
    made.sample_on_device = sample_on_device;
    made.draft = draft_of(draft);
    for (const nb::str& text : stop) {
      made.stop.push_back(to_utf8(text, "generate", fmt::format("stop text {}", made.stop.size())));
    }
    for (const nb::str& text : grammar_after) {
      made.grammar_after.push_back(to_utf8(text, "generate", "a text of grammar_after"));
    }
    for (const nb::str& text : preserved_tokens) {
      made.preserved_tokens.push_back(to_utf8(text, "generate", "a text of preserved_tokens"));
    }
    made.logprobs = logprobs;
    made.interrupt = to_interrupt(timeout);
    made.interrupt.cancel = cancellation.source.get_token();
    return made;
  }
};

/// `take`: takes the class, conversation, prompt, options and what is called with pieces of text.
template <class Class, class Prompt, class Take>
void def_answering(Class& type, const char* name, const Take& take) {
  type.def(
      name,
      [take](typename Class::Type& self, Conversation& at, const Prompt& prompt,
             std::int64_t max_tokens, const std::vector<nb::str>& stop,
             std::optional<std::int64_t> logprobs, std::optional<double> timeout,
             bool sample_on_device, std::optional<text::Grammar> grammar,
             const std::vector<nb::str>& grammar_after,
             const std::vector<nb::str>& preserved_tokens, const nb::dict& draft,
             const nb::dict& sampler, nb::object emit, const Cancellation& cancellation) {
        return take(self, at, prompt,
                    Asked{max_tokens, stop, logprobs, timeout, sample_on_device, std::move(grammar),
                          grammar_after, preserved_tokens, draft, sampler, cancellation},
                    std::move(emit));
      },
      nb::arg("conversation"), nb::arg("prompt"), nb::arg("max_tokens"), nb::arg("stop"),
      nb::arg("logprobs").none(), nb::arg("timeout").none(), nb::arg("sample_on_device"),
      nb::arg("grammar").none(), nb::arg("grammar_after"), nb::arg("preserved_tokens"),
      nb::arg("draft"), nb::arg("sampler"), nb::arg("emit").none(), nb::arg("cancellation"));
}

/// LanguageModel._generate of a prompt of tokens, or with images.
template <class Prompt, class PartsOf>
void bind_generate(nb::class_<LanguageModel>& model, PartsOf parts_of) {
  def_answering<nb::class_<LanguageModel>, Prompt>(
      model, "_generate",
      [parts_of](const LanguageModel& self, Conversation& at, const Prompt& prompt,
                 const Asked& asked, const nb::object& emit) {
        const GenerateOptions options = asked.options(self);
        Generated result;
        {
          const nb::gil_scoped_release no_gil;
          result =
              models::generate(self, at, parts_of(prompt), options, [&](std::string_view text) {
                if (emit.is_none()) return;
                const PythonCall call;
                emit(nb::str(text.data(), text.size()));
              });
        }
        return to_dict(result);
      });
}

/// A callback of Python's that any thread may drop.
std::shared_ptr<nb::object> shared_callback(nb::object callback) {
  return {new nb::object(std::move(callback)),
          [](nb::object* held) { drop_python([held] { delete held; }); }};
}

struct Batch {
  Batch(const LanguageModel& of, std::int64_t at_once, std::uint64_t prompt_bytes)
      : model(of), answers(of, {.at_once = at_once, .prompt_bytes = prompt_bytes}) {}

  std::int64_t add(models::AnswerRequest request, nb::object emit) {
    if (!emit.is_none()) {
      request.emit = [callback = shared_callback(std::move(emit))](std::string_view text) {
        const PythonCall call;
        (*callback)(nb::str(text.data(), text.size()));
      };
    }
    const nb::gil_scoped_release no_gil;
    return answers.add(std::move(request));
  }
  std::vector<std::int64_t> step() {
    std::vector<models::FinishedAnswer> ended;
    {
      const nb::gil_scoped_release no_gil;
      ended = answers.step();
    }
    std::vector<std::int64_t> ids;
    for (models::FinishedAnswer& one : ended) {
      ids.push_back(one.id);
      finished.emplace(one.id, std::move(one));
    }
    return ids;
  }
  nb::dict take(std::int64_t id) {
    auto found = finished.extract(id);
    if (found.empty()) throw Error(Errc::bad_argument, "AnswerBatch", "no such answer has ended");
    if (found.mapped().error) std::rethrow_exception(found.mapped().error);
    return to_dict(found.mapped().answer);
  }

  LanguageModel model;
  models::AnswerBatch answers;
  std::map<std::int64_t, models::FinishedAnswer> finished;
};

void bind_batch(nb::module_& module) {
  auto batch = nb::class_<Batch>(module, "_AnswerBatch");
  batch.def(nb::init<const LanguageModel&, std::int64_t, std::uint64_t>(), nb::arg("model"),
            nb::arg("at_once"),
            nb::arg("prompt_bytes") = models::AnswerBatchOptions().prompt_bytes);
  def_answering<nb::class_<Batch>, std::vector<std::int32_t>>(
      batch, "add",
      [](Batch& self, const Conversation& at, const std::vector<std::int32_t>& prompt,
         const Asked& asked, nb::object emit) {
        return self.add(
            {.conversation = at, .prompt = prompt, .options = asked.options(self.model)},
            std::move(emit));
      });
  def_answering<nb::class_<Batch>, ImagePrompt>(
      batch, "add",
      [](Batch& self, const Conversation& at, const ImagePrompt& prompt, const Asked& asked,
         nb::object emit) {
        models::AnswerRequest request{.conversation = at, .prompt = {}};
        if (!prompt.parts.empty()) {
          request.prompt = prompt.parts.back().tokens;
          request.beginning.assign(prompt.parts.begin(), prompt.parts.end() - 1);
        }
        request.options = asked.options(self.model);
        return self.add(std::move(request), std::move(emit));
      });
  batch.def("step", &Batch::step, "One step; the numbers of the answers that have ended");
  batch.def("take", &Batch::take, nb::arg("id"), "An answer that has ended; raises its error");
  batch.def("__len__", [](const Batch& self) { return self.answers.size(); });
}

void bind_image_prompts(nb::module_& module, nb::class_<LanguageModel>& model) {
  nb::class_<ImagePrompt>(module, "ImagePrompt",
                          "A prompt with images, for LanguageModel.generate()")
      .def("__len__",
           [](const ImagePrompt& self) {
             std::int64_t positions = 0;
             for (const PromptPart& part : self.parts) positions += part.positions();
             return positions;
           })
      .def("__repr__", [](const ImagePrompt& self) {
        const auto images = std::ranges::count_if(
            self.parts, [](const PromptPart& part) { return !part.rows.is_empty(); });
        return fmt::format("ImagePrompt of {} parts, {} of them embeddings", self.parts.size(),
                           images);
      });
  model.def(
      "_image_prompt",
      [](const LanguageModel& self, const VisionEncoder& encoder, nb::handle prompt,
         const std::vector<nb::object>& images) {
        std::vector<HostBuffer> pixels;
        for (const nb::object& image : images) pixels.push_back(to_host_buffer(image));
        if (nb::isinstance<nb::str>(prompt)) {
          const std::string text = to_utf8(prompt, "image_prompt", "the text");
          const nb::gil_scoped_release no_gil;
          return ImagePrompt{models::image_prompt(self, encoder, text, pixels)};
        }
        const text::Prompt chat = chat_format_of(self).format(to_messages(prompt));
        const nb::gil_scoped_release no_gil;
        return ImagePrompt{models::image_prompt(self, encoder, chat, pixels)};
      },
      nb::arg("encoder"), nb::arg("prompt"), nb::arg("images"));
  module.attr("image_marker") = nb::str(models::image_marker.data(), models::image_marker.size());
}

void bind_vision_encoder(nb::module_& module) {
  auto encoder = nb::class_<VisionEncoder>(
      module, "VisionEncoder",
      "A vision encoder from the GGUF file beside a language model's. One thread at a time");
  bind_encoder(encoder);
  encoder.def_static(
      "load_within",
      [](const std::filesystem::path& path, std::int64_t min_embeddings,
         std::int64_t max_embeddings, nb::handle device, bool cpu_fallback, int threads, bool exact,
         nb::handle weights) {
        const auto options = encoder_options(device, cpu_fallback, threads, exact, weights);
        const nb::gil_scoped_release no_gil;
        return VisionEncoder::load(path, options, {min_embeddings, max_embeddings});
      },
      nb::arg("path"), nb::arg("min_embeddings"), nb::arg("max_embeddings"), nb::kw_only(),
      nb::arg("device") = nb::none(), nb::arg("cpu_fallback") = false, nb::arg("threads") = 0,
      nb::arg("exact") = false, nb::arg("weights") = nb::none(),
      "As load(), with limits for images of any size; 0: as the file has it");
  encoder.def(
      "size_of",
      [](const VisionEncoder& self, std::int64_t height, std::int64_t width) {
        if (!self.config().has_axes()) {
          throw Error(Errc::unsupported, "size_of", "images of this family all have one size");
        }
        const models::ImageGrid grid = self.config().size_of(height, width);
        return std::pair(grid.rows, grid.columns);
      },
      nb::arg("height"), nb::arg("width"),
      "Rows and columns of the embeddings of an image of so many pixels, where images have any "
      "size");
  encoder.def_prop_ro("config", [](const VisionEncoder& self) {
    const models::VisionConfig& config = self.config();
    nb::dict facts;
    facts["projector"] = std::string(models::spelling(config.projector));
    facts["layers"] = config.layers;
    facts["width"] = config.width;
    facts["intermediate_size"] = config.intermediate_size;
    facts["heads"] = config.heads;
    facts["image_size"] = config.image_size;
    facts["patch_size"] = config.patch_size;
    facts["model_width"] = config.model_width;
    if (config.has_axes()) {
      facts["min_pixels"] = config.min_pixels;
      facts["max_pixels"] = config.max_pixels;
    } else {
      facts["embeddings"] = config.embeddings();
    }
    return facts;
  });
  encoder.def(
      "preprocess",
      [](const VisionEncoder& self, nb::handle pixels) {
        const HostBuffer image = to_host_buffer(pixels);
        const nb::gil_scoped_release no_gil;
        return self.preprocess(image);
      },
      nb::arg("pixels"),
      "What the transformer reads of an image, u8 RGB [height, width, 3]: f32 [tiles, 3, image "
      "size, "
      "image size]");
  encoder.def(
      "encode",
      [](const VisionEncoder& self, nb::handle pixels, std::optional<double> timeout) {
        const HostBuffer image = to_host_buffer(pixels);
        const Interrupt limit = to_interrupt(timeout);
        return interruptible(nullptr, [&](Interrupt interrupt) {
          interrupt.deadline = limit.deadline;
          return self.encode(image, interrupt);
        });
      },
      nb::arg("pixels"), nb::arg("timeout") = nb::none(),
      "Embeddings of an image, u8 RGB [height, width, 3]: f32 [embeddings, width of the language "
      "model]");
  encoder.def("__repr__", [](const VisionEncoder& self) {
    return fmt::format(
        "VisionEncoder {}: {}, {} layers of {}", self.file().path().filename().string(),
        models::spelling(self.config().projector), self.config().layers, self.config().width);
  });
}

void bind_conversation(nb::module_& module) {
  nb::class_<Cancellation>(module, "_Cancellation")
      .def(nb::init<>())
      .def("cancel", [](Cancellation& self) { self.source.request_stop(); });

  auto conversation = nb::class_<Conversation>(
      module, "Conversation",
      "The KV cache of the tokens that a model has read. One thread at a time");
  conversation.def(
      "read",
      [](Conversation& self, const std::vector<std::int32_t>& tokens) {
        const auto logits = interruptible(step_of(self, tokens), [&](const Interrupt& interrupt) {
          return self.read(tokens, interrupt);
        });
        return logits_array(logits, -1);
      },
      nb::arg("tokens"), "Reads tokens; the logits after the last one, f32 [vocabulary]");
  conversation.def(
      "read_all",
      [](Conversation& self, const std::vector<std::int32_t>& tokens) {
        std::vector<float> all;
        std::int64_t rows = 0;
        const auto take = [&](std::span<const float> logits, std::int64_t count) {
          all.insert(all.end(), logits.begin(), logits.end());
          rows += count;
        };
        interruptible(step_of(self, tokens),
                      [&](const Interrupt& interrupt) { self.read_all(tokens, take, interrupt); });
        return logits_array(all, rows);
      },
      nb::arg("tokens"), "Reads tokens; the logits after each, f32 [tokens, vocabulary]");
  conversation.def(
      "read_greedy",
      [](Conversation& self, const std::vector<std::int32_t>& tokens) {
        return interruptible(step_of(self, tokens), [&](const Interrupt& interrupt) {
          return self.read_greedy(tokens, interrupt);
        });
      },
      nb::arg("tokens"), "Reads tokens; the most probable next one");
  conversation.def(
      "read_all_greedy",
      [](Conversation& self, const std::vector<std::int32_t>& tokens) {
        return interruptible(step_of(self, tokens), [&](const Interrupt& interrupt) {
          return self.read_all_greedy(tokens, interrupt);
        });
      },
      nb::arg("tokens"), "Reads tokens; the most probable next one behind each");
  conversation.def(
      "read_guess",
      [](Conversation& self, const std::vector<std::int32_t>& tokens) {
        return interruptible(step_of(self, tokens), [&](const Interrupt& interrupt) {
          const auto [token, probability] = self.read_guess(tokens, interrupt);
          return std::pair(token, probability);
        });
      },
      nb::arg("tokens"), "Reads tokens; the most probable next one, and its probability");
  conversation.def(
      "read_sampled",
      [](Conversation& self, const std::vector<std::int32_t>& tokens,
         const std::vector<std::int32_t>& history, const nb::kwargs& sampler) {
        const nn::SamplerOptions options = sampler_of({}, sampler);
        return interruptible(step_of(self, tokens), [&](const Interrupt& interrupt) {
          return self.read_sampled(tokens, options, history, interrupt);
        });
      },
      nb::arg("tokens"), nb::arg("history") = std::vector<std::int32_t>(), nb::arg("sampler"),
      "Reads tokens; the next one, drawn where the model runs, by generate()'s options of "
      "sampling, "
      "of which those left out are off. `history`: the tokens that repetition_penalty refers to");
  conversation.def(
      "read_image",
      [](Conversation& self, nb::handle rows, std::int64_t height, std::int64_t width,
         std::optional<double> timeout) {
        const HostBuffer values = to_host_buffer(rows).contiguous();
        const Interrupt limit = to_interrupt(timeout);
        const auto logits = interruptible(nullptr, [&](Interrupt interrupt) {
          interrupt.deadline = limit.deadline;
          return self.read_image(values.values<float>(), {height, width}, interrupt);
        });
        return logits_array(logits, -1);
      },
      nb::arg("rows"), nb::arg("height"), nb::arg("width"), nb::arg("timeout") = nb::none(),
      "Reads an image of height x width embeddings whose positions have two axes; the logits after "
      "the last one, f32 [vocabulary]");
  conversation.def(
      "read_embeddings",
      [](Conversation& self, nb::handle rows, bool mutual) {
        const HostBuffer values = to_host_buffer(rows).contiguous();
        if (values.shape().dtype() != f32 || values.shape().rank() != 2) {
          throw Error(
              Errc::bad_shape, "read_embeddings",
              fmt::format("rows are f32 [count, width], not {}", to_string(values.shape())));
        }
        const auto logits = interruptible(nullptr, [&](const Interrupt& interrupt) {
          return self.read_embeddings(values.values<float>(),
                                      mutual ? RowAttention::mutual : RowAttention::causal,
                                      interrupt);
        });
        return logits_array(logits, -1);
      },
      nb::arg("rows"), nb::arg("mutual") = false,
      "Reads embeddings in the place of tokens, f32 [count, width of the model], such as "
      "VisionEncoder.encode() gives; the "
      "logits after the last one. `mutual`: each attends to all of them, as Gemma 3 reads an "
      "image");
  conversation.def("rewind", &Conversation::rewind, nb::arg("position"),
                   "Drops all but the first `position` tokens");
  conversation.def("rewindable", &Conversation::rewindable, nb::arg("position"),
                   "The last position up to `position` that rewind goes to");
  conversation.def(
      "keep_prefix_of",
      [](Conversation& self, const std::vector<std::int32_t>& tokens) {
        return self.keep_prefix_of(tokens);
      },
      nb::arg("tokens"),
      "Rewinds to where it begins to differ from `tokens`, at the latest before the last of them; "
      "that position: tokens[position:] are to be read next");
  conversation.def(
      "fork",
      [](const Conversation& self) {
        const nb::gil_scoped_release no_gil;
        return self.fork();
      },
      "A second conversation that holds the same tokens and continues independently");
  conversation.def(
      "save",
      [](const Conversation& self, const std::filesystem::path& path) {
        const nb::gil_scoped_release no_gil;
        self.save(path);
      },
      nb::arg("path"), "Writes it to a safetensors file, for LanguageModel.restore()");
  conversation.def_prop_ro(
      "tokens",
      [](const Conversation& self) {
        return std::vector<std::int32_t>(self.tokens().begin(), self.tokens().end());
      },
      "The tokens that it holds");
  conversation.def_prop_ro("position", &Conversation::position);
  conversation.def_prop_ro("capacity", &Conversation::capacity);
}

void bind_language_model(nb::module_& module) {
  auto model = nb::class_<LanguageModel>(module, "LanguageModel",
                                         "A decoder-only language model from a GGUF file");
  model.def_static(
      "_load",
      [](const std::filesystem::path& path, std::int64_t context, std::int64_t chunk,
         nb::handle cache, nb::handle device, bool cpu_fallback, int threads, bool exact,
         const std::optional<std::filesystem::path>& packed_folder,
         const std::vector<std::pair<std::filesystem::path, double>>& adapters,
         nb::object progress) {
        models::LanguageModelOptions options;
        options.context = context;
        options.chunk = chunk;
        if (!cache.is_none()) options.cache = to_dtype(cache);
        if (!device.is_none()) options.device = to_device(device);
        options.cpu_fallback = cpu_fallback;
        options.backend = backend_options(threads, exact);
        if (packed_folder) options.packed_folder = *packed_folder;
        for (const auto& [source, scale] : adapters) options.adapters.push_back({source, scale});
        if (!progress.is_none()) {
          options.load.progress = [&progress](const io::LoadProgress& at) {
            const PythonCall call;
            progress(at.done_bytes, at.total_bytes);
          };
        }
        const nb::gil_scoped_release no_gil;
        return LanguageModel::load(path, options);
      },
      nb::arg("path"), nb::kw_only(), nb::arg("context") = 0, nb::arg("chunk") = 512,
      nb::arg("cache") = nb::none(), nb::arg("device") = nb::none(),
      nb::arg("cpu_fallback") = false, nb::arg("threads") = 0, nb::arg("exact") = false,
      nb::arg("packed_folder") = nb::none(), nb::arg("adapters") = nb::list(),
      nb::arg("progress") = nb::none());
  model.def_prop_ro("tokenizer", [](const LanguageModel& self) { return self.tokenizer(); });
  model.def_prop_ro("file", [](const LanguageModel& self) { return self.file(); });
  model.def_prop_ro("context", &LanguageModel::context);
  model.def_prop_ro(
      "program", [](const LanguageModel& self) { return self.program(); },
      "The program of one decoding step");
  model.def_prop_ro("config", [](const LanguageModel& self) {
    const models::DecoderConfig& config = self.config();
    nb::dict facts;
    facts["architecture"] = config.architecture;
    facts["layers"] = config.layers;
    facts["width"] = config.width;
    facts["intermediate_size"] = config.intermediate_size;
    facts["experts"] = config.experts;
    facts["heads"] = config.heads;
    facts["kv_heads"] = config.kv_heads;
    facts["head_dim"] = config.head_dim;
    facts["vocabulary"] = config.vocabulary;
    facts["context_length"] = config.context_length;
    return facts;
  });
  model.def("conversation", &LanguageModel::conversation, "A conversation without tokens");
  model.def(
      "restore",
      [](const LanguageModel& self, const std::filesystem::path& path) {
        const nb::gil_scoped_release no_gil;
        return self.restore(path);
      },
      nb::arg("path"), "The conversation that Conversation.save() wrote, with this model");
  model.def(
      "read_each",
      [](const LanguageModel& self, const std::vector<Conversation>& conversations,
         const std::vector<std::int32_t>& tokens) {
        HostBuffer logits = interruptible(&self, [&](const Interrupt& interrupt) {
          return self.read_each(conversations, tokens, interrupt);
        });
        return nb::cast(std::move(logits)).attr("numpy")();
      },
      nb::arg("conversations"), nb::arg("tokens"),
      "Reads a token in each conversation, in one step; logits [conversations, vocabulary]");
  model.def(
      "read_each_greedy",
      [](const LanguageModel& self, const std::vector<Conversation>& conversations,
         const std::vector<std::int32_t>& tokens) {
        return interruptible(&self, [&](const Interrupt& interrupt) {
          return self.read_each_greedy(conversations, tokens, interrupt);
        });
      },
      nb::arg("conversations"), nb::arg("tokens"),
      "The same with the most probable token behind each, -1 where no logit is a number");
  model.def(
      "chat_tokens",
      [](const LanguageModel& self, nb::handle messages, const nb::kwargs& values) {
        return chat_format_of(self, values.contains("tools") &&
                                        PyObject_IsTrue(nb::object(values["tools"]).ptr()) == 1)
            .format(to_messages(messages), true, json_of(nb::borrow<nb::dict>(values)))
            .encode(self.tokenizer());
      },
      nb::arg("messages"), nb::arg("values"),
      "Tokens of messages (dicts of role and content, or one user's text) in the model's chat "
      "format. Further arguments are its template's variables, such as tools=[...]");
  model.def("_chat_format", &chat_format_of, nb::arg("has_tools"));
  model.def_prop_ro("chat_stop_tokens",
                    [](const LanguageModel& self) { return chat_format_of(self).stop_tokens(); });
  bind_generate<std::vector<std::int32_t>>(
      model, [](const std::vector<std::int32_t>& tokens) { return std::span(tokens); });
  bind_generate<ImagePrompt>(model,
                             [](const ImagePrompt& prompt) { return std::span(prompt.parts); });
  bind_image_prompts(module, model);
  model.def("__repr__", [](const LanguageModel& self) {
    return fmt::format("LanguageModel {}: {}, {} layers of {}",
                       self.file().path().filename().string(), self.config().architecture,
                       self.config().layers, self.config().width);
  });
}

void bind_chat_format(nb::module_& module) {
  nb::class_<text::ChatFormat>(module, "ChatFormat",
                               "A chat template: Jinja, as Hugging Face's and llama.cpp's")
      .def(
          "__init__",
          [](text::ChatFormat* self, const nb::str& jinja, std::optional<std::string> bos_token,
             std::optional<std::string> eos_token, std::optional<std::string> date,
             const nb::kwargs& values) {
            new (self) text::ChatFormat(text::ChatFormat::from_template(
                to_utf8(jinja, "ChatFormat", "the template"),
                {std::move(bos_token), std::move(eos_token), std::move(date),
                 json_of(nb::borrow<nb::dict>(values))}));
          },
          nb::arg("template"), nb::kw_only(), nb::arg("bos_token") = nb::none(),
          nb::arg("eos_token") = nb::none(), nb::arg("date") = nb::none(), nb::arg("values"),
          "Further arguments are variables of the template")
      .def(
          "format",
          [](const text::ChatFormat& self, nb::handle messages, bool add_generation_prompt,
             const nb::kwargs& values) {
            return self
                .format(to_messages(messages), add_generation_prompt,
                        json_of(nb::borrow<nb::dict>(values)))
                .text;
          },
          nb::arg("messages"), nb::arg("add_generation_prompt") = true, nb::arg("values"),
          "The conversation as one text; further arguments are variables, such as tools=[...]")
      .def(
          "tokens",
          [](const text::ChatFormat& self, nb::handle messages, const text::Tokenizer& tokenizer,
             bool add_generation_prompt, const nb::kwargs& values) {
            return self
                .format(to_messages(messages), add_generation_prompt,
                        json_of(nb::borrow<nb::dict>(values)))
                .encode(tokenizer);
          },
          nb::arg("messages"), nb::arg("tokenizer"), nb::arg("add_generation_prompt") = true,
          nb::arg("values"),
          "The same as tokens; what messages have of the spellings of control tokens stays text")
      .def_prop_ro("stop_tokens", &text::ChatFormat::stop_tokens,
                   "Spellings of what ends an answer")
      .def_prop_ro("template", &text::ChatFormat::source);
}

/// The message of an answer, as OpenAI's API has it, and the rest.
nb::tuple to_message(const text::ChatAnswer& answer) {
  nb::dict message;
  message["role"] = "assistant";
  message["content"] = answer.content;
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  nb::list calls;
  for (const text::ToolCall& call : answer.calls) {
    nb::dict function, one;
    function["name"] = call.name;
    function["arguments"] = call.arguments;
    one["id"] = call.id;
    one["type"] = "function";
    one["function"] = function;
    calls.append(one);
  }
  if (!answer.calls.empty()) message["tool_calls"] = calls;
  return nb::make_tuple(message, answer.rest);
}

void bind_answer_format(nb::module_& module) {
  nb::class_<text::AnswerFormat>(
      module, "AnswerFormat",
      "How the model of a chat template writes its reasoning and its calls of tools, "
      "found by rendering samples")
      .def(
          "__init__",
          [](text::AnswerFormat* self, const text::ChatFormat& format, const nb::kwargs& values) {
            new (self) text::AnswerFormat(format, json_of(nb::borrow<nb::dict>(values)));
          },
          nb::arg("format"), nb::arg("values"),
          "Further arguments are the template's variables, as for ChatFormat.format()")
      .def(
          "read",
          [](const text::AnswerFormat& self, const nb::str& text, bool is_whole) {
            return to_message(self.read(to_utf8(text, "AnswerFormat", "the answer"), is_whole));
          },
          nb::arg("text"), nb::arg("is_whole") = true,
          "An answer's message: a dict of role, content, and, where it has them, reasoning_content "
          "and tool_calls, as "
          "OpenAI's API has it; and the end of the text that belongs to none. `is_whole` is False "
          "for one that grows")
      .def(
          "call_grammar",
          [](const text::AnswerFormat& self, std::string tool, bool several, std::string after) {
            return self.call_grammar({std::move(tool), several, std::move(after)});
          },
          nb::kw_only(), nb::arg("tool") = "", nb::arg("several") = true, nb::arg("after") = "",
          "Answers that are nothing but calls of the tools, as a Grammar; of one tool, one call, "
          "and behind the "
          "beginning of a call's marks, if asked for")
      .def_prop_ro(
          "call_mark", &text::AnswerFormat::call_mark,
          "The mark that calls begin with, such as '<tool_call>'; empty for those without one")
      .def_prop_ro("has_calls", &text::AnswerFormat::has_calls)
      .def_prop_ro("has_reasoning", &text::AnswerFormat::has_reasoning)
      .def_prop_ro("reasoning_end", &text::AnswerFormat::reasoning_end,
                   "What stands behind reasoning, such as '</think>'; empty without any")
      .def_prop_ro("starts_in_reasoning", &text::AnswerFormat::starts_in_reasoning,
                   "Whether the prompt ends within reasoning, so that answers begin with it")
      .def_prop_ro("stop_tokens", &text::AnswerFormat::stop_tokens,
                   "Spellings of what ends an answer, and of what follows calls")
      .def_prop_ro(
          "preserved_tokens", &text::AnswerFormat::preserved_tokens,
          "Spellings that read() looks for, which generate() keeps where they are control tokens");
}

}  // namespace

void bind_models(nb::module_& module) {
  bind_conversation(module);
  bind_language_model(module);
  bind_chat_format(module);
  bind_answer_format(module);
  bind_vision_encoder(module);
  bind_batch(module);

  auto encoder = nb::class_<SentenceEncoder>(
      module, "SentenceEncoder", "A sentence encoder or reranker. One thread at a time");
  bind_encoder(encoder);
  encoder.def_static(
      "load_as",
      [](const std::filesystem::path& path, const std::optional<std::string>& pooling,
         const std::string& normalize, nb::handle device, bool cpu_fallback, int threads,
         bool exact, nb::handle weights) {
        const auto options = encoder_options(device, cpu_fallback, threads, exact, weights);
        const auto embedding = embedding_options(pooling, normalize);
        const nb::gil_scoped_release no_gil;
        return SentenceEncoder::load(path, options, embedding);
      },
      nb::arg("path"), nb::arg("pooling").none(), nb::arg("normalize"), nb::kw_only(),
      nb::arg("device") = nb::none(), nb::arg("cpu_fallback") = false, nb::arg("threads") = 0,
      nb::arg("exact") = false, nb::arg("weights") = nb::none());
  encoder.def(
      "tokens",
      [](const SentenceEncoder& self, const nb::str& text) {
        return self.tokens(to_utf8(text, "tokens", "the text"));
      },
      nb::arg("text"));
  encoder.def(
      "tokens",
      [](const SentenceEncoder& self, const nb::str& query, const nb::str& document) {
        return self.tokens(to_utf8(query, "tokens", "the query"),
                           to_utf8(document, "tokens", "the document"));
      },
      nb::arg("query"), nb::arg("document"), "Those that score() reads");
  encoder.def_prop_ro("tokenizer", [](const SentenceEncoder& self) { return self.tokenizer(); });
  encoder.def_prop_ro("config", [](const SentenceEncoder& self) {
    const models::EncoderConfig& config = self.config();
    nb::dict facts;
    facts["layers"] = config.layers;
    facts["width"] = config.width;
    facts["intermediate_size"] = config.intermediate_size;
    facts["heads"] = config.heads;
    facts["vocabulary"] = config.vocabulary;
    facts["max_tokens"] = config.max_tokens;
    facts["architecture"] = config.architecture;
    facts["pooling"] = std::string(models::name(config.pooling));
    facts["embedding_width"] = self.embedding_width();
    return facts;
  });
  encoder.def(
      "embed",
      [](const SentenceEncoder& self, const std::vector<nb::str>& texts) {
        const std::vector<std::string> utf8 = to_texts(texts, "embed", "text");
        return interruptible(
            nullptr, [&](const Interrupt& interrupt) { return self.embed(utf8, interrupt); });
      },
      nb::arg("texts"), "f32 [texts, width]");
  encoder.def(
      "embed_tokens",
      [](const SentenceEncoder& self, const nb::str& text) {
        const std::string utf8 = to_utf8(text, "embed_tokens", "the text");
        return interruptible(nullptr, [&](const Interrupt& interrupt) {
          return self.embed_tokens(utf8, interrupt);
        });
      },
      nb::arg("text"), "With pooling=\"none\": an embedding for each token, f32 [tokens, width]");
  encoder.def(
      "score",
      [](const SentenceEncoder& self, const nb::str& query, const std::vector<nb::str>& documents) {
        const std::string asked = to_utf8(query, "score", "the query");
        const std::vector<std::string> utf8 = to_texts(documents, "score", "document");
        return interruptible(nullptr, [&](const Interrupt& interrupt) {
          return self.score(asked, utf8, interrupt);
        });
      },
      nb::arg("query"), nb::arg("documents"),
      "Of a reranker: how well each document answers the query, f32 [documents]");
  encoder.def("__repr__", [](const SentenceEncoder& self) {
    const std::filesystem::path path = self.file().path();
    const bool is_folder = path.extension() == ".safetensors";
    return fmt::format("SentenceEncoder {}: {} layers of {}",
                       (is_folder ? path.parent_path() : path).filename().string(),
                       self.config().layers, self.config().width);
  });
}

}  // namespace tenon::python
