#pragma once

#include <tenon/fields.hpp>
#include <tenon/held.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/io/file.hpp>
#include <tenon/models/encoder.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>
#include <tenon/text/chat.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::models {

/// What brings a vision encoder's results into a language model, and how that family reads an image.
enum class VisionProjector : std::uint8_t {
  mlp,     ///< LLaVA-1.5: two linear layers with GELU between them
  gemma3,  ///< Gemma 3: means of squares of patches, a norm, a matrix
  idefics3,  ///< Idefics3 and SmolVLM: squares of patches side by side, a matrix; large images in tiles
  qwen2vl,   ///< Qwen2-VL: images of any size, squares of patches side by side, two linear layers
  qwen25vl,  ///< Qwen2.5-VL: the same; most layers attend within windows
  qwen3vl,  ///< Qwen3-VL: the same without windows; results of earlier layers go to the language model, too
};

std::string_view spelling(VisionProjector projector) noexcept;

/// Into how many tiles an image is cut, each of which is encoded, and then the whole image.
struct TileGrid {
  std::int64_t rows = 0;  ///< 0: it is not cut
  std::int64_t columns = 0;

  std::int64_t tiles() const noexcept { return rows * columns + 1; }  ///< with the whole image
};

/// Hyperparameters of a vision encoder, from the metadata of a GGUF file as llama.cpp's `--mmproj` takes.
struct VisionConfig {
  VisionProjector projector = VisionProjector::gemma3;
  std::int64_t layers =
      0;  ///< that are computed: LLaVA reads what the last but one of its model gives
  std::int64_t width = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t heads = 0;
  std::int64_t image_size = 0;    ///< pixels of a side of what is encoded, a square
  std::int64_t patch_size = 0;    ///< the same of a patch
  std::int64_t merge = 1;         ///< patches of a side of the square that becomes one embedding
  std::int64_t model_width = 0;   ///< of the language model
  std::int64_t longest_side = 0;  ///< pixels of an image that is cut into tiles; 0: images are not
  double norm_eps = 1e-6;
  Name activation = "gelu_tanh";
  bool has_class_embedding =
      false;                    ///< before the patches (CLIP); it is left out behind the layers
  std::array<float, 3> mean{};  ///< of red, green and blue between 0 and 1
  std::array<float, 3> deviation{};  ///< by which they are divided then
  /// Of those of Qwen: pixels of an image, which is enlarged or shrunk to have as many.
  std::int64_t min_pixels = 0, max_pixels = 0;
  std::int64_t window = 0;  ///< patches of a side of a window; 0: layers attend to the whole image
  std::int64_t full_every = 0;  ///< layer i has no window when (i + 1) % this == 0
  /// Layers whose results are added to those of the language model's first layers, in ascending order.
  std::vector<std::int64_t> deep_layers;

  /// Patches of a side; pixels at the end that make no patch are not read.
  std::int64_t patches() const noexcept { return image_size / patch_size; }
  /// Embeddings of one encoded square; of an image of any size see size_of().
  std::int64_t embeddings() const noexcept { return (patches() / merge) * (patches() / merge); }
  /// Whether images have any size, and their embeddings positions of two axes.
  bool has_axes() const noexcept { return projector >= VisionProjector::qwen2vl; }
  /// Numbers of an embedding, with what deep_layers give.
  std::int64_t row() const noexcept {
    return model_width * (1 + static_cast<std::int64_t>(deep_layers.size()));
  }
  /// Embeddings of an image where has_axes(). Its sides become multiples of patch_size * merge, its pixels min_pixels to
  /// max_pixels, and its proportions stay about what they are. Errc::bad_argument where one side is more than 200 times the
  /// other. Source: smart_resize of transformers' image_processing_qwen2_vl.py
  ImageGrid size_of(std::int64_t height, std::int64_t width) const;
  /// How an image is cut (idefics3): it is enlarged or shrunk so that its longer side is longest_side.
  TileGrid grid(std::int64_t height, std::int64_t width) const;
  /// Whether embeddings of an image attend to each other in both directions, as of Gemma 3.
  RowAttention attention() const noexcept {
    return projector == VisionProjector::gemma3 ? RowAttention::mutual : RowAttention::causal;
  }

  /// Errors: unsupported (a file without a vision encoder, another projector, by name),
  /// bad_hyperparameter naming the key, its value and what is allowed, bad_key, bad_type.
  static VisionConfig from(const io::File& file);
};

/// x + attention(norm(x)), then x + feed_forward(norm(x)).
template <class T = Tensor>
struct VisionLayer {
  nn::LayerNorm<T> attention_norm;
  nn::MultiHeadAttention<T> attention;
  nn::LayerNorm<T> feed_forward_norm;
  nn::FeedForward<T> feed_forward;
  TENON_FIELDS(attention_norm, attention, feed_forward_norm, feed_forward)

  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    const Tensor middle = attention.forward(attention_norm.forward(x), Tensor()) + x;
    return feed_forward.forward(feed_forward_norm.forward(middle)) + middle;
  }
};

