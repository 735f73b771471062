#include "file_place.hpp"
#include "hyperparameters.hpp"
#include "image_resize.hpp"
#include "page_checks.hpp"
#include "patch_transformer.hpp"
#include "vision_parts.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/convert.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/vision.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::models {
namespace {

constexpr std::string_view projector_key = "clip.projector_type";

// Far above all existing models, far below an overflow.
constexpr std::int64_t max_image_size = 1 << 14;
constexpr std::int64_t max_tiles_of_side = 32;
constexpr std::int64_t max_image_side = 1 << 15;
constexpr std::int64_t max_image_patches = 1 << 20;
constexpr std::int64_t max_image_pixels = 1 << 28;

constexpr VisionProjector known_projectors[] = {
    VisionProjector::mlp,     VisionProjector::gemma3,   VisionProjector::idefics3,
    VisionProjector::qwen2vl, VisionProjector::qwen25vl, VisionProjector::qwen3vl};

VisionProjector projector_of(const io::File& file) {
  const io::Metadata& metadata = file.metadata();
  const auto architecture = metadata.get<std::string>("general.architecture");
  if (architecture != "clip" || !metadata.get_or<bool>("clip.has_vision_encoder", true)) {
    throw Error(Errc::unsupported, file.path().string(),
                fmt::format("architecture '{}' without a vision encoder", architecture));
  }
  // Files with several encoders have it for each.
  const std::string_view key =
      metadata.contains(projector_key) ? projector_key : "clip.vision.projector_type";
  const auto name = metadata.get<std::string>(key);
  std::vector<std::string_view> names;
  for (const VisionProjector known : known_projectors) {
    if (spelling(known) == name) return known;
    names.push_back(spelling(known));
  }
  throw Error(Errc::unsupported, file.path().string(),
              fmt::format("projector '{}'; known are {}", name, fmt::join(names, ", ")));
}

/// Three numbers in a range, one for each colour.
std::array<float, 3> colours(const Hyperparameters& values, std::string_view key, float low) {
  const auto read = values.reals(key);
  if (!read) {
    throw Error(Errc::bad_key, values.file(), fmt::format("no list {}", values.full(key)));
  }
  constexpr float high = 10;
  const auto is_allowed = [&](float x) { return x >= low && x <= high; };
  if (read->size() != 3 || !std::ranges::all_of(*read, is_allowed)) {
    values.refuse(key, fmt::format("{} numbers", read->size()),
                  fmt::format("three from {} to {}", low, high));
  }
  return {(*read)[0], (*read)[1], (*read)[2]};
}

/// An image of the sizes that idefics3 cuts into tiles: first its longer side becomes `longest`, with an
/// even shorter one, then both become multiples of `tile`.
/// Source    _resize_output_size_rescale_to_max_len and resize_for_vision_encoder of transformers'
///           image_processing_idefics3.py
struct TiledSizes {
  std::int64_t height, width;              // after the first step
  std::int64_t whole_height, whole_width;  // and the second

