#pragma once

#include "options.hpp"
#include "schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tenon::npu::sim {

/// What a device writes to files: registers and interrupts, engine states, instructions with their
/// cycles, events per layer. Nothing is kept for files that were not asked for.
class Trace {
 public:
  /// Errc::io_error naming a file that cannot be written.
  explicit Trace(const Options& options);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // "W 050 00000001 @1234": register writes; reads are told when they give a new value.
  void write(std::uint32_t offset, std::uint32_t value, std::uint64_t now);
  void read(std::uint32_t offset, std::uint32_t value, std::uint64_t now);
  void interrupt(std::uint32_t bit, std::uint64_t now);
  void command(std::uint32_t index, std::uint32_t kind, std::uint64_t now);
  void fault(const Stop& stop, std::uint64_t now);
  // "S 0000000080000000 01020304": what the host wrote to memory; "G ...": what it read.
  void memory(bool write, std::uint64_t address, std::span<const std::byte> bytes);
  bool wants_registers() const noexcept { return registers_.stream.is_open(); }

  bool wants_spans() const noexcept { return spans_wanted_; }
  void span(const Span& span);
  /// A program ended, or was stopped: writes what span() gathered. `begin` is the cycle it began
  /// at.
  void program_ended(std::span<const std::byte> program, std::uint64_t begin, std::uint64_t end);

 private:
  struct File {
    std::ofstream stream;
    std::string name;
  };
  void line(char kind, std::uint32_t offset, std::uint32_t value, std::uint64_t now);
  void write_vcd(std::uint64_t begin);
  void write_chrome(std::uint64_t begin);
  void write_listing(std::span<const std::byte> program, std::uint64_t begin, std::uint64_t end);

  std::mutex mutex_;
  File registers_;
  File vcd_;
  File chrome_;
  File listing_;
  bool spans_wanted_ = false;
  double cycles_per_us_;
  std::vector<Span> spans_;
  std::unordered_map<std::uint32_t, std::uint32_t> last_read_;
};

}  // namespace tenon::npu::sim
