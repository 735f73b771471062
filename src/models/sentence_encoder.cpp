// Encoders of texts, ready to run.
#include "file_place.hpp"
#include "models/architectures.hpp"
#include "page_checks.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/convert.hpp>
#include <tenon/log.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/encoder.hpp>
#include <tenon/models/vocabulary.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::models {
namespace {

// Texts of similar length are batched, with about this many tokens per batch.
constexpr std::int64_t batch_tokens = 2048;

EncoderConfig config_of(const io::File& file, const EmbeddingOptions& options) {
  EncoderConfig config = EncoderConfig::from(file);
  if (options.pooling) {
    config.pooling = *options.pooling;
    return config;
  }
  const bool is_language_model = file.format() == io::Format::gguf && !is_encoder(file);
  if (is_language_model && config.pooling == Pooling::none &&
      !file.metadata().contains(config.architecture + ".pooling_type")) {
    throw Error(Errc::unsupported, file.path().string(),
                fmt::format("{}, a language model without a pooling: `tenon generate` runs it; for "
                            "embeddings of it, ask for a pooling, such as last or mean",
                            config.architecture));
  }
  return config;
}

RankHead<> head_of(const WeightsView& view, const io::File& file, const EncoderConfig& config) {
  const WeightsView head = view["cls"];
  RankHead<> made;
  if (head.contains("weight")) made.dense = nn::Linear<>::init(head);
  if (head["norm"].contains("weight")) {
    made.norm = nn::LayerNorm<>::init(head["norm"], config.norm_eps);
  }
  if (head["output"].contains("weight")) made.output = nn::Linear<>::init(head["output"]);
  if (!made.dense && !made.output) {
    throw Error(Errc::unsupported, file.path().string(),
                "pooling rank, but no classifier (cls.weight, cls.output.weight)");
  }
  made.has_gelu = config.architecture == "modern-bert";
  made.has_softmax = config.architecture == "qwen3" || config.architecture == "qwen3vl";
  return made;
}

SentenceModel<> model_of(const WeightsView& view, const io::File& file, const EncoderConfig& config,
                         const EmbeddingOptions& options) {
  SentenceModel<> made;
  if (file.format() != io::Format::gguf || is_of_bert_family(config.architecture)) {
    made.encoder = Encoder<>::init(view, config);
  } else {
    DecoderConfig decoder = DecoderConfig::from(file);
    decoder.has_long_context = decoder.context_length > decoder.rope.original_context;
    made.decoder = Decoder<>::init(view, decoder);
    made.decoder->head.reset();  // of logits
    for (const char* name : {"dense_2", "dense_3"}) {
      if (view[name].contains("weight")) made.dense.push_back(nn::Linear<>::init(view[name]));
    }
  }
  made.pooling = config.pooling;
  made.ranked = config.ranked;
  made.normalization = options.normalization;
  if (config.pooling == Pooling::rank) made.head = head_of(view, file, config);
  return made;
}

/// A template with "{query}" and "{document}" filled in, and where they are.
struct Prompt {
  std::string text;
  std::vector<text::TextRange> plain;
};

Prompt filled(std::string_view form, std::string_view query, std::string_view document) {
  constexpr std::string_view query_mark = "{query}", document_mark = "{document}";
  Prompt made;
  const auto add = [&](std::string_view value) {
    made.plain.push_back({made.text.size(), made.text.size() + value.size()});
    made.text += value;
  };
  while (!form.empty()) {
    if (form.starts_with(query_mark)) {
      add(query);
      form.remove_prefix(query_mark.size());
    } else if (form.starts_with(document_mark)) {
      add(document);
      form.remove_prefix(document_mark.size());
    } else {
      made.text += form.front();
      form.remove_prefix(1);
    }
  }
  return made;
}

}  // namespace

struct SentenceEncoder::Impl {
  /// What forks share.
  struct Model {
    /// Example shapes to compile for: a short text, within the model's limits.
    static Exe<&SentenceModel<>::embed>::Shapes example_shapes(const EncoderConfig& config) {
      const std::int64_t columns = std::min<std::int64_t>(config.max_tokens, 16);
      return {Shape({1, columns}, i32), Shape({1, columns}, f32)};
    }

