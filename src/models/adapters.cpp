#include "base/atomic_file.hpp"
#include "base/json_writer.hpp"
#include "models/json_file.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/save.hpp>
#include <tenon/models/adapters.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <fmt/format.h>

namespace tenon::models {
namespace {

/// A target: Hugging Face's name, the part of the layer that has it, and GGUF's name.
struct Target {
  std::string_view name, part, gguf_name;
};
constexpr std::array<Target, 7> targets{{{"q_proj", "self_attn", "attn_q"},
                                         {"k_proj", "self_attn", "attn_k"},
                                         {"v_proj", "self_attn", "attn_v"},
                                         {"o_proj", "self_attn", "attn_output"},
                                         {"gate_proj", "mlp", "ffn_gate"},
                                         {"up_proj", "mlp", "ffn_up"},
                                         {"down_proj", "mlp", "ffn_down"}}};
constexpr std::size_t query_target = 0, key_target = 1;

/// A weight that several targets have below each other, where a model is so: its names, and the targets.
struct FusedTargets {
  Target names;
  std::size_t first, count;
  bool has(std::size_t target) const noexcept { return target >= first && target < first + count; }
};
constexpr std::array<FusedTargets, 2> fused_targets{
    {{{"qkv_proj", "self_attn", "attn_qkv"}, 0, 3}, {{"gate_up_proj", "mlp", "ffn_up"}, 4, 2}}};

/// A weight of a layer, and the targets that it is.
struct Module {
  Target names;
  std::size_t first, count;
};

/// A layer's, whose `is_part(target)` says whether a target is a part of a weight.
template <class IsPart>
std::vector<Module> modules_of(const IsPart& is_part) {
  std::vector<Module> modules;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto fused =
        std::ranges::find_if(fused_targets, [&](const FusedTargets& one) { return one.has(i); });
    if (fused == fused_targets.end() || !is_part(i)) {
      modules.push_back({targets[i], i, 1});
    } else if (i == fused->first) {
      modules.push_back({fused->names, fused->first, fused->count});
    }
  }
  return modules;
}

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

/// The layers that are targets, in their order; null where there is none.
template <class Layer>
auto linears_of(Layer& layer) {
  using Linear = std::remove_reference_t<decltype((layer.attention->query))>;
  const auto of = [](auto& linear) -> Linear* { return linear ? &*linear : nullptr; };
  std::array<Linear*, targets.size()> found{};
  if (layer.attention) {
    auto& attention = *layer.attention;
    found = {&attention.query, of(attention.key), of(attention.value), &attention.output};
  }
  if (layer.feed_forward) {
    auto& feed = *layer.feed_forward;
    found[4] = of(feed.gate);
    found[5] = &feed.up;
    found[6] = &feed.down;
  }
  return found;
}

/// The rows of a weight that are a layer's.
template <class T>
std::int64_t rows_of(const nn::Linear<T>& linear) {
  return linear.rows != 0 ? linear.rows : linear.weight.shape()[0];
}

template <class Layer>
std::vector<Module> modules_in(const Layer& layer) {
  const auto linears = linears_of(layer);
  return modules_of([&](std::size_t i) { return linears[i] != nullptr && linears[i]->rows != 0; });
}

/// Rows [first, first + count) of an array of rank 2, as an array of their own.
HostBuffer rows_of(const HostBuffer& array, std::int64_t first, std::int64_t count) {
  return array.slice(0, first, first + count).contiguous();
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
    if (std::ranges::any_of(fused_targets,
                            [&](const FusedTargets& one) { return one.names.name == name; })) {
      continue;
    }
    refuse(
        Errc::bad_argument, "LoraConfig",
        fmt::format("'{}' is no target; these are q_proj, k_proj, v_proj, o_proj, gate_proj, "
                    "up_proj and down_proj, and qkv_proj and gate_up_proj of models whose weights "
                    "they are",
                    name));
  }
}

bool is_target(const LoraConfig& config, const Target& target) {
  return std::ranges::find(config.targets, target.name) != config.targets.end();
}
/// By its own name or that of a weight that it is a part of.
bool is_target(const LoraConfig& config, const Module& module, std::size_t target) {
  return is_target(config, targets[target]) || is_target(config, module.names);
}

bool is_gguf(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

std::string gguf_name(std::size_t layer, const Target& target, char factor) {
  return fmt::format("blk.{}.{}.weight.lora_{}", layer, target.gguf_name, factor);
}

std::string peft_module(std::size_t layer, const Target& target) {
  return fmt::format("model.layers.{}.{}.{}", layer, target.part, target.name);
}

std::string peft_name(std::string_view module, char factor) {
  return fmt::format("base_model.model.{}.lora_{}.weight", module, factor);
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
  if (!has_reordered_heads(decoder)) return 0;
  return target == query_target ? decoder.heads : target == key_target ? decoder.kv_heads : 0;
}

std::string text_of(const nlohmann::json& json, const char* name, const std::string& absent) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : absent;
}

