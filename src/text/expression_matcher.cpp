#include "expression_matcher.hpp"

#include "base/utf8.hpp"

#include <tenon/error.hpp>

namespace tenon::text {
namespace {

constexpr std::uint64_t max_failed_bits = std::uint64_t{256} << 23;  // of 256 MiB

std::uint32_t before(std::string_view text, std::uint32_t end) noexcept {
  return static_cast<std::uint32_t>(character_before(text, end));
}

}  // namespace

ExpressionMatcher::ExpressionMatcher(const Expression& expression, std::string_view text,
                                     Scratch& scratch)
    : expression_(expression),
      text_(text),
      scratch_(scratch),
      patience_(16 * std::uint64_t{text.size()} + 4096) {}

std::size_t ExpressionMatcher::end_from(std::size_t position) {
  auto& pending = scratch_.pending;
  pending.clear();
  const auto& program = expression_.program();
  std::uint32_t at = 0;
  auto place = static_cast<std::uint32_t>(position);
  while (true) {
    const Expression::Instruction& instruction = program[at];
    if (instruction.op == Expression::Op::match) break;
    if (++steps_ > patience_ && !remembers_) start_remembering();
    if (run(instruction, at, place)) continue;
    if (pending.empty()) return position;
    Scratch::Pending& next = pending.back();
    at = next.at;
    place = next.high;
    if (next.low == next.high) {
      pending.pop_back();
    } else {
      next.high = before(text_, next.high);
    }
  }
  if (remembers_) {
    // The choices that led here did not fail.
    for (std::uint32_t choice = 0; choice < expression_.choices(); ++choice) {
      const std::uint64_t state = std::uint64_t{place} * expression_.choices() + choice;
      scratch_.failed[state >> 6] &= ~(std::uint64_t{1} << (state & 63));
    }
  }
  return place;
}

bool ExpressionMatcher::run(const Expression::Instruction& instruction, std::uint32_t& at,
                            std::uint32_t& position) {
  switch (instruction.op) {
    case Expression::Op::set: {
      const CodePoint c = code_point_at(text_, position);
      if (c.length == 0 || !expression_.set(instruction.a).contains(c.value)) return false;
      position += c.length;
      ++at;
      return true;
    }
    case Expression::Op::repeat:
      return repeat(instruction, at, position);
    case Expression::Op::split:
      if (was_tried(instruction.choice, position)) return false;
      scratch_.pending.push_back({instruction.b, position, position});
      at = instruction.a;
      return true;
    case Expression::Op::jump:
      at = instruction.a;
      return true;
    case Expression::Op::look: {
      const CodePoint c = code_point_at(text_, position);
      const bool follows = c.length != 0 && expression_.set(instruction.a).contains(c.value);
      ++at;
      return follows != instruction.is_negated;
    }
    case Expression::Op::line_start:
      ++at;
      return position == 0 || (text_[position - 1] == '\n' && position != text_.size());
    case Expression::Op::line_end:
      ++at;
      return position == text_.size() || text_[position] == '\n';
    case Expression::Op::word_edge: {
      const bool follows =
          position != 0 && is_word(code_point_at(text_, before(text_, position)).value);
      const bool precedes =
          position != text_.size() && is_word(code_point_at(text_, position).value);
      ++at;
      return (follows != precedes) != instruction.is_negated;
    }
    case Expression::Op::match:
      break;
  }
  return true;
}

bool ExpressionMatcher::repeat(const Expression::Instruction& instruction, std::uint32_t& at,
                               std::uint32_t& position) {
  const CharacterSet& set = expression_.set(instruction.a);
  const bool is_bounded = instruction.max != Expression::unlimited;
  if (is_bounded && was_tried(instruction.choice, position)) return false;
  std::uint32_t count = 0;
  std::uint32_t least = position;
  std::uint32_t end = position;
  const std::uint32_t start = position;
  for (; count < instruction.max; ++count) {
    if (count == instruction.min) least = end;
    // From here on the rest is the same, however the repetition came here.
    if (!is_bounded && count >= instruction.min && was_tried(instruction.choice, end)) {
      if (count == instruction.min || instruction.is_possessive) return false;
      end = before(text_, end);
      --count;
      break;
    }
    const CodePoint c = code_point_at(text_, end);
    if (c.length == 0 || !set.contains(c.value)) break;
    end += c.length;
  }
  steps_ += (end - start) / 2;
  if (count < instruction.min) return false;
  if (count == instruction.min) least = end;
  ++at;
  position = end;
  if (end != least && !instruction.is_possessive) {
    scratch_.pending.push_back({at, least, before(text_, end)});
  }
  return true;
}

bool ExpressionMatcher::was_tried(std::uint32_t choice, std::uint32_t position) {
  if (!remembers_) return false;
  const std::uint64_t state = std::uint64_t{position} * expression_.choices() + choice;
  std::uint64_t& word = scratch_.failed[state >> 6];
  const std::uint64_t mask = std::uint64_t{1} << (state & 63);
  const bool was = (word & mask) != 0;
  word |= mask;
  return was;
}

void ExpressionMatcher::start_remembering() {
  const std::uint64_t bits = (std::uint64_t{text_.size()} + 1) * expression_.choices();
  if (bits > max_failed_bits) {
    throw Error(Errc::limit_exceeded, "tokenizer",
                "splitting so long a text by this expression takes too much time");
  }
  scratch_.failed.assign((bits >> 6) + 1, 0);
  remembers_ = true;
}

}  // namespace tenon::text
