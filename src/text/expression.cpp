#include "expression.hpp"

#include "base/utf8.hpp"
#include "categories.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <utf8proc.h>

namespace tenon::text {
namespace {

constexpr int max_nesting = 32;
constexpr std::size_t max_instructions = 20000;
constexpr std::uint32_t max_count = 1000;

struct Property {
  std::string_view name;
  std::uint32_t categories;
};

constexpr std::array properties{
    Property{"l", categories::letters},
    Property{"lu", categories::bit(UTF8PROC_CATEGORY_LU)},
    Property{"ll", categories::bit(UTF8PROC_CATEGORY_LL)},
    Property{"lt", categories::bit(UTF8PROC_CATEGORY_LT)},
    Property{"lm", categories::bit(UTF8PROC_CATEGORY_LM)},
    Property{"lo", categories::bit(UTF8PROC_CATEGORY_LO)},
    Property{"m", categories::marks},
    Property{"mn", categories::bit(UTF8PROC_CATEGORY_MN)},
    Property{"mc", categories::bit(UTF8PROC_CATEGORY_MC)},
    Property{"me", categories::bit(UTF8PROC_CATEGORY_ME)},
    Property{"n", categories::numbers},
    Property{"nd", categories::bit(UTF8PROC_CATEGORY_ND)},
    Property{"nl", categories::bit(UTF8PROC_CATEGORY_NL)},
    Property{"no", categories::bit(UTF8PROC_CATEGORY_NO)},
    Property{"p", categories::punctuation},
    Property{"pc", categories::bit(UTF8PROC_CATEGORY_PC)},
    Property{"pd", categories::bit(UTF8PROC_CATEGORY_PD)},
    Property{"ps", categories::bit(UTF8PROC_CATEGORY_PS)},
    Property{"pe", categories::bit(UTF8PROC_CATEGORY_PE)},
    Property{"pi", categories::bit(UTF8PROC_CATEGORY_PI)},
    Property{"pf", categories::bit(UTF8PROC_CATEGORY_PF)},
    Property{"po", categories::bit(UTF8PROC_CATEGORY_PO)},
    Property{"s", categories::symbols},
    Property{"sm", categories::bit(UTF8PROC_CATEGORY_SM)},
    Property{"sc", categories::bit(UTF8PROC_CATEGORY_SC)},
    Property{"sk", categories::bit(UTF8PROC_CATEGORY_SK)},
    Property{"so", categories::bit(UTF8PROC_CATEGORY_SO)},
    Property{"z", categories::separators},
    Property{"zs", categories::bit(UTF8PROC_CATEGORY_ZS)},
    Property{"zl", categories::bit(UTF8PROC_CATEGORY_ZL)},
    Property{"zp", categories::bit(UTF8PROC_CATEGORY_ZP)},
    Property{"c", categories::others},
    Property{"cc", categories::bit(UTF8PROC_CATEGORY_CC)},
    Property{"cf", categories::bit(UTF8PROC_CATEGORY_CF)},
    Property{"cs", categories::bit(UTF8PROC_CATEGORY_CS)},
    Property{"co", categories::bit(UTF8PROC_CATEGORY_CO)},
    Property{"cn", categories::bit(UTF8PROC_CATEGORY_CN)},
};

}  // namespace

/// Reads an expression into a tree, and emits the program of it.
class Expression::Parser {
 public:
  Parser(std::string_view pattern, Expression& out) : pattern_(pattern), out_(out) {}

  void parse() {
    if (pattern_.starts_with("(?i)")) {
      folds_ = true;
      at_ = 4;
    }
    const Node* const root = alternatives(0);
    if (at_ != pattern_.size()) malformed("a parenthesis too many");
    if (root->is_nullable) unsupported("a match of no character");
    emit(*root);
    put({.op = Op::match});
    out_.first_ = root->first;
  }

 private:
  enum class Kind : std::uint8_t { sequence, alternatives, set, repeat, condition };

  struct Node {
    Kind kind = Kind::sequence;
    Instruction instruction;  ///< of a set or a condition; of a repetition, its bounds
    bool is_lazy = false;
    bool is_nullable = false;
    std::array<std::uint64_t, 2> first{};  ///< ASCII characters that may begin it
    std::vector<const Node*> children;
  };