    /// The weights of linear layers: matrices of the encoder's own.
    static WeightsView declare(const io::File& file, std::optional<DType> weights) {
      if (!weights) return file.view();
      if (!is_block(*weights)) {
        throw Error(Errc::bad_argument, "SentenceEncoder::load",
                    fmt::format("weights of {}, which is no block type", tenon::name(*weights)));
      }
      return io::declare_as(file, *weights, [](const io::TensorEntry& entry) {
        const auto has = [&](std::string_view part) {
          return entry.name.find(part) != std::string::npos;
        };
        if (has("encoder.layer.")) return true;
        const bool is_linear = has(".attn_") || has(".ffn_");
        return entry.name.starts_with("blk.") && is_linear && !has("norm") && !has("gate_inp");
      });
    }

    Model(io::File opened, const EncoderOptions& options, const EmbeddingOptions& embedding)
        : file(std::move(opened)),
          view(declare(file, options.weights)),
          config(config_of(file, embedding)),
          net(placed_in(file, [&] { return model_of(view, file, config, embedding); })),
          tokenizer(load_tokenizer(file)),
          device(options.device ? options.device : cpu_device()),
          width(config.width),
          exe(placed_in(file,
                        [&] {
                          return compile<&SentenceModel<>::embed>(
                              net, example_shapes(config), device,
                              {.backend = options.backend, .cpu_fallback = options.cpu_fallback});
                        })),
          bound(exe.bind(io::load_as(net, file, device))) {
      // Ids of the tokenizer index this table.
      const Tensor& table = net.encoder ? net.encoder->words.weight : net.decoder->tokens.weight;
      const std::int64_t rows = table.shape().dim(0);
      if (static_cast<std::int64_t>(tokenizer.vocab_size()) > rows) {
        throw Error(Errc::bad_tokenizer, file.path().string(),
                    fmt::format("{} tokens, but embeddings for {}", tokenizer.vocab_size(), rows));
      }
      if (file.format() == io::Format::gguf && config.pooling == Pooling::rank) {
        rank_template = file.metadata().get_optional<std::string>("tokenizer.chat_template.rerank");
      }
      if (!net.dense.empty()) width = net.dense.back().weight.shape().dim(0);
    }

    io::File file;
    WeightsView view;
    EncoderConfig config;
    SentenceModel<> net;
    text::Tokenizer tokenizer;
    DevicePtr device;
    std::int64_t width;  // of an embedding
    std::optional<std::string> rank_template;
    Exe<&SentenceModel<>::embed> exe;
    BoundExe<&SentenceModel<>::embed> bound;
  };

  explicit Impl(std::shared_ptr<const Model> shared)
      : model(std::move(shared)), bound(model->bound.fork()) {}

  Buffer embed(const Buffer& ids, const Buffer& mask, const Interrupt& interrupt) {
    struct Use {
      explicit Use(std::atomic_flag& flag) : is_used(flag) {
        if (!is_used.test_and_set()) return;
        throw Error(Errc::busy, "SentenceEncoder",
                    "is in use on another thread; fork() makes a second one");
      }
      ~Use() { is_used.clear(); }
      std::atomic_flag& is_used;
    } const use(is_used);
    interrupt.check("SentenceEncoder");
    bound.set_interrupt(interrupt);
    Buffer result = bound(ids, mask);
    model->file.check_pages();
    return result;
  }

  struct Tokens {
    std::vector<std::int32_t> ids;
    bool is_cut = false;
  };
  Tokens tokens(std::string_view text) const { return truncated(model->tokenizer.encode(text)); }
  Tokens tokens(std::string_view query, std::string_view document) const;

  /// Of each text, by `make`. A warning says how many lost their ends.
  std::vector<std::vector<std::int32_t>> all_tokens(
      std::string_view call, std::span<const std::string> texts,
      const std::function<Tokens(const std::string& text)>& make) const {
    std::vector<std::vector<std::int32_t>> all;
    std::size_t cut = 0;
    for (const std::string& text : texts) {
      Tokens made = make(text);
      cut += made.is_cut ? 1 : 0;
      all.push_back(std::move(made.ids));
    }
    if (cut > 0) {
      log(LogLevel::warning,
          fmt::format("{}: {} of {} texts lost their ends, having more than {} tokens", call, cut,
                      texts.size(), model->config.max_tokens));
    }
    return all;
  }

