#include "conversation_file.hpp"

#include "base/digest.hpp"

#include <tenon/error.hpp>
#include <tenon/io/save.hpp>

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace tenon::models {
namespace {

// The version changes whenever an older library would misread a file.
constexpr const char* version_key = "tenon.conversation";
constexpr const char* version = "1";
constexpr const char* digest_key = "digest";
constexpr const char* tokens_name = "tokens";
constexpr const char* images_name = "images";

constexpr std::size_t samples = 64, sample_bytes = 64;
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

using Facts = std::map<std::string, std::string>;

/// Everything but the contents of the parts of the cache.
Digest digest_of(const Facts& facts, std::span<const std::int32_t> tokens,
                 std::span<const ImagePlace> images) {
  Digest digest;
  for (const auto& [key, value] : facts) {
    if (key == digest_key) continue;
    digest.add(key);
    digest.add(value);
  }
  digest.add({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  if (!images.empty()) {
    digest.add({reinterpret_cast<const char*>(images.data()), images.size_bytes()});
  }
  return digest;
}

}  // namespace

std::string digest_of(const io::File& model) {
  Digest digest;
  std::vector<std::byte> piece;
  for (const auto& shard : model.shards()) {
    std::uint64_t header = shard->size();
    for (const io::TensorEntry& tensor : model.tensors()) {
      if (tensor.file == shard) header = std::min(header, tensor.offset_bytes);
    }
    digest.add(fmt::format("{} {}", header, shard->size()));
    for (std::uint64_t begin = 0; begin < header; begin += piece_bytes) {
      piece.resize(static_cast<std::size_t>(std::min(piece_bytes, header - begin)));
      shard->read(begin, piece);
      digest.add(piece.data(), piece.size());
    }
  }
  // Models of one family may differ in nothing but the values.
  const auto tensors = model.tensors();
  const std::size_t count = std::min(samples, tensors.size());
  for (std::size_t i = 0; i < count; ++i) {
    const io::TensorEntry& tensor = tensors[i * tensors.size() / count];
    piece.resize(std::min<std::size_t>(sample_bytes, tensor.size_bytes));
    tensor.file->read(tensor.offset_bytes + (tensor.size_bytes - piece.size()) / 2, piece);
    digest.add(piece.data(), piece.size());
  }
  return digest.text();
}

void write_conversation(const std::filesystem::path& path, const ConversationOrigin& origin,
                        std::int64_t capacity, std::span<const std::int32_t> tokens,
                        std::span<const ImagePlace> images, std::span<const UsedPart> parts) {
  Facts facts{{version_key, version},
              {"architecture", origin.architecture},
              {"model", origin.model},
              {"adapters", origin.adapters},
              {"cache", origin.cache},
              {"long_context", origin.has_long_context ? "true" : "false"},
              {"capacity", fmt::format("{}", capacity)}};
  Digest digest = digest_of(facts, tokens, images);
  const Shape list({static_cast<std::int64_t>(tokens.size())}, i32);
  std::vector<io::NamedTensor> tensors;
  tensors.reserve(parts.size() + 2);
  tensors.push_back({tokens_name, HostBuffer::of(list, tokens)});
  if (!images.empty()) {
    std::vector<std::int32_t> numbers;
    for (const ImagePlace& image : images) {
      numbers.insert(numbers.end(), {image.first, image.end, image.shift});
    }
    tensors.push_back({images_name, HostBuffer::of(Shape({std::ssize(images), 3}, i32),
                                                   std::span<const std::int32_t>(numbers))});
  }
  for (const UsedPart& part : parts) {
    HostBuffer values = on_host(part);
    const std::uint64_t distance = values.is_contiguous() ? part.run_bytes : part.stride_bytes;
    for (std::uint64_t run = 0; run < part.runs; ++run) {
      digest.add(values.bytes() + run * distance, static_cast<std::size_t>(part.run_bytes));
    }
    tensors.push_back({part.name, std::move(values)});
  }
  facts.emplace(digest_key, digest.text());
  io::save_safetensors(path, tensors, facts);
}

ConversationFile::ConversationFile(const std::filesystem::path& path,
                                   const ConversationOrigin& origin, std::int64_t capacity,
                                   std::int64_t vocabulary, bool may_have_images)
    : path_(path.string()), file_(io::open(path, {.access = io::Access::read})) {
  if (file_.format() != io::Format::safetensors || !file_.metadata().contains(version_key)) {
    refuse(Errc::bad_magic, fmt::format("is no saved conversation: no '{}'", version_key));
  }
  if (const std::string found = text(version_key); found != version) {
    refuse(Errc::unsupported_version,
           fmt::format("a conversation of version {}, known is {}", found, version));
  }
  const auto check = [&](const char* key, const std::string& wanted, const char* whose) {
    if (const std::string found = text(key); found != wanted) {
      refuse(Errc::incompatible,
             fmt::format("{}: '{}' is '{}' there, '{}' of this model", whose, key, found, wanted));
    }
  };
  check("architecture", origin.architecture, "a conversation with another model");
  check("model", origin.model, "a conversation with another model");
  check("adapters", origin.adapters, "a conversation with other adapters");
  check("cache", origin.cache, "a conversation with another type of KV cache");
  check("long_context", origin.has_long_context ? "true" : "false",
        "a conversation whose keys are rotated for another length of the context");

  const io::TensorEntry* const list = file_.find(tokens_name);
  if (list == nullptr) refuse(Errc::bad_reference, "no 'tokens'");
  if (list->shape.dtype() != i32) {
    refuse(Errc::bad_type, "'tokens' is " + to_string(list->shape) + ", not i32");
  }
  if (list->shape.rank() != 1) {
    refuse(Errc::bad_shape, "'tokens' is " + to_string(list->shape) + ", not a list");
  }
  if (list->shape[0] > capacity) {
    refuse(Errc::limit_exceeded, fmt::format("{} tokens do not fit a context of {}: load the model "
                                             "with a larger one",
                                             list->shape[0], capacity));
  }
  tokens_.resize(static_cast<std::size_t>(list->shape[0]));
  list->read(std::as_writable_bytes(std::span(tokens_)));
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::int32_t token = tokens_[i];
    // Embeddings: see Conversation::tokens().
    const bool is_embedding = token == -1 - static_cast<std::int64_t>(i) ||
                              (token < 0 && i > 0 && token == tokens_[i - 1]);
    if (!is_embedding && (token < 0 || token >= vocabulary)) {
      refuse(Errc::corrupt, fmt::format("token {} outside [0, {})", token, vocabulary));
    }
  }
  if (may_have_images && file_.find(images_name) != nullptr) read_images();
}

void ConversationFile::read_images() {
  const io::TensorEntry& list = *file_.find(images_name);
  if (list.shape.dtype() != i32) {
    refuse(Errc::bad_type, "'images' is " + to_string(list.shape) + ", not i32");
  }
  if (list.shape.rank() != 2 || list.shape[0] < 1 || list.shape[1] != 3) {
    refuse(Errc::bad_shape, "'images' is " + to_string(list.shape) + ", not [images, 3]");
  }
  if (list.shape[0] > std::ssize(tokens_)) {
    refuse(Errc::corrupt, fmt::format("{} images of {} tokens", list.shape[0], tokens_.size()));
  }
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(list.shape[0]) * 3);
  list.read(std::as_writable_bytes(std::span(numbers)));
  ImagePlace before;
  for (std::size_t i = 0; i < numbers.size(); i += 3) {
    const ImagePlace image{numbers[i], numbers[i + 1], numbers[i + 2]};
    const bool is_among_tokens =
        image.first >= before.end && image.first < image.end && image.end <= std::ssize(tokens_);
    const auto token_at = [&](std::int32_t at) { return tokens_[static_cast<std::size_t>(at)]; };
    // It takes at least one position, and at most one for each of its rows.
    const std::int64_t lost = std::int64_t{before.shift} - image.shift;
    if (!is_among_tokens || token_at(image.first) != -1 - image.first ||
        token_at(image.end - 1) != -1 - image.first || lost < 0 ||
        lost >= image.end - image.first) {
      refuse(Errc::corrupt, fmt::format("an image at [{}, {}) with shift {}", image.first,
                                        image.end, image.shift));
    }
    images_.push_back(before = image);
  }
}

void ConversationFile::read(std::span<const UsedPart> parts) const {
  const std::size_t wanted = parts.size() + (images_.empty() ? 1 : 2);
  if (file_.tensors().size() != wanted) {
    refuse(Errc::bad_reference,
           fmt::format("{} tensors, wanted are {}", file_.tensors().size(), wanted));
  }
  Facts facts;
  for (const io::Metadata::Entry& one : file_.metadata().entries()) {
    facts.emplace(one.key, file_.metadata().get<std::string>(one.key));
  }
  Digest digest = digest_of(facts, tokens_, images_);
  std::vector<std::byte> bytes;
  for (const UsedPart& part : parts) {
    const io::TensorEntry& found = entry(part.name, part.shape);
    bytes.resize(static_cast<std::size_t>(found.size_bytes));
    found.read(bytes);
    digest.add(bytes.data(), bytes.size());
    fill(part, bytes);
  }
  if (digest.text() != text(digest_key)) {
    refuse(Errc::corrupt, "the bytes are not those that were written: their digest differs");
  }
}

void ConversationFile::refuse(Errc code, const std::string& message) const {
  throw Error(code, path_, message);
}

std::string ConversationFile::text(const char* key) const {
  const auto found = file_.metadata().get_optional<std::string>(key);
  if (!found) refuse(Errc::bad_key, fmt::format("no '{}' among the metadata", key));
  return *found;
}

const io::TensorEntry& ConversationFile::entry(const std::string& name, const Shape& shape) const {
  const io::TensorEntry* const found = file_.find(name);
  if (found == nullptr) refuse(Errc::bad_reference, fmt::format("no '{}'", name));
  if (found->shape.dtype() != shape.dtype()) {
    refuse(Errc::bad_type, fmt::format("'{}' is {}, wanted is {}", name, to_string(found->shape),
                                       to_string(shape)));
  }
  if (found->shape.without_tags() != shape.without_tags()) {
    refuse(Errc::bad_shape, fmt::format("'{}' is {}, wanted is {}", name, to_string(found->shape),
                                        to_string(shape)));
  }
  return *found;
}

}  // namespace tenon::models