/// Whether a name is a module's, or its last parts.
bool names(std::string_view name, std::string_view module) {
  return module == name || (module.ends_with(name) && module.size() > name.size() &&
                            module[module.size() - name.size() - 1] == '.');
}

/// Values that PEFT gives to some modules, by patterns of their names.
template <class Value>
class ModulePattern {
 public:
  /// {} and null are how PEFT writes none. Patterns are expressions there; here names, the ends of
  /// names, or whole names behind a ^.
  ModulePattern(const nlohmann::json& json, const char* name, const std::string& where) {
    const auto found = json.find(name);
    if (found == json.end() || found->is_null()) return;
    if (!found->is_object()) refuse(Errc::bad_key, where, fmt::format("{} is no object", name));
    for (const auto& [pattern, value] : found->items()) {
      const bool is_name =
          std::ranges::all_of(pattern.substr(pattern.starts_with('^') ? 1 : 0), [](char c) {
            return c == '_' || c == '.' || std::isalnum(static_cast<unsigned char>(c));
          });
      if (!is_name) {
        refuse(Errc::unsupported, where, fmt::format("{}: '{}' is not a name", name, pattern));
      }
      if (std::is_integral_v<Value> ? !value.is_number_integer() : !value.is_number()) {
        refuse(Errc::bad_key, where, fmt::format("{}: '{}' is no number", name, pattern));
      }
      values_.emplace_back(pattern, value.template get<Value>());
    }
    where_ = fmt::format("{}: {}", where, name);
  }

  /// PEFT takes the first pattern that fits; the order of an object's members is not kept here.
  Value of(std::string_view module, Value otherwise) const {
    const std::pair<std::string, Value>* taken = nullptr;
    for (const auto& one : values_) {
      if (!fits(one.first, module)) continue;
      if (taken != nullptr && taken->second != one.second) {
        refuse(Errc::unsupported, where_,
               fmt::format("'{}' and '{}' are values for {}", taken->first, one.first, module));
      }
      taken = &one;
    }
    return taken == nullptr ? otherwise : taken->second;
  }

 private:
  static bool fits(std::string_view pattern, std::string_view module) {
    return pattern.starts_with('^') ? module == pattern.substr(1) : names(pattern, module);
  }

  std::vector<std::pair<std::string, Value>> values_;
  std::string where_;
};

/// What a folder of PEFT's has adapters of, and how they were scaled.
struct PeftConfig {
  std::int64_t rank;
  double alpha;
  ModulePattern<std::int64_t> ranks;
  ModulePattern<double> alphas;
  bool by_root = false;  ///< scales are alpha / sqrt(rank)
  /// Names or ends of names; without them what the file has.
  std::optional<std::vector<std::string>> modules;
  std::optional<std::vector<std::int64_t>> layers;  ///< else all

  PeftConfig(const nlohmann::json& json, const std::string& where)
      : ranks(json, "rank_pattern", where), alphas(json, "alpha_pattern", where) {
    const auto given_rank = json.find("r"), given_alpha = json.find("lora_alpha");
    if (given_rank == json.end() || !given_rank->is_number_integer() || given_alpha == json.end() ||
        !given_alpha->is_number()) {
      refuse(Errc::bad_key, where, "needs r and lora_alpha");
    }
    rank = given_rank->get<std::int64_t>();
    alpha = given_alpha->get<double>();
    check({.rank = rank, .alpha = alpha, .targets = {}});
    const auto root = json.find("use_rslora");
    by_root = root != json.end() && *root != false;
    read_modules(json, where);
    read_layers(json, where);
  }

  /// Whether the file has to have adapters of a module; nothing: it may.
  std::optional<bool> has(std::size_t layer, std::string_view module) const {
    if (layers && std::ranges::find(*layers, static_cast<std::int64_t>(layer)) == layers->end())
      return false;
    if (!modules) return std::nullopt;
    return std::ranges::any_of(*modules,
                               [&](const std::string& one) { return names(one, module); });
  }
  double scale(std::string_view module, std::int64_t of_rank) const {
    const auto divisor = static_cast<double>(of_rank);
    return alphas.of(module, alpha) / (by_root ? std::sqrt(divisor) : divisor);
  }