  TiledSizes(std::int64_t rows, std::int64_t columns, std::int64_t longest, std::int64_t tile) {
    const bool is_wide = columns >= rows;
    const double proportion = static_cast<double>(columns) / static_cast<double>(rows);
    const auto shorter_of = [&](std::int64_t longer) {
      const double side = static_cast<double>(longer);
      return static_cast<std::int64_t>(is_wide ? side / proportion : side * proportion);
    };
    const std::int64_t even = shorter_of(longest) + shorter_of(longest) % 2;
    const std::int64_t shorter = std::max<std::int64_t>(even, 1);
    height = is_wide ? shorter : longest;
    width = is_wide ? longest : shorter;
    const auto whole = [&](std::int64_t side) { return (side + tile - 1) / tile * tile; };
    const double exact = static_cast<double>(width) / static_cast<double>(height);
    if (width >= height) {
      whole_width = whole(width);
      whole_height = whole(static_cast<std::int64_t>(static_cast<double>(whole_width) / exact));
    } else {
      whole_height = whole(height);
      whole_width = whole(static_cast<std::int64_t>(static_cast<double>(whole_height) * exact));
    }
    whole_height = std::max(whole_height, tile);
    whole_width = std::max(whole_width, tile);
  }
};

void check_image(const HostBuffer& pixels) {
  const Shape& shape = pixels.shape();
  if (shape.dtype() != u8) {
    throw Error(Errc::bad_type, "VisionEncoder", to_string(shape) + ": wanted are pixels of u8");
  }
  if (shape.rank() != 3 || shape[2] != 3) {
    throw Error(Errc::bad_shape, "VisionEncoder",
                to_string(shape) + ": wanted are pixels [height, width, 3]");
  }
  if (shape[0] < 1 || shape[1] < 1) {
    throw Error(Errc::bad_argument, "VisionEncoder", to_string(shape) + " has no pixels");
  }
  if (std::max(shape[0], shape[1]) > max_image_side) {
    throw Error(Errc::limit_exceeded, "VisionEncoder",
                fmt::format("{}: a side has at most {} pixels", to_string(shape), max_image_side));
  }
}

/// Borders that make an image a square, with the image in the middle.
/// Source    LlavaImageProcessor.pad_to_square of transformers
HostBuffer with_borders(const HostBuffer& pixels, const std::array<float, 3>& mean) {
  const std::int64_t height = pixels.shape()[0], width = pixels.shape()[1];
  if (height == width) return pixels;
  const std::int64_t side = std::max(height, width);
  if (side * side > max_image_pixels) {
    throw Error(Errc::limit_exceeded, "VisionEncoder",
                fmt::format("{}: with borders it is a square of {} x {} pixels, and at most {} are "
                            "read",
                            to_string(pixels.shape()), side, side, max_image_pixels));
  }
  HostBuffer made = HostBuffer::uninitialized(Shape({side, side, 3}, u8));
  const auto to = made.mutable_values<std::uint8_t>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<std::uint8_t>(std::clamp(mean[i % 3] * 255, 0.0F, 255.0F));
  }
  const auto from = pixels.values<std::uint8_t>();
  const std::int64_t top = (side - height) / 2, left = (side - width) / 2;
  for (std::int64_t row = 0; row < height; ++row) {
    std::copy_n(from.begin() + row * width * 3, width * 3,
                to.begin() + ((top + row) * side + left) * 3);
  }
  return made;
}

/// Images of one size as f32 [images, 3, height, width].
HostBuffer normalised(std::span<const HostBuffer> images, const VisionConfig& config) {
  const std::int64_t height = images.front().shape()[0], width = images.front().shape()[1];
  HostBuffer made = HostBuffer::uninitialized(Shape({std::ssize(images), 3, height, width}, f32));
  float* to = made.mutable_values<float>().data();
  const auto area = static_cast<std::size_t>(height * width);
  for (const HostBuffer& image : images) {
    const HostBuffer dense = image.contiguous();
    const auto from = dense.values<std::uint8_t>();
    for (std::size_t colour = 0; colour < 3; ++colour) {
      for (std::size_t i = 0; i < area; ++i) {
        const float value = static_cast<float>(from[3 * i + colour]) / 255.0F;
        *to++ = (value - config.mean[colour]) / config.deviation[colour];
      }
    }
  }
  return made;
}

Resampling filter_of(VisionProjector projector) {
  switch (projector) {
    case VisionProjector::gemma3:
      return Resampling::bilinear;
    case VisionProjector::idefics3:
      return Resampling::lanczos;
    default:
      return Resampling::bicubic;
  }
}

/// Layers that are computed. Files of LLaVA do not have those behind the one whose results are read;
/// some name that one.
void set_feature_layer(const Hyperparameters& values, VisionConfig& config) {
  const auto chosen = values.integers("feature_layer");
  if (!chosen) return;
  if (chosen->size() != 1 || (*chosen)[0] < 1 || (*chosen)[0] > config.layers) {
    throw Error(
        Errc::unsupported, values.file(),
        fmt::format("{} is not one of {} layers", values.full("feature_layer"), config.layers));
  }
  config.layers = (*chosen)[0];
}

std::int64_t most_pixels(const VisionConfig& config) {
  return std::min(max_image_patches * config.patch_size * config.patch_size, max_image_pixels);
}