  [[noreturn]] void unsupported(std::string_view what) const {
    throw Error(Errc::unsupported, "tokenizer",
                fmt::format("splitting by the expression {}: {} is not implemented",
                            pattern_.substr(0, 200), what));
  }

  [[noreturn]] void malformed(std::string_view what) const {
    throw Error(Errc::bad_tokenizer, "tokenizer",
                fmt::format("the expression {} has {}", pattern_.substr(0, 200), what));
  }

  bool ends() const { return at_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!sees(text)) return false;
    at_ += text.size();
    return true;
  }

  char32_t character() {
    const CodePoint c = code_point_at(pattern_, at_);
    if (c.length == 0) malformed("no end");
    if (!c.is_valid) malformed("bytes that are no UTF-8");
    at_ += c.length;
    return c.value;
  }

  Node* make(Kind kind) {
    nodes_.push_back(std::make_unique<Node>());
    nodes_.back()->kind = kind;
    if (nodes_.size() > max_instructions) too_long();
    return nodes_.back().get();
  }

  [[noreturn]] void too_long() const {
    throw Error(Errc::limit_exceeded, "tokenizer",
                fmt::format("the expression {} takes more than {} instructions",
                            pattern_.substr(0, 200), max_instructions));
  }

  const Node* alternatives(int depth) {
    if (depth > max_nesting) {
      throw Error(Errc::limit_exceeded, "tokenizer",
                  fmt::format("an expression with more than {} nested groups", max_nesting));
    }
    const Node* const only = sequence(depth);
    if (!sees("|")) return only;
    Node* const node = make(Kind::alternatives);
    node->children.push_back(only);
    while (take("|")) node->children.push_back(sequence(depth));
    for (const Node* const child : node->children) {
      node->is_nullable = node->is_nullable || child->is_nullable;
      add(node->first, child->first);
    }
    return node;
  }

  const Node* sequence(int depth) {
    Node* const node = make(Kind::sequence);
    while (!ends() && !sees("|") && !sees(")")) {
      node->children.push_back(repeated(atom(depth)));
    }
    node->is_nullable = true;
    for (const Node* const child : node->children) {
      if (node->is_nullable) add(node->first, child->first);
      node->is_nullable = node->is_nullable && child->is_nullable;
    }
    if (node->is_nullable) node->first.fill(~std::uint64_t{0});
    return node;
  }

  static void add(std::array<std::uint64_t, 2>& to, const std::array<std::uint64_t, 2>& from) {
    to[0] |= from[0];
    to[1] |= from[1];
  }

  const Node* repeated(const Node* body) {
    std::uint32_t min = 0;
    std::uint32_t max = unlimited;
    bool may_be_possessive = true;
    if (take("?")) {
      max = 1;
    } else if (take("+")) {
      min = 1;
    } else if (!take("*")) {
      if (!counts(min, max)) return body;
      may_be_possessive = false;
    }
    if (body->kind == Kind::condition) unsupported("repetition of a condition");
    Node* const node = make(Kind::repeat);
    node->children.push_back(body);
    node->instruction.min = min;
    node->instruction.max = max;
    node->is_nullable = min == 0 || body->is_nullable;
    node->first = body->first;
    if (sees("?")) {
      if (!may_be_possessive) unsupported("lazy repetition with a count");
      at_ += 1;
      node->is_lazy = true;
    } else if (sees("+")) {
      if (!may_be_possessive || body->kind != Kind::set) unsupported("possessive repetition");
      at_ += 1;
      node->instruction.is_possessive = true;
    }
    std::uint32_t ignored = 0;
    const std::size_t here = at_;
    if (sees("*") || sees("+") || sees("?") || counts(ignored, ignored)) {
      at_ = here;
      unsupported("repetition of a repetition");
    }
    if (body->is_nullable && max == unlimited) unsupported("repetition of what may be empty");
    return node;
  }

