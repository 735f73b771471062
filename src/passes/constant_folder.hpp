// The work of fold_constants() on the functions of a program, one after the other.
#pragma once

#include <tenon/program.hpp>

#include <cstdint>

namespace tenon::passes {

class ConstantFolder {
 public:
  /// Goes through the whole program once.
  explicit ConstantFolder(Program& program, std::int64_t max_bytes = 1 << 16);

  /// Returns how many instructions it has folded.
  int fold(Function& function, bool is_called);

 private:
  Program& program_;
  std::int64_t max_bytes_;  ///< of one result
  std::int64_t left_ = 0;   ///< of all that are to come
  bool may_fold_;
};

}  // namespace tenon::passes