/// What a file of Qwen's says of images of any size, and what its family has.
/// Source    preprocessor_config.json of Qwen2-VL, Qwen2.5-VL and Qwen3-VL for the fewest pixels; as many embeddings as
///           llama.cpp's mtmd has at most, where those files allow four times as many
void set_sizes(const io::File& file, const Hyperparameters& values, VisionConfig& config) {
  config.merge = values.integer_or("spatial_merge_size", 2, 1, 16);
  const bool is_third = config.projector == VisionProjector::qwen3vl;
  const std::int64_t square = config.patch_size * config.merge;
  const std::int64_t most = most_pixels(config);
  if (square * square > most) {
    values.refuse("patch_size", std::to_string(config.patch_size),
                  fmt::format("those of which {} x {} are at most {} pixels", config.merge,
                              config.merge, most));
  }
  config.max_pixels = values.integer_or("image_max_pixels", std::min(4096 * square * square, most),
                                        square * square, most);
  config.min_pixels = values.integer_or(
      "image_min_pixels", std::min<std::int64_t>(is_third ? 65536 : 3136, config.max_pixels), 1,
      config.max_pixels);
  if (config.width % config.heads != 0 || config.width / config.heads % 4 != 0) {
    values.refuse("attention.head_count", std::to_string(config.heads),
                  fmt::format("divisors of the width {} whose heads have a multiple of 4 numbers",
                              config.width));
  }
  if (config.projector == VisionProjector::qwen25vl) {
    constexpr std::int64_t pixels = 112;
    config.full_every = values.integer("n_wa_pattern", 0, max_layers);
    // Of whole squares.
    const std::int64_t side = pixels / square * config.merge;
    if (config.full_every > 0) config.window = side;
    if (config.full_every > 0 && side < 1) {
      values.refuse("patch_size", std::to_string(config.patch_size),
                    fmt::format("at most {} pixels by {} of them", pixels, config.merge));
    }
  }
  const io::TensorEntry* const up = file.find("v.blk.0.ffn_up.weight");
  for (int axis = 0; up != nullptr && up->shape.rank() == 2 && axis < 2; ++axis) {
    if (up->shape[axis] != config.width) config.intermediate_size = up->shape[axis];
  }
  for (std::int64_t i = 0; is_third && i < config.layers; ++i) {
    if (file.find(fmt::format("v.deepstack.{}.fc1.weight", i)) != nullptr) {
      config.deep_layers.push_back(i);
    }
  }
}

/// The text before an image's parts, and behind the last: one more than there are parts.
std::vector<std::string> texts_around(VisionProjector projector, const TileGrid& grid) {
  if (projector >= VisionProjector::qwen2vl) return {"<|vision_start|>", "<|vision_end|>"};
  if (projector == VisionProjector::mlp) return {"", ""};
  if (projector == VisionProjector::gemma3) return {"<start_of_image>", "<end_of_image>"};
  std::vector<std::string> texts;
  const std::string mark = "<fake_token_around_image>";
  std::string before;
  for (std::int64_t row = 1; row <= grid.rows; ++row) {
    for (std::int64_t column = 1; column <= grid.columns; ++column) {
      texts.push_back(fmt::format("{}{}<row_{}_col_{}>", before, mark, row, column));
      before.clear();
    }
    before = "\n";
  }
  texts.push_back(fmt::format("{}{}<global-img>", grid.rows > 0 ? "\n\n" : "", mark));
  texts.push_back(mark);
  return texts;
}

EncodedImage encoded(const VisionEncoder& encoder, const HostBuffer& pixels,
                     const Interrupt& interrupt) {
  const HostBuffer all = encoder.encode(pixels, interrupt);
  const VisionConfig& config = encoder.config();
  const std::int64_t height = pixels.shape()[0], width = pixels.shape()[1];
  EncodedImage made;
  made.texts = texts_around(config.projector, config.grid(height, width));
  const ImageGrid size = config.has_axes() ? config.size_of(height, width) : ImageGrid{};
  const std::int64_t count = config.has_axes() ? size.embeddings() : config.embeddings();
  for (std::int64_t first = 0; first < all.shape()[0]; first += count) {
    made.parts.push_back({.rows = all.slice(0, first, first + count),
                          .attention = config.attention(),
                          .grid = size});
  }
  return made;
}

/// Makes the parts of a prompt.
class ImagePrompt {
 public:
  using Encode = std::function<std::vector<std::int32_t>(const text::Prompt& text, bool is_first)>;
  using Image = std::function<EncodedImage(std::size_t index)>;

  explicit ImagePrompt(Encode encode) : encode_(std::move(encode)) {}

  /// `image` gives each of `count` images when it is its turn.
  std::vector<PromptPart> made(const text::Prompt& prompt, std::size_t count, const Image& image) {
    std::size_t begin = 0, used = 0;
    for (std::size_t at = 0; (at = prompt.text.find(image_marker, begin)) != std::string::npos;
         begin = at + image_marker.size()) {
      add_text(prompt, begin, at);
      if (used < count) add_image(image(used));
      ++used;
    }
    if (used != count) {
      throw Error(Errc::bad_argument, "image_prompt",
                  fmt::format("{} images for {} markers", count, used));
    }
    add_text(prompt, begin, prompt.text.size());
    end_tokens();
    return std::move(parts_);
  }

