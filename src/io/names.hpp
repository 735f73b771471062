#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::io {

/// A name as a message shows it: quoted, on one line, long ones abbreviated, else as printable()
/// has it.
std::string quote_name(std::string_view name);

/// Throws bad_key for an empty name, limit_exceeded beyond `limit` bytes, and bad_encoding for one
/// that holds a NUL or is not UTF-8. `kind` says what is named: "key", "tensor name".
void check_name(std::string_view name, std::string_view kind, std::uint64_t limit,
                std::string_view where);

/// Throws path_escape unless `name` is the relative path of a file in the folder of the file that
/// names it, or below: no part "." or "..", no backslash, no NUL. Only the text is checked:
/// Folder::open() checks links. `kind` says what is named: "shard".
void check_file_name(std::string_view name, std::string_view kind, const std::string& where);

/// Indices of names, ordered by name. Sorting takes O(n log n) even for names that were chosen to
/// collide in a hash table.
std::vector<std::uint32_t> sorted_positions(std::span<const std::string_view> names);

/// Two positions with equal names, the lower one first, if there are any.
std::optional<std::pair<std::uint32_t, std::uint32_t>> find_duplicate(
    std::span<const std::string_view> names, std::span<const std::uint32_t> sorted);

}  // namespace tenon::io
