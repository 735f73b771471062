#pragma once

#include "intervals.hpp"

#include <array>

/// Where Hugging Face's tokenizers go by older Unicode tables than utf8proc does.
///
/// Their normalisation is Unicode 9's and BERT's character categories are Unicode 8's, so that
/// newer marks are neither reordered nor stripped and newer punctuation does not split. Found by
/// asking `tokenizers` 0.23.3 about every code point; an interval runs on while no older character
/// of the same kind lies inside.
namespace tenon::text {

/// Combining characters that Unicode 9 knew as starters.
inline constexpr std::array newer_combining{
    Interval{0x7FD, 0x7FD},     Interval{0x898, 0x8D3},     Interval{0x9FE, 0x9FE},
    Interval{0xC3C, 0xC3C},     Interval{0xD3B, 0xD3C},     Interval{0xEBA, 0xEBA},
    Interval{0xECE, 0xECE},     Interval{0x1715, 0x1715},   Interval{0x1ABF, 0x1ACE},
    Interval{0x1DF6, 0x1DFA},   Interval{0xA82C, 0xA82C},   Interval{0x10D24, 0x10F85},
    Interval{0x11070, 0x11070}, Interval{0x1133B, 0x1133B}, Interval{0x1145E, 0x1145E},
    Interval{0x11839, 0x11A99}, Interval{0x11D42, 0x11F42}, Interval{0x16FF0, 0x16FF1},
    Interval{0x1E08F, 0x1E4EF},
};

/// Nonspacing marks that Unicode 8 did not know as such.
inline constexpr std::array newer_nonspacing{
    Interval{0x7FD, 0x7FD},     Interval{0x898, 0x8E1},     Interval{0x9FE, 0x9FE},
    Interval{0xAFA, 0xAFF},     Interval{0xB55, 0xB55},     Interval{0xC04, 0xC3C},
    Interval{0xD00, 0xD00},     Interval{0xD3B, 0xD3C},     Interval{0xD81, 0xD81},
    Interval{0xEBA, 0xEBA},     Interval{0xECE, 0xECE},     Interval{0x180F, 0x1886},
    Interval{0x1ABF, 0x1ACE},   Interval{0x1DF6, 0x1DFB},   Interval{0xA82C, 0xA82C},
    Interval{0xA8C5, 0xA8C5},   Interval{0xA8FF, 0xA8FF},   Interval{0xA9BD, 0xA9BD},
    Interval{0x10D24, 0x10F85}, Interval{0x11070, 0x11074}, Interval{0x110C2, 0x110C2},
    Interval{0x111C9, 0x111C9}, Interval{0x111CF, 0x111CF}, Interval{0x1123E, 0x11241},
    Interval{0x1133B, 0x1133B}, Interval{0x11438, 0x1145E}, Interval{0x1182F, 0x11F42},
    Interval{0x13440, 0x13455}, Interval{0x16F4F, 0x16F4F}, Interval{0x16FE4, 0x16FE4},
    Interval{0x1CF00, 0x1CF46}, Interval{0x1E000, 0x1E4EF}, Interval{0x1E944, 0x1E94A},
};

/// Punctuation that Unicode 8 did not know as such.
inline constexpr std::array newer_punctuation{
    Interval{0x61D, 0x61D},     Interval{0x9FD, 0xA76},     Interval{0xC77, 0xC84},
    Interval{0x1B7D, 0x1B7E},   Interval{0x2E43, 0x2E5D},   Interval{0x10EAD, 0x10F89},
    Interval{0x1144B, 0x1145D}, Interval{0x11660, 0x116B9}, Interval{0x1183B, 0x11FFF},
    Interval{0x12FF1, 0x12FF2}, Interval{0x16E97, 0x16FE2}, Interval{0x1E95E, 0x1E95F},
};

/// Format characters that Unicode 8 did not know as such.
inline constexpr std::array newer_format{
    Interval{0x890, 0x891},
    Interval{0x8E2, 0x8E2},
    Interval{0x110CD, 0x110CD},
    Interval{0x13430, 0x1343F},
};

}  // namespace tenon::text
