#pragma once

// The instances of a tile, a function template, by their width. Included by the files of one
// instruction set: plain arrays only.
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {
namespace {

template <class Function, int widest>
struct TileTable {
  Function at[static_cast<std::size_t>(widest)];

  /// The tile that is `width` wide, from 1 on.
  constexpr Function operator[](std::int64_t width) const { return at[width - 1]; }
};

/// A table of make<1>() to make<widest>().
template <int widest, class Make>
constexpr auto tiles_by_width(Make make) {
  using Function = decltype(make.template operator()<1>());
  return [&]<int... below>(std::integer_sequence<int, below...>) {
    return TileTable<Function, widest> { {make.template operator()<below + 1>()...} };
  }(std::make_integer_sequence<int, widest>{});
}

}  // namespace
}  // namespace tenon::cpu
