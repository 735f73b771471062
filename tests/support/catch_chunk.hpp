#pragma once

#include <type_traits>

#include <catch2/catch.hpp>

#include <tenon/memory.hpp>

/// Lets CHECK print a MemChunk, which has a begin() and is no range.
template <>
struct Catch::is_range<tenon::MemChunk> : std::false_type {};
