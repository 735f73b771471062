#include "vision_options.hpp"

#include "tool.hpp"

#include <limits>

namespace tenon::tool {

Option VisionOptions::add_to(Command& command, const std::string& help) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  Option mmproj = command.option("--mmproj", path_, help);
  command
      .option(
          "--image-min-tokens", limits_.min_embeddings,
          "Positions that an image takes at least, of models that read images of any size; 0: as "
          "the file has it")
      .range(0, most)
      .needs(mmproj);
  command
      .option("--image-max-tokens", limits_.max_embeddings, "The same at most: larger ones shrink")
      .range(0, most)
      .needs(mmproj);
  return mmproj;
}

models::VisionEncoder VisionOptions::load(const Tool& tool) const {
  return models::VisionEncoder::load(
      path_,
      {.device = tool.open_device(), .cpu_fallback = tool.cpu_fallback, .backend = tool.backend()},
      limits_);
}

}  // namespace tenon::tool
