#include "merge_table.hpp"

#include <tenon/error.hpp>

#include <limits>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tenon::text {

MergeTable::MergeTable(std::span<const Merge> merges, const Recipe& recipe, const TokenIndex& index)
    : slots_(merges.size()) {
  if (merges.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(Errc::bad_tokenizer, "tokenizer", "more merges than ranks can number");
  }

  const auto find_token = [&](std::string_view text, std::size_t rank) {
    const std::int32_t id = index.find(text);
    if (id < 0) {
      throw Error(
          Errc::bad_tokenizer, "tokenizer",
          fmt::format("merge {} needs \"{}\", which is no token", rank, text.substr(0, 80)));
    }
    return id;
  };
  std::string whole;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::string_view prefix = recipe.continuing_prefix;
    whole.assign(left).append(right.starts_with(prefix) ? right.substr(prefix.size()) : right);
    const std::int32_t result = find_token(whole, rank);
    const std::uint64_t key = pack(find_token(left, rank), find_token(right, rank));
    if (!recipe.is_ordinary(result)) continue;
    std::size_t at = mix(key);
    while (slots_[at].id >= 0 && slots_[at].key != key) ++at;
    if (slots_[at].id < 0) slots_.set(at, {key, static_cast<std::uint32_t>(rank), result});
  }
}

}  // namespace tenon::text