 private:
  void read_modules(const nlohmann::json& json, const std::string& where) {
    const auto found = json.find("target_modules");
    if (found != json.end() && found->is_string()) return;  // an expression, or "all-linear"
    if (found == json.end() || !found->is_array()) {
      refuse(Errc::bad_key, where, "needs target_modules");
    }
    modules.emplace();
    for (const nlohmann::json& module : *found) {
      if (!module.is_string()) refuse(Errc::bad_key, where, "target_modules are names");
      modules->push_back(module.get<std::string>());
      const std::string_view name = modules->back();
      const std::string_view last = name.substr(name.rfind('.') + 1);
      check({.rank = 1, .targets = {std::string(last)}});
    }
  }
  void read_layers(const nlohmann::json& json, const std::string& where) {
    const auto found = json.find("layers_to_transform");
    if (found == json.end() || found->is_null() || (found->is_array() && found->empty())) return;
    layers.emplace();
    for (const nlohmann::json& one : found->is_array() ? *found : nlohmann::json::array({*found})) {
      if (!one.is_number_integer()) refuse(Errc::bad_key, where, "layers_to_transform are numbers");
      layers->push_back(one.get<std::int64_t>());
    }
  }
};

PeftConfig read_config(const std::filesystem::path& path) {
  const JsonDocument document = read_json(path);
  const nlohmann::json& json = document.root();
  const std::string where = path.filename().string();
  if (!json.is_object() || text_of(json, "peft_type", "LORA") != "LORA") {
    refuse(Errc::unsupported, where, "is not the configuration of a LoRA adapter");
  }
  for (const char* other : {"use_dora", "fan_in_fan_out"}) {
    const auto found = json.find(other);
    if (found != json.end() && *found != false) {
      refuse(Errc::unsupported, where, fmt::format("{} is set", other));
    }
  }
  if (text_of(json, "bias", "none") != "none") {
    refuse(Errc::unsupported, where, "adapters with biases");
  }
  // These take a part out of the weights before the training, which the file does not have.
  const std::string begin = text_of(json, "init_lora_weights", "");
  for (const char* other : {"pissa", "olora", "loftq", "corda"}) {
    if (!begin.starts_with(other)) continue;
    refuse(Errc::unsupported, where,
           fmt::format("init_lora_weights is '{}': it changes the model's weights, too", begin));
  }
  return PeftConfig(json, where);
}

/// The values of a factor as f32. Errc::bad_reference without it, Errc::shape_mismatch.
HostBuffer read_factor(const io::File& file, const std::string& name, const Shape& shape) {
  const HostBuffer values = file.at(name).data();
  const DType type = values.shape().dtype();
  if (!(is_floating(type) || is_block(type)) ||
      !std::ranges::equal(values.shape().dims(), shape.dims())) {
    refuse(Errc::shape_mismatch, fmt::format("{}: {}", file.path().string(), name),
           fmt::format("is {}, the model takes {}", to_string(values.shape()), to_string(shape)));
  }
  return values.to(f32);
}

/// The shapes of a target's factors; Errc::bad_argument where the layer has no such target.
nn::Lora<Shape> factor_shapes(const DecoderLayer<Tensor>& layer, std::size_t target,
                              std::int64_t rank, double scale) {
  const nn::Linear<Tensor>* const linear = linears_of(layer)[target];
  if (linear == nullptr) {
    refuse(Errc::bad_argument, "LoraConfig",
           fmt::format("the model has no {}", targets[target].name));
  }
  return {Shape({rank, linear->weight.shape()[1]}, f32), Shape({rows_of(*linear), rank}, f32),
          scale};
}

/// Those of a module, whose rows are those of all its targets.
nn::Lora<Shape> factor_shapes(const DecoderLayer<Tensor>& layer, const Module& module,
                              std::int64_t rank, double scale) {
  nn::Lora<Shape> shapes = factor_shapes(layer, module.first, rank, scale);
  if (module.count > 1) {
    shapes.b = Shape({linears_of(layer)[module.first]->weight.shape()[0], rank}, f32);
  }
  return shapes;
}

/// Gives each target of a module its rows of a change.
void put(LayerAdapters<HostBuffer>& adapters, const DecoderLayer<Tensor>& layer,
         const Module& module, const nn::Lora<HostBuffer>& change, LoraConfig& config) {
  const auto slots = slots_of(adapters);
  const auto linears = linears_of(layer);
  for (std::size_t i = module.first; i < module.first + module.count; ++i) {
    nn::Lora<HostBuffer>& part = slots[i]->emplace(change);
    if (module.count > 1) part.b = rows_of(change.b, linears[i]->first_row, linears[i]->rows);
    if (!is_target(config, targets[i])) config.targets.emplace_back(targets[i].name);
  }
}

using LoadedAdapters = std::pair<DecoderAdapters<HostBuffer>, LoraConfig>;
using Names = std::set<std::string, std::less<>>;

/// A model without what else a file has, such as weights that were trained whole, is another one.
void refuse_others(const io::File& file, const Names& taken, const std::string& where) {
  for (const io::TensorEntry& entry : file.tensors()) {
    if (taken.contains(entry.name)) continue;
    refuse(Errc::unsupported, where,
           fmt::format("'{}' is no factor of a layer that adapters may change", entry.name));
  }
}

