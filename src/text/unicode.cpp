#include "unicode.hpp"

#include "base/utf8.hpp"
#include "unicode_ages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <utf8proc.h>

namespace tenon::text {
namespace {

bool is_white_space(char32_t c) noexcept {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

utf8proc_propval_t combining_class(char32_t value) noexcept {
  if (lies_in(newer_combining, value)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(value))->combining_class;
}

/// Sorts marks by combining class and leaves those of one class as they stand.
void order_marks(std::vector<char32_t>::iterator begin, std::vector<char32_t>::iterator end) {
  // Class, place and character in one number: texts have less than 2^32 characters.
  std::vector<std::uint64_t> keys;
  keys.reserve(static_cast<std::size_t>(end - begin));
  for (auto mark = begin; mark != end; ++mark) {
    const auto place = static_cast<std::uint64_t>(mark - begin);
    keys.push_back((static_cast<std::uint64_t>(combining_class(*mark)) << 53) | (place << 21) |
                   *mark);
  }
  std::ranges::sort(keys);
  std::ranges::transform(keys, begin,
                         [](std::uint64_t key) { return static_cast<char32_t>(key & 0x1FFFFF); });
}

}  // namespace

namespace detail {

std::uint8_t compute_traits(char32_t value) noexcept {
  const std::uint8_t space = is_white_space(value) ? trait_space : 0;
  const auto with = [space](unsigned trait) { return static_cast<std::uint8_t>(space | trait); };
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return with(trait_letter);
    case UTF8PROC_CATEGORY_MN:
      return with(trait_mark | trait_nonspacing);
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return with(trait_mark);
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return with(trait_number);
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return with(trait_punctuation);
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return with(trait_symbol);
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return space;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return with(trait_other);
    default:
      return space;
  }
}

// Never destroyed: tokenizers may outlive static destruction.
const std::uint8_t* make_basic_plane() {
  auto values = std::make_unique<std::uint8_t[]>(0x10000);
  for (char32_t c = 0; c < 0x10000; ++c) values[c] = compute_traits(c);
  const std::uint8_t* first = nullptr;
  if (!basic_plane.compare_exchange_strong(first, values.get(), std::memory_order_acq_rel)) {
    return first;  // another thread's
  }
  return values.release();
}

}  // namespace detail

bool is_punctuation(char32_t value) noexcept {
  if (value < 0x80) {
    return (value >= '!' && value <= '/') || (value >= ':' && value <= '@') ||
           (value >= '[' && value <= '`') || (value >= '{' && value <= '~');
  }
  // U+166D and U+111C9 changed their categories since.
  return value == 0x166D || value == 0x111C9 ||
         (has(value, trait_punctuation) && !lies_in(newer_punctuation, value));
}

void append_lowercase(std::vector<char32_t>& out, char32_t value) {
  if (value < 0x80) {
    out.push_back(value >= 'A' && value <= 'Z' ? value + 32 : value);
  } else if (value == 0x130) {
    // SpecialCasing.txt: the one character whose unconditional lower case is two characters.
    out.insert(out.end(), {U'i', char32_t{0x307}});
  } else {
    out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value))));
  }
}

void decompose(std::vector<char32_t>& characters, bool compatibility) {
  const char32_t plain = compatibility ? 0xA0 : 0xC0;
  if (std::all_of(characters.begin(), characters.end(), [&](char32_t c) { return c < plain; })) {
    return;
  }
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<char32_t> out;
  out.reserve(characters.size() + characters.size() / 4);
  std::array<utf8proc_int32_t, 32> parts{};
  for (const char32_t c : characters) {
    if (lies_in(newer_decomposing, c)) {
      out.push_back(c);
      continue;
    }
    int boundary = UTF8PROC_BOUNDCLASS_START;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    if (count < 1 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
      out.push_back(c);
      continue;
    }
    for (const auto part : std::span(parts).first(static_cast<std::size_t>(count))) {
      out.push_back(static_cast<char32_t>(part));
    }
  }
  // Canonical order: a stable sort of each run of marks. utf8proc's own is an exchange sort, which
  // a text of nothing but marks would drive to quadratic time.
  for (auto run = out.begin(); run != out.end();) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end =
        std::find_if(run, out.end(), [](char32_t c) { return combining_class(c) == 0; });
    order_marks(run, end);
    run = end;
  }
  characters = std::move(out);
}

std::string compose(std::string_view text) {
  // No character below U+0300 combines with adjacent ones or is changed by NFC.
  const auto composes = [&](std::size_t i) { return code_point_at(text, i).value >= 0x300; };
  std::size_t plain = 0;
  while (plain < text.size() && !composes(plain)) plain += code_point_at(text, plain).length;
  if (plain == text.size()) return std::string(text);
  return normal_form(text, {.compatibility = false, .composes = true});
}

std::string normal_form(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<char32_t> run;
  const auto flush = [&] {
    decompose(run, form.compatibility);
    if (!form.composes) {
      for (const char32_t c : run) append_utf8(out, c);
      run.clear();
      return;
    }
    static_assert(sizeof(char32_t) == sizeof(utf8proc_int32_t));
    std::vector<utf8proc_int32_t> points(run.begin(), run.end());
    const auto count = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      append_utf8(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
    }
    run.clear();
  };
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (c.is_valid) {
      run.push_back(c.value);
    } else {
      flush();
      out.append(text.substr(i, c.length));
    }
    i += c.length;
  }
  flush();
  return out;
}

}  // namespace tenon::text
