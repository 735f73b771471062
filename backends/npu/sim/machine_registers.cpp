#include "machine.hpp"

#include <tenon/error.hpp>
#include <tenon/npu/isa/registers.hpp>

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace tenon::npu::sim {

using isa::ErrorCode;
namespace bits = isa::bits;
namespace reg = isa::reg;

namespace {

constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}
void set_low(std::uint64_t& value, std::uint32_t half) { value = (value >> 32 << 32) | half; }
void set_high(std::uint64_t& value, std::uint32_t half) {
  value = std::uint64_t{half} << 32 | low(value);
}
constexpr bool is_dma_register(std::uint32_t offset) {
  return offset >= reg::dma_src_lo && offset <= reg::dma_status;
}
constexpr bool is_segment_register(std::uint32_t offset) {
  return offset >= reg::seg0_base_lo && offset <= reg::seg4_size_hi;
}
constexpr std::uint32_t register_errors = 5;  // "engine" of errors of register accesses
constexpr std::uint32_t host_dma_engine = 4;

constexpr std::uint32_t control_bits = bits::enable.mask() | bits::reset.mask() |
                                       bits::halt.mask() | bits::step.mask() |
                                       bits::perf_clear.mask();

}  // namespace

std::uint32_t Machine::read_register(std::uint32_t offset) {
  const std::scoped_lock lock(mutex_);
  if (removed_) return isa::gone;
  if (offset % 4 != 0) {
    bad_register(offset);
    return 0;
  }
  const std::uint32_t value = is_resetting() ? value_in_reset(offset) : value_of(offset);
  trace_.read(offset, value, now_);
  return value;
}

std::uint32_t Machine::value_in_reset(std::uint32_t offset) const {
  if (offset == reg::status) return bits::resetting.mask();
  return offset < reg::control ? value_of(offset) : 0;
}

std::uint32_t Machine::value_of(std::uint32_t offset) const {
  const std::uint32_t counter = offset & ~7U;
  const auto half = [&](std::uint64_t value) { return offset % 8 == 0 ? low(value) : high(value); };
  if (Counters::holds(counter)) return half(latched_[counter]);
  if (LayerCounters::holds(counter)) return half(latched_layer_[counter]);
  if (is_segment_register(offset)) {
    const Window& window = state_.segments[(offset - reg::seg0_base_lo) / 16];
    return half(offset % 16 < 8 ? window.base : window.size);
  }
  const auto engine = [](const auto& all, std::uint32_t index) {
    return all[index].load(std::memory_order_relaxed);
  };
  switch (offset) {
    case reg::id:
      return isa::device_id;
    case reg::version:
      return isa::version;
    case reg::caps0:
      return bits::array_rows.put(caps_.array_rows) | bits::array_cols.put(caps_.array_cols);
    case reg::caps1:
      return caps_.ocm_bytes;
    case reg::caps2:
      return caps_.acc_bytes;
    case reg::caps3:
      return bits::flow.put(static_cast<std::uint32_t>(caps_.flow)) | bits::wbuf.put(caps_.wbuf) |
             bits::coherent.put(caps_.coherent) | bits::strict.put(caps_.strict) |
             bits::m8.put(caps_.m8) | bits::host_dma.put(caps_.host_dma) |
             bits::queue_depth.put(caps_.queue_depth);
    case reg::control:
      return state_.control;
    case reg::status:
      return status();
    case reg::irq_status:
      return state_.irq_status;
    case reg::irq_mask:
      return state_.irq_mask;
    case reg::error:
      return static_cast<std::uint32_t>(state_.error.code);
    case reg::error_info:
      return bits::error_engine.put(state_.error.engine) |
             bits::error_layer.put(state_.error.layer);
    case reg::error_addr_lo:
      return low(state_.error.address);
    case reg::error_addr_hi:
      return high(state_.error.address);
    case reg::error_pc:
      return state_.error.pc;
    case reg::error_pc2:
      return state_.error.pc2;
    case reg::cmdq_base_lo:
      return low(state_.cmdq_base);
    case reg::cmdq_base_hi:
      return high(state_.cmdq_base);
    case reg::cmdq_size:
      return state_.cmdq_size;
    case reg::cmdq_head:
      return state_.head;
    case reg::cmdq_tail:
      return state_.tail;
    case reg::fence:
      return fence_;
    case reg::dma_src_lo:
      return low(state_.dma_src);
    case reg::dma_src_hi:
      return high(state_.dma_src);
    case reg::dma_dst_lo:
      return low(state_.dma_dst);
    case reg::dma_dst_hi:
      return high(state_.dma_dst);
    case reg::dma_len:
      return state_.dma_len;
    case reg::dma_status:
      return state_.dma_status;
    case reg::ld_pc:
      return engine(pcs_, 0);
    case reg::ex_pc:
      return engine(pcs_, 1);
    case reg::st_pc:
      return engine(pcs_, 2);
    case reg::ld_state:
      return engine(engine_states_, 0);
    case reg::ex_state:
      return engine(engine_states_, 1);
    case reg::st_state:
      return engine(engine_states_, 2);
    case reg::tokens_prev:
      return engine(token_counts_, 0);
    case reg::tokens_next:
      return engine(token_counts_, 1);
    case reg::freq_khz:
      return caps_.freq_khz;
    case reg::ddr_kbps:
      return caps_.ddr_kbps;
    case reg::ddr_latency:
      return caps_.ddr_latency;
    case reg::ddr_mib:
      return caps_.ddr_mib;
    case reg::layer_count:
      return static_cast<std::uint32_t>(layers_.size());
    case reg::layer_select:
      return state_.layer_select;
    default:
      return 0;
  }
}

