#include "program/registered.hpp"

#include <tenon/error.hpp>
#include <tenon/op.hpp>

#include <fmt/format.h>

namespace tenon {

void require_registered_ops(const Program& program) {
  for (const Function& function : program.functions) {
    for (const Instruction& instruction : function.body) {
      if (instruction.kind != Instruction::Kind::op) continue;
      const OpDef& def = *instruction.op.def();
      if (find_op(def.name) != nullptr) continue;
      throw Error(Errc::unknown_op, function.name,
                  fmt::format("{} is not registered (register_op): what is saved with it could not "
                              "be read",
                              def.name));
    }
  }
}

}  // namespace tenon
