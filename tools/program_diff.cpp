#include "program_diff.hpp"

#include "program/literals.hpp"
#include "sequence_match.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::tool {
namespace {

/// Numbers for things that are equal.
template <class Key>
class Numbers {
 public:
  int of(const Key& key) {
    return numbers_.try_emplace(key, static_cast<int>(numbers_.size())).first->second;
  }

 private:
  std::map<Key, int> numbers_;
};

/// A parameter, an instruction or the return.
struct Row {
  int does = 0;        // a number for its op, attributes and type
  std::string result;  // empty: none
  std::vector<std::string> operands;
  std::string text;
};

/// The statements of a function as print() writes them, the return last.
std::vector<std::string> statements(Function function) {
  Program alone;
  alone.functions.push_back(std::move(function));
  const std::string text = print(alone);
  std::vector<std::string> lines;
  std::size_t at = text.find("\ndef ") + 1;
  at = text.find('\n', at) + 1;
  constexpr std::size_t indent = 4;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at + indent, end - at - indent));
    at = end + 1;
  }
  return lines;
}

std::string parameter_type(const Value& value) {
  if (value.kind == ValueKind::scope) return "scope";
  if (!value.shape) return "tensor";
  return value.shape->rank() == 0 ? std::string(name(value.shape->dtype()))
                                  : to_string(value.shape->without_tags());
}

class Comparison {
 public:
  std::vector<std::string> run(const Program& a, const Program& b);

 private:
  void module(std::string_view key, const std::string& before, const std::string& after);
  void functions(const Function& a, const Function& b);
  std::vector<Row> rows(const Function& function);
  std::vector<int> computed(const std::vector<Row>& rows);
  void remove(const Row& row) { lines_.push_back("-     " + row.text); }
  void add(const Row& row) { lines_.push_back("+     " + row.text); }

  std::vector<std::string> lines_;
  Numbers<std::string> kinds_;
  Numbers<std::pair<int, std::vector<int>>> values_;
};

std::vector<std::string> Comparison::run(const Program& a, const Program& b) {
  module("name", string_literal(a.name), string_literal(b.name));
  module("opset", std::to_string(a.opset), std::to_string(b.opset));
  module("weights", string_literal(a.weights_file), string_literal(b.weights_file));
  module("sha256", string_literal(a.weights_sha256), string_literal(b.weights_sha256));
  module("entry", string_literal(a.entry), string_literal(b.entry));
  const auto alone = [&](char sign, const Function& function) {
    lines_.push_back(
        fmt::format("{} def {}: {} instructions", sign, function.name, function.body.size()));
  };
  for (const Function& function : a.functions) {
    if (const Function* other = b.find(function.name)) {
      functions(function, *other);
    } else {
      alone('-', function);
    }
  }
  for (const Function& function : b.functions) {
    if (a.find(function.name) == nullptr) alone('+', function);
  }
  return std::move(lines_);
}

void Comparison::module(std::string_view key, const std::string& before, const std::string& after) {
  if (before == after) return;
  lines_.push_back(fmt::format("- module: {} is {}", key, before));
  lines_.push_back(fmt::format("+ module: {} is {}", key, after));
}

std::vector<Row> Comparison::rows(const Function& function) {
  std::vector<Row> rows;
  for (std::uint32_t i = 0; i < function.parameter_count; ++i) {
    const Value& value = function.values[i];
    const std::string type = parameter_type(value);
    rows.push_back({kinds_.of(fmt::format("parameter {} {}", i, type)),
                    value.name,
                    {},
                    fmt::format("{}: {}", value.name, type)});
  }
  // What a statement does is its text without the names of values.
  Function nameless = function;
  nameless.results.clear();
  for (Value& value : nameless.values) value.name.clear();
  for (Instruction& made : nameless.body) made.operands.clear();
  const std::vector<std::string> kinds = statements(std::move(nameless));
  const std::vector<std::string> texts = statements(function);
  const auto names = [&](const std::vector<ValueId>& ids) {
    std::vector<std::string> found;
    for (const ValueId id : ids) found.push_back(function.values[id].name);
    return found;
  };
  for (std::size_t i = 0; i < function.body.size(); ++i) {
    const Instruction& made = function.body[i];
    rows.push_back(
        {kinds_.of(kinds[i]), function.values[made.result].name, names(made.operands), texts[i]});
  }
  rows.push_back({kinds_.of("return"), "", names(function.results), texts.back()});
  return rows;
}

/// A number for what each row computes from the parameters, whatever the names of values.
std::vector<int> Comparison::computed(const std::vector<Row>& rows) {
  std::unordered_map<std::string, int> known;
  std::vector<int> numbers;
  for (const Row& row : rows) {
    std::vector<int> operands;
    for (const std::string& name : row.operands) operands.push_back(known.at(name));
    numbers.push_back(values_.of({row.does, std::move(operands)}));
    known[row.result] = numbers.back();
  }
  std::ranges::sort(numbers);
  return numbers;
}

void Comparison::functions(const Function& a, const Function& b) {
  const std::vector<Row> rows_a = rows(a), rows_b = rows(b);
  if (computed(rows_a) == computed(rows_b)) return;
  const auto kinds = [](const std::vector<Row>& all) {
    std::vector<int> found;
    for (const Row& row : all) found.push_back(row.does);
    return found;
  };
  // Rows of equal ops are paired; their operands must then be pairs as well.
  const std::vector<MatchedRange> ranges = match(kinds(rows_a), kinds(rows_b));
  std::unordered_map<std::string, std::string> pairs;
  for (const MatchedRange& at : ranges) {
    if (at.is_equal) {
      for (std::size_t i = 0; i < at.end_a - at.begin_a; ++i) {
        pairs[rows_a[at.begin_a + i].result] = rows_b[at.begin_b + i].result;
      }
    } else if (at.begin_a < at.end_a && at.begin_b < at.end_b) {  // what follows reads the last
      pairs[rows_a[at.end_a - 1].result] = rows_b[at.end_b - 1].result;
    }
  }
  const auto is_paired = [&](const Row& x, const Row& y) {
    return std::ranges::equal(x.operands, y.operands,
                              [&](const std::string& one, const std::string& other) {
                                const auto found = pairs.find(one);
                                return found != pairs.end() && found->second == other;
                              });
  };
  lines_.push_back(fmt::format("  def {}:", a.name));
  for (const MatchedRange& at : ranges) {
    for (std::size_t i = 0; at.is_equal && i < at.end_a - at.begin_a; ++i) {
      const Row& x = rows_a[at.begin_a + i];
      const Row& y = rows_b[at.begin_b + i];
      if (is_paired(x, y)) continue;
      remove(x);
      add(y);
    }
    if (at.is_equal) continue;
    for (std::size_t i = at.begin_a; i < at.end_a; ++i) remove(rows_a[i]);
    for (std::size_t i = at.begin_b; i < at.end_b; ++i) add(rows_b[i]);
  }
}

}  // namespace

std::vector<std::string> differences(const Program& a, const Program& b) {
  return Comparison().run(a, b);
}

}  // namespace tenon::tool
