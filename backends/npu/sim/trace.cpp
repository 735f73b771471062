#include "trace.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/npu/isa/program.hpp>
#include <tenon/npu/isa/registers.hpp>

#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/format.h>

namespace tenon::npu::sim {
namespace {

constexpr isa::Engine engines[] = {isa::Engine::ld, isa::Engine::ex, isa::Engine::st};
constexpr char vcd_state[] = {'s', 't', 'u'};  // identifiers of the signals, per engine
constexpr std::string_view chrome_rows[] = {"NPU layers", "NPU LD", "NPU EX", "NPU ST"};
constexpr char vcd_pc[] = {'p', 'q', 'r'};

std::string binary(std::uint32_t value, unsigned width) {
  return fmt::format("b{:0{}b}", value, width);
}

}  // namespace

Trace::Trace(const Options& options) : cycles_per_us_(static_cast<double>(options.freq_hz) / 1e6) {
  const auto open = [](File& file, const std::string& name) {
    file.name = name;
    if (name.empty()) return;
    file.stream.open(name, std::ios::trunc);
    if (!file.stream) throw Error(Errc::io_error, name, "the trace cannot be written");
  };
  open(registers_, options.trace);
  open(vcd_, options.vcd);
  open(chrome_, options.chrome);
  open(listing_, options.listing);
  spans_wanted_ = vcd_.stream.is_open() || chrome_.stream.is_open() || listing_.stream.is_open();
  if (vcd_.stream.is_open()) {
    vcd_.stream
        << "$timescale 1 ns $end\n$comment one unit is one cycle $end\n$scope module npu $end\n";
    for (std::size_t e = 0; e < isa::engine_count; ++e) {
      vcd_.stream << fmt::format("$var wire 2 {} {}_state $end\n$var wire 32 {} {}_pc $end\n",
                                 vcd_state[e], isa::name(engines[e]), vcd_pc[e],
                                 isa::name(engines[e]));
    }
    vcd_.stream << "$upscope $end\n$enddefinitions $end\n";
  }
  if (chrome_.stream.is_open()) {
    chrome_.stream << '[';
    for (std::uint32_t row = 0; row < std::size(chrome_rows); ++row) {
      chrome_.stream << fmt::format(
          "{}\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":\"{"
          "}\"}}}}",
          row == 0 ? "" : ",", row, chrome_rows[row]);
    }
  }
}

Trace::~Trace() {
  if (chrome_.stream.is_open()) chrome_.stream << "\n]\n";
  for (File* const file : {&registers_, &vcd_, &chrome_, &listing_}) {
    if (!file->stream.is_open()) continue;
    file->stream.close();
    if (file->stream) continue;
    try {
      log(LogLevel::warning, fmt::format("npu: the trace '{}' is not complete", file->name));
    } catch (...) {  // no memory to say so
    }
  }
}

void Trace::line(char kind, std::uint32_t offset, std::uint32_t value, std::uint64_t now) {
  registers_.stream << fmt::format("{} {:03X} {:08X} @{}\n", kind, offset, value, now);
}

void Trace::write(std::uint32_t offset, std::uint32_t value, std::uint64_t now) {
  if (!registers_.stream.is_open()) return;
  const std::scoped_lock lock(mutex_);
  line('W', offset, value, now);
  // Each transfer ends with the same value, and a replay has to wait for each.
  if (offset == isa::reg::dma_ctrl) last_read_.erase(isa::reg::dma_status);
}

void Trace::read(std::uint32_t offset, std::uint32_t value, std::uint64_t now) {
  if (!registers_.stream.is_open()) return;
  const std::scoped_lock lock(mutex_);
  // A poll that sees the same again says nothing, and how often it does depends on the host.
  const auto [known, fresh] = last_read_.try_emplace(offset, value);
  if (!fresh && known->second == value) return;
  known->second = value;
  line('R', offset, value, now);
}

void Trace::interrupt(std::uint32_t bit, std::uint64_t now) {
  if (!registers_.stream.is_open()) return;
  const std::scoped_lock lock(mutex_);
  line('I', 0, bit, now);
}

void Trace::command(std::uint32_t index, std::uint32_t kind, std::uint64_t now) {
  if (!registers_.stream.is_open()) return;
  const std::scoped_lock lock(mutex_);
  line('C', index, kind, now);
}

void Trace::fault(const Stop& stop, std::uint64_t now) {
  if (!registers_.stream.is_open()) return;
  const std::scoped_lock lock(mutex_);
  line('F', static_cast<std::uint32_t>(stop.code), stop.pc, now);
  registers_.stream.flush();
}

void Trace::memory(bool write, std::uint64_t address, std::span<const std::byte> bytes) {
  constexpr std::size_t bytes_in_line = 4096;
  constexpr std::string_view digits = "0123456789ABCDEF";
  const std::scoped_lock lock(mutex_);
  for (std::size_t begin = 0; begin < bytes.size(); begin += bytes_in_line) {
    std::string text;
    for (const std::byte byte :
         bytes.subspan(begin, std::min(bytes_in_line, bytes.size() - begin))) {
      text.push_back(digits[std::to_integer<std::size_t>(byte >> 4)]);
      text.push_back(digits[std::to_integer<std::size_t>(byte & std::byte{15})]);
    }
    registers_.stream << fmt::format("{} {:016X} {}\n", write ? 'S' : 'G', address + begin, text);
  }
}

void Trace::span(const Span& span) {
  const std::scoped_lock lock(mutex_);
  spans_.push_back(span);
}

void Trace::program_ended(std::span<const std::byte> program, std::uint64_t begin,
                          std::uint64_t end) {
  if (!spans_wanted_) return;
  const std::scoped_lock lock(mutex_);
  if (vcd_.stream.is_open()) write_vcd(begin);
  if (chrome_.stream.is_open()) write_chrome(begin);
  if (listing_.stream.is_open()) write_listing(program, begin, end);
  spans_.clear();
}

void Trace::write_vcd(std::uint64_t begin) {
  // Value changes by cycle; of one cycle and signal the last one stays.
  std::map<std::uint64_t, std::map<char, std::string>> changes;
  for (const Span& span : spans_) {
    if (span.engine == isa::Engine::all) continue;
    const auto e = static_cast<std::size_t>(span.engine);
    const auto state = [&](isa::EngineState value) {
      return binary(static_cast<std::uint32_t>(value), 2);
    };
    if (span.begin > span.held) {
      changes[span.held][vcd_state[e]] = state(isa::EngineState::wait_prev);
    }
    changes[span.end].try_emplace(vcd_state[e], state(isa::EngineState::idle));
    changes[span.begin][vcd_state[e]] = state(isa::EngineState::busy);
    changes[span.begin][vcd_pc[e]] = binary(span.pc, 1);
  }
  for (const auto& [cycle, signals] : changes) {
    vcd_.stream << '#' << begin + cycle << '\n';
    for (const auto& [signal, value] : signals) vcd_.stream << value << ' ' << signal << '\n';
  }
  vcd_.stream.flush();
}

void Trace::write_chrome(std::uint64_t begin) {
  const auto event = [&](std::string_view name, std::uint32_t row, std::uint64_t from,
                         std::uint64_t to, std::uint32_t pc) {
    chrome_.stream << fmt::format(
        ",\n{{\"name\":\"{}\",\"cat\":\"npu\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.4f},"
        "\"dur\":{:.4f},\"args\":{{\"pc\":{},\"cycle\":{}}}}}",
        name, row, static_cast<double>(begin + from) / cycles_per_us_,
        static_cast<double>(to - from) / cycles_per_us_, pc, begin + from);
  };
  struct Layer {
    std::uint64_t begin, end;
    std::uint32_t pc;
  };
  std::map<std::uint16_t, Layer> layers;
  for (const Span& span : spans_) {
    if (span.engine == isa::Engine::all) continue;
    event(span.mnemonic, 1 + static_cast<std::uint32_t>(span.engine), span.begin, span.end,
          span.pc);
    const auto [layer, fresh] =
        layers.try_emplace(span.layer, Layer{span.begin, span.end, span.pc});
    if (fresh) continue;
    layer->second.begin = std::min(layer->second.begin, span.begin);
    layer->second.end = std::max(layer->second.end, span.end);
  }
  for (const auto& [number, layer] : layers) {
    event(fmt::format("layer {}", number), 0, layer.begin, layer.end, layer.pc);
  }
  chrome_.stream.flush();
}

void Trace::write_listing(std::span<const std::byte> program, std::uint64_t begin,
                          std::uint64_t end) {
  std::ranges::sort(spans_, {}, &Span::pc);
  listing_.stream << fmt::format(
      "; a program from cycle {} to {}\n;    pc  engine     held    begin      end\n", begin, end);
  for (const Span& span : spans_) {
    const isa::Decoded decoded = isa::try_decode(isa::word_at(program, span.pc));
    listing_.stream << fmt::format("{:>7}  {:<9} {:>8} {:>8} {:>8}  {}\n", span.pc,
                                   isa::name(span.engine), span.held, span.begin, span.end,
                                   isa::disassemble(decoded.instruction));
  }
  listing_.stream.flush();
}

}  // namespace tenon::npu::sim