LoadedAdapters read_peft(const std::filesystem::path& folder, const Decoder<Tensor>& decoder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    refuse(Errc::not_found, folder.string(), "is no folder of adapters, and no file named .gguf");
  }
  const PeftConfig peft = read_config(folder / "adapter_config.json");
  const io::File file = io::open(folder / "adapter_model.safetensors");
  LoadedAdapters loaded;
  auto& [adapters, config] = loaded;
  config = {.rank = peft.rank, .alpha = peft.alpha, .targets = {}};
  Names taken;
  for (std::size_t layer = 0; layer < decoder.layers.size(); ++layer) {
    LayerAdapters<HostBuffer>& made = adapters.layers.emplace_back();
    for (const Module& of : modules_in(decoder.layers[layer])) {
      const std::string module = peft_module(layer, of.names);
      const std::string a_name = peft_name(module, 'A'), b_name = peft_name(module, 'B');
      const bool is_there = file.find(a_name) != nullptr;
      const bool is_layer = linears_of(decoder.layers[layer])[of.first] != nullptr;
      if (!peft.has(layer, module).value_or(is_there) || (!is_there && !is_layer)) continue;
      const std::int64_t rank = peft.ranks.of(module, peft.rank);
      if (rank < 1) refuse(Errc::bad_argument, module, fmt::format("rank {}", rank));
      const double scale = peft.scale(module, rank);
      const nn::Lora<Shape> want = factor_shapes(decoder.layers[layer], of, rank, scale);
      HostBuffer b = read_factor(file, b_name, want.b);
      if (const std::int64_t heads = reordered_heads(decoder.config, of.first); heads > 0) {
        b = reordered(b, heads, true);
      }
      put(made, decoder.layers[layer], of, {read_factor(file, a_name, want.a), b, scale}, config);
      taken.insert({a_name, b_name});
    }
  }
  const std::string where = "adapter_model.safetensors";
  if (taken.empty()) refuse(Errc::bad_reference, where, "has no adapters of the target_modules");
  refuse_others(file, taken, where);
  return loaded;
}

/// Checks that a file says that it has LoRA adapters of this architecture.
void check_gguf(const io::File& file, const std::string& where, const std::string& architecture) {
  const io::Metadata& facts = file.metadata();
  if (facts.get_or<std::string>("general.type", "model") != "adapter" ||
      facts.get<std::string>("adapter.type") != "lora") {
    refuse(Errc::unsupported, where, "is no file of LoRA adapters");
  }
  const auto made_for = facts.get<std::string>("general.architecture");
  if (made_for != architecture) {
    refuse(Errc::bad_reference, where,
           fmt::format("has adapters of '{}', the model is '{}'", made_for, architecture));
  }
}

LoadedAdapters read_gguf(const std::filesystem::path& path, const Decoder<Tensor>& decoder) {
  const io::File file = io::open(path);
  const std::string where = path.filename().string();
  check_gguf(file, where, decoder.config.architecture);
  LoadedAdapters loaded;
  auto& [adapters, config] = loaded;
  config = {.rank = 0, .alpha = file.metadata().get<double>("adapter.lora.alpha"), .targets = {}};
  Names taken;
  for (std::size_t layer = 0; layer < decoder.layers.size(); ++layer) {
    LayerAdapters<HostBuffer>& made = adapters.layers.emplace_back();
    for (const Module& module : modules_in(decoder.layers[layer])) {
      const std::string a = gguf_name(layer, module.names, 'a');
      const io::TensorEntry* const found = file.find(a);
      if (found == nullptr) continue;
      const std::int64_t rank = found->shape.rank() == 2 ? found->shape[0] : 0;
      if (rank < 1) refuse(Errc::shape_mismatch, a, "is " + to_string(found->shape));
      // As llama.cpp reads it: an alpha of 0 stands for the rank.
      const double scale = config.alpha == 0 ? 1 : config.alpha / static_cast<double>(rank);
      const nn::Lora<Shape> want = factor_shapes(decoder.layers[layer], module, rank, scale);
      const std::string b = gguf_name(layer, module.names, 'b');
      put(made, decoder.layers[layer], module,
          {read_factor(file, a, want.a), read_factor(file, b, want.b), scale}, config);
      if (config.rank == 0) config.rank = rank;
      taken.insert({a, b});
    }
  }
  refuse_others(file, taken, where);
  return loaded;
}

}  // namespace

