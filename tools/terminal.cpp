#include "terminal.hpp"

#include <tenon/printable.hpp>

#include <cstdio>

#include <unistd.h>

namespace tenon::tool {

bool is_terminal(int descriptor) { return ::isatty(descriptor) != 0; }

void show(std::string_view text) {
  const std::string safe =
      is_terminal(STDOUT_FILENO) ? printable(text, LineBreaks::keep) : std::string(text);
  std::fwrite(safe.data(), 1, safe.size(), stdout);
  std::fflush(stdout);
}

}  // namespace tenon::tool