  /// Truncated, but for the token that ends a text.
  Tokens truncated(std::vector<std::int32_t> ids) const {
    const auto limit = static_cast<std::size_t>(model->config.max_tokens);
    if (ids.size() <= limit) return {std::move(ids)};
    const std::int32_t last = ids.back();
    ids.resize(limit);
    if (model->tokenizer.sep() == last || model->tokenizer.eos() == last) ids.back() = last;
    return {std::move(ids), true};
  }

  /// Errors: those of ids that no tokenizer has made.
  void check(const char* call, std::span<const std::vector<std::int32_t>> ids) const {
    const auto vocabulary = static_cast<std::int64_t>(model->tokenizer.vocab_size());
    for (const std::vector<std::int32_t>& text : ids) {
      if (std::ssize(text) > model->config.max_tokens) {
        throw Error(Errc::limit_exceeded, call,
                    fmt::format("{} tokens, and the model reads {}", text.size(),
                                model->config.max_tokens));
      }
      for (const std::int32_t id : text) {
        if (id >= 0 && id < vocabulary) continue;
        throw Error(Errc::out_of_range, call,
                    fmt::format("token {} is outside of the vocabulary of {}", id, vocabulary));
      }
    }
  }

  /// What the model makes of each text's ids, in their order: [texts, numbers of a result].
  HostBuffer results(std::span<const std::vector<std::int32_t>> ids, const Interrupt& interrupt);
  /// Of each text's ids, its first number.
  HostBuffer scores(std::span<const std::vector<std::int32_t>> ids, const Interrupt& interrupt);

  /// Of one text, with the batch as first axis.
  HostBuffer result(std::span<const std::int32_t> ids, const Interrupt& interrupt) {
    const auto columns = static_cast<std::int64_t>(ids.size());
    HostBuffer batch = HostBuffer::zeros(Shape({1, columns}, i32));
    HostBuffer mask = HostBuffer::zeros(Shape({1, columns}, f32));
    std::ranges::copy(ids, batch.mutable_values<std::int32_t>().begin());
    std::ranges::fill(mask.mutable_values<float>(), 1.0f);
    return embed(batch.to_device(cpu_device()), mask.to_device(cpu_device()), interrupt).to_host();
  }

  void require(const char* call, std::initializer_list<Pooling> allowed) const {
    const Pooling pooling = model->config.pooling;
    if (std::ranges::find(allowed, pooling) != allowed.end()) return;
    const char* const serving = pooling == Pooling::none   ? "embed_tokens()"
                                : pooling == Pooling::rank ? "score()"
                                                           : "embed()";
    throw Error(
        Errc::unsupported, call,
        fmt::format("of an encoder whose pooling is {}: {} serves", name(pooling), serving));
  }

  std::shared_ptr<const Model> model;
  BoundExe<&SentenceModel<>::embed> bound;
  std::atomic_flag is_used;
};

HostBuffer SentenceEncoder::Impl::results(std::span<const std::vector<std::int32_t>> ids,
                                          const Interrupt& interrupt) {
  std::vector<std::size_t> order(ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return ids[a].size() != ids[b].size() ? ids[a].size() < ids[b].size() : a < b;
  });
  if (ids[order.front()].empty()) {
    throw Error(Errc::bad_input, "SentenceEncoder",
                fmt::format("text {} has no tokens", order.front()));
  }

  HostBuffer result;
  const std::int32_t pad = model->tokenizer.pad().value_or(0);
  for (std::size_t begin = 0; begin < order.size();) {
    // Lengths ascend: the last text of a batch sets its padded length.
    std::size_t end = begin + 1;
    while (end < order.size() &&
           static_cast<std::int64_t>((end + 1 - begin) * ids[order[end]].size()) <= batch_tokens) {
      ++end;
    }
    const auto rows = static_cast<std::int64_t>(end - begin);
    const auto columns = static_cast<std::int64_t>(ids[order[end - 1]].size());
    HostBuffer batch = HostBuffer::zeros(Shape({rows, columns}, i32));
    HostBuffer mask = HostBuffer::zeros(Shape({rows, columns}, f32));
    std::ranges::fill(batch.mutable_values<std::int32_t>(), pad);
    for (std::size_t row = begin; row < end; ++row) {
      const auto offset = static_cast<std::ptrdiff_t>(row - begin) * columns;
      std::ranges::copy(ids[order[row]], batch.mutable_values<std::int32_t>().begin() + offset);
      std::fill_n(mask.mutable_values<float>().begin() + offset, ids[order[row]].size(), 1.0f);
    }
    const HostBuffer made =
        embed(batch.to_device(cpu_device()), mask.to_device(cpu_device()), interrupt).to_host();
    const std::int64_t numbers = made.shape()[1];
    const auto width = static_cast<std::size_t>(numbers);
    if (begin == 0) {
      result = HostBuffer::zeros(Shape({static_cast<std::int64_t>(ids.size()), numbers}, f32));
    }
    for (std::size_t row = begin; row < end; ++row) {
      std::copy_n(
          made.values<float>().begin() + static_cast<std::ptrdiff_t>((row - begin) * width), width,
          result.mutable_values<float>().begin() + static_cast<std::ptrdiff_t>(order[row] * width));
    }
    begin = end;
  }
  return result;
}

