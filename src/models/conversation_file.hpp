// Conversations in files: what Conversation::save() writes and LanguageModel::restore() reads.
#pragma once

#include "used_cache.hpp"

#include <tenon/io/file.hpp>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tenon::models {

/// Identifies the weights of a file by its contents, wherever it lies: a digest of its header, with
/// the metadata and the index of its tensors, and of samples of their bytes. It reads the header and
/// at most 64 pages.
std::string digest_of(const io::File& model);

/// An image whose positions have two axes: the entries of the cache that it takes, and what is added to the number of one
/// behind it for its position.
struct ImagePlace {
  std::int32_t first = 0;
  std::int32_t end = 0;
  std::int32_t shift = 0;
  friend bool operator==(const ImagePlace&, const ImagePlace&) = default;
};

/// What a conversation depends on besides its tokens.
struct ConversationOrigin {
  std::string architecture;
  std::string model;     ///< digest_of() its file
  std::string adapters;  ///< their digest; empty: none
  std::string cache;     ///< the type of keys and values
  bool has_long_context =
      false;  ///< see DecoderConfig: it decides how keys are rotated, of LongRoPE's models alone
};

/// Writes a safetensors file, by way of another one beside it: `tokens` i32 [positions], where there are any `images`
/// i32 [images, 3] (the numbers of ImagePlace), and the parts of the cache. Its metadata has the origin, `capacity` for information, and a digest of all
/// the others and of the tensors. Errors: those of io::save_safetensors.
void write_conversation(const std::filesystem::path& path, const ConversationOrigin& origin,
                        std::int64_t capacity, std::span<const std::int32_t> tokens,
                        std::span<const ImagePlace> images, std::span<const UsedPart> parts);

/// Such a file, opened. Nothing of it is trusted. Errors name the path:
///
///   those of io::open
///   bad_magic            it holds no conversation
///   unsupported_version  a later version's
///   incompatible         another model's, or with another type of cache
///   limit_exceeded       more tokens than `capacity`
///   bad_key, bad_reference, bad_type, bad_shape
///                        metadata or tensors that are missing, too many, or not as they are written
///   corrupt              other bytes than were written; ids outside of the vocabulary; images that
///                        are not where tokens say
class ConversationFile {
 public:
  /// `may_have_images`: whether the model's images have positions of two axes.
  ConversationFile(const std::filesystem::path& path, const ConversationOrigin& origin,
                   std::int64_t capacity, std::int64_t vocabulary, bool may_have_images);

  const std::vector<std::int32_t>& tokens() const noexcept { return tokens_; }
  const std::vector<ImagePlace>& images() const noexcept { return images_; }
  /// Fills the parts of a cache, which are all that the file may have besides tokens and images.
  void read(std::span<const UsedPart> parts) const;

 private:
  [[noreturn]] void refuse(Errc code, const std::string& message) const;
  std::string text(const char* key) const;
  void read_images();
  /// The entry of a tensor, which has this shape.
  const io::TensorEntry& entry(const std::string& name, const Shape& shape) const;

  std::string path_;
  io::File file_;
  std::vector<std::int32_t> tokens_;
  std::vector<ImagePlace> images_;
};

}  // namespace tenon::models
