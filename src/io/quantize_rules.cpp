#include "quantize_rules.hpp"

#include "base/block_number.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

namespace tenon::io::quantize_rules {
namespace {

constexpr MixFacts all_mixes[] = {
    {"f32", Mix::f32, DType::f32, 0},
    {"f16", Mix::f16, DType::f16, 1},
    {"bf16", Mix::bf16, DType::bf16, 32},
    {"q8_0", Mix::q8_0, DType::q8_0, 7},
    {"q6_k", Mix::q6_k, DType::q6_k, 18},
    {"q5_k_m", Mix::q5_k_m, DType::q5_k, 17},
    {"q5_k_s", Mix::q5_k_s, DType::q5_k, 16},
    {"q5_1", Mix::q5_1, DType::q5_1, 9},
    {"q5_0", Mix::q5_0, DType::q5_0, 8},
    {"q4_k_m", Mix::q4_k_m, DType::q4_k, 15},
    {"q4_k_s", Mix::q4_k_s, DType::q4_k, 14},
    {"q4_1", Mix::q4_1, DType::q4_1, 3},
    {"q4_0", Mix::q4_0, DType::q4_0, 2},
    {"iq4_nl", Mix::iq4_nl, DType::iq4_nl, 25},
    {"iq4_xs", Mix::iq4_xs, DType::iq4_xs, 30},
    {"mxfp4_moe", Mix::mxfp4_moe, DType::mxfp4, 38},
    {"q3_k_l", Mix::q3_k_l, DType::q3_k, 13},
    {"q3_k_m", Mix::q3_k_m, DType::q3_k, 12},
    {"q3_k_s", Mix::q3_k_s, DType::q3_k, 11},
    {"iq3_m", Mix::iq3_m, DType::iq3_s, 27},
    {"iq3_s", Mix::iq3_s, DType::iq3_s, 26},
    {"iq3_xs", Mix::iq3_xs, DType::iq3_s, 22},
    {"iq3_xxs", Mix::iq3_xxs, DType::iq3_xxs, 23},
    {"q2_k", Mix::q2_k, DType::q2_k, 10},
    {"q2_k_s", Mix::q2_k_s, DType::q2_k, 21},
    {"iq2_m", Mix::iq2_m, DType::iq2_s, 29},
    {"iq2_s", Mix::iq2_s, DType::iq2_xs, 28},
    {"iq2_xs", Mix::iq2_xs, DType::iq2_xs, 20},
    {"iq2_xxs", Mix::iq2_xxs, DType::iq2_xxs, 19},
    {"iq1_m", Mix::iq1_m, DType::iq1_m, 31},
    {"iq1_s", Mix::iq1_s, DType::iq1_s, 24},
    {"tq2_0", Mix::tq2_0, DType::tq2_0, 37},
    {"tq1_0", Mix::tq1_0, DType::tq1_0, 36},
    {"q2_0", Mix::q2_0, DType::q2_0, 41},
    {"q1_0", Mix::q1_0, DType::q1_0, 40},
};

constexpr auto names_of_mixes = [] {
  std::array<std::string_view, std::size(all_mixes)> names;
  std::ranges::transform(all_mixes, names.begin(), &MixFacts::name);
  return names;
}();

constexpr std::pair<std::string_view, std::string_view> aliases[] = {
    {"q5_k", "q5_k_m"}, {"q4_k", "q4_k_m"}, {"q3_k", "q3_k_m"}};

/// Parts of names of weights that are small or must be exact.
constexpr std::string_view kept_parts[] = {
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "time_mix_lerp_fused.weight",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Axes up to the outermost one that is longer than 1.
int true_rank(const Shape& shape) {
  int rank = shape.rank();
  while (rank > 1 && shape[shape.rank() - rank] == 1) --rank;
  return rank;
}

bool is_quantised(const TensorEntry& tensor) {
  const DType type = tensor.shape.dtype();
  if (!is_floating(type) && !is_block(type)) return false;
  if (true_rank(tensor.shape) < 2 || !tensor.name.ends_with("weight")) return false;
  if (tensor.name == "position_embd.weight" || tensor.name == "token_types.weight") return false;
  return std::ranges::none_of(kept_parts,
                              [&](std::string_view part) { return contains(tensor.name, part); });
}

enum class Role : std::uint8_t {
  output,
  embedding,
  attention_qkv,
  attention_kv_b,
  attention_v,
  attention_k,
  attention_q,
  attention_output,
  up,
  gate,
  down,
  other,
};

Role role_of(std::string_view name) {
  if (name == "output.weight") return Role::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Role::embedding;
  constexpr std::pair<std::string_view, Role> parts[] = {
      {"attn_qkv.weight", Role::attention_qkv},
      {"attn_kv_b.weight", Role::attention_kv_b},
      {"attn_v.weight", Role::attention_v},
      {"attn_k.weight", Role::attention_k},
      {"attn_q.weight", Role::attention_q},
      {"ffn_up", Role::up},
      {"attn_output.weight", Role::attention_output},
      {"ffn_gate", Role::gate},
      {"ffn_down", Role::down}};
  for (const auto& [part, role] : parts) {
    if (contains(name, part)) return role;
  }
  return Role::other;
}

bool is_value(Role role) {
  return role == Role::attention_v || role == Role::attention_qkv || role == Role::attention_kv_b;
}

/// What the rules ask of a model.
struct Model {
  std::string architecture;
  std::int64_t layers = 0, experts = 0, heads_per_group = 1;
  std::int64_t value_tensors = 0;
  bool has_importance = false;
  bool tied = true;     ///< the embedding is the output's matrix as well
  bool is_70b = false;  ///< eight heads share keys and values, in eighty layers

  bool is_falcon() const { return architecture == "falcon"; }
};

/// A number of the metadata, or the first of a list of them; 0 where it is neither.
std::int64_t number(const Metadata& metadata, const std::string& key) {
  const MetaValue* const value = metadata.find(key);
  if (value == nullptr) return 0;
  if (const auto* list = std::get_if<MetaArray>(value)) {
    std::int32_t first = 0;
    const bool is_words =
        list->element_type() == MetaType::i32 || list->element_type() == MetaType::u32;
    if (is_words && list->size() > 0)
      std::copy_n(list->bytes().data(), 4, reinterpret_cast<std::byte*>(&first));
    return first;
  }
  const bool is_integer = type_of(*value) != MetaType::string && type_of(*value) != MetaType::f32 &&
                          type_of(*value) != MetaType::f64 && type_of(*value) != MetaType::boolean;
  return is_integer ? metadata.get<std::int64_t>(key) : 0;
}

Model describe(std::span<const TensorEntry> tensors, const Metadata& metadata) {
  Model model;
  if (const MetaValue* name = metadata.find("general.architecture");
      name != nullptr && type_of(*name) == MetaType::string) {
    model.architecture = std::get<std::string_view>(*name);
  }
  const auto fact = [&](const char* key) { return number(metadata, model.architecture + key); };
  model.layers = fact(".block_count");
  model.experts = fact(".expert_count");
  const std::int64_t heads = fact(".attention.head_count");
  const std::int64_t groups = fact(".attention.head_count_kv");
  if (heads > 0 && groups > 0) model.heads_per_group = heads / groups;
  const bool is_grouped =
      model.architecture == "llama" ? model.heads_per_group > 1 : model.architecture == "qwen2";
  model.is_70b = model.layers == 80 && is_grouped;
  for (const TensorEntry& tensor : tensors) {
    const Role role = role_of(tensor.name);
    if (is_value(role)) ++model.value_tensors;
    if (role == Role::output) model.tied = false;
  }
  return model;
}

/// A tensor, and how many of its kind came before it.
struct Place {
  Role role;
  std::int64_t layer;          ///< of feed-forward weights
  std::int64_t value_tensors;  ///< before this one
  std::int64_t columns;
  bool is_stack;  ///< of experts
};

bool more_bits(std::int64_t i, std::int64_t count) {
  return i < count / 8 || i >= 7 * count / 8 || (i - count / 8) % 3 == 2;
}

/// The mixes of 2.7 bits and less, and those among them of 2.5 and more.
constexpr bool is_low(Mix mix) {
  return mix == Mix::iq1_s || mix == Mix::iq1_m || mix == Mix::iq2_xxs || mix == Mix::iq2_xs ||
         mix == Mix::iq2_s || mix == Mix::iq2_m;
}
constexpr bool is_upper_low(Mix mix) { return mix == Mix::iq2_s || mix == Mix::iq2_m; }

DType output_type(const MixFacts& mix, const Model& model, const Place& at) {
  if (mix.mix == Mix::mxfp4_moe || model.is_falcon()) return DType::q8_0;
  if (at.columns % block_size(mix.main) != 0 || mix.main == DType::q8_0) return DType::q8_0;
  if (is_low(mix.mix) || mix.mix == Mix::iq3_xxs) return DType::q5_k;
  return DType::q6_k;
}

DType embedding_type(const MixFacts& mix) {
  if (is_upper_low(mix.mix) || mix.mix == Mix::iq3_xxs) return DType::iq3_s;
  if (is_low(mix.mix)) return DType::q2_k;
  if (mix.mix == Mix::tq1_0 || mix.mix == Mix::tq2_0 || mix.mix == Mix::q2_0) return DType::q4_k;
  return mix.main;
}

/// Of the low mixes.
DType low_type(const MixFacts& mix, const Model& model, const Place& at) {
  const DType raised = is_upper_low(mix.mix) ? DType::iq3_s : DType::q2_k;
  if (is_value(at.role)) {
    return model.heads_per_group >= 4 || model.experts >= 4 ? DType::q4_k : raised;
  }
  if (at.role == Role::attention_k && model.experts == 8) return DType::q4_k;
  if (at.role == Role::down && at.layer < model.layers / 8) return raised;
  if (at.role != Role::attention_output) return mix.main;
  if (model.experts == 8) return DType::q5_k;
  if (is_upper_low(mix.mix)) return DType::iq3_s;
  return mix.main == DType::iq1_s || mix.main == DType::iq1_m ? DType::iq2_xxs : mix.main;
}

DType value_type(const MixFacts& mix, const Model& model, const Place& at) {
  const bool grouped = model.heads_per_group >= 4;
  const std::int64_t i = at.value_tensors;
  DType type = mix.main;
  switch (mix.mix) {
    case Mix::q2_k:
      type = grouped ? DType::q4_k : DType::q3_k;
      break;
    case Mix::q2_k_s:
    case Mix::iq3_xs:
    case Mix::iq3_s:
      if (grouped) type = DType::q4_k;
      break;
    case Mix::iq3_xxs:
      type = grouped ? DType::q4_k : model.has_importance ? DType::iq3_xxs : DType::iq3_s;
      break;
    case Mix::iq3_m:
      type = DType::q4_k;
      break;
    case Mix::q3_k_m:
      type = i < 2 ? DType::q5_k : DType::q4_k;
      break;
    case Mix::q3_k_l:
      type = DType::q5_k;
      break;
    case Mix::iq4_nl:
    case Mix::iq4_xs:
      if (grouped) type = DType::q5_k;
      break;
    case Mix::q4_k_m:
    case Mix::q5_k_m:
      if (more_bits(i, model.value_tensors)) type = DType::q6_k;
      break;
    case Mix::q4_k_s:
      if (i < 4) type = DType::q5_k;
      break;
    default:
      break;
  }
  if (model.is_70b && (type == DType::q3_k || type == DType::q4_k)) type = DType::q5_k;
  return model.experts == 8 ? DType::q8_0 : type;
}

DType down_type(const MixFacts& mix, const Model& model, const Place& at) {
  const std::int64_t i = at.layer, count = model.layers;
  const bool early = i < count / 8;
  switch (mix.mix) {
    case Mix::q2_k:
      return DType::q3_k;
    case Mix::q2_k_s:
      return early ? DType::q4_k : mix.main;
    case Mix::iq3_xxs:
      if (model.has_importance) return mix.main;
      return early ? DType::q4_k : DType::q3_k;
    case Mix::q3_k_m:
      if (i < count / 16) return DType::q5_k;
      return !model.is_falcon() || more_bits(i, count) ? DType::q4_k : DType::q3_k;
    case Mix::iq3_m:
      return early || (model.experts == 8 && more_bits(i, count)) ? DType::q4_k : mix.main;
    case Mix::q3_k_l:
      return model.is_falcon() ? DType::q4_k : DType::q5_k;
    case Mix::q4_k_m:
      if (!model.is_falcon()) return more_bits(i, count) ? DType::q6_k : mix.main;
      if (i < count / 16) return DType::q6_k;
      return more_bits(i, count) ? DType::q5_k : DType::q4_k;
    case Mix::iq4_nl:
    case Mix::iq4_xs:
      return early && !model.has_importance ? DType::q5_k : mix.main;
    case Mix::q4_0:
      return early && model.has_importance ? DType::q4_1 : mix.main;
    case Mix::q5_0:
      return early && model.has_importance ? DType::q5_1 : mix.main;
    case Mix::q5_k_m:
      return more_bits(i, count) ? DType::q6_k : mix.main;
    case Mix::q4_k_s:
      return early && !model.is_falcon() ? DType::q5_k : mix.main;
    default:
      return mix.main;
  }
}

DType attention_output_type(const MixFacts& mix, const Model& model) {
  if (model.is_falcon()) return mix.mix == Mix::q3_k_l ? DType::q4_k : mix.main;
  if (model.experts == 8) {
    constexpr Mix raised[] = {Mix::q2_k,   Mix::iq3_xs, Mix::iq3_xxs, Mix::q3_k_s,
                              Mix::q3_k_m, Mix::iq4_nl, Mix::q4_k_s,  Mix::q4_k_m,
                              Mix::iq3_s,  Mix::iq3_m,  Mix::iq4_xs};
    return std::ranges::find(raised, mix.mix) != std::end(raised) ? DType::q5_k : mix.main;
  }
  switch (mix.mix) {
    case Mix::q2_k:
      return DType::q3_k;
    case Mix::iq3_xxs:
      return DType::iq3_s;
    case Mix::q3_k_m:
    case Mix::iq3_m:
      return DType::q4_k;
    case Mix::q3_k_l:
      return DType::q5_k;
    default:
      return mix.main;
  }
}

DType wanted_type(const MixFacts& mix, const Model& model, const Place& at) {
  if (at.role == Role::output || (model.tied && at.role == Role::embedding)) {
    return output_type(mix, model, at);
  }
  if (mix.mix == Mix::mxfp4_moe) return at.is_stack ? DType::mxfp4 : DType::q8_0;
  if (at.role == Role::embedding) return embedding_type(mix);
  if (is_low(mix.mix)) return low_type(mix, model, at);
  if (is_value(at.role)) return value_type(mix, model, at);
  const bool middle = at.layer >= model.layers / 8 && at.layer < 7 * model.layers / 8;
  switch (at.role) {
    case Role::attention_k:
      if (model.experts == 8) return DType::q8_0;
      [[fallthrough]];
    case Role::attention_q:
      if (mix.mix == Mix::iq3_xs) return DType::iq3_xxs;
      return mix.mix == Mix::iq3_xxs ? DType::iq2_s : mix.main;
    case Role::down:
      return down_type(mix, model, at);
    case Role::attention_output:
      return attention_output_type(mix, model);
    case Role::gate:
    case Role::up:
      return mix.mix == Mix::iq3_xs && middle ? DType::iq3_xxs : mix.main;
    default:
      return mix.main;
  }
}

/// A type of smaller blocks where rows are no whole number of the wanted one's.
Choice fitting(DType type, std::int64_t columns) {
  const auto fits = [&](DType t) { return columns % block_size(t) == 0; };
  if (fits(type)) return {type};
  DType smaller = type;
  switch (type) {
    case DType::iq1_s:
    case DType::iq1_m:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq4_xs:
      smaller = DType::iq4_nl;
      break;
    case DType::q2_k:
    case DType::q3_k:
    case DType::tq1_0:
    case DType::tq2_0:
    case DType::q1_0:
    case DType::q2_0:
      smaller = DType::q4_0;
      break;
    case DType::q4_k:
      smaller = DType::q5_0;
      break;
    case DType::q5_k:
      smaller = DType::q5_1;
      break;
    case DType::q6_k:
      smaller = DType::q8_0;
      break;
    default:
      break;
  }
  return {fits(smaller) ? smaller : DType::f16, true};
}

}  // namespace

std::span<const std::string_view> mix_names() noexcept { return names_of_mixes; }

const MixFacts* find_mix(std::string_view name) noexcept {
  for (const auto& [alias, mix] : aliases) {
    if (name == alias) name = mix;
  }
  const auto* const found = std::ranges::find(all_mixes, name, &MixFacts::name);
  return found == std::end(all_mixes) ? nullptr : found;
}

std::vector<Choice> choose_types(std::span<const TensorEntry> tensors, const Metadata& metadata,
                                 const MixFacts& mix, const ChoiceOptions& options) {
  Model model = describe(tensors, metadata);
  model.has_importance = options.has_importance;
  // Tensors are counted layer by layer, in whichever order the file has them.
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::pair(block_number(tensors[i].name), std::string_view(tensors[i].name));
  });
  std::vector<Choice> choices(tensors.size());
  std::int64_t values = 0;
  std::array<std::int64_t, 3> feed_forward{};  // of up, gate and down weights
  for (const std::size_t i : order) {
    const TensorEntry& tensor = tensors[i];
    choices[i] = {tensor.shape.dtype()};
    if (!is_quantised(tensor)) continue;
    if (!is_block(mix.main)) {
      choices[i] = {mix.main};
      continue;
    }
    const Shape& shape = tensor.shape;
    Place at{role_of(tensor.name), 0, values, shape[shape.rank() - 1],
             shape.rank() > 2 && shape[shape.rank() - 3] > 1};
    if (at.role == Role::up || at.role == Role::gate || at.role == Role::down) {
      auto& before =
          feed_forward[static_cast<std::size_t>(at.role) - static_cast<std::size_t>(Role::up)];
      // Experts of a layer that are tensors of their own come in any order.
      at.layer = model.experts > 1 && !is_low(mix.mix) ? block_number(tensor.name) : before;
      ++before;
    }
    choices[i] = fitting(options.pure ? mix.main : wanted_type(mix, model, at), at.columns);
    if (is_value(at.role)) ++values;
  }
  return choices;
}

}  // namespace tenon::io::quantize_rules