HostBuffer SentenceEncoder::Impl::scores(std::span<const std::vector<std::int32_t>> ids,
                                         const Interrupt& interrupt) {
  const HostBuffer labels = results(ids, interrupt);
  HostBuffer scores = HostBuffer::zeros(Shape({labels.shape()[0]}, f32));
  const auto count = static_cast<std::size_t>(labels.shape()[1]);
  const auto all = labels.values<float>();
  for (std::size_t i = 0; i < ids.size(); ++i) scores.mutable_values<float>()[i] = all[i * count];
  return scores;
}

SentenceEncoder SentenceEncoder::load(const std::filesystem::path& path,
                                      const EncoderOptions& options,
                                      const EmbeddingOptions& embedding) {
  return with_memory_errors(path.native(), [&] {
    const io::File file = io::open(path, {.access = io::Access::guarded});
    return with_page_checks(file, [&] {
      return SentenceEncoder(
          std::make_shared<Impl>(std::make_shared<const Impl::Model>(file, options, embedding)));
    });
  });
}

SentenceEncoder SentenceEncoder::fork() const {
  return with_memory_errors("SentenceEncoder::fork",
                            [&] { return SentenceEncoder(std::make_shared<Impl>(impl_->model)); });
}

const EncoderConfig& SentenceEncoder::config() const { return impl_->model->config; }
std::int64_t SentenceEncoder::embedding_width() const { return impl_->model->width; }
const text::Tokenizer& SentenceEncoder::tokenizer() const { return impl_->model->tokenizer; }
const io::File& SentenceEncoder::file() const { return impl_->model->file; }
const Program& SentenceEncoder::program() const { return impl_->model->exe.program(); }
PlanReport SentenceEncoder::plan() const { return impl_->model->exe.report(); }

std::vector<std::int32_t> SentenceEncoder::tokens(std::string_view text) const {
  return impl_->tokens(text).ids;
}

std::vector<std::int32_t> SentenceEncoder::tokens(std::string_view query,
                                                  std::string_view document) const {
  return impl_->tokens(query, document).ids;
}

SentenceEncoder::Impl::Tokens SentenceEncoder::Impl::tokens(std::string_view query,
                                                            std::string_view document) const {
  const text::Tokenizer& tokenizer = model->tokenizer;
  if (!model->rank_template) {
    // What a user writes is text, even where it spells a separator.
    return truncated(tokenizer.encode_pair(query, document, {.parse_special = false}));
  }
  const auto limit = static_cast<std::size_t>(model->config.max_tokens);
  std::string kept(document);
  for (;;) {
    const Prompt prompt = filled(*model->rank_template, query, kept);
    auto ids = tokenizer.encode(prompt.text, {.add_special = false, .plain = prompt.plain});
    if (ids.size() <= limit) return {std::move(ids), kept.size() < document.size()};
    // The document's end goes, as many of its tokens as there are too many.
    auto own = tokenizer.encode(kept, {.add_special = false, .parse_special = false});
    if (own.empty()) {
      throw Error(Errc::limit_exceeded, "SentenceEncoder::score",
                  fmt::format("a query that leaves no room for a document: {} tokens, at most {}",
                              ids.size(), limit));
    }
    own.resize(own.size() - std::min(own.size(), ids.size() - limit));
    std::string shorter = tokenizer.decode(own);
    kept = shorter.size() < kept.size() ? std::move(shorter) : std::string();
  }
}