 private:
  /// A part of the prompt, which is encoded together with the text around images beside it.
  void add_text(const text::Prompt& prompt, std::size_t begin, std::size_t end) {
    const std::size_t offset = text_.text.size();
    text_.text += prompt.text.substr(begin, end - begin);
    for (const text::TextRange& range : prompt.content) {
      const std::size_t first = std::max(range.begin, begin), last = std::min(range.end, end);
      if (first < last) {
        text_.content.push_back({first - begin + offset, last - begin + offset});
      }
    }
  }

  void add_image(EncodedImage image) {
    for (std::size_t i = 0; i < image.parts.size(); ++i) {
      text_.text += image.texts[i];
      end_tokens();
      parts_.push_back(std::move(image.parts[i]));
    }
    text_.text += image.texts.back();
  }

  void end_tokens() {
    const bool is_first = parts_.empty();
    std::vector<std::int32_t> tokens = encode_(text_, is_first);
    if (!tokens.empty()) parts_.push_back({.tokens = std::move(tokens)});
    text_ = {};
  }

  Encode encode_;
  text::Prompt text_;  // that is not encoded yet
  std::vector<PromptPart> parts_;
};

}  // namespace

std::string_view spelling(VisionProjector projector) noexcept {
  switch (projector) {
    case VisionProjector::mlp:
      return "mlp";
    case VisionProjector::gemma3:
      return "gemma3";
    case VisionProjector::idefics3:
      return "idefics3";
    case VisionProjector::qwen2vl:
      return "qwen2vl_merger";
    case VisionProjector::qwen25vl:
      return "qwen2.5vl_merger";
    case VisionProjector::qwen3vl:
      return "qwen3vl_merger";
  }
  return {};
}

nn::FeedForward<> feed_forward_part(const WeightsView& view, const VisionConfig& config) {
  nn::FeedForward<> made;
  if (view.contains("ffn_gate.weight")) made.gate = nn::Linear<>::init(view["ffn_gate"]);
  made.up = nn::Linear<>::init(view["ffn_up"]);
  made.down = nn::Linear<>::init(view["ffn_down"]);
  const bool is_exchanged =
      made.down.weight.dim(1) == config.width && made.up.weight.dim(1) != config.width;
  if (is_exchanged) std::swap(made.up, made.down);
  made.activation = config.activation;
  return made;
}

ImageGrid VisionConfig::size_of(std::int64_t height, std::int64_t width_of_image) const {
  constexpr std::int64_t max_proportion = 200;
  const std::int64_t longer = std::max(height, width_of_image);
  const std::int64_t shorter = std::min(height, width_of_image);
  if (shorter < 1 || longer > max_proportion * shorter) {
    throw Error(Errc::bad_argument, "VisionEncoder",
                fmt::format("an image of {} x {} pixels: one side is at most {} times the other",
                            width_of_image, height, max_proportion));
  }
  const auto square = static_cast<double>(patch_size * merge);
  const auto both = [&](auto count) {
    return ImageGrid{static_cast<std::int64_t>(count(static_cast<double>(height))),
                     static_cast<std::int64_t>(count(static_cast<double>(width_of_image)))};
  };
  // Halves become the even number. 0 is nothing that there could be of an image, so it is enlarged.
  const ImageGrid near = both([&](double side) { return std::nearbyint(side / square); });
  const double made = static_cast<double>(near.embeddings()) * square * square;
  const double pixels = static_cast<double>(height) * static_cast<double>(width_of_image);
  if (made > static_cast<double>(max_pixels)) {
    const double shrinking = std::sqrt(pixels / static_cast<double>(max_pixels));
    return both([&](double side) { return std::max(std::floor(side / shrinking / square), 1.0); });
  }
  if (made < static_cast<double>(min_pixels)) {
    const double growth = std::sqrt(static_cast<double>(min_pixels) / pixels);
    return both([&](double side) { return std::ceil(side * growth / square); });
  }
  return near;
}

TileGrid VisionConfig::grid(std::int64_t height, std::int64_t width_of_image) const {
  if (longest_side == 0) return {};
  const TiledSizes sizes(height, width_of_image, longest_side, image_size);
  const TileGrid cut{sizes.whole_height / image_size, sizes.whole_width / image_size};
  return cut.rows * cut.columns > 1 ? cut : TileGrid{};
}

