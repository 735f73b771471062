#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <algorithm>
#include <utility>

namespace tenon {

const Function* Program::find(std::string_view function) const noexcept {
  const auto found = std::ranges::find(functions, function, &Function::name);
  return found == functions.end() ? nullptr : &*found;
}

Function* Program::find(std::string_view function) noexcept {
  return const_cast<Function*>(std::as_const(*this).find(function));
}

const Function& Program::main() const {
  const Function* function = find(entry);
  if (function == nullptr) throw Error(Errc::bad_reference, name, "no function '" + entry + "'");
  return *function;
}

}  // namespace tenon
