#pragma once

#include <string_view>

namespace tenon::tool {

bool is_terminal(int descriptor);

/// Writes a model's text to standard output and has it shown at once: printable() on a terminal,
/// byte for byte elsewhere.
void show(std::string_view text);

}  // namespace tenon::tool