DecoderAdapters<Shape> adapter_shapes(const Decoder<Tensor>& decoder, const LoraConfig& config) {
  check(config);
  for (const auto& [fused, is_there] :
       {std::pair(fused_targets[0].names, decoder.config.has_fused_attention),
        std::pair(fused_targets[1].names, decoder.config.has_fused_gate)}) {
    if (is_there || !is_target(config, fused)) continue;
    refuse(Errc::bad_argument, "LoraConfig", fmt::format("the model has no {}", fused.name));
  }
  DecoderAdapters<Shape> adapters;
  for (const DecoderLayer<Tensor>& layer : decoder.layers) {
    LayerAdapters<Shape>& made = adapters.layers.emplace_back();
    const auto slots = slots_of(made);
    for (const Module& module : modules_in(layer)) {
      for (std::size_t i = module.first; i < module.first + module.count; ++i) {
        if (!is_target(config, module, i)) continue;
        *slots[i] = factor_shapes(layer, i, config.rank, config.scale());
      }
    }
  }
  return adapters;
}

namespace {

/// Calls take(linears of the layer, target, adapter) for each adapter. Errc::bad_argument,
/// Errc::shape_mismatch, which name the layer and the target.
template <class T, class Take>
void for_each_adapter(Decoder<T>& decoder, const DecoderAdapters<T>& adapters,
                      std::string_view where, const Take& take) {
  if (decoder.layers.size() != adapters.layers.size()) {
    refuse(Errc::bad_argument, where,
           fmt::format("adapters for {} layers, the decoder has {}", adapters.layers.size(),
                       decoder.layers.size()));
  }
  for (std::size_t layer = 0; layer < decoder.layers.size(); ++layer) {
    const auto linears = linears_of(decoder.layers[layer]);
    const auto slots = slots_of(adapters.layers[layer]);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (!*slots[i]) continue;
      const nn::Lora<T>& lora = **slots[i];
      const auto name = [&] { return fmt::format("{} of layer {}", targets[i].name, layer); };
      if (linears[i] == nullptr) {
        refuse(Errc::bad_argument, where, fmt::format("the decoder has no {}", name()));
      }
      const Shape &w = linears[i]->weight.shape(), &a = lora.a.shape(), &b = lora.b.shape();
      const std::int64_t rows = rows_of(*linears[i]);
      if (a.rank() != 2 || b.rank() != 2 || a[1] != w[1] || b[0] != rows || a[0] != b[1]) {
        refuse(Errc::shape_mismatch, where,
               fmt::format("{}: {} with factors {} and {}", name(), to_string(w), to_string(a),
                           to_string(b)));
      }
      if (!std::isfinite(lora.scale)) {
        refuse(Errc::bad_argument, where, fmt::format("{}: scale {}", name(), lora.scale));
      }
      take(linears, i, lora);
    }
  }
}

template <class T>
Decoder<T> with(Decoder<T> decoder, const DecoderAdapters<T>& adapters) {
  for_each_adapter(decoder, adapters, "with_adapters",
                   [](const auto& linears, std::size_t target, const nn::Lora<T>& lora) {
                     linears[target]->lora = lora;
                   });
  return decoder;
}

}  // namespace

Decoder<Tensor> with_adapters(Decoder<Tensor> decoder, const DecoderAdapters<Tensor>& adapters) {
  return with(std::move(decoder), adapters);
}

Bufferized<Decoder<Tensor>> with_adapters(Bufferized<Decoder<Tensor>> weights,
                                          const DecoderAdapters<Buffer>& adapters) {
  return with(std::move(weights), adapters);
}

train::Initial lora_initial(std::string_view path, const Shape& shape) {
  if (path.ends_with(".b")) return {train::Initial::Kind::constant, 0};
  return {train::Initial::Kind::uniform, 1 / std::sqrt(static_cast<double>(shape[1]))};
}

