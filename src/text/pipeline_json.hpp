#pragma once

#include "json_parts.hpp"
#include "recipe.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Reads the normalizer, the pre-tokenizer and the decoder of a tokenizer.json, whatever they are.
class PipelineReader : private JsonParts {
 public:
  explicit PipelineReader(std::string_view where) : JsonParts(where) {}

  /// Sets what decoding depends on in `recipe`, too.
  ///
  /// Errors: unsupported (a component or an expression that is not implemented), bad_tokenizer.
  Pipeline read(const nlohmann::json& root, Recipe& recipe);

 private:
  NormalizerStep normalizer(const json& part) const;
  void add_pretokenizer(const json& part);
  void add_split(const json& part);
  void add_metaspace(const json& part);
  void add_stages(std::vector<Stage> stages, SplitBehavior behavior, bool is_inverted = false);
  void add_stage(Scanner scanner, SplitBehavior behavior);
  void add_decoder(const json& part, Recipe& recipe);
  void add_strip(const json& part, Recipe& recipe) const;

  std::vector<Stage> pattern(const json& part) const;
  SplitBehavior behavior(const json& part, const char* fallback) const;
  SpacePrefix prefix(const json& part) const;

  Pipeline pipeline_;
  bool is_fused_ = false;
};

}  // namespace tenon::text