std::uint32_t Machine::status() const {
  const bool waiting =
      isa::bits::enable.get(state_.control) != 0 && !state_.fault && state_.head != state_.tail;
  const bool busy = state_.busy || waiting || bits::dma_busy.get(state_.dma_status) != 0;
  const bool halt = bits::halt.get(state_.control) != 0 && state_.steps == 0;
  return bits::idle.put(!busy) | bits::busy.put(state_.busy) |
         bits::halted.put(halt && (state_.halted || !state_.busy)) | bits::fault.put(state_.fault) |
         bits::stuck.put(state_.stuck);
}

void Machine::write_register(std::uint32_t offset, std::uint32_t value) {
  Lock lock(mutex_);
  if (removed_) return;
  trace_.write(offset, value, now_);
  if (!is_resetting()) set(offset, value, lock);
}

void Machine::note_memory(bool write, std::uint64_t address, const void* bytes,
                          std::uint64_t size) {
  if (!trace_.wants_registers()) return;
  trace_.memory(write, address, {static_cast<const std::byte*>(bytes), size});
}

void Machine::set(std::uint32_t offset, std::uint32_t value, Lock& lock) {
  if (offset % 4 != 0) return bad_register(offset);
  if (is_segment_register(offset)) return set_segment(offset, value);
  if (is_dma_register(offset)) return set_dma(offset, value);
  switch (offset) {
    case reg::control:
      return set_control(value, lock);
    case reg::irq_status:
      state_.irq_status &= ~value;
      return;
    case reg::irq_mask:
      state_.irq_mask = value;
      changed_.notify_all();
      return;
    case reg::cmdq_base_lo:
      return set_low(state_.cmdq_base, value);
    case reg::cmdq_base_hi:
      return set_high(state_.cmdq_base, value);
    case reg::cmdq_size:
      state_.cmdq_size = value;
      return;
    case reg::cmdq_tail:
      state_.tail = value;
      work_.notify_all();
      return;
    case reg::perf_latch:
      return latch();
    case reg::layer_select:
      state_.layer_select = value;
      return;
    default:
      return bad_register(offset);
  }
}

void Machine::set_control(std::uint32_t value, Lock& lock) {
  if ((value & ~control_bits) != 0) return bad_register(reg::control);
  if (bits::reset.get(value) != 0) return request_reset(lock, 0);
  if (bits::perf_clear.get(value) != 0) {
    counters_ = {};
    layers_.assign(layers_.size(), {});
  }
  state_.control = value & (bits::enable.mask() | bits::halt.mask());
  if (bits::halt.get(value) != 0) {
    if (bits::step.get(value) != 0) ++state_.steps;
  } else {
    state_.steps = 0;
  }
  attention_ = true;
  work_.notify_all();
}

void Machine::set_segment(std::uint32_t offset, std::uint32_t value) {
  Window& window = state_.segments[(offset - reg::seg0_base_lo) / 16];
  std::uint64_t& field = offset % 16 < 8 ? window.base : window.size;
  if (offset % 8 == 0) {
    set_low(field, value);
  } else {
    set_high(field, value);
  }
}

