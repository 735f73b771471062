#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Properties of a character; bits.
enum Trait : std::uint8_t {
  trait_letter = 1,       ///< \p{L}
  trait_number = 2,       ///< \p{N}
  trait_space = 4,        ///< White_Space
  trait_punctuation = 8,  ///< \p{P}
  trait_symbol = 16,      ///< \p{S}
  trait_mark = 32,        ///< \p{M}
  trait_nonspacing = 64,  ///< \p{Mn}
  trait_other = 128,      ///< \p{C} but for unassigned: control, format, surrogate, private use
};

namespace detail {
/// Traits of the Basic Multilingual Plane; null until they have been computed. (No static local:
/// its lock would stay locked in the child of a fork() in the middle.)
inline constinit std::atomic<const std::uint8_t*> basic_plane{nullptr};
const std::uint8_t* make_basic_plane();
std::uint8_t compute_traits(char32_t value) noexcept;
}  // namespace detail

inline std::uint8_t traits(char32_t value) noexcept {
  if (value >= 0x10000) return detail::compute_traits(value);
  const std::uint8_t* plane = detail::basic_plane.load(std::memory_order_acquire);
  if (plane == nullptr) plane = detail::make_basic_plane();
  return plane[value];
}

inline bool has(char32_t value, unsigned wanted) noexcept { return (traits(value) & wanted) != 0; }

/// What Hugging Face's rules split at as punctuation: all of !-/ :-@ [-` {-~, and what was \p{P} in
/// Unicode 8.
bool is_punctuation(char32_t value) noexcept;

/// Appends the full lower-case mapping of one character, context aside.
void append_lowercase(std::vector<char32_t>& out, char32_t value);

/// Canonical decomposition (NFD), in place. Time O(n log n) for any input.
///
/// With `compatibility`, compatibility decomposition (NFKD).
void decompose(std::vector<char32_t>& characters, bool compatibility = false);

/// Canonical composition (NFC) of a text; ill-formed bytes stay and nothing composes across them.
std::string compose(std::string_view text);

/// NFD, NFKD or NFKC of a text, by the tables of Unicode 9; ill-formed bytes as with compose().
struct NormalForm {
  bool compatibility = false;
  bool composes = false;
};
std::string normal_form(std::string_view text, NormalForm form);

}  // namespace tenon::text
