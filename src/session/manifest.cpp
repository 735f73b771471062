#include "session/manifest.hpp"

#include <tenon/object.hpp>
#include <tenon/version.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::sessions {

std::string digest_of(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

Manifest::Manifest(const Snapshot& snapshot)
    : where_(snapshot.path().string()),
      document_(parse_strict_json(snapshot.text("manifest"), where_ + ": manifest")) {
  if (!root().is_object()) throw Error(Errc::corrupt, where_, "the manifest is no object");
  format_ = get<int>("format");
  if (format_ >= oldest_manifest_format && format_ <= manifest_format) return;
  const auto library = root().find("library");
  throw incompatible(fmt::format(
      "'format' is {}, written by Tenon {}; this is Tenon {}, which reads {} to {}", format_,
      library != root().end() && library->is_string() ? library->get<std::string>() : "(unknown)",
      version(), oldest_manifest_format, manifest_format));
}

const Json& Manifest::member(const Json& object, const char* key) const {
  const auto found = object.find(key);  // the end where `object` is none
  if (found == object.end()) refuse(key);
  return *found;
}

const Json::array_t& Manifest::list(const Json& object, const char* key) const {
  const auto* const items = member(object, key).get_ptr<const Json::array_t*>();
  if (items == nullptr || !std::ranges::all_of(*items, &Json::is_object)) refuse(key);
  return *items;
}

void Manifest::refuse(const char* key) const {
  throw Error(Errc::corrupt, where_, fmt::format("manifest: '{}' is missing or odd", key));
}

Shape Manifest::shape(const Json& object) const {
  const auto word = get<std::string>(object, "dtype");
  auto type = find_dtype(word);
  if (!type) type = find_object_type(word);
  if (!type) throw Error(Errc::corrupt, where_, "manifest: an unknown 'dtype'");
  return Shape(std::span<const std::int64_t>(get<std::vector<std::int64_t>>(object, "dims")),
               *type);
}

Error Manifest::incompatible(std::string why) const {
  return Error(Errc::incompatible, where_, std::move(why));
}

}  // namespace tenon::sessions