VisionConfig VisionConfig::from(const io::File& file) {
  VisionConfig config;
  config.projector = projector_of(file);
  const Hyperparameters values(file, "clip.vision");
  config.layers = values.integer("block_count", 1, max_layers);
  config.width = values.integer("embedding_length", 1, max_width);
  // Files of Qwen2-VL have the language model's there, or 0.
  config.intermediate_size =
      values.integer("feed_forward_length", config.has_axes() ? 0 : 1, max_width);
  config.heads = values.integer("attention.head_count", 1, config.width);
  config.image_size = values.integer("image_size", 1, max_image_size);
  config.patch_size = values.integer("patch_size", 1, config.image_size);
  const bool is_mlp = config.projector == VisionProjector::mlp;
  const io::TensorEntry* const last =
      is_mlp || config.has_axes() ? file.find("mm.2.weight") : nullptr;
  config.model_width = last != nullptr && last->shape.rank() == 2
                           ? last->shape[0]  // projection_dim is another's, of CLIP, there
                           : values.integer("projection_dim", 1, max_width);
  if (config.model_width < 1) {
    throw Error(Errc::bad_hyperparameter, values.file(), "mm.2.weight has no rows");
  }
  config.norm_eps = values.real_or("attention.layer_norm_epsilon", 1e-6, 0, 1);
  config.mean = colours(values, "image_mean", -10);
  config.deviation = colours(values, "image_std", 1e-6F);
  if (config.width % config.heads != 0) {
    values.refuse("attention.head_count", std::to_string(config.heads),
                  fmt::format("divisors of the width {}", config.width));
  }
  const bool is_gemma = config.projector == VisionProjector::gemma3;
  const std::int64_t usual = is_gemma ? 4 : 1;
  if (!is_mlp && !config.has_axes()) {
    config.merge = values.integer_or("projector.scale_factor", usual, 1, config.patches());
  }
  if (config.patches() % config.merge != 0) {
    values.refuse("projector.scale_factor", std::to_string(config.merge),
                  fmt::format("divisors of {} patches of a side", config.patches()));
  }
  if (is_mlp) {
    set_feature_layer(values, config);
    config.has_class_embedding = file.find("v.class_embd") != nullptr;
    if (values.contains("image_grid_pinpoints")) {
      throw Error(Errc::unsupported, values.file(),
                  fmt::format("{}: images of several sizes, as of LLaVA-1.6",
                              values.full("image_grid_pinpoints")));
    }
  } else if (config.has_axes()) {
    set_sizes(file, values, config);
  } else if (!is_gemma) {
    config.longest_side =
        values.integer_or("preproc_image_size", 0, 0, max_tiles_of_side * config.image_size);
  }
  const io::Metadata& metadata = file.metadata();
  const bool has_gelu = metadata.get_or<bool>("clip.use_gelu", false);
  if (metadata.get_or<bool>("clip.use_silu", false)) {
    if (has_gelu) {
      throw Error(Errc::bad_hyperparameter, values.file(),
                  "both clip.use_gelu and clip.use_silu are true, allowed: one");
    }
    config.activation = "silu";
  } else if (!has_gelu) {
    config.activation = "quick_gelu";  // which is a file's that says nothing
  }
  return config;
}

template <>
VisionTransformer<Tensor> VisionTransformer<Tensor>::init(const WeightsView& view,
                                                          const VisionConfig& config) {
  const WeightsView vision = view["v"], projector = view["mm"];
  VisionTransformer made;
  made.config = config;
  const std::int64_t patch[] = {config.width, 3, config.patch_size, config.patch_size};
  made.patch_weight = vision["patch_embd"].tensor("weight", patch);
  made.patch_bias = vision["patch_embd"].find("bias");
  const std::int64_t rows[] = {
      config.patches() * config.patches() + std::int64_t{config.has_class_embedding}, config.width};
  made.positions = vision["position_embd"].tensor("weight", rows);
  if (config.has_class_embedding) {
    const std::int64_t one[] = {config.width};
    made.class_embedding = vision.tensor("class_embd", one);
  }
  if (vision.contains("pre_ln.weight")) {
    made.first_norm = nn::LayerNorm<>::init(vision["pre_ln"], config.norm_eps);
  }
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const WeightsView layer = vision["blk"][i];
    VisionLayer<>& next = made.layers.emplace_back();
    next.attention_norm = nn::LayerNorm<>::init(layer["ln1"], config.norm_eps);
    next.attention = nn::MultiHeadAttention<>::init(
        layer, config.heads,
        {.query = "attn_q", .key = "attn_k", .value = "attn_v", .output = "attn_out"});
    next.feed_forward_norm = nn::LayerNorm<>::init(layer["ln2"], config.norm_eps);
    next.feed_forward = feed_forward_part(layer, config);
  }
  if (vision.contains("post_ln.weight")) {
    made.last_norm = nn::LayerNorm<>::init(vision["post_ln"], config.norm_eps);
  }
  if (config.projector == VisionProjector::mlp) {
    nn::FeedForward<>& layers = made.projections.emplace();
    layers.up = nn::Linear<>::init(projector[0]);
    layers.down = nn::Linear<>::init(projector[2]);
    layers.activation = "gelu";
  } else if (config.projector == VisionProjector::gemma3) {
    made.merged_norm = nn::RmsNorm<>::init(projector["soft_emb_norm"], config.norm_eps);
    const std::int64_t matrix[] = {config.width, config.model_width};
    made.projection = projector["input_projection"].tensor("weight", matrix);
  } else {
    const std::int64_t matrix[] = {config.model_width, config.width * config.merge * config.merge};
    made.projection = projector["model"]["fc"].tensor("weight", matrix);
  }
  return made;
}

