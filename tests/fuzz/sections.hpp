// One string of bytes for several: what a fuzzer changes becomes the parts of a file, or files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::testing {

/// At most `most` parts, each behind its length in three bytes, little-endian; a length that goes
/// beyond the end means the rest.
std::vector<std::string_view> split_sections(std::span<const std::uint8_t> bytes, std::size_t most);

/// What split_sections() takes apart.
std::string join_sections(std::span<const std::string> parts);

/// The names of the sections of a session's snapshot that fuzz_session fills, in order.
inline constexpr const char* session_sections[] = {
    "manifest", "program",  "folded/0", "folded/1",   "weight/0",
    "weight/1", "weight/2", "weight/3", "prepared/0", "plan/0/part/0"};

}  // namespace tenon::testing
