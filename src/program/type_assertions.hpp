#pragma once

#include <tenon/error.hpp>
#include <tenon/shape.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tenon {

/// The declared types of one call of a function, in which equal symbols are equal sizes.
class TypeAssertions {
 public:
  /// Throws `code`, at `where`, unless a value of this name has the declared type.
  void check(std::string_view name, const Shape& declared, const Shape& actual, Errc code,
             const std::string& where);

 private:
  std::map<std::int64_t, std::int64_t> sizes_;  // by symbol
};

}  // namespace tenon