  /// {m}, {m,}, {,n} or {m,n}; anything else is text.
  bool counts(std::uint32_t& min, std::uint32_t& max) {
    const std::size_t start = at_;
    if (!take("{")) return false;
    const auto lower = number();
    const bool has_comma = take(",");
    const auto upper = has_comma ? number() : lower;
    if (!take("}") || (!lower && !upper)) {
      at_ = start;
      return false;
    }
    min = lower.value_or(0);
    max = upper.value_or(unlimited);
    if (min > max) malformed("a repetition that counts down");
    if (min > max_count || (max != unlimited && max > max_count)) {
      unsupported(fmt::format("repetition of more than {} times", max_count));
    }
    return true;
  }

  std::optional<std::uint32_t> number() {
    std::optional<std::uint32_t> value;
    while (!ends() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      value = std::min(value.value_or(0) * 10 + static_cast<std::uint32_t>(pattern_[at_] - '0'),
                       std::uint32_t{1} << 20);
      ++at_;
    }
    return value;
  }

  const Node* atom(int depth) {
    if (take("(")) return group(depth);
    if (sees("*") || sees("+") || sees("?")) malformed("a repetition of nothing");
    if (take("^")) return condition(Op::line_start, false);
    if (take("$")) return condition(Op::line_end, false);
    if (take("\\b")) return condition(Op::word_edge, false);
    if (take("\\B")) return condition(Op::word_edge, true);
    return set_node(one_character());
  }

  const Node* group(int depth) {
    const bool folded = folds_;
    const Node* inner = nullptr;
    if (take("?=") || sees("?!")) {
      const bool is_negated = take("?!");
      inner = alternatives(depth + 1);
      while (inner->kind == Kind::sequence && inner->children.size() == 1) {
        inner = inner->children.front();
      }
      if (inner->kind != Kind::set) unsupported("looking ahead over other than one character");
      Node* const node = condition(Op::look, is_negated);
      node->instruction.a = inner->instruction.a;
      inner = node;
    } else {
      if (take("?i:")) {
        folds_ = true;
      } else if (!take("?:") && sees("?")) {
        unsupported(fmt::format("the group ({}", pattern_.substr(at_, 3)));
      }
      inner = alternatives(depth + 1);
    }
    if (!take(")")) malformed("a group without an end");
    folds_ = folded;
    return inner;
  }

  Node* condition(Op op, bool is_negated) {
    Node* const node = make(Kind::condition);
    node->instruction.op = op;
    node->instruction.is_negated = is_negated;
    node->is_nullable = true;
    node->first.fill(~std::uint64_t{0});
    return node;
  }

  const Node* set_node(CharacterSet set) {
    Node* const node = make(Kind::set);
    node->first = set.ascii();
    node->instruction.op = Op::set;
    node->instruction.a = static_cast<std::uint32_t>(out_.sets_.size());
    out_.sets_.push_back(std::move(set));
    return node;
  }

  CharacterSet one_character() {
    if (take("[")) return bracket(0);
    CharacterSet::Part part;
    if (take(".")) {
      part.intervals = {{'\n', '\n'}};
      part.is_negated = true;
    } else if (take("\\W")) {
      part.categories = categories::word_categories;
      part.intervals = {categories::word_symbols.begin(), categories::word_symbols.end()};
      part.is_negated = true;
    } else if (take("\\")) {
      if (const auto c = escape(part)) add_range(part, *c, *c);
    } else {
      const char32_t c = character();
      add_range(part, c, c);
    }
    return {{std::move(part)}, false};
  }

