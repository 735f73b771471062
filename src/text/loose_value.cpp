#include "loose_value.hpp"

#include "base/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <utility>

namespace tenon::text {
namespace {

constexpr std::string_view spaces = " \n\r\t";

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

class LooseReader {
 public:
  LooseReader(std::string_view text, std::size_t at, std::string_view quote)
      : text_(text), at_(at), quote_(quote) {}

  std::size_t at() const noexcept { return at_; }

  LooseState value(SchemaValue& out, int depth) {
    if (depth > 100) return LooseState::malformed;
    skip();
    if (is_end()) return LooseState::cut;
    if (is_quote()) return string(out);
    switch (text_[at_]) {
      case '{':
        return object(out, depth);
      case '[':
        return list(out, ']', depth);
      case '(':
        return list(out, ')', depth);
      default:
        return is_quote_cut() ? LooseState::cut : word(out);
    }
  }

 private:
  bool is_end() const noexcept { return at_ >= text_.size(); }
  std::string_view rest() const noexcept { return text_.substr(at_); }
  void skip() { at_ = skip_space(text_, at_); }

  bool is_quote() const noexcept {
    return text_[at_] == '"' || text_[at_] == '\'' ||
           (!quote_.empty() && rest().starts_with(quote_));
  }
  bool is_quote_cut() const noexcept { return !quote_.empty() && quote_.starts_with(rest()); }

  /// Behind an item: whether another one follows (a comma), or the end, which is skipped as well.
  LooseState next(char end, bool& is_last) {
    skip();
    is_last = false;
    if (is_end()) return LooseState::cut;
    if (text_[at_] == ',') {
      ++at_;
      skip();
      if (is_end()) return LooseState::cut;
    } else if (text_[at_] != end) {
      return LooseState::malformed;
    }
    if (text_[at_] != end) return LooseState::whole;
    ++at_;
    is_last = true;
    return LooseState::whole;
  }

  /// Whether a container is empty, whose beginning is skipped.
  bool is_empty(char end) {
    ++at_;
    skip();
    const bool empty = !is_end() && text_[at_] == end;
    if (empty) ++at_;
    return empty;
  }

  LooseState list(SchemaValue& out, char end, int depth) {
    out = {.kind = SchemaValue::Kind::array};
    for (bool is_last = is_empty(end); !is_last;) {
      SchemaValue item;
      if (const LooseState state = value(item, depth + 1); state != LooseState::whole) return state;
      out.items.push_back(std::move(item));
      if (const LooseState state = next(end, is_last); state != LooseState::whole) return state;
    }
    return LooseState::whole;
  }

  LooseState object(SchemaValue& out, int depth) {
    out = {.kind = SchemaValue::Kind::object};
    for (bool is_last = is_empty('}'); !is_last;) {
      SchemaValue key, item;
      if (const LooseState state = name(key); state != LooseState::whole) return state;
      skip();
      if (is_end()) return LooseState::cut;
      if (text_[at_] != ':') return LooseState::malformed;
      ++at_;
      if (const LooseState state = value(item, depth + 1); state != LooseState::whole) return state;
      out.members.emplace_back(std::move(key.text), std::move(item));
      if (const LooseState state = next('}', is_last); state != LooseState::whole) return state;
    }
    drop_repeated(out.members);
    return LooseState::whole;
  }

  LooseState name(SchemaValue& out) {
    if (is_end()) return LooseState::cut;
    if (is_quote()) return string(out);
    if (is_quote_cut()) return LooseState::cut;
    const std::size_t begin = at_;
    while (!is_end() && is_name_character(text_[at_])) ++at_;
    if (is_end()) return LooseState::cut;
    out = {.kind = SchemaValue::Kind::string,
           .text = std::string(text_.substr(begin, at_ - begin))};
    return at_ == begin ? LooseState::malformed : LooseState::whole;
  }

  LooseState string(SchemaValue& out) {
    out = {.kind = SchemaValue::Kind::string};
    if (text_[at_] != '"' && text_[at_] != '\'') {  // as it is, between two of quote_
      at_ += quote_.size();
      const std::size_t end = text_.find(quote_, at_);
      if (end == std::string_view::npos) return LooseState::cut;
      out.text = text_.substr(at_, end - at_);
      at_ = end + quote_.size();
      return LooseState::whole;
    }
    const char end = text_[at_++];
    for (; !is_end(); ++at_) {
      const char c = text_[at_];
      if (c == end) {
        ++at_;
        return LooseState::whole;
      }
      if (c != '\\') {
        out.text += c;
      } else if (const LooseState state = escape(out.text); state != LooseState::whole) {
        return state;
      }
    }
    return LooseState::cut;
  }

  /// From the backslash to the last character of the escape. One that is none stands for itself.
  LooseState escape(std::string& out) {
    if (++at_ >= text_.size()) return LooseState::cut;
    constexpr std::string_view letters = "nrtbf", meant = "\n\r\t\b\f";
    const char c = text_[at_];
    if (c == 'u') return unicode_escape(out);
    if (c == 'x') {
      char32_t code = 0;
      const LooseState state = hexadecimal(2, code);
      if (state == LooseState::whole) append_utf8(out, code);
      return state;
    }
    if (const std::size_t found = letters.find(c); found != std::string_view::npos) {
      out += meant[found];
    } else if (c == '"' || c == '\'' || c == '\\' || c == '/') {
      out += c;
    } else {
      (out += '\\') += c;
    }
    return LooseState::whole;
  }