namespace {

/// An adapter as a file has it.
struct SavedAdapter {
  std::size_t layer = 0;
  Target names;
  std::int64_t reordered_heads = 0;
  HostBuffer a, b;  // f32
  double scale = 1;
  std::int64_t rank() const { return a.shape()[0]; }
};

/// The rows that each target of a fused weight has.
std::vector<std::int64_t> rows_in(const Module& module, const LayerAdapters<Buffer>& adapters,
                                  const DecoderConfig& decoder, std::size_t layer) {
  if (module.first == query_target) {
    const CachedHeads cached = decoder.cached_heads(static_cast<std::int64_t>(layer));
    const std::int64_t keys = cached.heads * cached.key_dim;
    return {decoder.heads * cached.key_dim, keys, keys};
  }
  const auto slots = slots_of(adapters);
  const auto& known = *slots[module.first] ? *slots[module.first] : *slots[module.first + 1];
  return std::vector<std::int64_t>(module.count, known->b.shape()[0]);
}

/// The change of a fused weight: that of each target in its rows, 0 in the others. Equal factors a are
/// there once, else the ranks add up.
SavedAdapter fused(const std::vector<SavedAdapter>& parts, const std::vector<std::size_t>& places,
                   const std::vector<std::int64_t>& rows) {
  SavedAdapter whole = parts[0];
  const auto is_alike = [&](const SavedAdapter& part) {
    return part.a.shape() == whole.a.shape() &&
           std::ranges::equal(part.a.values<float>(), whole.a.values<float>());
  };
  const bool is_shared = std::ranges::all_of(parts, is_alike);
  const std::int64_t in = whole.a.shape()[1];
  std::int64_t rank = 0, all = 0;
  for (const SavedAdapter& part : parts) rank += part.rank();
  if (is_shared) rank = whole.rank();
  for (const std::int64_t count : rows) all += count;
  whole.a = HostBuffer::zeros(Shape({rank, in}, f32));
  whole.b = HostBuffer::zeros(Shape({all, rank}, f32));
  whole.scale = parts[0].scale != 0 ? parts[0].scale : 1;
  auto to_a = whole.a.mutable_values<float>().begin();
  const auto to_b = whole.b.mutable_values<float>();
  std::int64_t column = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const SavedAdapter& part = parts[i];
    const std::int64_t first_row = std::accumulate(
        rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(places[i]), std::int64_t{0});
    const auto factor = static_cast<float>(part.scale / whole.scale);
    const auto from = part.b.values<float>();
    for (std::int64_t row = 0; row < part.b.shape()[0]; ++row) {
      for (std::int64_t r = 0; r < part.rank(); ++r) {
        to_b[static_cast<std::size_t>((first_row + row) * rank + column + r)] =
            factor * from[static_cast<std::size_t>(row * part.rank() + r)];
      }
    }
    if (i == 0 || !is_shared) to_a = std::ranges::copy(part.a.values<float>(), to_a).out;
    if (!is_shared) column += part.rank();
  }
  return whole;
}

std::vector<SavedAdapter> saved_adapters(const DecoderAdapters<Buffer>& adapters,
                                         const DecoderConfig& decoder) {
  const std::vector<Module> modules = modules_of([&](std::size_t i) {
    return fused_targets[0].has(i) ? decoder.has_fused_attention : decoder.has_fused_gate;
  });
  std::vector<SavedAdapter> all;
  for (std::size_t layer = 0; layer < adapters.layers.size(); ++layer) {
    const auto slots = slots_of(adapters.layers[layer]);
    for (const Module& module : modules) {
      std::vector<SavedAdapter> parts;
      std::vector<std::size_t> places;
      for (std::size_t i = module.first; i < module.first + module.count; ++i) {
        if (!*slots[i]) continue;
        const nn::Lora<Buffer>& lora = **slots[i];
        const Shape &a = lora.a.shape(), &b = lora.b.shape();
        const std::string name = fmt::format("{} of layer {}", targets[i].name, layer);
        if (a.rank() != 2 || b.rank() != 2 || a[0] < 1 || a[0] != b[1]) {
          refuse(Errc::shape_mismatch, "save_adapters",
                 fmt::format("{}: factors {} and {}", name, to_string(a), to_string(b)));
        }
        if (!std::isfinite(lora.scale)) {
          refuse(Errc::bad_argument, "save_adapters",
                 fmt::format("{}: scale {}", name, lora.scale));
        }
        parts.push_back({layer, module.names, reordered_heads(decoder, i), lora.a.to_host().to(f32),
                         lora.b.to_host().to(f32), lora.scale});
        places.push_back(i - module.first);
      }
      if (parts.empty()) continue;
      if (module.count == 1) {
        all.push_back(std::move(parts[0]));
        continue;
      }
      const std::vector<std::int64_t> rows =
          rows_in(module, adapters.layers[layer], decoder, layer);
      for (std::size_t k = 0; k < parts.size(); ++k) {
        if (parts[k].b.shape()[0] == rows[places[k]] &&
            parts[k].a.shape()[1] == parts[0].a.shape()[1]) {
          continue;
        }
        refuse(Errc::shape_mismatch, "save_adapters",
               fmt::format("{} of layer {}: factors {} and {} in a weight with {} rows of it",
                           targets[module.first + places[k]].name, layer,
                           to_string(parts[k].a.shape()), to_string(parts[k].b.shape()),
                           rows[places[k]]));
      }
      all.push_back(fused(parts, places, rows));
    }
  }
  if (all.empty()) refuse(Errc::bad_argument, "save_adapters", "there are none");
  return all;
}

std::int64_t largest_rank(const std::vector<SavedAdapter>& all) {
  return std::ranges::max(all, {}, &SavedAdapter::rank).rank();
}

/// An alpha of 0 is the rank in GGUF files and nothing in PEFT's: neither is written.
double written_alpha(const LoraConfig& config, const std::vector<SavedAdapter>& all) {
  return config.alpha != 0 ? config.alpha : static_cast<double>(largest_rank(all));
}

