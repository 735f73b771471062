// Drafts of the commands that generate: --model-draft, --lookup and what belongs to them.
#pragma once

#include "command.hpp"

#include <tenon/models/language_model.hpp>

#include <cstdint>
#include <stop_token>
#include <string>

#include <nlohmann/json.hpp>

namespace tenon::tool {

class DraftOptions {
 public:
  void add_to(Command& command);

  /// Options of drafts for a model. A draft model is loaded with the tool's options, but without adapters, which are
  /// the model's, and with the model's context. Errors: those of models::LanguageModel::load().
  models::DraftOptions for_model(const Tool& tool, const models::LanguageModel& model,
                                 std::stop_token stop) const;
  nlohmann::ordered_json described() const;

 private:
  std::string model_;
  models::DraftOptions options_;
};

/// What the drafts of an answer were good for, behind a comma; empty without any.
std::string drafts_of(const models::Generated& result);

}  // namespace tenon::tool
