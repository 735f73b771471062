#include "recipe.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

[[noreturn]] void refuse_recipe(std::string message) {
  throw Error(Errc::bad_tokenizer, "tokenizer", std::move(message));
}

void check_length(std::string_view name, std::size_t length, std::size_t tokens) {
  if (length != 0 && length != tokens) {
    refuse_recipe(fmt::format("{} {} for {} tokens", length, name, tokens));
  }
}

void check_id(std::string_view name, std::optional<std::uint32_t> id, std::size_t tokens) {
  if (id && *id >= tokens) {
    refuse_recipe(fmt::format("{} token {} is outside the vocabulary of {}", name, *id, tokens));
  }
}

/// The ids that frame a text: `wanted` (or its default) decides whether `id` is added.
void frame(std::vector<std::int32_t>& ids, std::optional<bool> wanted, bool wanted_by_default,
           std::optional<std::uint32_t> id, std::string_view name) {
  if (!wanted.value_or(wanted_by_default && id.has_value())) return;
  if (!id) refuse_recipe(fmt::format("add_{0} is set but there is no {0} token", name));
  ids.push_back(static_cast<std::int32_t>(*id));
}

}  // namespace

Merge parse_merge(std::string_view line) {
  // A token may begin with a space of its own, so the one that separates comes later.
  const std::size_t space = line.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == line.size()) {
    refuse_recipe(fmt::format("merge \"{}\" does not name two tokens", line.substr(0, 80)));
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

void check_vocabulary(const Vocabulary& v) {
  const std::size_t size = v.tokens.size();
  if (size == 0) refuse_recipe("the vocabulary is empty");
  if (size > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    refuse_recipe(fmt::format("{} tokens are more than ids can number", size));
  }
  check_length("scores", v.scores.size(), size);
  check_length("token types", v.types.size(), size);
  if (v.model == TokenizerModel::spm && v.scores.empty() && v.merges.empty()) {
    refuse_recipe("neither scores nor merges say which tokens to form first");
  }
  for (std::size_t i = 0; i < v.scores.size(); ++i) {
    if (std::isnan(v.scores[i]))
      refuse_recipe(fmt::format("the score of token {} is not a number", i));
  }
  for (std::size_t i = 0; i < v.types.size(); ++i) {
    const auto type = static_cast<std::int32_t>(v.types[i]);
    if (type < 1 || type > 6)
      refuse_recipe(fmt::format("token {} has type {}, not 1 to 6", i, type));
  }
  check_id("bos", v.bos, size);
  check_id("eos", v.eos, size);
  check_id("eot", v.eot, size);
  check_id("unknown", v.unk, size);
  check_id("separator", v.sep, size);
  check_id("padding", v.pad, size);
  check_id("classifier", v.cls, size);
  check_id("mask", v.mask, size);
  for (const std::uint32_t id : v.eog) check_id("end-of-generation", id, size);
  for (const AddedToken& added : v.added) check_id("added", added.id, size);
  if (v.model == TokenizerModel::wordpiece && !v.unk)
    refuse_recipe("WordPiece needs an unknown token");
}

namespace {

/// The least score of a token that ordinary text may become.
double lowest_score(const Recipe& recipe) {
  double lowest = 0;
  for (std::size_t id = 0; id < recipe.vocabulary.scores.size(); ++id) {
    if (recipe.type(static_cast<std::int32_t>(id)) == TokenType::normal) {
      lowest = std::min(lowest, double{recipe.vocabulary.scores[id]});
    }
  }
  return lowest;
}

WordStep spaces_to_marks(SpacePrefix prefix) {
  WordStep step;
  step.kind = WordStep::Kind::spaces;
  step.mark = space_mark;
  step.prefix = prefix;
  return step;
}

/// As SentencePiece prepares text for its unigram models.
Pipeline unigram_pipeline(const Vocabulary& v, SpacePrefix prefix) {
  Pipeline pipeline;
  pipeline.model = Pipeline::Model::unigram;
  if (!v.precompiled_charsmap.empty()) {
    NormalizerStep step;
    step.kind = NormalizerStep::Kind::sentencepiece;
    step.map = std::make_shared<CharacterMap>(v.precompiled_charsmap);
    pipeline.normalizers.push_back(std::move(step));
  }
  if (v.remove_extra_spaces.value_or(false)) {
    pipeline.normalizers.push_back({.kind = NormalizerStep::Kind::join_spaces});
  }
  pipeline.steps.push_back(spaces_to_marks(prefix));
  pipeline.decoders.push_back({DecodeStep::Kind::byte_fallback, {}, {}});
  pipeline.decoders.push_back({DecodeStep::Kind::replace, std::string(space_mark), " "});
  return pipeline;
}

/// BPE over the characters of words that white space separates, and which leaves it out.
Pipeline whitespace_pipeline(const Vocabulary& v, std::vector<Stage> stages) {
  Pipeline pipeline;
  pipeline.model = Pipeline::Model::characters;
  if (v.lowercase.value_or(false)) {
    pipeline.normalizers.push_back({.kind = NormalizerStep::Kind::lowercase});
  }
  for (Stage& stage : stages) {
    WordStep step;
    step.pattern = std::move(stage);
    step.behavior = SplitBehavior::removed;
    step.is_inverted = true;
    pipeline.steps.push_back(std::move(step));
  }
  pipeline.decoders.push_back({DecodeStep::Kind::byte_fallback, {}, {}});
  return pipeline;
}

/// Whether a separator stands between two texts, besides what ends the first.
bool separates(const Vocabulary& v) {
  // Of BERT the separator is what ends a text; files from before 2025 say of neither whether it is added.
  if (v.model == TokenizerModel::wordpiece && !v.add_eos) return false;
  constexpr std::string_view separating[] = {"jina-v1-en", "jina-v2-code", "roberta-bpe"};
  const bool is_usual = v.model == TokenizerModel::bpe &&
                        std::ranges::find(separating, v.pretokenizer) != std::end(separating);
  return v.add_sep.value_or(is_usual && (v.sep || v.eos));
}

}  // namespace

Recipe complete(Vocabulary vocabulary) {
  Recipe recipe;
  recipe.vocabulary = std::move(vocabulary);
  Vocabulary& v = recipe.vocabulary;
  const bool needs_scores = v.model == TokenizerModel::unigram || v.model == TokenizerModel::plamo2;
  if (needs_scores && v.scores.empty()) refuse_recipe("there are no scores");
  switch (v.model) {
    case TokenizerModel::bpe:
    case TokenizerModel::hybriddna: {
      auto pretokenizer = find_pretokenizer(v.pretokenizer);
      if (!pretokenizer) {
        throw Error(Errc::unsupported, "tokenizer",
                    fmt::format("pre-tokenizer \"{}\" is not known",
                                std::string_view(v.pretokenizer).substr(0, 80)));
      }
      if (pretokenizer->spelling == Spelling::characters) {
        v.model = TokenizerModel::spm;
      } else if (pretokenizer->spelling == Spelling::words) {
        recipe.pipeline = whitespace_pipeline(v, std::move(pretokenizer->stages));
      } else {
        recipe.stages = std::move(pretokenizer->stages);
      }
      recipe.composes = pretokenizer->composes;
      recipe.ignores_merges = v.ignore_merges.value_or(pretokenizer->ignores_merges);
      if (v.add_space_prefix.value_or(false)) recipe.prefix = SpacePrefix::unless_space;
      frame(recipe.before, v.add_bos, pretokenizer->adds_bos, v.bos, "bos");
      frame(recipe.after, v.add_eos, false, v.eos, "eos");
      break;
    }
    case TokenizerModel::spm: {
      const bool adds_space = v.add_space_prefix.value_or(true);
      recipe.prefix = adds_space ? SpacePrefix::always : SpacePrefix::never;
      recipe.strips_decoded_space = adds_space;
      frame(recipe.before, v.add_bos, true, v.bos, "bos");
      frame(recipe.after, v.add_eos, false, v.eos, "eos");
      break;
    }
    case TokenizerModel::unigram: {
      const bool adds_space = v.add_space_prefix.value_or(false);
      recipe.pipeline = unigram_pipeline(v, adds_space ? SpacePrefix::always : SpacePrefix::never);
      recipe.strips_decoded_space = adds_space;
      recipe.lowest_score = lowest_score(recipe);
      frame(recipe.before, v.add_bos, false, v.bos, "bos");
      frame(recipe.after, v.add_eos, true, v.eos, "eos");
      break;
    }
    case TokenizerModel::rwkv:
    case TokenizerModel::plamo2: {
      const bool is_rwkv = v.model == TokenizerModel::rwkv;
      recipe.pipeline.emplace();
      recipe.pipeline->model = is_rwkv ? Pipeline::Model::rwkv : Pipeline::Model::plamo2;
      recipe.pipeline->decoders.push_back(
          {is_rwkv ? DecodeStep::Kind::escapes : DecodeStep::Kind::byte_fallback, {}, {}});
      frame(recipe.before, v.add_bos, false, v.bos, "bos");
      frame(recipe.after, v.add_eos, false, v.eos, "eos");
      break;
    }
    case TokenizerModel::wordlevel:
      throw Error(Errc::unsupported, "tokenizer",
                  "whole words as tokens are read from tokenizer.json files only");
    case TokenizerModel::wordpiece:
      recipe.cleans_up_decoded = true;
      frame(recipe.before, v.add_bos, true, v.cls ? v.cls : v.bos, "bos");
      frame(recipe.after, v.add_eos, true, v.sep ? v.sep : v.eos, "eos");
      break;
  }
  recipe.between = recipe.after;
  frame(*recipe.between, separates(v), false, v.sep ? v.sep : v.eos, "sep");
  return recipe;
}

}  // namespace tenon::text