  /// What follows "[".
  CharacterSet bracket(int depth) {
    if (depth > 4) unsupported("sets nested so deep");
    const bool is_negated = take("^");
    std::vector<CharacterSet::Part> parts(1);
    bool is_empty = true;    // the part so far
    bool is_closed = false;  // the part is a set with a complement, which takes no more
    for (bool is_first = true;; is_first = false) {
      if (ends()) malformed("a set without an end");
      if (!is_first && take("]")) break;
      if (take("&&")) {
        parts.emplace_back();
        is_empty = true;
        is_closed = false;
        continue;
      }
      if (is_closed) unsupported("a union with a complement");
      if (sees("[:")) unsupported("a POSIX bracket");
      if (take("[")) {
        const CharacterSet inner = bracket(depth + 1);
        if (inner.parts().size() != 1) unsupported("an intersection inside a set");
        const CharacterSet::Part& part = inner.parts().front();
        if (part.is_negated) {
          if (!is_empty) unsupported("a union with a complement");
          parts.back() = part;
          is_closed = true;
        } else {
          unite(parts.back(), part);
        }
        is_empty = false;
        continue;
      }
      is_empty = false;
      const auto low = set_item(parts.back());
      if (!low) continue;
      char32_t high = *low;
      if (sees("-") && !pattern_.substr(at_ + 1).starts_with("]")) {
        const std::size_t dash = at_++;
        CharacterSet::Part ignored;
        if (sees("[") || sees("&&")) {
          at_ = dash;
        } else if (const auto end = set_item(ignored)) {
          high = *end;
        } else {
          unsupported("a range that ends in a class");
        }
        if (high < *low) malformed("a range that runs backwards");
      }
      add_range(parts.back(), *low, high);
    }
    if (parts.size() == 1) {
      parts.front().is_negated = parts.front().is_negated != is_negated;
      return {std::move(parts), false};
    }
    return {std::move(parts), is_negated};
  }

  static void unite(CharacterSet::Part& to, const CharacterSet::Part& from) {
    to.intervals.insert(to.intervals.end(), from.intervals.begin(), from.intervals.end());
    to.categories |= from.categories;
    to.spaces = to.spaces || from.spaces;
    to.non_spaces = to.non_spaces || from.non_spaces;
    to.han = to.han || from.han;
    to.non_han = to.non_han || from.non_han;
  }

  /// A character of a set, or none after a class, which goes to `part`.
  std::optional<char32_t> set_item(CharacterSet::Part& part) {
    if (take("\\")) return escape(part);
    return character();
  }

  void add_range(CharacterSet::Part& part, char32_t low, char32_t high) {
    part.intervals.push_back({low, high});
    if (!folds_) return;
    if (high >= 0x80) unsupported("ignoring the case of letters outside of ASCII");
    for (char32_t c = low; c <= high; ++c) {
      const bool is_lower = c >= 'a' && c <= 'z';
      if (!is_lower && !(c >= 'A' && c <= 'Z')) continue;
      part.intervals.push_back({c ^ 0x20, c ^ 0x20});
      // The long s and the sign of Kelvin fold to these letters.
      if ((c | 0x20) == 's') part.intervals.push_back({0x17F, 0x17F});
      if ((c | 0x20) == 'k') part.intervals.push_back({0x212A, 0x212A});
    }
  }