/// A vision transformer, SigLIP's (Zhai et al., Sigmoid Loss for Language Image Pre-Training,
/// arXiv:2303.15343) or CLIP's (Radford et al., arXiv:2103.00020), with the projector of a language
/// model behind it.
template <class T = Tensor>
struct VisionTransformer {
  T patch_weight;  ///< [width, 3, patch size, patch size]
  std::optional<T> patch_bias;
  std::optional<T> class_embedding;  ///< [width]
  T positions;  ///< [patches, width], row after row of the image, behind that of class_embedding
  std::optional<nn::LayerNorm<T>> first_norm;
  std::vector<VisionLayer<T>> layers;
  std::optional<nn::LayerNorm<T>> last_norm;
  std::optional<nn::RmsNorm<T>> merged_norm;  ///< of gemma3
  std::optional<T> projection;  ///< gemma3: [width, model width]; idefics3: transposed
  std::optional<nn::FeedForward<T>> projections;  ///< of mlp
  TENON_FIELDS(patch_weight, patch_bias, class_embedding, positions, first_norm, layers, last_norm,
               merged_norm, projection, projections, config)
  VisionConfig config;

  /// Declares the weights by their GGUF names. Errors: bad_reference, shape_mismatch.
  static VisionTransformer init(const WeightsView& view, const VisionConfig& config);

  /// pixels f32 [B, 3, image size, image size], normalised -> f32 [B, embeddings, model width].
  Tensor forward(const Tensor& pixels) const
    requires std::same_as<T, Tensor>
  {
    Tensor x = embedded(pixels) + cast(positions, f32);
    if (first_norm) x = first_norm->forward(x);
    x = repeat(layers, x, [](const VisionLayer<Tensor>& layer, const Tensor&, const Tensor& carry) {
      return layer.forward(carry);
    });
    if (last_norm) x = last_norm->forward(x);
    if (class_embedding) x = slice(x, 1, 1, to_end);
    if (projections) return projections->forward(x);
    // [B, rows, columns, merge, merge, width]
    const std::int64_t side = config.patches() / config.merge, merge = config.merge;
    const Tensor squares =
        permute(split_axis(x, 1, {side, merge, side, merge}), {0, 1, 3, 2, 4, 5});
    if (merged_norm) {
      const Tensor means = merge_axes(mean(squares, {3, 4}), 1, 2);
      return matmul(merged_norm->forward(means), cast(*projection, f32));
    }
    return linear(merge_axes(merge_axes(squares, 3, 5), 1, 2), *projection);
  }

 private:
  /// A convolution whose windows do not overlap is a linear layer of patches.
  Tensor embedded(const Tensor& pixels) const
    requires std::same_as<T, Tensor>
  {
    const std::int64_t side = config.patches(), size = config.patch_size;
    const Tensor whole = slice(slice(pixels, 2, 0, side * size), 3, 0, side * size);
    const Tensor cut = permute(split_axis(split_axis(whole, 3, {side, size}), 2, {side, size}),
                               {0, 2, 4, 1, 3, 5});  // [B, row, column, channel, y, x]
    const Tensor patches = linear(merge_axes(merge_axes(cut, 3, 5), 1, 2),
                                  merge_axes(patch_weight, 1, 3), patch_bias.value_or(Tensor()));
    if (!class_embedding) return patches;
    const Tensor first = unsqueeze(unsqueeze(cast(*class_embedding, f32), 0), 0);
    return concat({broadcast_to(first, {pixels.dim(0), 1, config.width}), patches}, 1);
  }
};

template <>
VisionTransformer<Tensor> VisionTransformer<Tensor>::init(const WeightsView& view,
                                                          const VisionConfig& config);

/// How many embeddings an image has at least and at most, where VisionConfig::has_axes(); 0: as the file or the family has it.
struct ImageLimits {
  std::int64_t min_embeddings = 0;
  std::int64_t max_embeddings = 0;
};

/// A vision encoder from a GGUF file beside a language model's, as llama.cpp's `--mmproj` takes. A
/// handle: copies are the same encoder, for one thread at a time (Errc::busy); each further thread
/// takes a fork(). The file is mapped (io::Access::guarded), see SentenceEncoder.
class VisionEncoder {
 public:
  /// Errors, which name the path: those of io::open, VisionConfig::from, compile(); bad_reference for
  /// weights that are missing, corrupt for those that do not fit; bad_argument for EncoderOptions::weights that is
  /// not a block type, and for limits that are negative, above 2^20 patches or 2^28 pixels, or the wrong way round;
  /// unsupported for limits of images that all have one size.
  static VisionEncoder load(const std::filesystem::path& path, const EncoderOptions& options = {},
                            const ImageLimits& limits = {});

