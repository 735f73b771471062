#include "file_place.hpp"
#include "json_file.hpp"
#include "page_checks.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/convert.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/encoder.hpp>
#include <tenon/models/vocabulary.hpp>

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::models {
namespace {

constexpr std::int64_t max_size = 1 << 20;
// Texts of similar length are batched, with about this many tokens per batch.
constexpr std::int64_t batch_tokens = 2048;

/// A file that holds one JSON object; errors name its path.
class JsonObject {
 public:
  explicit JsonObject(const std::filesystem::path& path)
      : path_(path.string()), document_(read_json(path)) {
    if (!document_.root().is_object()) throw Error(Errc::bad_type, path_, "is no object");
  }

  std::int64_t integer(const char* key) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) throw Error(Errc::bad_key, path_, fmt::format("no key '{}'", key));
    if (!found->is_number_integer()) refuse(key, *found, "an integer");
    const auto value = found->get<std::int64_t>();
    if (value < 1 || value > max_size) {
      throw Error(Errc::bad_hyperparameter, path_,
                  fmt::format("'{}' is {}, allowed: 1 to {}", key, value, max_size));
    }
    return value;
  }

  double real_or(const char* key, double fallback) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_number()) refuse(key, *found, "a number");
    return found->get<double>();
  }

  std::string text_or(const char* key, const char* fallback) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_string()) refuse(key, *found, "a string");
    return found->get<std::string>();
  }

  const std::string& path() const noexcept { return path_; }

 private:
  const nlohmann::json* find(const char* key) const {
    const auto found = document_.root().find(key);
    return found == document_.root().end() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const char* key, const nlohmann::json& value, const char* wanted) const {
    throw Error(Errc::bad_type, path_,
                fmt::format("'{}' is {}, not {}", key, value.type_name(), wanted));
  }

  std::string path_;
  JsonDocument document_;
};

/// An activation by its name in Hugging Face's configurations.
Name activation_of(const JsonObject& json) {
  const std::string name = json.text_or("hidden_act", "gelu");
  if (name == "gelu" || name == "relu" || name == "silu") return Name(name);
  if (name == "swish") return "silu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_tanh") return "gelu_tanh";
  throw Error(Errc::unsupported, json.path(),
              fmt::format("hidden_act '{}'; known are gelu, gelu_new, gelu_pytorch_tanh, relu, "
                          "silu, swish",
                          name));
}

}  // namespace

BertConfig BertConfig::from(const io::File& file) {
  if (file.format() == io::Format::gguf) {
    throw Error(
        Errc::unsupported, file.path().string(),
        "a sentence encoder is read from a folder of safetensors and config.json, this is gguf");
  }
  const auto path = file.sibling("config.json");
  if (!path) throw Error(Errc::not_found, file.path().string(), "no config.json beside the model");
  const JsonObject json(*path);
  const std::string type = json.text_or("model_type", "");
  if (type != "bert") {
    throw Error(Errc::unsupported, json.path(),
                fmt::format("model_type '{}'; known is bert", type));
  }
  BertConfig config;
  config.layers = json.integer("num_hidden_layers");
  config.width = json.integer("hidden_size");
  config.intermediate_size = json.integer("intermediate_size");
  config.heads = json.integer("num_attention_heads");
  config.vocabulary = json.integer("vocab_size");
  config.max_positions = json.integer("max_position_embeddings");
  config.norm_eps = json.real_or("layer_norm_eps", 1e-12);
  config.activation = activation_of(json);
  if (config.width % config.heads != 0) {
    throw Error(Errc::bad_hyperparameter, json.path(),
                fmt::format("'num_attention_heads' is {}, allowed: divisors of {}", config.heads,
                            config.width));
  }
  config.max_tokens = config.max_positions;
  if (const auto sentence = file.sibling("sentence_bert_config.json")) {
    config.max_tokens =
        std::min(config.max_positions, JsonObject(*sentence).integer("max_seq_length"));
  }
  return config;
}

