#include "base/atomic_file.hpp"
#include "base/json_writer.hpp"
#include "models/json_file.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/save.hpp>
#include <tenon/models/adapters.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

namespace tenon::models {
namespace {

/// A target: Hugging Face's name, the part of the layer that has it, and how it is found.
struct Target {
  std::string_view name, part;
  const nn::Linear<Tensor>* (*linear)(const DecoderLayer<Tensor>& layer);
};
constexpr std::array<Target, 7> targets{{
    {"q_proj", "self_attn", [](const auto& layer) { return &layer.attention.query; }},
    {"k_proj", "self_attn", [](const auto& layer) { return &layer.attention.key; }},
    {"v_proj", "self_attn", [](const auto& layer) { return &layer.attention.value; }},
    {"o_proj", "self_attn", [](const auto& layer) { return &layer.attention.output; }},
    {"gate_proj", "mlp",
     [](const auto& layer) {
       const auto& feed = layer.feed_forward;
       return feed && feed->gate ? &*feed->gate : nullptr;
     }},
    {"up_proj", "mlp",
     [](const auto& layer) { return layer.feed_forward ? &layer.feed_forward->up : nullptr; }},
    {"down_proj", "mlp",
     [](const auto& layer) { return layer.feed_forward ? &layer.feed_forward->down : nullptr; }},
}};
constexpr std::size_t query_target = 0, key_target = 1;

/// The adapters of a layer in the order of `targets`.
template <class T>
std::array<std::optional<nn::Lora<T>>*, targets.size()> slots_of(LayerAdapters<T>& layer) {
  return {&layer.query, &layer.key, &layer.value, &layer.output,
          &layer.gate,  &layer.up,  &layer.down};
}
template <class T>
std::array<const std::optional<nn::Lora<T>>*, targets.size()> slots_of(
    const LayerAdapters<T>& layer) {
  return {&layer.query, &layer.key, &layer.value, &layer.output,
          &layer.gate,  &layer.up,  &layer.down};
}

template <class T>
std::array<nn::Linear<T>*, targets.size()> linears_of(DecoderLayer<T>& layer) {
  nn::MultiHeadAttention<T>& attention = layer.attention;
  nn::FeedForward<T>* const feed = layer.feed_forward ? &*layer.feed_forward : nullptr;
  return {&attention.query,
          &attention.key,
          &attention.value,
          &attention.output,
          feed != nullptr && feed->gate ? &*feed->gate : nullptr,
          feed != nullptr ? &feed->up : nullptr,
          feed != nullptr ? &feed->down : nullptr};
}

[[noreturn]] void refuse(Errc code, std::string_view where, const std::string& why) {
  throw Error(code, std::string(where), why);
}

void check(const LoraConfig& config) {
  if (config.rank < 1 || !std::isfinite(config.alpha)) {
    refuse(Errc::bad_argument, "LoraConfig",
           fmt::format("rank {} and alpha {}", config.rank, config.alpha));
  }
  for (const std::string& name : config.targets) {
    if (std::ranges::find(targets, name, &Target::name) != targets.end()) continue;
    refuse(Errc::bad_argument, "LoraConfig",
           fmt::format("'{}' is no target; these are q_proj, k_proj, v_proj, o_proj, gate_proj, "
                       "up_proj and down_proj",
                       name));
  }
}

bool is_target(const LoraConfig& config, const Target& target) {
  return std::ranges::find(config.targets, target.name) != config.targets.end();
}

std::string peft_name(std::size_t layer, const Target& target, char factor) {
  return fmt::format("base_model.model.model.layers.{}.{}.{}.lora_{}.weight", layer, target.part,
                     target.name, factor);
}

/// GGUF files of llama models have the rows of queries and keys in another order: pairs that are
/// rotated together lie side by side there, and half a head apart in Hugging Face's.
/// The rows of b [out, rank] in the other order.
HostBuffer reordered(const HostBuffer& b, std::int64_t heads, bool to_gguf) {
  const std::int64_t size = b.shape()[0] / heads, half = size / 2, rank = b.shape()[1];
  HostBuffer result = HostBuffer::uninitialized(b.shape());
  const auto from = b.values<float>();
  const auto to = result.mutable_values<float>();
  for (std::int64_t row = 0; row < b.shape()[0]; ++row) {
    const std::int64_t head = row / size, i = row % size;
    // Row i of Hugging Face's: element i % half of half i / half.
    const std::int64_t paired = head * size + i % half * 2 + i / half;
    const std::int64_t source = to_gguf ? row : paired, target = to_gguf ? paired : row;
    std::copy_n(from.begin() + source * rank, rank, to.begin() + target * rank);
  }
  return result;
}

/// The heads of a target whose rows are reordered; 0 for others.
std::int64_t reordered_heads(const DecoderConfig& decoder, std::size_t target) {
  if (decoder.architecture != "llama") return 0;
  return target == query_target ? decoder.heads : target == key_target ? decoder.kv_heads : 0;
}

std::string text_of(const nlohmann::json& json, const char* name, const std::string& absent) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : absent;
}

LoraConfig read_config(const std::filesystem::path& path) {
  const JsonDocument document = read_json(path);
  const nlohmann::json& json = document.root();
  const std::string where = path.filename().string();
  if (!json.is_object() || text_of(json, "peft_type", "LORA") != "LORA") {
    refuse(Errc::unsupported, where, "is not the configuration of a LoRA adapter");
  }
  for (const char* other : {"use_dora", "use_rslora", "fan_in_fan_out"}) {
    const auto found = json.find(other);
    if (found != json.end() && *found != false) {
      refuse(Errc::unsupported, where, fmt::format("{} is set", other));
    }
  }
  if (text_of(json, "bias", "none") != "none") {
    refuse(Errc::unsupported, where, "adapters with biases");
  }
  LoraConfig config;
  const auto rank = json.find("r"), alpha = json.find("lora_alpha"),
             modules = json.find("target_modules");
  if (rank == json.end() || !rank->is_number_integer() || alpha == json.end() ||
      !alpha->is_number() || modules == json.end() || !modules->is_array()) {
    refuse(Errc::bad_key, where, "needs r, lora_alpha and a list of target_modules");
  }
  config.rank = rank->get<std::int64_t>();
  config.alpha = alpha->get<double>();
  config.targets.clear();
  for (const nlohmann::json& module : *modules) {
    if (!module.is_string()) refuse(Errc::bad_key, where, "target_modules are names");
    config.targets.push_back(module.get<std::string>());
  }
  check(config);
  return config;
}

}  // namespace

