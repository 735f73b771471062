// The vision encoder of commands that read images: --mmproj and what belongs to it.
#pragma once

#include "command.hpp"

#include <tenon/models/vision.hpp>

#include <cstdint>
#include <string>

namespace tenon::tool {

class VisionOptions {
 public:
  /// Adds --mmproj, which it returns, --image-min-tokens and --image-max-tokens.
  Option add_to(Command& command, const std::string& help);

  bool is_given() const noexcept { return !path_.empty(); }
  /// On the device of the language model. Errors: those of models::VisionEncoder::load().
  models::VisionEncoder load(const Tool& tool) const;

 private:
  std::string path_;
  models::ImageLimits limits_;
};

}  // namespace tenon::tool
