#pragma once

#include <tenon/memory.hpp>

#include <type_traits>

#include <catch2/catch.hpp>

/// Lets CHECK print a MemChunk, which has a begin() and is no range.
template <>
struct Catch::is_range<tenon::MemChunk> : std::false_type {};
