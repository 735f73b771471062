#pragma once

#include "intervals.hpp"

#include <array>
#include <cstdint>

#include <utf8proc.h>

/// Sets of general categories: a bit per category of utf8proc.
namespace tenon::text::categories {

constexpr std::uint32_t bit(utf8proc_category_t category) { return 1u << category; }

inline constexpr std::uint32_t letters = bit(UTF8PROC_CATEGORY_LU) | bit(UTF8PROC_CATEGORY_LL) |
                                         bit(UTF8PROC_CATEGORY_LT) | bit(UTF8PROC_CATEGORY_LM) |
                                         bit(UTF8PROC_CATEGORY_LO);
inline constexpr std::uint32_t marks =
    bit(UTF8PROC_CATEGORY_MN) | bit(UTF8PROC_CATEGORY_MC) | bit(UTF8PROC_CATEGORY_ME);
inline constexpr std::uint32_t numbers =
    bit(UTF8PROC_CATEGORY_ND) | bit(UTF8PROC_CATEGORY_NL) | bit(UTF8PROC_CATEGORY_NO);
inline constexpr std::uint32_t punctuation = bit(UTF8PROC_CATEGORY_PC) | bit(UTF8PROC_CATEGORY_PD) |
                                             bit(UTF8PROC_CATEGORY_PS) | bit(UTF8PROC_CATEGORY_PE) |
                                             bit(UTF8PROC_CATEGORY_PI) | bit(UTF8PROC_CATEGORY_PF) |
                                             bit(UTF8PROC_CATEGORY_PO);
inline constexpr std::uint32_t symbols = bit(UTF8PROC_CATEGORY_SM) | bit(UTF8PROC_CATEGORY_SC) |
                                         bit(UTF8PROC_CATEGORY_SK) | bit(UTF8PROC_CATEGORY_SO);
inline constexpr std::uint32_t separators =
    bit(UTF8PROC_CATEGORY_ZS) | bit(UTF8PROC_CATEGORY_ZL) | bit(UTF8PROC_CATEGORY_ZP);
inline constexpr std::uint32_t others = bit(UTF8PROC_CATEGORY_CC) | bit(UTF8PROC_CATEGORY_CF) |
                                        bit(UTF8PROC_CATEGORY_CS) | bit(UTF8PROC_CATEGORY_CO) |
                                        bit(UTF8PROC_CATEGORY_CN);

// \w: what is alphabetic, marks, decimal digits, connecting punctuation.
inline constexpr std::uint32_t word_categories = letters | marks | bit(UTF8PROC_CATEGORY_ND) |
                                                 bit(UTF8PROC_CATEGORY_NL) |
                                                 bit(UTF8PROC_CATEGORY_PC);
// And, for Oniguruma, superscripts and fractions of Latin-1; letters in circles and squares.
inline constexpr std::array word_symbols{
    Interval{0xB2, 0xB3},       Interval{0xB9, 0xB9},       Interval{0xBC, 0xBE},
    Interval{0x24B6, 0x24E9},   Interval{0x1F130, 0x1F149}, Interval{0x1F150, 0x1F169},
    Interval{0x1F170, 0x1F189},
};
// For Rust's expressions, joiners instead of the former.
inline constexpr std::array rust_word_symbols{
    Interval{0x200C, 0x200D},   Interval{0x24B6, 0x24E9},   Interval{0x1F130, 0x1F149},
    Interval{0x1F150, 0x1F169}, Interval{0x1F170, 0x1F189},
};

inline constexpr std::uint32_t cased =
    bit(UTF8PROC_CATEGORY_LU) | bit(UTF8PROC_CATEGORY_LL) | bit(UTF8PROC_CATEGORY_LT);

}  // namespace tenon::text::categories