  /// \uHHHH, or two of them for a character beyond; half a pair becomes U+FFFD.
  LooseState unicode_escape(std::string& out) {
    char32_t code = 0;
    if (const LooseState state = hexadecimal(4, code); state != LooseState::whole) return state;
    const auto is_surrogate = [](char32_t c, char32_t from) {
      return c >= from && c < from + 0x400;
    };
    if (is_surrogate(code, 0xD800)) {
      const std::size_t first_end = at_;
      char32_t second = 0;
      if (text_.substr(at_ + 1).starts_with("\\u")) {
        at_ += 2;
        if (const LooseState state = hexadecimal(4, second); state != LooseState::whole)
          return state;
      } else if (std::string_view("\\u").starts_with(text_.substr(at_ + 1))) {
        return LooseState::cut;
      }
      if (is_surrogate(second, 0xDC00)) {
        code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
      } else {
        at_ = first_end;
        code = 0xFFFD;
      }
    } else if (is_surrogate(code, 0xDC00)) {
      code = 0xFFFD;
    }
    append_utf8(out, code);
    return LooseState::whole;
  }

  /// The digits behind at_, which moves to the last of them.
  LooseState hexadecimal(std::size_t digits, char32_t& code) {
    const std::string_view found = text_.substr(at_ + 1, digits);
    std::uint32_t number = 0;
    const char* const end = found.data() + found.size();
    const auto [stop, error] = std::from_chars(found.data(), end, number, 16);
    if (stop != end || (error != std::errc() && !found.empty())) return LooseState::malformed;
    if (found.size() < digits) return LooseState::cut;
    at_ += digits;
    code = number;
    return LooseState::whole;
  }

  LooseState word(SchemaValue& out) {
    const std::size_t begin = at_;
    while (!is_end() && (is_name_character(text_[at_]) || text_[at_] == '+')) ++at_;
    if (is_end()) return LooseState::cut;  // it may go on
    const std::string_view found = text_.substr(begin, at_ - begin);
    using Kind = SchemaValue::Kind;
    if (found == "true" || found == "True" || found == "false" || found == "False") {
      out = {.kind = Kind::boolean, .flag = found == "true" || found == "True"};
      return LooseState::whole;
    }
    if (found == "null" || found == "None") {
      out = {};
      return LooseState::whole;
    }
    return number(found, out);
  }

  /// As JSON has numbers.
  static LooseState number(std::string_view found, SchemaValue& out) {
    std::size_t at = found.starts_with('-') ? 1 : 0;
    const auto digits = [&] {
      const std::size_t begin = at;
      while (at < found.size() && found[at] >= '0' && found[at] <= '9') ++at;
      return at - begin;
    };
    const std::size_t first = at, whole = digits();
    if (whole == 0 || (whole > 1 && found[first] == '0')) return LooseState::malformed;
    bool is_integer = true;
    if (at < found.size() && found[at] == '.') {
      ++at;
      is_integer = false;
      if (digits() == 0) return LooseState::malformed;
    }
    if (at < found.size() && (found[at] == 'e' || found[at] == 'E')) {
      ++at;
      is_integer = false;
      if (at < found.size() && (found[at] == '+' || found[at] == '-')) ++at;
      if (digits() == 0) return LooseState::malformed;
    }
    if (at != found.size()) return LooseState::malformed;
    out = {.kind = is_integer ? SchemaValue::Kind::integer : SchemaValue::Kind::real,
           .text = std::string(found)};
    const auto [end, error] =
        std::from_chars(found.data(), found.data() + found.size(), out.number);
    // Beyond doubles; what is smaller than any of them counts as 0.
    const bool is_tiny =
        found.find("e-") != std::string_view::npos || found.find("E-") != std::string_view::npos;
    return error == std::errc() || is_tiny ? LooseState::whole : LooseState::malformed;
  }

  std::string_view text_;
  std::size_t at_;
  std::string_view quote_;
};

}  // namespace

LooseState read_loose(std::string_view text, std::size_t& at, SchemaValue& value,
                      std::string_view quote) {
  LooseReader reader(text, at, quote);
  const LooseState state = reader.value(value, 0);
  if (state == LooseState::whole) at = reader.at();
  return state;
}

void drop_repeated(std::vector<SchemaValue::Member>& members) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto name = [&](std::size_t i) -> const std::string& { return members[i].first; };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const int compared = name(a).compare(name(b));
    return compared != 0 ? compared < 0 : a < b;
  });
  std::vector<bool> is_kept(members.size(), true);
  for (std::size_t i = 0, first = 0; i < order.size(); ++i) {
    if (name(order[i]) != name(order[first])) first = i;
    if (i == first) continue;
    members[order[first]].second = std::move(members[order[i]].second);
    is_kept[order[i]] = false;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!is_kept[i]) continue;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.erase(members.begin() + static_cast<std::ptrdiff_t>(kept), members.end());
}

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t begin = skip_space(text, 0);
  return text.substr(begin, text.find_last_not_of(spaces) + 1 - begin);
}

std::size_t skip_space(std::string_view text, std::size_t at) noexcept {
  const std::size_t found = text.find_first_not_of(spaces, at);
  return found == std::string_view::npos ? text.size() : found;
}

}  // namespace tenon::text