Buffer SentenceEncoder::embed(const Buffer& ids, const Buffer& mask) const {
  return with_memory_errors("SentenceEncoder::embed", [&] { return impl_->embed(ids, mask, {}); });
}

HostBuffer SentenceEncoder::embed(std::string_view text) const {
  return embed({text}).reshape({embedding_width()});
}

HostBuffer SentenceEncoder::embed(std::initializer_list<std::string_view> texts) const {
  return embed(std::vector<std::string>(texts.begin(), texts.end()));
}

HostBuffer SentenceEncoder::embed(std::span<const std::string> texts,
                                  const Interrupt& interrupt) const {
  constexpr const char* call = "SentenceEncoder::embed";
  return with_memory_errors(call, [&] {
    if (texts.empty()) throw Error(Errc::bad_argument, call, "no texts");
    impl_->require(call, {Pooling::mean, Pooling::cls, Pooling::last});
    return impl_->results(
        impl_->all_tokens(call, texts,
                          [&](const std::string& text) { return impl_->tokens(text); }),
        interrupt);
  });
}

HostBuffer SentenceEncoder::embed(std::span<const std::vector<std::int32_t>> ids,
                                  const Interrupt& interrupt) const {
  constexpr const char* call = "SentenceEncoder::embed";
  return with_memory_errors(call, [&] {
    if (ids.empty()) throw Error(Errc::bad_argument, call, "no texts");
    impl_->require(call, {Pooling::mean, Pooling::cls, Pooling::last});
    impl_->check(call, ids);
    return impl_->results(ids, interrupt);
  });
}

HostBuffer SentenceEncoder::embed_tokens(std::string_view text, const Interrupt& interrupt) const {
  constexpr const char* call = "SentenceEncoder::embed_tokens";
  return with_memory_errors(call, [&] {
    impl_->require(call, {Pooling::none});
    const std::vector<std::int32_t> ids = tokens(text);
    if (ids.empty()) throw Error(Errc::bad_input, call, "a text without tokens");
    return impl_->result(ids, interrupt)
        .reshape({static_cast<std::int64_t>(ids.size()), embedding_width()});
  });
}

HostBuffer SentenceEncoder::score(std::string_view query, std::span<const std::string> documents,
                                  const Interrupt& interrupt) const {
  constexpr const char* call = "SentenceEncoder::score";
  return with_memory_errors(call, [&] {
    if (documents.empty()) throw Error(Errc::bad_argument, call, "no documents");
    impl_->require(call, {Pooling::rank});
    return impl_->scores(impl_->all_tokens(call, documents,
                                           [&](const std::string& document) {
                                             return impl_->tokens(query, document);
                                           }),
                         interrupt);
  });
}

HostBuffer SentenceEncoder::score(std::span<const std::vector<std::int32_t>> ids,
                                  const Interrupt& interrupt) const {
  constexpr const char* call = "SentenceEncoder::score";
  return with_memory_errors(call, [&] {
    if (ids.empty()) throw Error(Errc::bad_argument, call, "no documents");
    impl_->require(call, {Pooling::rank});
    impl_->check(call, ids);
    return impl_->scores(ids, interrupt);
  });
}

double similarity(const HostBuffer& embeddings, std::int64_t a, std::int64_t b) {
  const Shape& shape = embeddings.shape();
  if (shape.rank() != 2) {
    throw Error(Errc::bad_shape, "similarity",
                to_string(shape) + ": wanted are rows of embeddings");
  }
  for (const std::int64_t row : {a, b}) {
    if (row < 0 || row >= shape[0]) {
      throw Error(Errc::out_of_range, "similarity",
                  fmt::format("row {} of {}", row, to_string(shape)));
    }
  }
  const auto values = embeddings.values<float>();
  const auto width = static_cast<std::size_t>(shape[1]);
  const auto x = values.subspan(static_cast<std::size_t>(a) * width, width);
  const auto y = values.subspan(static_cast<std::size_t>(b) * width, width);
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

}  // namespace tenon::models
