#include "grammar_program.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

using Op = GrammarProgram::Op;
using Instruction = GrammarProgram::Instruction;

constexpr std::size_t most_instructions = 1'000'000;

void add(ByteSet& set, unsigned first, unsigned last) {
  for (unsigned byte = first; byte <= last; ++byte)
    set[byte >> 6] |= std::uint64_t{1} << (byte & 63);
}

struct ByteRange {
  unsigned char first, last;
};
using ByteRanges = std::vector<ByteRange>;  // one for each byte of a character

/// The characters of an interval as sequences of ranges of bytes: it is cut where the number of bytes
/// changes, and where the last bytes do not have all values.
void append_ranges(Interval characters, std::vector<ByteRanges>& sequences) {
  for (const char32_t last_of_length : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (characters.first <= last_of_length && characters.last > last_of_length) {
      append_ranges({characters.first, last_of_length}, sequences);
      append_ranges({last_of_length + 1, characters.last}, sequences);
      return;
    }
  }
  const int more = characters.last <= 0x7F     ? 0
                   : characters.last <= 0x7FF  ? 1
                   : characters.last <= 0xFFFF ? 2
                                               : 3;
  for (int i = 1; i <= more; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;  // the bits of the last i bytes
    if ((characters.first & ~low) == (characters.last & ~low)) continue;
    if ((characters.first & low) != 0) {
      append_ranges({characters.first, characters.first | low}, sequences);
      append_ranges({(characters.first | low) + 1, characters.last}, sequences);
      return;
    }
    if ((characters.last & low) != low) {
      append_ranges({characters.first, (characters.last & ~low) - 1}, sequences);
      append_ranges({characters.last & ~low, characters.last}, sequences);
      return;
    }
  }
  constexpr char32_t leads[] = {0, 0xC0, 0xE0, 0xF0};
  ByteRanges sequence;
  for (int i = more; i >= 0; --i) {
    const char32_t mark = i == more ? leads[more] : 0x80;
    const char32_t mask = i == more ? ~char32_t{0} : 0x3F;
    const auto byte_of = [&](char32_t c) {
      return static_cast<unsigned char>(mark | ((c >> (6 * i)) & mask));
    };
    sequence.push_back({byte_of(characters.first), byte_of(characters.last)});
  }
  sequences.push_back(std::move(sequence));
}

class Compiler {
 public:
  explicit Compiler(const GrammarSyntax& syntax) : syntax_(syntax) {}

  GrammarProgram compile() {
    std::vector<std::uint32_t> starts;
    for (const GrammarRule& rule : syntax_.rules) {
      rule_ = &rule;
      starts.push_back(begin_called());
      emit_part(rule.body);
      emit(Op::end);
    }
    for (const auto& [at, rule] : calls_of_rules_) program_.code[at].a = starts[rule];
    program_.start = starts[syntax_.root];
    refuse_cycles();
    shorten();
    return std::move(program_);
  }

 private:
  std::uint32_t here() const { return static_cast<std::uint32_t>(program_.code.size()); }

  std::uint32_t emit(Op op, std::uint32_t a = 0, std::uint32_t b = 0) {
    if (program_.code.size() == most_instructions) {
      throw Error(Errc::limit_exceeded, "grammar",
                  fmt::format("\"{}\": a program of more than {} instructions", rule_->name,
                              most_instructions));
    }
    program_.code.push_back({op, a, b});
    return here() - 1;
  }

  /// What is called begins here.
  std::uint32_t begin_called() {
    called_.emplace_back(here(), rule_);
    return here();
  }

  /// Instructions that are called and not run into. Returns where they begin.
  template <class Emit>
  std::uint32_t emit_called(const Emit& emit_it) {
    const std::uint32_t jump = emit(Op::jump);
    const std::uint32_t start = begin_called();
    emit_it();
    emit(Op::end);
    program_.code[jump].a = here();
    return start;
  }

  void emit_bytes(unsigned first, unsigned last) {
    ByteSet set{};
    add(set, first, last);
    emit_bytes(set);
  }
  void emit_bytes(const ByteSet& set) {
    const auto [found, is_new] =
        sets_.try_emplace(set, static_cast<std::uint32_t>(program_.sets.size()));
    if (is_new) program_.sets.push_back(set);
    emit(Op::bytes, found->second);
  }

