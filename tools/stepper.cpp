#include "stepper.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

constexpr int edge = 2;  // how much of an array is shown at each end of an axis

void print(const std::string& name, const HostBuffer& array) {
  const std::string head = fmt::format("  {} = ", name);
  std::string text = head;
  for (const char c : to_string(array, edge)) {
    text += c;
    if (c == '\n') text.append(head.size(), ' ');  // rows below each other
  }
  fmt::print("{}\n", text);
}

}  // namespace

Stepper::Stepper(const Program& program, const std::string& text,
                 const std::map<std::string, Buffer>& weights, Options options, bool json)
    : program_(program),
      unrolled_(unroll(program)),
      weights_(weights),
      options_(std::move(options)),
      json_(json),
      lines_(split_lines(text)),
      stops_(options_.asks && options_.breaks.empty()) {
  std::set<std::string> known;
  for (const Function& function : program_.functions) {
    for (const Instruction& made : function.body) {
      known.insert(function.values[made.result].name);
      if (made.line.line == 0) continue;
      known.insert(std::to_string(made.line.line));
      name_at_[{made.line.line, made.line.column}] = function.values[made.result].name;
    }
  }
  for (const Function& function : unrolled_.functions) {
    const std::string name = &function == &unrolled_.main() ? "" : function.name;
    for (const Instruction& made : function.body) {
      const std::string& value = function.values[made.result].name;
      known.insert(value);
      made_by_.emplace(std::pair(name, value), Maker{&function, &made});
    }
  }
  for (const std::string& one : options_.breaks) {
    if (known.contains(one)) continue;
    throw Error(Errc::bad_argument, "--break",
                fmt::format("'{}' is neither a value nor the line of a statement", one));
  }
  if (options_.asks) reader_ = std::make_unique<LineReader>();
}

/// By which of the breakpoints' forms a value goes: its name, that in its function, and its line.
std::set<std::string> Stepper::matching(const Maker* made, const std::string& value) const {
  std::set<std::string> forms{value};
  if (made == nullptr || made->instruction->line.line == 0) return forms;
  const SourceLine& line = made->instruction->line;
  forms.insert(std::to_string(line.line));
  const auto found = name_at_.find({line.line, line.column});
  if (found != name_at_.end()) forms.insert(found->second);
  return forms;
}

void Stepper::watch(Session& session, const std::vector<Buffer>& inputs) {
  const Function& main = program_.main();
  for (std::size_t i = 0; options_.asks && i < inputs.size(); ++i) {
    values_[main.values[i].name] = inputs[i].to_host().contiguous();
  }
  session.set_merge(false);
  session.set_pre_callback([this](const StepEvent& event) { before(event); });
  session.set_post_callback([this](const StepEvent& event) {
    for (std::size_t i = 0; i < event.outputs.size(); ++i) after(event, i);
  });
}

/// Null: a copy.
const Stepper::Maker* Stepper::maker(const StepEvent& event, const std::string& value) const {
  const auto found = made_by_.find({std::string(event.function), value});
  if (found == made_by_.end()) return nullptr;
  const OpDef* const def = found->second.instruction->op.def();
  return def != nullptr && def->name == event.op ? &found->second : nullptr;
}

bool Stepper::is_break(const std::set<std::string>& forms) const {
  return std::ranges::any_of(options_.breaks,
                             [&](const std::string& one) { return forms.contains(one); });
}

/// Keeps the operands of a step that will be shown: it may write its result over one of them.
void Stepper::before(const StepEvent& event) {
  operands_.clear();
  if (json_) return;
  const bool is_at_break = std::ranges::any_of(event.values, [&](const std::string& value) {
    return is_break(matching(maker(event, value), value));
  });
  if (!stops_ && !is_at_break) return;
  for (const Buffer& input : event.inputs) operands_.push_back(input.to_host().contiguous());
}

void Stepper::after(const StepEvent& event, std::size_t i) {
  const std::string& value = event.values[i];
  const Maker* const made = maker(event, value);
  const std::set<std::string> forms = matching(made, value);
  if (options_.asks) {
    const HostBuffer copy = event.outputs[i].to_host().contiguous();
    for (const std::string& form : forms) values_[form] = copy;
  }
  reached_.insert(forms.begin(), forms.end());
  if (is_break(forms) || stops_ || (json_ && options_.every)) {
    show(event, i, made);
    if (options_.asks) ask();
  } else if (options_.every) {
    fmt::print("{} = {}: {}\n", value, event.op, to_string(event.outputs[i].to_host(), edge));
  }
}

void Stepper::show(const StepEvent& event, std::size_t i, const Maker* made) {
  const std::string& value = event.values[i];
  const Instruction* const by = made == nullptr ? nullptr : made->instruction;
  const int number = by == nullptr ? 0 : by->line.line;
  if (json_) {
    shown_.push_back({{"value", value},
                      {"op", event.op},
                      {"line", number},
                      {"type", to_string(event.outputs[i].shape())},
                      {"text", to_string(event.outputs[i].to_host())}});
    return;
  }
  if (number > 0 && static_cast<std::size_t>(number) <= lines_.size()) {
    fmt::print("{}:{}: {}\n", by->line.file, number,
               trimmed(lines_[static_cast<std::size_t>(number) - 1]));
  } else {
    fmt::print("{} = {}\n", value, event.op);
  }
  for (std::size_t k = 0; k < operands_.size(); ++k) {
    const bool is_named = by != nullptr && by->operands.size() == operands_.size();
    print(is_named ? made->function->values[by->operands[k]].name : fmt::format("input {}", k),
          operands_[k]);
  }
  print(value, event.outputs[i].to_host());
}

void Stepper::ask() {
  while (true) {
    std::fflush(stdout);
    const std::optional<std::string> typed =
        reader_->read("(s)tep, (c)ontinue, (p)rint NAME, (q)uit: ");
    if (!typed) throw Quit();
    const std::string text = trimmed(*typed);
    const std::string word = text.substr(0, text.find(' '));
    if (word.empty() || word == "s" || word == "step") {
      stops_ = true;
      return;
    }
    if (word == "c" || word == "continue") {
      stops_ = false;
      return;
    }
    if (word == "q" || word == "quit") throw Quit();
    if (word == "p" || word == "print") {
      print_value(trimmed(text.substr(word.size())));
    } else {
      fmt::print("'{}' is none of s, c, p NAME, q\n", word);
    }
  }
}

void Stepper::print_value(const std::string& name) const {
  if (const auto found = values_.find(name); found != values_.end()) {
    print(name, found->second);
  } else if (const auto weight = weights_.find(name); weight != weights_.end()) {
    print(name, weight->second.to_host());
  } else {
    fmt::print("nothing has been computed under the name '{}'\n", name);
  }
}

std::vector<std::string> Stepper::unreached() const {
  std::vector<std::string> names;
  for (const std::string& one : options_.breaks) {
    if (!reached_.contains(one)) names.push_back(one);
  }
  return names;
}

}  // namespace tenon::tool
