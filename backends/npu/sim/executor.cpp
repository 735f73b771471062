#include "executor.hpp"

#include <tenon/npu/isa/structures.hpp>

#include <vector>

namespace tenon::npu::sim {

using isa::ErrorCode;

std::uint32_t engine_number(isa::Engine engine) noexcept {
  return engine == isa::Engine::all ? 0 : static_cast<std::uint32_t>(engine) + 1;
}

Executor::Executor(Memory& memory, Faults& faults, const Options& options,
                   const std::atomic<bool>& abort)
    : memory_(memory),
      faults_(faults),
      kernels_(memory, abort),
      hazards_(options.ocm_bytes, options.acc_bytes),
      m8_(options.m8),
      strict_(options.strict) {}

void Executor::stop(ErrorCode code, std::uint64_t address, std::uint32_t other) const {
  Stop stop = where_;
  stop.code = code;
  stop.address = address;
  stop.pc2 = other;
  throw stop;
}

void Executor::check_bounds(const isa::Instruction& instruction) const {
  footprint(instruction, [&](const Range& range) {
    const std::uint64_t end = range.begin + range.size;
    switch (range.space) {
      case Space::ocm:
        if (end > memory_.ocm().size()) stop(ErrorCode::ocm_range, range.begin);
        break;
      case Space::acc:
        if (end > memory_.acc().size_bytes()) stop(ErrorCode::acc_range, range.begin);
        break;
      case Space::ddr: {
        const Window& window = segments_[range.segment];
        if (end > window.size) stop(ErrorCode::seg_limit, window.base + range.begin);
        if (!memory_.is_ddr(window.base + range.begin, range.size)) {
          stop(ErrorCode::bus, window.base + range.begin);
        }
        break;
      }
    }
  });
}

void Executor::check_order(isa::Engine engine, const isa::Instruction& instruction) {
  const auto absolute = [&](Range range) {
    if (range.space == Space::ddr) range.begin += segments_[range.segment].base;
    return range;
  };
  footprint(instruction, [&](const Range& relative) {
    const Range range = absolute(relative);
    std::uint32_t other = 0;
    if (hazards_.races(engine, range, other)) stop(ErrorCode::hazard, range.begin, other);
    if (!range.write && range.space != Space::ddr) {
      const std::uint64_t missing = hazards_.first_unwritten(range);
      if (missing < range.size) stop(ErrorCode::uninitialised, range.begin + missing);
    }
  });
}

void Executor::check_record(const std::byte* record, std::uint64_t address) const {
  const auto found = isa::unpack<isa::QuantRecord>(record);
  const bool good = found.m >= 1 && found.m <= 32767 && found.s >= 1 && found.s <= 47 &&
                    found.flags == 0 && (!m8_ || (found.m <= 255 && found.s >= 8 && found.s <= 21));
  if (!good) stop(ErrorCode::bad_param, address);
}

void Executor::check_records(const isa::Instruction& instruction) const {
  if (const auto* const load = std::get_if<isa::LoadP>(&instruction)) {
    std::vector<std::byte> records(std::size_t{load->count} * 8);
    const std::uint64_t from = segments_[load->segment].base + load->offset;
    memory_.read(from, records.data(), records.size());
    for (std::size_t i = 0; i < records.size(); i += 8) check_record(&records[i], from + i);
  }
  if (const auto* const req = std::get_if<isa::Requant>(&instruction)) {
    const std::uint64_t begin = std::uint64_t{req->param_line} * isa::line_bytes;
    for (std::uint64_t i = 0; i < std::uint64_t{req->channels} * 8; i += 8) {
      check_record(memory_.ocm().data() + begin + i, begin + i);
    }
  }
}

void Executor::flip_output(const isa::Instruction& instruction) {
  std::uint64_t bytes = 0;
  footprint(instruction, [&](const Range& range) { bytes += range.write ? range.size : 0; });
  std::uint64_t chosen = faults_.pick(bytes);
  const auto bit = static_cast<std::byte>(1U << faults_.pick(8));
  footprint(instruction, [&](const Range& range) {
    if (!range.write) return;
    if (chosen < range.size) memory_.ocm()[range.begin + chosen] ^= bit;
    chosen -= range.size;  // wraps around once the byte was found, and stays beyond every size
  });
}

Executor::Outcome Executor::begin(std::uint32_t pc, const isa::Instruction& instruction) {
  const isa::Engine engine = isa::engine(instruction);
  const std::uint16_t layer = isa::common(instruction).layer;
  where_ = {ErrorCode::none, engine_number(engine), layer, 0, pc, 0};
  Outcome outcome;
  outcome.clock = hazards_.begin(engine, pc);

  check_bounds(instruction);
  if (engine != isa::Engine::ex) {
    if (faults_.strikes(FaultKind::bus_error, layer)) {
      std::uint64_t address = 0;
      footprint(instruction, [&](const Range& range) {
        if (range.space == Space::ddr) address = segments_[range.segment].base + range.begin;
      });
      stop(ErrorCode::bus, address);
    }
    outcome.never_ends = faults_.strikes(FaultKind::dma_timeout, layer);
    if (outcome.never_ends) return outcome;
  }
  if (strict_) check_order(engine, instruction);
  check_records(instruction);
  footprint(instruction, [&](const Range& relative) {
    Range range = relative;
    if (range.space == Space::ddr) range.begin += segments_[range.segment].base;
    if (strict_) hazards_.enter(engine, range);
    if (range.write && range.space != Space::ddr) hazards_.mark_written(range);
  });
  return outcome;
}

void Executor::work(std::uint32_t pc, const isa::Instruction& instruction, Part part) {
  const std::uint16_t layer = isa::common(instruction).layer;
  const std::uint64_t all = pieces(instruction);
  if (part.first > 0) {
    // Since it began somebody may have written over its records.
    where_ = {ErrorCode::none, engine_number(isa::engine(instruction)), layer, 0, pc, 0};
    if (isa::opcode(instruction) == isa::Opcode::req) check_records(instruction);
  }
  kernels_.execute(instruction, segments_, part);
  if (part.first + part.count < all) return;

  switch (isa::opcode(instruction)) {
    case isa::Opcode::req:
    case isa::Opcode::ew:
    case isa::Opcode::pool:
      if (faults_.strikes(FaultKind::flip_act, layer)) flip_output(instruction);
      break;
    default:
      break;
  }
}

}  // namespace tenon::npu::sim