template <>
Bert<Tensor> Bert<Tensor>::init(const WeightsView& whole, const BertConfig& config) {
  // Some files put everything below "bert.".
  const WeightsView view =
      whole.contains("embeddings.word_embeddings.weight") ? whole : whole["bert"];
  Bert bert;
  const WeightsView embeddings = view["embeddings"];
  bert.words = nn::Embedding<>::init(embeddings["word_embeddings"]);
  bert.positions = embeddings["position_embeddings"].tensor("weight");
  if (config.max_tokens > bert.positions.shape().dim(0)) {
    throw Error(Errc::bad_hyperparameter, "config.json",
                fmt::format("'max_position_embeddings' is {}, but the file holds {} positions",
                            config.max_tokens, bert.positions.shape().dim(0)));
  }
  bert.types = embeddings["token_type_embeddings"].tensor("weight");
  bert.norm = nn::LayerNorm<>::init(embeddings["LayerNorm"], config.norm_eps);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const WeightsView layer = view["encoder"]["layer"][i];
    const WeightsView attention = layer["attention"];
    BertLayer<> made;
    made.attention = nn::MultiHeadAttention<>::init(attention, config.heads,
                                                    {.query = "self.query",
                                                     .key = "self.key",
                                                     .value = "self.value",
                                                     .output = "output.dense"});
    made.attention_norm = nn::LayerNorm<>::init(attention["output"]["LayerNorm"], config.norm_eps);
    made.feed_forward.up = nn::Linear<>::init(layer["intermediate"]["dense"]);
    made.feed_forward.down = nn::Linear<>::init(layer["output"]["dense"]);
    made.feed_forward.activation = config.activation;
    made.output_norm = nn::LayerNorm<>::init(layer["output"]["LayerNorm"], config.norm_eps);
    bert.layers.push_back(std::move(made));
  }
  return bert;
}

struct SentenceEncoder::Impl {
  /// What forks share.
  struct Model {
    /// Example shapes to compile for: a short text, within the model's limits.
    static Exe<&Bert<>::embed>::Shapes example_shapes(const BertConfig& config) {
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
        return entry.name.find("encoder.layer.") != std::string::npos;
      });
    }

    Model(io::File opened, const EncoderOptions& options)
        : file(std::move(opened)),
          view(declare(file, options.weights)),
          config(BertConfig::from(file)),
          bert(placed_in(file, [&] { return Bert<>::init(view, config); })),
          tokenizer(load_tokenizer(file)),
          device(options.device ? options.device : cpu_device()),
          exe(placed_in(file,
                        [&] {
                          return compile<&Bert<>::embed>(
                              bert, example_shapes(config), device,
                              {.backend = options.backend, .cpu_fallback = options.cpu_fallback});
                        })),
          bound(exe.bind(io::load_as(bert, file, device))) {
      // Ids of the tokenizer index this table.
      const std::int64_t rows = bert.words.weight.shape().dim(0);
      if (static_cast<std::int64_t>(tokenizer.vocab_size()) > rows) {
        throw Error(Errc::bad_tokenizer, file.path().string(),
                    fmt::format("{} tokens, but embeddings for {}", tokenizer.vocab_size(), rows));
      }
    }

    io::File file;
    WeightsView view;
    BertConfig config;
    Bert<> bert;
    text::Tokenizer tokenizer;
    DevicePtr device;
    Exe<&Bert<>::embed> exe;
    BoundExe<&Bert<>::embed> bound;
  };

  explicit Impl(std::shared_ptr<const Model> shared)
      : model(std::move(shared)), bound(model->bound.fork()) {}

  Buffer embed(const Buffer& ids, const Buffer& mask) {
    Buffer result = bound(ids, mask);
    model->file.check_pages();
    return result;
  }

  std::shared_ptr<const Model> model;
  BoundExe<&Bert<>::embed> bound;
};

SentenceEncoder SentenceEncoder::load(const std::filesystem::path& path,
                                      const EncoderOptions& options) {
  return with_memory_errors(path.native(), [&] {
    const io::File file = io::open(path, {.access = io::Access::guarded});
    return with_page_checks(file, [&] {
      return SentenceEncoder(
          std::make_shared<Impl>(std::make_shared<const Impl::Model>(file, options)));
    });
  });
}

