#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tenon {

/// "; did you mean 'a', 'b'?" with at most three names close to `wanted`, or nothing.
std::string suggestion(std::string_view wanted, std::span<const std::string_view> names);

}  // namespace tenon