DecoderAdapters<Shape> adapter_shapes(const Decoder<Tensor>& decoder, const LoraConfig& config) {
  check(config);
  DecoderAdapters<Shape> adapters;
  for (const DecoderLayer<Tensor>& layer : decoder.layers) {
    LayerAdapters<Shape>& made = adapters.layers.emplace_back();
    const auto slots = slots_of(made);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (!is_target(config, targets[i])) continue;
      const nn::Linear<Tensor>* linear = targets[i].linear(layer);
      if (linear == nullptr) {
        refuse(Errc::bad_argument, "LoraConfig",
               fmt::format("the model has no {}", targets[i].name));
      }
      const Shape& weight = linear->weight.shape();
      *slots[i] = nn::Lora<Shape>{Shape({config.rank, weight[1]}, f32),
                                  Shape({weight[0], config.rank}, f32), config.scale()};
    }
  }
  return adapters;
}

Decoder<Tensor> with_adapters(Decoder<Tensor> decoder, const DecoderAdapters<Tensor>& adapters) {
  if (decoder.layers.size() != adapters.layers.size()) {
    refuse(Errc::bad_argument, "with_adapters",
           fmt::format("adapters for {} layers, the decoder has {}", adapters.layers.size(),
                       decoder.layers.size()));
  }
  for (std::size_t layer = 0; layer < decoder.layers.size(); ++layer) {
    const auto linears = linears_of(decoder.layers[layer]);
    const auto slots = slots_of(adapters.layers[layer]);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (*slots[i] && linears[i] != nullptr) linears[i]->lora = **slots[i];
    }
  }
  return decoder;
}

train::Initial lora_initial(std::string_view path, const Shape& shape) {
  if (path.ends_with(".b")) return {train::Initial::Kind::constant, 0};
  return {train::Initial::Kind::uniform, 1 / std::sqrt(static_cast<double>(shape[1]))};
}

void save_adapters(const std::filesystem::path& folder, const DecoderAdapters<Buffer>& adapters,
                   const LoraConfig& config, const DecoderConfig& decoder) {
  check(config);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) refuse(Errc::io_error, folder.string(), error.message());
  std::vector<io::NamedTensor> tensors;
  for (std::size_t layer = 0; layer < adapters.layers.size(); ++layer) {
    const auto slots = slots_of(adapters.layers[layer]);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (!*slots[i]) continue;
      const nn::Lora<Buffer>& lora = **slots[i];
      HostBuffer b = lora.b.to_host().to(f32);
      if (const std::int64_t heads = reordered_heads(decoder, i); heads > 0) {
        b = reordered(b, heads, false);
      }
      tensors.push_back({peft_name(layer, targets[i], 'A'), lora.a.to_host().to(f32)});
      tensors.push_back({peft_name(layer, targets[i], 'B'), b});
    }
  }
  io::save_safetensors(folder / "adapter_model.safetensors", tensors, {{"format", "pt"}});
  JsonWriter json;
  json.begin_object()
      .member("peft_type", "LORA")
      .member("task_type", "CAUSAL_LM")
      .member("r", config.rank)
      .member("lora_alpha", config.alpha)
      .member("lora_dropout", 0.0)
      .member("bias", "none")
      .key("target_modules")
      .begin_array();
  for (const std::string& name : config.targets) json.value(name);
  json.end_array().end_object();
  io::AtomicFile file(folder / "adapter_config.json");
  file.write(json.text());
  file.commit();
}

