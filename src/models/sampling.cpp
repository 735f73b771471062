#include "base/strict_json.hpp"
#include "json_file.hpp"

#include <tenon/error.hpp>
#include <tenon/models/sampling.hpp>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::models {
namespace {

/// A source of recommendations: a number by its name, if it has it.
class Advice {
 public:
  virtual ~Advice() = default;
  virtual std::optional<double> find(std::string_view name) const = 0;

  /// The number, within bounds, or `fallback`.
  double number(std::string_view name, double fallback, double low, double high) const {
    const double value = find(name).value_or(fallback);
    if (value >= low && value <= high) return value;
    throw Error(Errc::bad_hyperparameter, where_,
                fmt::format("{}{} is {}, allowed: {} to {}", prefix_, name, value, low, high));
  }
  std::int64_t count(std::string_view name, std::int64_t fallback) const {
    constexpr double most = std::numeric_limits<std::int32_t>::max();
    return static_cast<std::int64_t>(number(name, static_cast<double>(fallback), -1, most));
  }

 protected:
  Advice(std::string where, std::string prefix)
      : where_(std::move(where)), prefix_(std::move(prefix)) {}
  std::string where_, prefix_;
};

class MetadataAdvice final : public Advice {
 public:
  explicit MetadataAdvice(const io::File& file)
      : Advice(file.path().filename().string(), "general.sampling."), metadata_(file.metadata()) {}

  std::optional<double> find(std::string_view name) const override {
    const std::string key = prefix_ + std::string(name);
    const io::MetaValue* const value = metadata_.find(key);
    if (value == nullptr) return std::nullopt;
    const io::MetaType type = io::type_of(*value);
    if (type == io::MetaType::f32 || type == io::MetaType::f64) return metadata_.get<double>(key);
    return static_cast<double>(metadata_.get<std::int64_t>(key));
  }

 private:
  const io::Metadata& metadata_;
};

class JsonAdvice final : public Advice {
 public:
  explicit JsonAdvice(const std::filesystem::path& path)
      : Advice(path.filename().string(), ""), document_(read_json(path)) {}

  std::optional<double> find(std::string_view name) const override {
    const auto& root = document_.root();
    const auto found = root.is_object() ? root.find(name) : root.end();
    if (found == root.end() || found->is_null()) return std::nullopt;
    if (!found->is_number()) {
      throw Error(Errc::bad_type, where_, fmt::format("{} is not a number", name));
    }
    return found->get<double>();
  }
  /// Whether the publisher recommends greedy decoding.
  bool is_greedy() const {
    const auto& root = document_.root();
    const auto found = root.is_object() ? root.find("do_sample") : root.end();
    return found != root.end() && found->is_boolean() && !found->get<bool>();
  }

 private:
  JsonDocument document_;
};

constexpr double largest_temperature = 100;

/// The two whose names differ between the sources.
nn::SamplerOptions sampler_of(const Advice& advice, std::string_view temperature,
                              std::string_view repetition_penalty) {
  nn::SamplerOptions sampler;
  sampler.temperature = advice.number(temperature, 1, 0, largest_temperature);
  sampler.top_k = std::max<std::int64_t>(advice.count("top_k", 0), 0);
  sampler.top_p = advice.number("top_p", 1, 1e-6, 1);
  sampler.min_p = advice.number("min_p", 0, 0, 1);
  sampler.repetition_penalty = advice.number(repetition_penalty, 1, 1e-6, 1e6);
  return sampler;
}

bool has_any(const Advice& advice, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names,
                             [&](std::string_view name) { return advice.find(name).has_value(); });
}

}  // namespace

SamplingDefaults sampling_defaults(const io::File& file) {
  const MetadataAdvice metadata(file);
  if (has_any(metadata, {"temp", "top_k", "top_p", "min_p", "penalty_repeat", "xtc_probability",
                         "mirostat"})) {
    nn::SamplerOptions sampler = sampler_of(metadata, "temp", "penalty_repeat");
    const std::int64_t window = metadata.count("penalty_last_n", sampler.repetition_window);
    // -1 means the whole context.
    sampler.repetition_window = window < 0 ? std::numeric_limits<std::int32_t>::max() : window;
    sampler.xtc_probability = metadata.number("xtc_probability", 0, 0, 1);
    sampler.xtc_threshold = metadata.number("xtc_threshold", sampler.xtc_threshold, 0, 1);
    sampler.mirostat = static_cast<int>(metadata.number("mirostat", 0, 0, 2));
    sampler.mirostat_tau = metadata.number("mirostat_tau", sampler.mirostat_tau, 0, 1e6);
    sampler.mirostat_eta = metadata.number("mirostat_eta", sampler.mirostat_eta, 0, 1e6);
    return {sampler, "general.sampling"};
  }
  if (const auto path = file.sibling("generation_config.json")) {
    const JsonAdvice json(*path);
    if (json.is_greedy() || has_any(json, {"temperature", "top_k", "top_p", "min_p", "typical_p",
                                           "repetition_penalty"})) {
      nn::SamplerOptions sampler = sampler_of(json, "temperature", "repetition_penalty");
      sampler.typical_p = json.number("typical_p", 1, 1e-6, 1);
      if (json.is_greedy()) sampler.temperature = 0;
      return {sampler, "generation_config.json"};
    }
  }
  nn::SamplerOptions sampler;
  sampler.temperature = 0.7;
  sampler.top_p = 0.95;
  sampler.repetition_penalty = 1.1;
  return {sampler, "tenon"};
}

std::vector<std::vector<std::int32_t>> dry_breakers(const text::Tokenizer& tokenizer,
                                                    std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    if (text.empty()) throw Error(Errc::bad_argument, "dry_breakers", "a text is empty");
  }
  std::vector<std::vector<std::int32_t>> breakers;
  std::map<std::string_view, std::vector<std::int32_t>> rests;
  const auto tokens_of = [&](std::string_view rest) -> const std::vector<std::int32_t>& {
    const auto [place, is_new] = rests.try_emplace(rest);
    if (is_new) {
      place->second = tokenizer.encode(rest, {.add_special = false, .parse_special = false});
    }
    return place->second;
  };
  for (std::size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    const std::string piece = tokenizer.piece(token);
    for (const std::string_view text : texts) {
      if (piece.find(text) != std::string::npos) {
        breakers.push_back({token});
        continue;
      }
      for (std::size_t length = std::min(text.size() - 1, piece.size()); length > 0; --length) {
        if (!piece.ends_with(text.substr(0, length))) continue;
        std::vector<std::int32_t>& breaker = breakers.emplace_back(1, token);
        const std::vector<std::int32_t>& rest = tokens_of(text.substr(length));
        breaker.insert(breaker.end(), rest.begin(), rest.end());
      }
    }
  }
  std::ranges::sort(breakers);
  const auto same = std::ranges::unique(breakers);
  breakers.erase(same.begin(), same.end());
  return breakers;
}

}  // namespace tenon::models
