#include "program/findings.hpp"
#include "program/reads_value.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

namespace tenon::checking {
namespace {

using Kind = Instruction::Kind;

/// The size of a function with inlined calls.
struct Size {
  std::int64_t instructions = 0;  ///< and parameters of calls, which take time as well
  std::int64_t constants = 0;     ///< names of constants and scopes, loops unrolled
  int depth = 0;                  ///< functions below this one
};

class CallGraph {
 public:
  CallGraph(const Program& program, Findings& findings) : program_(program), findings_(findings) {
    for (std::size_t i = 0; i < program.functions.size(); ++i) {
      indices_.emplace(program.functions[i].name, static_cast<int>(i));
    }
    sizes_.resize(program.functions.size());
    states_.resize(program.functions.size());
  }

  std::vector<int> run() {
    for (int i = 0; i < static_cast<int>(program_.functions.size()); ++i) visit(i);
    for (const int i : order_) measure(i);
    return std::move(order_);
  }

 private:
  enum class State : std::uint8_t { unseen, open, done };

  static bool calls(const Instruction& instruction) {
    return instruction.kind == Kind::call || instruction.kind == Kind::repeat;
  }

  /// Depth first, with a stack of its own: a hostile text may chain any number of functions.
  void visit(int root);
  void measure(int index);

  const Program& program_;
  Findings& findings_;
  std::unordered_map<std::string_view, int> indices_;
  std::vector<State> states_;
  std::vector<Size> sizes_;
  std::vector<int> order_;
  std::int64_t total_ = 0;
};

void CallGraph::visit(int root) {
  if (states_[static_cast<std::size_t>(root)] != State::unseen) return;
  struct Frame {
    int function;
    std::size_t next = 0;
  };
  std::vector<Frame> stack{{root}};
  states_[static_cast<std::size_t>(root)] = State::open;
  while (!stack.empty()) {
    Frame& frame = stack.back();
    const std::vector<Instruction>& body =
        program_.functions[static_cast<std::size_t>(frame.function)].body;
    while (frame.next < body.size() && !calls(body[frame.next])) ++frame.next;
    if (frame.next == body.size()) {
      states_[static_cast<std::size_t>(frame.function)] = State::done;
      order_.push_back(frame.function);
      stack.pop_back();
      continue;
    }
    const Instruction& instruction = body[frame.next];
    const Spot spot{frame.function, static_cast<int>(frame.next), Spot::nowhere};
    ++frame.next;
    const int callee = indices_.at(instruction.function);
    State& state = states_[static_cast<std::size_t>(callee)];
    if (state == State::open) {
      findings_.add(Errc::cycle, spot, fmt::format("'{}' calls itself", instruction.function));
    } else if (state == State::unseen) {
      state = State::open;
      stack.push_back({callee});
    }
  }
}

void CallGraph::measure(int index) {
  if (findings_.full()) return;
  const Function& function = program_.functions[static_cast<std::size_t>(index)];
  Size size;
  for (std::size_t i = 0; i < function.body.size(); ++i) {
    const Instruction& instruction = function.body[i];
    ++size.instructions;
    if (instruction.kind == Kind::constant || instruction.kind == Kind::scope) ++size.constants;
    if (!calls(instruction)) continue;
    const auto callee = static_cast<std::size_t>(indices_.at(instruction.function));
    const Size& inner = sizes_[callee];
    const bool are_different =
        instruction.kind == Kind::repeat && reads_scope(program_.functions[callee]);
    const std::int64_t rounds = are_different ? instruction.count : 1;
    size.instructions += inner.instructions + program_.functions[callee].parameter_count;
    size.constants += rounds * (1 + inner.constants);  // both factors are at most 2^20
    size.depth = std::max(size.depth, inner.depth + 1);
    const Spot spot{index, static_cast<int>(i), Spot::nowhere};
    if (size.depth > program_limits::call_depth) {
      findings_.add(
          Errc::depth_limit, spot,
          fmt::format("more than {} functions inside each other", program_limits::call_depth));
      return;
    }
    if (size.constants > program_limits::constants) {
      findings_.add(
          Errc::limit_exceeded, spot,
          fmt::format("loops name more than {} constants and scopes", program_limits::constants));
      return;
    }
    if (size.instructions > program_limits::instructions) break;
  }
  total_ += size.instructions;
  if (total_ > program_limits::instructions) {
    findings_.add(
        Errc::limit_exceeded, {index, Spot::nowhere, Spot::nowhere},
        fmt::format("calls inline to more than {} instructions", program_limits::instructions));
  }
  sizes_[static_cast<std::size_t>(index)] = size;
}

}  // namespace

std::vector<int> check_calls(const Program& program, Findings& findings) {
  return CallGraph(program, findings).run();
}

}  // namespace tenon::checking
