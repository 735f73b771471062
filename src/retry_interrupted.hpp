#pragma once

#include <cerrno>

namespace tenon {

/// The result of a system call, made again for as long as signals interrupt it.
template <class Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace tenon
