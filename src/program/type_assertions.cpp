#include "program/type_assertions.hpp"

#include <fmt/format.h>

namespace tenon {

void TypeAssertions::check(std::string_view name, const Shape& declared, const Shape& actual,
                           Errc code, const std::string& where) {
  const auto mismatch = [&](const std::string& why) {
    throw Error(code, where,
                fmt::format("'{}' is {}, declared {}{}", name, to_string(actual.without_tags()),
                            to_string(declared), why));
  };
  if (declared.rank() != actual.rank() || declared.dtype() != actual.dtype()) mismatch("");
  for (int i = 0; i < declared.rank(); ++i) {
    if (is_static(declared[i]) && declared[i] != actual[i]) mismatch("");
    if (!is_symbol(declared[i])) continue;
    const auto [known, added] = sizes_.emplace(declared[i], actual[i]);
    if (!added && known->second != actual[i]) {
      mismatch(fmt::format(" with {} = {}", symbol_name(declared[i]).text(), known->second));
    }
  }
}

}  // namespace tenon