  void emit_part(const GrammarPart& part) {
    using Kind = GrammarPart::Kind;
    switch (part.kind) {
      case Kind::text:
        for (const char c : part.text) {
          emit_bytes(static_cast<unsigned char>(c), static_cast<unsigned char>(c));
        }
        return;
      case Kind::characters:
        return emit_characters(part.characters);
      case Kind::rule:
        calls_of_rules_.emplace_back(emit(Op::call), part.rule);
        return;
      case Kind::sequence:
        for (const GrammarPart& next : part.parts) emit_part(next);
        return;
      case Kind::choice:
        return emit_choice(part.parts.size(), [&](std::size_t i) { emit_part(part.parts[i]); });
      case Kind::repeat:
        return emit_repeat(part);
    }
  }

  template <class Emit>
  void emit_choice(std::size_t count, const Emit& emit_it) {
    std::vector<std::uint32_t> jumps;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      const std::uint32_t split = emit(Op::split, here() + 1);
      emit_it(i);
      jumps.push_back(emit(Op::jump));
      program_.code[split].b = here();
    }
    emit_it(count - 1);
    for (const std::uint32_t jump : jumps) program_.code[jump].a = here();
  }

  /// Reads one byte, or calls what reads one to four.
  void emit_characters(const std::vector<Interval>& characters) {
    ByteSet ascii{};
    std::vector<ByteRanges> longer;
    std::string key;
    for (const Interval& one : characters) {
      if (one.first <= 0x7F) add(ascii, one.first, std::min<char32_t>(one.last, 0x7F));
      if (one.last > 0x7F) append_ranges({std::max<char32_t>(one.first, 0x80), one.last}, longer);
      key.append(reinterpret_cast<const char*>(&one), sizeof(one));
    }
    if (longer.empty()) return emit_bytes(ascii);
    const auto [found, is_new] = characters_.try_emplace(std::move(key), 0);
    if (is_new) {
      const std::size_t has_ascii = ascii == ByteSet{} ? 0 : 1;
      found->second = emit_called([&] {
        emit_choice(longer.size() + has_ascii, [&](std::size_t i) {
          if (i < has_ascii) return emit_bytes(ascii);
          for (const ByteRange& range : longer[i - has_ascii]) emit_bytes(range.first, range.last);
        });
      });
    }
    emit(Op::call, found->second);
  }

  void emit_repeat(const GrammarPart& repeat) {
    using Kind = GrammarPart::Kind;
    const GrammarPart& part = repeat.parts.front();
    const bool is_endless = repeat.most == GrammarPart::unlimited;
    // A long part that is there more than once is called: repetitions of repetitions do not multiply.
    const bool is_once = is_endless ? repeat.least == 0 : repeat.most <= 1;
    const bool is_short = part.kind == Kind::rule || part.kind == Kind::characters ||
                          (part.kind == Kind::text && part.text.size() <= 1);
    std::optional<std::uint32_t> called;
    if (!is_once && !is_short) called = emit_called([&] { emit_part(part); });
    const auto emit_it = [&] {
      if (called) {
        emit(Op::call, *called);
      } else {
        emit_part(part);
      }
    };
    for (std::uint32_t i = 0; i < repeat.least; ++i) emit_it();
    std::vector<std::uint32_t> splits;
    for (std::uint32_t i = repeat.least; i < (is_endless ? repeat.least + 1 : repeat.most); ++i) {
      splits.push_back(emit(Op::split, here() + 1));
      emit_it();
    }
    if (is_endless) emit(Op::jump, splits.front());
    for (const std::uint32_t split : splits) program_.code[split].b = here();
  }

  /// For each instruction, whether what calls it may end without reading a byte from there on.
  std::vector<bool> reach_end() const {
    const std::vector<Instruction>& code = program_.code;
    std::vector<std::vector<std::uint32_t>> before(code.size());  // that go on at an instruction
    for (std::uint32_t at = 0; at < code.size(); ++at) {
      const auto& [op, a, b] = code[at];
      if (op == Op::split || op == Op::jump || op == Op::call) before[a].push_back(at);
      if (op == Op::split) before[b].push_back(at);
      if (op == Op::call) before[at + 1].push_back(at);
    }
    std::vector<bool> reach(code.size());
    std::vector<std::uint32_t> found;
    const auto mark = [&](std::uint32_t at) {
      if (reach[at]) return;
      reach[at] = true;
      found.push_back(at);
    };
    for (std::uint32_t at = 0; at < code.size(); ++at) {
      if (code[at].op == Op::end) mark(at);
    }
    while (!found.empty()) {
      const std::uint32_t at = found.back();
      found.pop_back();
      for (const std::uint32_t earlier : before[at]) {
        const bool is_call = code[earlier].op == Op::call;
        if (!is_call || (reach[code[earlier].a] && reach[earlier + 1])) mark(earlier);
      }
    }
    return reach;
  }

  /// Whether something that is called calls itself before a byte is read, which would never end.
  void refuse_cycles() const {
    const std::vector<bool> ends = reach_end();
    std::map<std::uint32_t, std::size_t> numbers;
    for (std::size_t i = 0; i < called_.size(); ++i) numbers[called_[i].first] = i;
    std::vector<std::vector<std::size_t>> callees(called_.size());
    std::vector<std::size_t> seen(program_.code.size(),
                                  called_.size());  // the last one that came by
    for (std::size_t i = 0; i < called_.size(); ++i) {
      std::vector<std::uint32_t> places{called_[i].first};
      while (!places.empty()) {
        const std::uint32_t at = places.back();
        places.pop_back();
        if (std::exchange(seen[at], i) == i) continue;
        const auto& [op, a, b] = program_.code[at];
        if (op == Op::split || op == Op::jump) places.push_back(a);
        if (op == Op::split) places.push_back(b);
        if (op != Op::call) continue;
        callees[i].push_back(numbers.at(a));
        if (ends[a]) places.push_back(at + 1);
      }
    }
    enum class Visit : std::uint8_t { none, open, done };
    std::vector<Visit> visits(called_.size(), Visit::none);
    std::vector<std::size_t> open;
    for (std::size_t first = 0; first < called_.size(); ++first) {
      open.push_back(first);
      while (!open.empty()) {
        const std::size_t i = open.back();
        if (visits[i] == Visit::none) visits[i] = Visit::open;
        if (callees[i].empty() || visits[i] == Visit::done) {
          visits[i] = Visit::done;
          open.pop_back();
          continue;
        }
        const std::size_t next = callees[i].back();
        callees[i].pop_back();
        if (visits[next] == Visit::none) open.push_back(next);
        if (visits[next] != Visit::open) continue;
        throw Error(Errc::cycle, "grammar",
                    fmt::format("\"{}\" begins with itself", called_[next].second->name));
      }
    }
  }

  /// Jumps over jumps; and what is called last need not come back, so that a list that is written as a
  /// rule which ends with itself needs no more memory than a loop.
  void shorten() {
    std::vector<Instruction>& code = program_.code;
    const auto target = [&](std::uint32_t at) {
      std::uint32_t last = at;
      while (code[last].op == Op::jump) last = code[last].a;
      while (at != last) at = std::exchange(code[at].a, last);
      return last;
    };
    for (std::uint32_t at = 0; at < code.size(); ++at) {
      if (code[at].op == Op::call && code[target(at + 1)].op == Op::end) code[at].op = Op::jump;
    }
    for (Instruction& instruction : code) {
      if (instruction.op == Op::bytes || instruction.op == Op::end) continue;
      instruction.a = target(instruction.a);
      if (instruction.op == Op::split) instruction.b = target(instruction.b);
    }
    program_.start = target(program_.start);
  }

  const GrammarSyntax& syntax_;
  GrammarProgram program_;
  const GrammarRule* rule_ = nullptr;  // that is being compiled
  std::vector<std::pair<std::uint32_t, const GrammarRule*>>
      called_;  // where it begins, and of which rule it is
  std::vector<std::pair<std::uint32_t, std::size_t>> calls_of_rules_;
  std::map<ByteSet, std::uint32_t> sets_;
  std::map<std::string, std::uint32_t> characters_;  // what reads one of them
};

}  // namespace

GrammarProgram compile_grammar(const GrammarSyntax& syntax) { return Compiler(syntax).compile(); }

}  // namespace tenon::text
