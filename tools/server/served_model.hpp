// A language model as a server offers it.
#pragma once

#include <tenon/models/language_model.hpp>
#include <tenon/models/vision.hpp>
#include <tenon/text/chat.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace tenon::tool {

/// An encoder of images for one thread at a time.
struct SharedVision {
  explicit SharedVision(models::VisionEncoder of) : encoder(std::move(of)) {}

  std::stop_source stop{};  ///< ends what it does
  std::mutex mutex;
  models::VisionEncoder encoder;
};

struct ServedModel {
  models::LanguageModel model;
  std::string name;
  models::GenerateOptions defaults;                       ///< what requests leave out is as here
  std::vector<std::vector<std::int32_t>> dry_breakers{};  ///< of requests that turn DRY on
  bool has_seed = false;  ///< whether the seed of `defaults` is one, or answers differ
  std::optional<text::ChatFormat> chat{};
  std::optional<text::ChatFormat> tool_chat{};  ///< in place of `chat` in conversations with tools
  std::unique_ptr<SharedVision> vision{};       ///< null: the model reads no images
};

}  // namespace tenon::tool