std::pair<DecoderAdapters<HostBuffer>, LoraConfig> load_adapters(
    const std::filesystem::path& folder, const Decoder<Tensor>& decoder) {
  const LoraConfig config = read_config(folder / "adapter_config.json");
  const io::File file = io::open(folder / "adapter_model.safetensors");
  const DecoderAdapters<Shape> shapes = adapter_shapes(decoder, config);
  DecoderAdapters<HostBuffer> adapters;
  for (std::size_t layer = 0; layer < shapes.layers.size(); ++layer) {
    LayerAdapters<HostBuffer>& made = adapters.layers.emplace_back();
    const auto slots = slots_of(made);
    const auto wanted = slots_of(shapes.layers[layer]);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (!*wanted[i]) continue;
      const auto read = [&](char factor, const Shape& shape) {
        const std::string name = peft_name(layer, targets[i], factor);
        const HostBuffer values = file.at(name).data();
        if (!is_floating(values.shape().dtype()) ||
            !std::ranges::equal(values.shape().dims(), shape.dims())) {
          refuse(Errc::shape_mismatch, name,
                 fmt::format("is {}, the model takes {}", to_string(values.shape()),
                             to_string(shape)));
        }
        return values.to(f32);
      };
      HostBuffer b = read('B', (*wanted[i])->b);
      if (const std::int64_t heads = reordered_heads(decoder.config, i); heads > 0) {
        b = reordered(b, heads, true);
      }
      *slots[i] = nn::Lora<HostBuffer>{read('A', (*wanted[i])->a), b, config.scale()};
    }
  }
  return {std::move(adapters), config};
}

HostBuffer merged(const HostBuffer& weight, const nn::Lora<HostBuffer>& factors) {
  const Shape &w = weight.shape(), &a = factors.a.shape(), &b = factors.b.shape();
  if (w.rank() != 2 || a.rank() != 2 || b.rank() != 2 || a[1] != w[1] || b[0] != w[0] ||
      a[0] != b[1]) {
    refuse(Errc::shape_mismatch, "merged",
           fmt::format("{} with factors {} and {}", to_string(w), to_string(a), to_string(b)));
  }
  HostBuffer sum = weight.to(f32);
  if (w.dtype() == f32) {  // not the file's own bytes
    const HostBuffer copy = HostBuffer::uninitialized(w.without_tags());
    std::ranges::copy(sum.values<float>(), copy.view().as<float>());
    sum = copy;
  }
  const auto left = factors.b.to(f32), right = factors.a.to(f32);
  float* row = sum.mutable_values<float>().data();
  for (std::int64_t o = 0; o < w[0]; ++o, row += w[1]) {
    for (std::int64_t r = 0; r < a[0]; ++r) {
      const auto factor = static_cast<float>(
          factors.scale * left.values<float>()[static_cast<std::size_t>(o * a[0] + r)]);
      const float* from = right.values<float>().data() + r * w[1];
      for (std::int64_t i = 0; i < w[1]; ++i) row[i] += factor * from[i];
    }
  }
  return sum.to(w.dtype());
}

Bufferized<Decoder<Tensor>> merge_adapters(Bufferized<Decoder<Tensor>> weights,
                                           const DecoderAdapters<Buffer>& adapters,
                                           const DevicePtr& device) {
  if (weights.layers.size() != adapters.layers.size()) {
    refuse(Errc::bad_argument, "merge_adapters", "the numbers of layers differ");
  }
  for (std::size_t layer = 0; layer < weights.layers.size(); ++layer) {
    const auto linears = linears_of(weights.layers[layer]);
    const auto slots = slots_of(adapters.layers[layer]);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (!*slots[i] || linears[i] == nullptr) continue;
      const nn::Lora<Buffer>& lora = **slots[i];
      Buffer& weight = linears[i]->weight;
      weight = merged(weight.to_host(), {lora.a.to_host(), lora.b.to_host(), lora.scale})
                   .to_device(device);
    }
  }
  return weights;
}

}  // namespace tenon::models
