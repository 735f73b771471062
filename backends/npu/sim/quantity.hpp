#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::npu::sim {

/// A whole number; what follows it is left in `text`. False when there is none, or too large.
bool take_number(std::string_view& text, std::uint64_t& value) noexcept;

/// "2MiB", "64KiB", "1GiB" or "512B" in bytes. Parsers return false where `text` is no such thing.
bool parse_bytes(std::string_view text, std::uint64_t& bytes) noexcept;
/// "800MHz", "1.2GHz" in Hz.
bool parse_frequency(std::string_view text, std::uint64_t& hertz) noexcept;
/// "12.8GB/s", "800MB/s" in bytes per second; decimal units.
bool parse_bandwidth(std::string_view text, std::uint64_t& bytes_per_second) noexcept;
/// "200us", "1.5ms" in nanoseconds.
bool parse_duration(std::string_view text, std::uint64_t& nanoseconds) noexcept;

/// The inverse, with the largest unit that gives a whole number.
std::string format_bytes(std::uint64_t bytes);
std::string format_frequency(std::uint64_t hertz);
std::string format_bandwidth(std::uint64_t bytes_per_second);
std::string format_duration(std::uint64_t nanoseconds);

}  // namespace tenon::npu::sim