  /// Another encoder for another thread, which shares everything except the activations.
  VisionEncoder fork() const;

  const VisionConfig& config() const;
  const io::File& file() const;

  /// What the transformer reads of an image, u8 RGB [height, width, 3]: f32 [tiles, 3, image size,
  /// image size], the tiles row after row and then the whole image. As the image processors of
  /// Hugging Face's transformers have it, which the models were trained with; filters are Pillow's,
  /// so that an image that shrinks is smoothed (llama.cpp leaves that out). Where VisionConfig::has_axes(), it is f32 [1, 3, height,
  /// width] of the sizes that VisionConfig::size_of() gives, by a cubic filter.
  ///
  ///   mlp       borders of the mean colour that make the image a square, then bicubic
  ///   gemma3    the image as a square, whatever its proportions, bilinear
  ///   idefics3  the same, Lanczos; before it the tiles of VisionConfig::grid, cut out of the image at
  ///             a multiple of image_size
  ///
  /// Then (x / 255 - mean) / deviation, by the file's `clip.vision.image_mean` and `image_std`.
  /// Source    LlavaImageProcessor (do_pad, as LLaVA's own `image_aspect_ratio` "pad"), Gemma3ImageProcessor,
  ///           Idefics3ImageProcessor and Qwen2VLImageProcessor of transformers 4.57
  /// Errors    bad_shape, bad_type for other arrays; bad_argument for an image without pixels, and for
  ///           VisionConfig::size_of(); limit_exceeded for a side above 32,768 pixels.
  HostBuffer preprocess(const HostBuffer& pixels) const;

  /// Embeddings of an image: f32 [tiles * VisionConfig::embeddings(), model width], or where
  /// VisionConfig::has_axes() f32 [size_of().embeddings(), VisionConfig::row()], row after row. Errors: those of
  /// preprocess(); cancelled, timeout by `interrupt`.
  HostBuffer encode(const HostBuffer& pixels, const Interrupt& interrupt = {}) const;

  /// For one square; where images have any size, for an image of 2 x 2 embeddings.
  const Program& program() const;
  PlanReport plan() const;

 private:
  struct Impl;
  explicit VisionEncoder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  tenon::detail::Held<Impl, "VisionEncoder"> impl_;
};

/// An image that was encoded, to stand in any number of prompts, such as those of the turns of a chat.
struct EncodedImage {
  std::vector<PromptPart> parts;   ///< one for each tile, of rows
  std::vector<std::string> texts;  ///< before each part, and behind the last
};

/// Errc::incompatible unless the model can read what the encoder makes: rows of the same width, whose positions have the same
/// axes.
void check_compatible(const LanguageModel& model, const VisionEncoder& encoder);

/// Errors: those of VisionEncoder::encode() and check_compatible().
EncodedImage encode_image(const LanguageModel& model, const VisionEncoder& encoder,
                          const HostBuffer& pixels, const Interrupt& interrupt = {});

/// Where an image stands in a prompt, as llama.cpp's mtmd has it.
inline constexpr std::string_view image_marker = "<__media__>";

/// A prompt of text with images, one for each marker, in order, to be read by generate(). Around an
/// image is the text that its family has there, as llama.cpp's mtmd writes it:
///
///   mlp       nothing
///   gemma3    <start_of_image> ... <end_of_image>
///   idefics3  <fake_token_around_image><row_1_col_1> ... for each tile, a line for each row of
///             them, an empty line, and <fake_token_around_image><global-img> ...
///             <fake_token_around_image>
///   qwen      <|vision_start|> ... <|vision_end|>
///
/// The text begins with the token that LanguageModel::tokenizer() begins one with. Errors: those of
/// VisionEncoder::encode() and check_compatible(); bad_argument for another number of images than of
/// markers.
std::vector<PromptPart> image_prompt(const LanguageModel& model, const VisionEncoder& encoder,
                                     std::string_view text, std::span<const HostBuffer> images,
                                     const Interrupt& interrupt = {});

/// The same of a conversation that ChatFormat::format() made, with markers in the contents of messages; no special tokens are
/// added to it.
std::vector<PromptPart> image_prompt(const LanguageModel& model, const VisionEncoder& encoder,
                                     const text::Prompt& prompt, std::span<const HostBuffer> images,
                                     const Interrupt& interrupt = {});

/// The same of images that encode_image() has made for this model; bad_argument for another number of them.
std::vector<PromptPart> image_prompt(const LanguageModel& model, const text::Prompt& prompt,
                                     std::span<const EncodedImage> images);

}  // namespace tenon::models