/// The factors, of this rank (0: each of its own), in a file whose scale is alpha / rank: what an
/// adapter's scale differs from it goes into b.
void fit_to_file(SavedAdapter& adapter, double alpha, std::int64_t rank) {
  const std::int64_t own = adapter.rank(), in = adapter.a.shape()[1], out = adapter.b.shape()[0];
  if (rank == 0) rank = own;
  const auto factor = static_cast<float>(adapter.scale / (alpha / static_cast<double>(rank)));
  if (rank == own && factor == 1) return;
  HostBuffer a = HostBuffer::zeros(Shape({rank, in}, f32));
  HostBuffer b = HostBuffer::zeros(Shape({out, rank}, f32));
  std::ranges::copy(adapter.a.values<float>(), a.mutable_values<float>().begin());
  const auto from = adapter.b.values<float>();
  const auto to = b.mutable_values<float>();
  for (std::int64_t row = 0; row < out; ++row) {
    for (std::int64_t i = 0; i < own; ++i) {
      to[static_cast<std::size_t>(row * rank + i)] =
          factor * from[static_cast<std::size_t>(row * own + i)];
    }
  }
  adapter.a = a;
  adapter.b = b;
}

void write_gguf(const std::filesystem::path& path, std::vector<SavedAdapter> all,
                const LoraConfig& config, const DecoderConfig& decoder) {
  using namespace std::string_view_literals;
  const auto alpha = static_cast<float>(written_alpha(config, all));
  const io::Metadata metadata({{"general.architecture", std::string_view(decoder.architecture)},
                               {"general.type", "adapter"sv},
                               {"adapter.type", "lora"sv},
                               {"adapter.lora.alpha", alpha}},
                              nullptr, path.filename().string());
  std::vector<io::NamedTensor> tensors;
  for (SavedAdapter& adapter : all) {
    fit_to_file(adapter, alpha, 0);
    tensors.push_back({gguf_name(adapter.layer, adapter.names, 'a'), adapter.a});
    tensors.push_back({gguf_name(adapter.layer, adapter.names, 'b'), adapter.b});
  }
  io::save_gguf(path, metadata, tensors);
}

/// The targets that are there; Errc::bad_argument for one that not every layer has, which PEFT's
/// configuration cannot say.
std::vector<std::string_view> whole_targets(const std::vector<SavedAdapter>& all,
                                            std::size_t layers) {
  std::vector<std::string_view> names;
  for (const SavedAdapter& adapter : all) {
    const std::string_view name = adapter.names.name;
    if (std::ranges::find(names, name) != names.end()) continue;
    const auto count = static_cast<std::size_t>(std::ranges::count_if(
        all, [&](const SavedAdapter& one) { return one.names.name == name; }));
    if (count != layers) {
      refuse(Errc::bad_argument, "save_adapters",
             fmt::format("{} of {} layers have a {}; PEFT's folder has a target in all of them, a "
                         "file named .gguf need not",
                         count, layers, name));
    }
    names.push_back(name);
  }
  return names;
}

void write_peft(const std::filesystem::path& folder, std::vector<SavedAdapter> all,
                std::size_t layers, const LoraConfig& config) {
  const std::vector<std::string_view> names = whole_targets(all, layers);
  const std::int64_t rank = largest_rank(all);  // one for all: those of others end in zeros
  const double alpha = written_alpha(config, all);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) refuse(Errc::io_error, folder.string(), error.message());
  std::vector<io::NamedTensor> tensors;
  for (SavedAdapter& adapter : all) {
    fit_to_file(adapter, alpha, rank);
    const std::string module = peft_module(adapter.layer, adapter.names);
    const std::int64_t heads = adapter.reordered_heads;
    tensors.push_back({peft_name(module, 'A'), adapter.a});
    tensors.push_back(
        {peft_name(module, 'B'), heads > 0 ? reordered(adapter.b, heads, false) : adapter.b});
  }
  io::save_safetensors(folder / "adapter_model.safetensors", tensors, {{"format", "pt"}});
  JsonWriter json;
  json.begin_object()
      .member("peft_type", "LORA")
      .member("task_type", "CAUSAL_LM")
      .member("r", rank)
      .member("lora_alpha", alpha)
      .member("lora_dropout", 0.0)
      .member("bias", "none")
      .key("target_modules")
      .begin_array();
  for (const std::string_view name : names) json.value(name);
  json.end_array().end_object();
  io::AtomicFile file(folder / "adapter_config.json");
  file.write(json.text());
  file.commit();
}

}  // namespace