namespace {

/// What an encoder's file is compiled to.
class EncoderProgram {
 public:
  virtual ~EncoderProgram() = default;
  /// For another thread, with the same weights.
  virtual std::unique_ptr<EncoderProgram> fork() const = 0;
  /// Rows of prepared pixels, f32 [tiles, 3, height, width].
  virtual HostBuffer rows_of(const HostBuffer& pixels, const Interrupt& interrupt) = 0;
  virtual const Program& program() const = 0;
  virtual PlanReport plan() const = 0;
};

/// Of a network, given an input of the type for which it is planned.
template <auto Forward>
class Compiled : public EncoderProgram {
 public:
  using Shapes = typename Exe<Forward>::Shapes;
  using Network = typename Exe<Forward>::Model;

  Compiled(const io::File& file, const WeightsView& view, const VisionConfig& config,
           const EncoderOptions& options, const Shapes& shapes)
      : config_(config),
        file_(file),
        device_(options.device ? options.device : cpu_device()),
        exe_(placed_in(file,
                       [&] {
                         network_ = Network::init(view, config);
                         return compile<Forward>(
                             network_, shapes, device_,
                             {.backend = options.backend, .cpu_fallback = options.cpu_fallback});
                       })),
        bound_(exe_.bind(io::load_as(network_, file, device_))) {}

  const Program& program() const override { return exe_.program(); }
  PlanReport plan() const override { return exe_.report(); }

 protected:
  Compiled(const Compiled& other)
      : EncoderProgram(),
        network_(other.network_),
        config_(other.config_),
        file_(other.file_),
        device_(other.device_),
        exe_(other.exe_),
        bound_(other.bound_.fork()) {}

  Network network_;
  VisionConfig config_;
  io::File file_;
  DevicePtr device_;
  Exe<Forward> exe_;
  BoundExe<Forward> bound_;
};

class SquareProgram final : public Compiled<&VisionTransformer<>::forward> {
 public:
  SquareProgram(const io::File& file, const WeightsView& view, const VisionConfig& config,
                const EncoderOptions& options)
      : Compiled(file, view, config, options,
                 Shapes{Shape({1, 3, config.image_size, config.image_size}, f32)}) {}

  std::unique_ptr<EncoderProgram> fork() const override {
    return std::make_unique<SquareProgram>(*this);
  }

  HostBuffer rows_of(const HostBuffer& pixels, const Interrupt& interrupt) override {
    const std::int64_t count = config_.embeddings(), width = config_.model_width;
    HostBuffer made = HostBuffer::uninitialized(Shape({pixels.shape()[0] * count, width}, f32));
    bound_.set_interrupt(interrupt);
    auto to = made.mutable_values<float>().begin();
    // One at a time: what a square takes of memory is much, and fills the threads.
    for (std::int64_t i = 0; i < pixels.shape()[0]; ++i) {
      interrupt.check("VisionEncoder");
      const Buffer square = pixels.slice(0, i, i + 1).contiguous().to_device(device_);
      to = std::ranges::copy(bound_(square).to_host().values<float>(), to).out;
      file_.check_pages();
    }
    return made;
  }
};

VisionConfig limited(VisionConfig config, const ImageLimits& limits) {
  const auto [least, most] = limits;
  if (least == 0 && most == 0) return config;
  const std::string name(spelling(config.projector));
  if (!config.has_axes()) {
    throw Error(Errc::unsupported, name, "limits of embeddings: its images all have one size");
  }
  const std::int64_t side = config.patch_size * config.merge;
  const std::int64_t pixels = side * side;
  const std::int64_t allowed = most_pixels(config) / pixels;
  if (least < 0 || most < 0 || least > allowed || most > allowed || (most > 0 && least > most)) {
    throw Error(
        Errc::bad_argument, name,
        fmt::format("{} to {} embeddings of an image, allowed: up to {}", least, most, allowed));
  }
  if (most > 0) config.max_pixels = most * pixels;
  if (least > 0) config.min_pixels = least * pixels;
  if (most > 0) config.min_pixels = std::min(config.min_pixels, config.max_pixels);
  config.max_pixels = std::max(config.min_pixels, config.max_pixels);
  return config;
}

/// Plans each size of image when it comes.
class PatchProgram final : public Compiled<&PatchTransformer<>::forward> {
 public:
  PatchProgram(const io::File& file, const WeightsView& view, const VisionConfig& config,
               const EncoderOptions& options)
      : Compiled(file, view, config, options, small(config)) {}

