#pragma once

#include <cerrno>

namespace tenon {

/// The result of a system call, repeated while signals interrupt it (EINTR).
template <class Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace tenon
