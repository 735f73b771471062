// One line of a trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::npu {

struct TraceLine {
  enum class Kind : char {
    register_write = 'W',
    register_read = 'R',
    command = 'C',
    interrupt = 'I',
    fault = 'F',
    memory_write = 'S',
    memory_read = 'G',
  };
  Kind kind = Kind::command;
  std::uint64_t address = 0;  ///< of a register or of memory; of a fault its code
  std::uint32_t value = 0;
  std::vector<std::byte> bytes;  ///< of memory
};

/// Errc::syntax naming `number`, and saying what is wrong.
TraceLine parse_trace_line(std::string_view text, std::size_t number);

}  // namespace tenon::npu