  std::unique_ptr<EncoderProgram> fork() const override {
    return std::make_unique<PatchProgram>(*this);
  }

  HostBuffer rows_of(const HostBuffer& pixels, const Interrupt& interrupt) override {
    const std::int64_t square = config_.patch_size * config_.merge;
    const ImageGrid grid{pixels.shape()[2] / square, pixels.shape()[3] / square};
    const auto places = map_fields<Buffer>(
        places_of(config_, grid),
        [&](const std::string&, const HostBuffer& values) { return values.to_device(device_); });
    bound_.set_interrupt(interrupt);
    interrupt.check("VisionEncoder");
    HostBuffer made = bound_(patches_of(config_, pixels).to_device(device_), places).to_host();
    file_.check_pages();
    return made;
  }

 private:
  static Shapes small(const VisionConfig& config) {
    const ImageGrid grid{2, 2};
    const std::int64_t patches = grid.embeddings() * config.merge * config.merge;
    return {Shape({1, patches, 3 * config.patch_size * config.patch_size}, f32),
            map_fields<Shape>(
                places_of(config, grid),
                [](const std::string&, const HostBuffer& values) { return values.shape(); })};
  }
};

}  // namespace

struct VisionEncoder::Impl {
  /// What forks share.
  struct Model {
    /// The matrices of the layers as another type.
    static WeightsView declare(const io::File& file, std::optional<DType> weights) {
      if (!weights) return file.view();
      if (!is_block(*weights)) {
        throw Error(Errc::bad_argument, "VisionEncoder::load",
                    fmt::format("weights of {}, which is no block type", tenon::name(*weights)));
      }
      return io::declare_as(file, *weights, [](const io::TensorEntry& entry) {
        return entry.name.starts_with("v.blk.");
      });
    }

    Model(io::File opened, const EncoderOptions& options, const ImageLimits& limits)
        : file(std::move(opened)),
          view(declare(file, options.weights)),
          config(limited(VisionConfig::from(file), limits)) {
      if (config.has_axes()) {
        program = std::make_unique<PatchProgram>(file, view, config, options);
      } else {
        program = std::make_unique<SquareProgram>(file, view, config, options);
      }
    }

    io::File file;
    WeightsView view;
    VisionConfig config;
    std::unique_ptr<EncoderProgram> program;
  };

  explicit Impl(std::shared_ptr<const Model> shared)
      : model(std::move(shared)), program(model->program->fork()) {}

  std::shared_ptr<const Model> model;
  std::unique_ptr<EncoderProgram> program;
};

VisionEncoder VisionEncoder::load(const std::filesystem::path& path, const EncoderOptions& options,
                                  const ImageLimits& limits) {
  return with_memory_errors(path.native(), [&] {
    const io::File file = io::open(path, {.access = io::Access::guarded});
    return with_page_checks(file, [&] {
      return VisionEncoder(
          std::make_shared<Impl>(std::make_shared<const Impl::Model>(file, options, limits)));
    });
  });
}

VisionEncoder VisionEncoder::fork() const {
  return with_memory_errors("VisionEncoder::fork",
                            [&] { return VisionEncoder(std::make_shared<Impl>(impl_->model)); });
}

const VisionConfig& VisionEncoder::config() const { return impl_->model->config; }
const io::File& VisionEncoder::file() const { return impl_->model->file; }
const Program& VisionEncoder::program() const { return impl_->model->program->program(); }
PlanReport VisionEncoder::plan() const { return impl_->model->program->plan(); }

