#include "predict.hpp"

#include <algorithm>
#include <array>
#include <deque>

#include <npu/isa/cycles.hpp>

namespace tenon::npu {

void predict(const isa::Caps& caps, const std::vector<isa::Instruction>& instructions,
             Prediction& total) {
  using isa::Engine;
  std::array<std::uint64_t, isa::engine_count> free{};
  // Tokens from engine to engine: the time at which each was given.
  std::array<std::array<std::deque<std::uint64_t>, isa::engine_count>, isa::engine_count> tokens;
  std::uint64_t port = 0;
  std::uint64_t last = 0;
  const std::uint64_t origin = total.cycles;
  for (const isa::Instruction& instruction : instructions) {
    const Engine engine = isa::engine(instruction);
    if (engine == Engine::all) continue;
    const isa::Common& common = isa::common(instruction);
    const auto own = static_cast<std::size_t>(engine);
    std::uint64_t begin = free[own];
    const auto take = [&](Engine from) {
      auto& queue = tokens[static_cast<std::size_t>(from)][own];
      begin = std::max(begin, queue.front());
      queue.pop_front();
    };
    if (common.deps.pop_prev) take(isa::previous(engine));
    if (common.deps.pop_next) take(isa::next(engine));
    std::uint64_t end = begin + isa::execute_cycles(caps, instruction);
    const isa::Transfer transfer = isa::transfer(instruction);
    if (transfer.read_bursts + transfer.write_bursts > 0) {
      const std::uint64_t cycles = isa::transfer_cycles(caps, transfer);
      end = std::max(begin, port) + cycles;
      // The latency of one transfer hides behind the bytes of another.
      port = end - std::min<std::uint64_t>(cycles, caps.ddr_latency);
    }
    free[own] = end;
    if (common.deps.push_prev) {
      tokens[own][static_cast<std::size_t>(isa::previous(engine))].push_back(end);
    }
    if (common.deps.push_next) {
      tokens[own][static_cast<std::size_t>(isa::next(engine))].push_back(end);
    }
    last = std::max(last, end);

    if (total.layers.size() <= common.layer) total.layers.resize(common.layer + 1U);
    Prediction::LayerShare& layer = total.layers[common.layer];
    const std::uint64_t macs = isa::macs(instruction);
    if (layer.end == 0) layer.begin = origin + begin;
    layer.begin = std::min(layer.begin, origin + begin);
    layer.end = std::max(layer.end, origin + end);
    layer.ddr_read += transfer.read_bytes;
    layer.ddr_write += transfer.write_bytes;
    layer.macs += macs;
    total.ddr_read += transfer.read_bytes;
    total.ddr_write += transfer.write_bytes;
    total.macs += macs;
  }
  total.cycles = origin + last;
}

}  // namespace tenon::npu
