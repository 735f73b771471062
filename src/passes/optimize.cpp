#include "passes/constant_folder.hpp"
#include "passes/rewrites.hpp"

#include <tenon/optimize.hpp>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

namespace tenon {
namespace {

using passes::FunctionEditor;

template <int (*rewrite)(Program&, FunctionEditor&)>
int apply(Program& program, Function& function) {
  FunctionEditor editor(function, passes::is_called(program, function));
  const int applied = rewrite(program, editor);
  editor.finish();
  return applied;
}

constexpr Rewrite rewrites[] = {
#define TENON_REWRITE(file, pattern, replacement) \
  {#file, pattern, replacement, apply<passes::rewrite_##file>},
#include "passes/rewrites.def"
#undef TENON_REWRITE
};

/// The same for a function of which is known whether it is called.
struct KnownRewrite {
  std::string_view name;
  int (*apply)(Program& program, FunctionEditor& editor);
};
constexpr KnownRewrite known_rewrites[] = {
#define TENON_REWRITE(file, pattern, replacement) {#file, passes::rewrite_##file},
#include "passes/rewrites.def"
#undef TENON_REWRITE
};

// Every rewrite makes a function smaller or an op larger, so that a fixed point is reached soon;
// the bound is for rewrites that undo each other by mistake.
constexpr int max_rounds = 32;

class Optimizer {
 public:
  explicit Optimizer(Program& program) : program_(program) {}

  OptimizeReport run() {
    verify(program_);
    called_ = passes::called_functions(program_);
    settle();
    passes::ConstantFolder folder(program_);
    for (Function& function : program_.functions) {
      count("fold_constants", folder.fold(function, called_.contains(function.name)));
    }
    settle();
    drop_unused_functions();
    drop_unused_arrays();
    return std::move(report_);
  }

 private:
  void settle() {
    bool changed = true;
    for (int round = 0; changed && round < max_rounds; ++round) {
      changed = false;
      for (Function& function : program_.functions) changed |= round_of(function);
    }
  }

  bool round_of(Function& function) {
    int changes = count("remove_dead_code", remove_dead_code(function));
    const bool is_called = called_.contains(function.name);
    changes +=
        count("share_common_subexpressions", passes::share_equal_instructions(function, is_called));
    for (const KnownRewrite& rewrite : known_rewrites) {
      FunctionEditor editor(function, is_called);
      const int changed = rewrite.apply(program_, editor);
      editor.finish();
      const int applied = count(rewrite.name, changed);
      // Dead instructions of a match would count as users of other values.
      if (applied > 0) count("remove_dead_code", remove_dead_code(function));
      changes += applied;
    }
    return changes > 0;
  }

  int count(std::string_view pass, int times) {
    if (times == 0) return 0;
#ifndef NDEBUG
    verify(program_);
#endif
    const auto found =
        std::ranges::find(report_.applied, pass, &std::pair<std::string, int>::first);
    if (found != report_.applied.end()) {
      found->second += times;
    } else {
      report_.applied.emplace_back(pass, times);
    }
    return times;
  }

  void drop_unused_functions() {
    std::unordered_set<std::string> used{program_.entry};
    std::vector<const Function*> open{&program_.main()};
    while (!open.empty()) {
      const Function& function = *open.back();
      open.pop_back();
      for (const Instruction& instruction : function.body) {
        if (instruction.function.empty() || !used.insert(instruction.function).second) continue;
        open.push_back(program_.find(instruction.function));
      }
    }
    std::erase_if(program_.functions,
                  [&](const Function& function) { return !used.contains(function.name); });
  }

  /// What has become part of another array, such as weights that a batch norm scales.
  void drop_unused_arrays() {
    if (program_.folded.empty()) return;
    const std::vector<std::string> names = constant_names(program_);
    const std::unordered_set<std::string> used(names.begin(), names.end());
    std::erase_if(program_.folded, [&](const auto& array) { return !used.contains(array.first); });
  }

  Program& program_;
  std::unordered_set<std::string> called_;
  OptimizeReport report_;
};

}  // namespace

std::span<const Rewrite> all_rewrites() noexcept { return rewrites; }

OptimizeReport optimize(Program& program) { return Optimizer(program).run(); }

}  // namespace tenon