void Machine::set_dma(std::uint32_t offset, std::uint32_t value) {
  if (!caps_.host_dma) return bad_register(offset);
  switch (offset) {
    case reg::dma_src_lo:
      return set_low(state_.dma_src, value);
    case reg::dma_src_hi:
      return set_high(state_.dma_src, value);
    case reg::dma_dst_lo:
      return set_low(state_.dma_dst, value);
    case reg::dma_dst_hi:
      return set_high(state_.dma_dst, value);
    case reg::dma_len:
      state_.dma_len = value;
      return;
    case reg::dma_ctrl:
      if ((value & ~(bits::dma_start.mask() | bits::dma_irq.mask())) != 0) {
        return bad_register(offset);
      }
      if (bits::dma_start.get(value) == 0 || bits::dma_busy.get(state_.dma_status) != 0) return;
      state_.dma_irq = bits::dma_irq.get(value) != 0;
      state_.dma_pending = true;
      state_.dma_status = bits::dma_busy.mask();
      attention_ = true;
      work_.notify_all();
      return;
    default:
      return bad_register(offset);
  }
}

void Machine::bad_register(std::uint32_t offset) {
  if (state_.error.code != ErrorCode::none) return;
  state_.error = {ErrorCode::bad_reg, register_errors, 0, offset, 0, 0};
  trace_.fault(state_.error, now_);
}

void Machine::latch() {
  latched_ = counters_;
  latched_layer_ =
      state_.layer_select < layers_.size() ? layers_[state_.layer_select] : LayerCounters{};
}

void Machine::fail(const Stop& stop) {
  if (stop.code == ErrorCode::none) return remove();
  if (reset_requested_) return;
  if (!state_.fault) state_.error = stop;  // errors that did not stop the ring give way
  state_.fault = true;
  trace_.fault(stop, now_);
  raise(bits::irq_fault.mask());
}

void Machine::remove() {
  removed_ = true;
  changed_.notify_all();
}

void Machine::raise(std::uint32_t bit) {
  if (reset_requested_) return;  // whoever asked for it has been told the last thing
  if (faults_.strikes(FaultKind::lost_irq)) return;
  state_.irq_status |= bit;
  ++counters_[isa::perf::interrupts];
  trace_.interrupt(bit, now_);
  changed_.notify_all();
}

void Machine::copy_for_host(std::uint64_t to, std::uint64_t from, std::uint64_t size) {
  std::array<std::byte, 4096> piece;
  for (std::uint64_t done = 0; done < size; done += piece.size()) {
    const std::uint64_t bytes = std::min<std::uint64_t>(piece.size(), size - done);
    if (is_on_chip(from, size)) {
      std::copy_n(memory_.ocm().data() + (from + done - ocm_base), bytes, piece.data());
    } else {
      memory_.read(from + done, piece.data(), bytes);
    }
    if (is_on_chip(to, size)) {
      std::copy_n(piece.data(), bytes, memory_.ocm().data() + (to + done - ocm_base));
      executor_.mark_ocm_written(to + done - ocm_base, bytes);
    } else {
      memory_.write(to + done, piece.data(), bytes);
    }
  }
}

bool Machine::is_on_chip(std::uint64_t address, std::uint64_t size) {
  const std::uint64_t bytes = memory_.ocm().size();
  return address >= ocm_base && address - ocm_base <= bytes && size <= bytes - (address - ocm_base);
}

void Machine::host_dma(Lock& lock) {
  const std::uint64_t from = state_.dma_src;
  const std::uint64_t to = state_.dma_dst;
  const std::uint64_t size = state_.dma_len;
  state_.dma_pending = false;
  if (faults_.strikes(FaultKind::host_dma_hang)) return;  // busy until a reset
  lock.unlock();
  const bool good = !faults_.strikes(FaultKind::host_dma_error) &&
                    (memory_.is_ddr(from, size) || is_on_chip(from, size)) &&
                    (memory_.is_ddr(to, size) || is_on_chip(to, size));
  if (good) copy_for_host(to, from, size);
  lock.lock();
  ++host_dmas_;
  state_.dma_status = bits::dma_done.mask() | (good ? 0 : bits::dma_error.mask());
  if (!good && state_.error.code == ErrorCode::none) {
    state_.error = {ErrorCode::bus, host_dma_engine, 0, to, 0, 0};
    trace_.fault(state_.error, now_);
  }
  if (state_.dma_irq) raise(bits::irq_dma.mask());
}

}  // namespace tenon::npu::sim