  /// What follows "\": a character, or none after a class, which goes to `part`.
  std::optional<char32_t> escape(CharacterSet::Part& part) {
    const char32_t c = character();
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1B;
      case 'x':
        if (take("{")) return hexadecimal(1, 8, true);
        return hexadecimal(1, 2, false);
      case 'u':
        return hexadecimal(4, 4, false);
      case 's':
        part.spaces = true;
        return std::nullopt;
      case 'S':
        part.non_spaces = true;
        return std::nullopt;
      case 'd':
        part.categories |= categories::bit(UTF8PROC_CATEGORY_ND);
        return std::nullopt;
      case 'D':
        part.categories |= ~categories::bit(UTF8PROC_CATEGORY_ND);
        return std::nullopt;
      case 'w':
        part.categories |= categories::word_categories;
        part.intervals.insert(part.intervals.end(), categories::word_symbols.begin(),
                              categories::word_symbols.end());
        return std::nullopt;
      case 'p':
      case 'P':
        property(part, c == 'P');
        return std::nullopt;
      default:
        if (c < 0x80 && std::isalnum(static_cast<int>(c)) != 0) {
          unsupported(fmt::format("\\{}", static_cast<char>(c)));
        }
        return c;
    }
  }

  char32_t hexadecimal(int least, int most, bool is_closed) {
    char32_t value = 0;
    int digits = 0;
    for (; digits < most && !ends(); ++digits) {
      const char c = pattern_[at_];
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<char32_t>(c - '0');
      } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
      } else {
        break;
      }
      ++at_;
    }
    if (digits < least || (is_closed && !take("}")) || value > 0x10FFFF) {
      malformed("a bad hexadecimal number");
    }
    return value;
  }

  void property(CharacterSet::Part& part, bool is_negated) {
    if (!take("{")) unsupported("a property without braces");
    if (take("^")) is_negated = !is_negated;
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) malformed("a property without an end");
    std::string name;
    for (const char c : pattern_.substr(at_, end - at_)) {
      if (c == ' ' || c == '_' || c == '-') continue;
      name.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
    }
    at_ = end + 1;
    if (name == "han") {
      (is_negated ? part.non_han : part.han) = true;
      return;
    }
    const auto* const found = std::ranges::find(properties, name, &Property::name);
    if (found == properties.end()) unsupported(fmt::format("\\p{{{}}}", name.substr(0, 40)));
    const std::uint32_t wanted = is_negated ? ~found->categories : found->categories;
    if (folds_ && (wanted & categories::cased) != 0 &&
        (wanted & categories::cased) != categories::cased) {
      unsupported("ignoring the case of a property");
    }
    part.categories |= wanted;
  }

  // --- the program ---

  std::uint32_t put(Instruction instruction) {
    if (out_.program_.size() >= max_instructions) too_long();
    if (instruction.op == Op::split || instruction.op == Op::repeat) {
      instruction.choice = out_.choices_++;
    }
    out_.program_.push_back(instruction);
    return static_cast<std::uint32_t>(out_.program_.size() - 1);
  }
  std::uint32_t here() const { return static_cast<std::uint32_t>(out_.program_.size()); }

  // Nested as deep as groups are.
  void emit(const Node& node) {
    switch (node.kind) {
      case Kind::sequence:
        for (const Node* const child : node.children) emit(*child);
        break;
      case Kind::alternatives:
        emit_alternatives(node);
        break;
      case Kind::set:
      case Kind::condition:
        put(node.instruction);
        break;
      case Kind::repeat:
        emit_repeat(node);
        break;
    }
  }

  void emit_alternatives(const Node& node) {
    std::vector<std::uint32_t> exits;
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const bool is_last = i + 1 == node.children.size();
      const std::uint32_t split = is_last ? 0 : put({.op = Op::split});
      if (!is_last) out_.program_[split].a = here();
      emit(*node.children[i]);
      if (is_last) break;
      exits.push_back(put({.op = Op::jump}));
      out_.program_[split].b = here();
    }
    for (const std::uint32_t exit : exits) out_.program_[exit].a = here();
  }

  void emit_repeat(const Node& node) {
    const Node& body = *node.children.front();
    const auto& [min, max] = std::pair(node.instruction.min, node.instruction.max);
    if (body.kind == Kind::set && !node.is_lazy) {
      put({.op = Op::repeat,
           .is_possessive = node.instruction.is_possessive,
           .a = body.instruction.a,
           .min = min,
           .max = max});
      return;
    }
    for (std::uint32_t i = 0; i < min; ++i) emit(body);
    const auto branch = [&](std::uint32_t split, std::uint32_t in, std::uint32_t out) {
      out_.program_[split].a = node.is_lazy ? out : in;
      out_.program_[split].b = node.is_lazy ? in : out;
    };
    if (max == unlimited) {
      const std::uint32_t split = put({.op = Op::split});
      emit(body);
      put({.op = Op::jump, .a = split});
      branch(split, split + 1, here());
      return;
    }
    std::vector<std::uint32_t> splits;
    for (std::uint32_t i = min; i < max; ++i) {
      splits.push_back(put({.op = Op::split}));
      emit(body);
    }
    for (const std::uint32_t split : splits) branch(split, split + 1, here());
  }

  std::string_view pattern_;
  Expression& out_;
  std::size_t at_ = 0;
  bool folds_ = false;
  std::vector<std::unique_ptr<Node>> nodes_;
};

Expression::Expression(std::string_view pattern) { Parser(pattern, *this).parse(); }

}  // namespace tenon::text
