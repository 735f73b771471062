#include "base/strict_json.hpp"
#include "names.hpp"
#include "parsed_file.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace tenon::io {
namespace {

std::string read_text(const InputFile& file, std::uint64_t limit) {
  if (file.size() > limit) {
    throw Error(Errc::limit_exceeded, file.name(),
                fmt::format("{} bytes, at most {} are allowed for an index", file.size(), limit));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

ShardIndex read_safetensors_index(const std::shared_ptr<const InputFile>& file,
                                  const Limits& limits) {
  const std::string& where = file->name();
  const JsonDocument document = parse_strict_json(read_text(*file, limits.header_bytes), where);
  const nlohmann::json& json = document.root();
  const auto weight_map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || weight_map == json.end()) {
    throw Error(Errc::bad_key, where, "no 'weight_map': not an index of safetensors files");
  }
  if (!weight_map->is_object()) {
    throw Error(Errc::bad_type, where,
                fmt::format("'weight_map' is {}, expected an object", weight_map->type_name()));
  }
  if (weight_map->size() > limits.tensors) {
    throw Error(
        Errc::limit_exceeded, where,
        fmt::format("{} tensors, at most {} are allowed", weight_map->size(), limits.tensors));
  }
  std::map<std::string, std::vector<std::string>> by_shard;
  for (const auto& [tensor, shard] : weight_map->items()) {
    check_name(tensor, "tensor name", limits.name_bytes, where);
    if (!shard.is_string()) {
      throw Error(Errc::bad_type, where,
                  fmt::format("shard of {} is {}, expected a string", quote_name(tensor),
                              shard.type_name()));
    }
    const auto& name = shard.get_ref<const std::string&>();
    check_file_name(name, "shard", where);
    by_shard[name].push_back(tensor);
  }
  if (by_shard.size() > limits.shards) {
    throw Error(Errc::limit_exceeded, where,
                fmt::format("{} shards, at most {} are allowed", by_shard.size(), limits.shards));
  }
  ShardIndex index;
  for (auto& [name, tensors] : by_shard) index.shards.push_back({name, std::move(tensors)});
  return index;
}

}  // namespace tenon::io