HostBuffer VisionEncoder::preprocess(const HostBuffer& given) const {
  return with_memory_errors("VisionEncoder::preprocess", [&] {
    check_image(given);
    const VisionConfig& config = impl_->model->config;
    const std::int64_t side = config.image_size;
    HostBuffer pixels = given.contiguous();
    if (config.has_axes()) {
      const ImageGrid size = config.size_of(pixels.shape()[0], pixels.shape()[1]);
      const std::int64_t square = config.patch_size * config.merge;
      const HostBuffer whole =
          resized(pixels, size.rows * square, size.columns * square, filter_of(config.projector));
      return normalised({&whole, 1}, config);
    }
    const TileGrid grid = config.grid(pixels.shape()[0], pixels.shape()[1]);
    const Resampling filter = filter_of(config.projector);
    if (config.projector == VisionProjector::mlp) pixels = with_borders(pixels, config.mean);
    if (config.longest_side > 0) {
      const TiledSizes sizes(pixels.shape()[0], pixels.shape()[1], config.longest_side, side);
      pixels = resized(pixels, sizes.height, sizes.width, filter);
      pixels = resized(pixels, sizes.whole_height, sizes.whole_width, filter);
    }
    std::vector<HostBuffer> squares;
    for (std::int64_t row = 0; row < grid.rows; ++row) {
      const HostBuffer line = pixels.slice(0, row * side, (row + 1) * side);
      for (std::int64_t column = 0; column < grid.columns; ++column) {
        squares.push_back(line.slice(1, column * side, (column + 1) * side));
      }
    }
    squares.push_back(resized(pixels, side, side, filter));
    return normalised(squares, config);
  });
}

HostBuffer VisionEncoder::encode(const HostBuffer& pixels, const Interrupt& interrupt) const {
  return with_memory_errors("VisionEncoder::encode",
                            [&] { return impl_->program->rows_of(preprocess(pixels), interrupt); });
}

void check_compatible(const LanguageModel& model, const VisionEncoder& encoder) {
  const bool has_axes = encoder.config().has_axes();
  const std::string file = encoder.file().path().string();
  const std::string other = model.file().path().filename().string();
  if (has_axes != model.config().image_axes.has_value()) {
    throw Error(Errc::incompatible, file,
                fmt::format("{}: positions of images have {}, those of {} {}",
                            spelling(encoder.config().projector), has_axes ? "two axes" : "one",
                            other, has_axes ? "one" : "two"));
  }
  const std::int64_t wanted = has_axes ? model.config().image_row() : model.config().width;
  const std::int64_t given = encoder.config().row();
  if (wanted == given) return;
  throw Error(Errc::incompatible, file,
              fmt::format("embeddings of {} numbers, those of {} have {}", given, other, wanted));
}

EncodedImage encode_image(const LanguageModel& model, const VisionEncoder& encoder,
                          const HostBuffer& pixels, const Interrupt& interrupt) {
  return with_memory_errors("encode_image", [&] {
    check_compatible(model, encoder);
    return encoded(encoder, pixels, interrupt);
  });
}

std::vector<PromptPart> image_prompt(const LanguageModel& model, const VisionEncoder& encoder,
                                     std::string_view text, std::span<const HostBuffer> images,
                                     const Interrupt& interrupt) {
  return with_memory_errors("image_prompt", [&] {
    check_compatible(model, encoder);
    const text::Tokenizer& tokenizer = model.tokenizer();
    text::Prompt prompt;
    prompt.text = text;
    ImagePrompt made([&](const text::Prompt& part, bool is_first) {
      auto tokens = tokenizer.encode(part.text, {.add_special = false});
      if (is_first && tokenizer.adds_bos()) tokens.insert(tokens.begin(), *tokenizer.bos());
      return tokens;
    });
    return made.made(prompt, images.size(),
                     [&](std::size_t i) { return encoded(encoder, images[i], interrupt); });
  });
}

std::vector<PromptPart> image_prompt(const LanguageModel& model, const VisionEncoder& encoder,
                                     const text::Prompt& prompt, std::span<const HostBuffer> images,
                                     const Interrupt& interrupt) {
  return with_memory_errors("image_prompt", [&] {
    check_compatible(model, encoder);
    ImagePrompt made(
        [&](const text::Prompt& part, bool) { return part.encode(model.tokenizer()); });
    return made.made(prompt, images.size(),
                     [&](std::size_t i) { return encoded(encoder, images[i], interrupt); });
  });
}

std::vector<PromptPart> image_prompt(const LanguageModel& model, const text::Prompt& prompt,
                                     std::span<const EncodedImage> images) {
  return with_memory_errors("image_prompt", [&] {
    ImagePrompt made(
        [&](const text::Prompt& part, bool) { return part.encode(model.tokenizer()); });
    return made.made(prompt, images.size(), [&](std::size_t i) { return images[i]; });
  });
}

}  // namespace tenon::models