SentenceEncoder SentenceEncoder::fork() const {
  return with_memory_errors("SentenceEncoder::fork",
                            [&] { return SentenceEncoder(std::make_shared<Impl>(impl_->model)); });
}

const BertConfig& SentenceEncoder::config() const { return impl_->model->config; }
const text::Tokenizer& SentenceEncoder::tokenizer() const { return impl_->model->tokenizer; }
const io::File& SentenceEncoder::file() const { return impl_->model->file; }
const Program& SentenceEncoder::program() const { return impl_->model->exe.program(); }
PlanReport SentenceEncoder::plan() const { return impl_->model->exe.report(); }

std::vector<std::int32_t> SentenceEncoder::tokens(std::string_view text) const {
  std::vector<std::int32_t> ids = impl_->model->tokenizer.encode(text);
  const auto limit = static_cast<std::size_t>(impl_->model->config.max_tokens);
  if (ids.size() > limit) {
    // Truncation keeps the separator at the end.
    const std::int32_t last = ids.back();
    ids.resize(limit);
    if (impl_->model->tokenizer.sep() == last) ids.back() = last;
  }
  return ids;
}

Buffer SentenceEncoder::embed(const Buffer& ids, const Buffer& mask) const {
  return with_memory_errors("SentenceEncoder::embed", [&] { return impl_->embed(ids, mask); });
}

HostBuffer SentenceEncoder::embed(std::string_view text) const {
  return embed({text}).reshape({config().width});
}

HostBuffer SentenceEncoder::embed(std::initializer_list<std::string_view> texts) const {
  return embed(std::vector<std::string>(texts.begin(), texts.end()));
}

HostBuffer SentenceEncoder::embed(std::span<const std::string> texts) const {
  return with_memory_errors("SentenceEncoder::embed", [&] {
    if (texts.empty()) throw Error(Errc::bad_argument, "SentenceEncoder::embed", "no texts");
    std::vector<std::vector<std::int32_t>> ids;
    for (const std::string& text : texts) ids.push_back(tokens(text));
    std::vector<std::size_t> order(texts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
      return ids[a].size() != ids[b].size() ? ids[a].size() < ids[b].size() : a < b;
    });

    const auto width = static_cast<std::size_t>(impl_->model->config.width);
    HostBuffer result = HostBuffer::zeros(
        Shape({static_cast<std::int64_t>(texts.size()), impl_->model->config.width}, f32));
    const std::int32_t pad = impl_->model->tokenizer.pad().value_or(0);
    for (std::size_t begin = 0; begin < order.size();) {
      // Lengths ascend: the last text of a batch sets its padded length.
      std::size_t end = begin + 1;
      while (end < order.size() &&
             static_cast<std::int64_t>((end + 1 - begin) * ids[order[end]].size()) <=
                 batch_tokens) {
        ++end;
      }
      const auto rows = static_cast<std::int64_t>(end - begin);
      const auto columns =
          static_cast<std::int64_t>(std::max<std::size_t>(ids[order[end - 1]].size(), 1));
      HostBuffer batch = HostBuffer::zeros(Shape({rows, columns}, i32));
      HostBuffer mask = HostBuffer::zeros(Shape({rows, columns}, f32));
      std::ranges::fill(batch.mutable_values<std::int32_t>(), pad);
      for (std::size_t row = begin; row < end; ++row) {
        const auto offset = static_cast<std::ptrdiff_t>(row - begin) * columns;
        std::ranges::copy(ids[order[row]], batch.mutable_values<std::int32_t>().begin() + offset);
        std::fill_n(mask.mutable_values<float>().begin() + offset, ids[order[row]].size(), 1.0f);
      }
      const HostBuffer embeddings =
          impl_->embed(batch.to_device(cpu_device()), mask.to_device(cpu_device())).to_host();
      for (std::size_t row = begin; row < end; ++row) {
        std::copy_n(
            embeddings.values<float>().begin() + static_cast<std::ptrdiff_t>((row - begin) * width),
            width,
            result.mutable_values<float>().begin() +
                static_cast<std::ptrdiff_t>(order[row] * width));
      }
      begin = end;
    }
    return result;
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