void save_adapters(const std::filesystem::path& path, const DecoderAdapters<Buffer>& adapters,
                   const LoraConfig& config, const DecoderConfig& decoder) {
  check(config);
  std::vector<SavedAdapter> all = saved_adapters(adapters, decoder);
  is_gguf(path) ? write_gguf(path, std::move(all), config, decoder)
                : write_peft(path, std::move(all), adapters.layers.size(), config);
}

LoadedAdapters load_adapters(const std::filesystem::path& path, const Decoder<Tensor>& decoder) {
  return is_gguf(path) ? read_gguf(path, decoder) : read_peft(path, decoder);
}

namespace {

/// Adds a change to another one of the same layer: its rank to the other's.
nn::Lora<HostBuffer> summed(const nn::Lora<HostBuffer>& one, const nn::Lora<HostBuffer>& other) {
  const std::int64_t in = one.a.shape()[1], out = one.b.shape()[0];
  const std::int64_t left = one.a.shape()[0], right = other.a.shape()[0], rank = left + right;
  nn::Lora<HostBuffer> sum{HostBuffer::uninitialized(Shape({rank, in}, f32)),
                           HostBuffer::uninitialized(Shape({out, rank}, f32)), 1};
  std::ranges::copy(
      other.a.values<float>(),
      std::ranges::copy(one.a.values<float>(), sum.a.mutable_values<float>().begin()).out);
  auto to = sum.b.mutable_values<float>().begin();
  auto from_one = one.b.values<float>().begin(), from_other = other.b.values<float>().begin();
  const auto append = [&](auto& from, std::int64_t count, double scale) {
    for (std::int64_t i = 0; i < count; ++i) *to++ = static_cast<float>(scale * *from++);
  };
  for (std::int64_t row = 0; row < out; ++row) {
    append(from_one, left, one.scale);
    append(from_other, right, other.scale);
  }
  return sum;
}

}  // namespace

DecoderAdapters<HostBuffer> load_adapters(std::span<const AdapterSource> sources,
                                          const Decoder<Tensor>& decoder) {
  DecoderAdapters<HostBuffer> all;
  all.layers.resize(decoder.layers.size());
  for (const AdapterSource& source : sources) {
    if (!std::isfinite(source.scale)) {
      refuse(Errc::bad_argument, source.path.string(), fmt::format("scale {}", source.scale));
    }
    const DecoderAdapters<HostBuffer> one = load_adapters(source.path, decoder).first;
    for (std::size_t layer = 0; layer < all.layers.size(); ++layer) {
      const auto from = slots_of(one.layers[layer]);
      const auto to = slots_of(all.layers[layer]);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        if (!*from[i]) continue;
        nn::Lora<HostBuffer> change = **from[i];
        change.scale *= source.scale;
        *to[i] = *to[i] ? summed(**to[i], change) : std::move(change);
      }
    }
  }
  return all;
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

namespace {

/// `whole` with other rows from `first` on, which have its type.
HostBuffer with_rows(const HostBuffer& whole, std::int64_t first, const HostBuffer& rows) {
  const HostBuffer copy = HostBuffer::uninitialized(whole.shape().without_tags());
  const auto size = static_cast<std::size_t>(whole.shape().bytes());
  const auto row = size / static_cast<std::size_t>(whole.shape()[0]);
  std::memcpy(copy.view().data, whole.bytes(), size);
  std::memcpy(copy.view().data + static_cast<std::size_t>(first) * row, rows.bytes(),
              static_cast<std::size_t>(rows.shape().bytes()));
  return copy;
}

}  // namespace

Bufferized<Decoder<Tensor>> merge_adapters(Bufferized<Decoder<Tensor>> weights,
                                           const DecoderAdapters<Buffer>& adapters,
                                           const DevicePtr& device) {
  const auto merge = [&](const auto& linears, std::size_t target, const nn::Lora<Buffer>& lora) {
    nn::Linear<Buffer>& linear = *linears[target];
    const HostBuffer scale = linear.scale ? linear.scale->to_host().to(f64) : HostBuffer();
    const double by = linear.scale ? lora.scale / scale.values<double>()[0] : lora.scale;
    const nn::Lora<HostBuffer> factors{lora.a.to_host(), lora.b.to_host(), by};
    const HostBuffer whole = linear.weight.to_host();
    if (linear.rows == 0) {
      linear.weight = merged(whole, factors).to_device(device);
      return;
    }
    const HostBuffer part = merged(rows_of(whole, linear.first_row, linear.rows), factors);
    const Buffer changed = with_rows(whole.contiguous(), linear.first_row, part).to_device(device);
    for (const FusedTargets& fused : fused_targets) {
      for (std::size_t i = fused.first; fused.has(target) && fused.has(i); ++i) {
        if (linears[i] != nullptr) linears[i]->weight = changed;
      }
    }
  };
  for_each_adapter(weights, adapters, "merge_adapters", merge);
  return weights;
}

}  // namespace tenon::models
