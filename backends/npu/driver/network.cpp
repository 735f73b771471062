#include "network.hpp"

#include "host_run.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

isa::Descriptor set_segment(isa::Segment segment, std::uint64_t base, std::uint64_t bytes) {
  isa::Descriptor command;
  command.kind = static_cast<std::uint32_t>(isa::Command::segment);
  command.arg0 = static_cast<std::uint64_t>(segment);
  command.arg1 = base;
  command.arg2 = bytes;
  return command;
}

std::vector<std::byte> joined_programs(const std::vector<Stage>& stages,
                                       std::vector<std::uint64_t>& offsets) {
  std::vector<std::byte> all;
  for (const Stage& stage : stages) {
    offsets.push_back(all.size());
    all.insert(all.end(), stage.bytes.begin(), stage.bytes.end());
    all.resize((all.size() + 63) / 64 * 64);
  }
  return all;
}

/// Whether the same programs and constants, uploaded again, may well do.
bool is_damage(isa::ErrorCode code) {
  return code == isa::ErrorCode::crc || code == isa::ErrorCode::illegal ||
         code == isa::ErrorCode::bad_program || code == isa::ErrorCode::bad_param;
}

}  // namespace

DeviceNetwork::DeviceNetwork(std::shared_ptr<Runtime> runtime, DeviceCode code,
                             std::optional<BoundGraph> bound, const Options& options,
                             std::shared_ptr<Counters> counters)
    : runtime_(std::move(runtime)),
      code_(std::move(code)),
      bound_(std::move(bound)),
      options_(options),
      counters_(std::move(counters)) {
  const auto lock = runtime_->lock();
  MemRegion& memory = runtime_->memory();
  losses_ = runtime_->losses();
  constants_ = DeviceImage(memory, std::move(code_.constants));
  programs_ = DeviceImage(memory, joined_programs(code_.stages, program_offsets_));
  if (!code_.is_stepped) ftmp_ = new_ftmp();
}

MemChunk DeviceNetwork::new_ftmp() const {
  if (code_.ftmp_bytes == 0) return {};
  return runtime_->memory().malloc(static_cast<std::uint64_t>(code_.ftmp_bytes), true, page_bytes);
}

// Of a session whose slab is gone, nothing is kept.
MemChunk DeviceNetwork::stepped_ftmp(const MemPtr& slab) const {
  std::set<std::uint64_t> living;
  for (const MemChunk& chunk : runtime_->memory().all_chunks()) {
    living.insert(chunk.begin().addr());
  }
  std::erase_if(stepped_ftmp_, [&](const auto& entry) { return !living.contains(entry.first); });
  MemChunk& ftmp = stepped_ftmp_[slab.addr()];
  if (!ftmp) ftmp = new_ftmp();
  return ftmp;
}

// The values and the op of the layer whose instruction stopped, or the device.
std::string DeviceNetwork::where(const Outcome& outcome, const Stages& stages) const {
  if (outcome.run >= 0 && static_cast<std::size_t>(outcome.run) < stages.size()) {
    const auto& program = code_.stages[stages[static_cast<std::size_t>(outcome.run)]].program;
    for (const std::uint32_t index : outcome.held) {
      if (index >= program.instructions.size()) continue;
      const DeviceLayer& layer = code_.layers[isa::common(program.instructions[index]).layer];
      return fmt::format("{} ({})", fmt::join(layer.values, ", "), layer.op);
    }
  }
  return runtime_->device()->url();
}

std::vector<isa::Descriptor> DeviceNetwork::commands(const DeviceFrame& frame, const Stages& stages,
                                                     const MemChunk& ftmp) const {
  std::vector<isa::Descriptor> list;
  const auto add = [&](isa::Segment segment, std::uint64_t base, std::uint64_t bytes) {
    if (base % 64 != 0) {
      throw Error(Errc::bad_argument, "npu",
                  fmt::format("memory of the session begins at {:#x}, no multiple of 64", base));
    }
    list.push_back(set_segment(segment, base, bytes));
  };
  if (!constants_.is_empty()) {
    add(isa::Segment::weight, constants_.address(), constants_.size());
  }
  add(isa::Segment::instr, programs_.address(), programs_.size());
  if (ftmp) add(isa::Segment::ftmp, ftmp.begin().addr(), ftmp.size_bytes());
  for (const std::size_t i : stages) {
    const Stage& stage = code_.stages[i];
    const auto bind = [&](isa::Segment segment, const std::optional<WindowPlace>& window) {
      if (!window) return;
      add(segment, frame.address(window->place).addr(), static_cast<std::uint64_t>(window->bytes));
    };
    bind(isa::Segment::input, stage.input);
    bind(isa::Segment::output, stage.output);
    isa::Descriptor run;
    run.kind = static_cast<std::uint32_t>(isa::Command::run);
    run.arg0 = program_offsets_[i];
    run.arg1 = stage.bytes.size();
    list.push_back(run);
  }
  return list;
}

int DeviceNetwork::mend() const {
  int mended = 0;
  for (const DeviceImage* image : {&constants_, &programs_}) {
    if (image->is_intact()) continue;
    image->upload();
    ++mended;
  }
  counters_->reloads += static_cast<std::uint64_t>(mended);
  return mended;
}

void DeviceNetwork::note_failure(const Error& error) const {
  if (error.code() == Errc::device_lost) {
    runtime_->set_state(State::removed);
  } else if (runtime_->is_idle() && runtime_->state() == State::running) {
    runtime_->set_state(State::faulted);  // the next run begins with a reset
  }
}

std::vector<DeviceNetwork::KeptInput> DeviceNetwork::keep_inputs(const DeviceFrame& frame,
                                                                 int step) const {
  std::vector<KeptInput> kept;
  for (const OverwrittenInput& input : code_.overwritten) {
    if (input.step != step) continue;
    KeptInput& one = kept.emplace_back();
    one.at = frame.address(input.place);
    one.bytes.resize(static_cast<std::size_t>(input.bytes));
    runtime_->memory().read(one.bytes.data(), one.at, one.bytes.size());
  }
  return kept;
}

void DeviceNetwork::put_back(const std::vector<KeptInput>& inputs) const {
  for (const KeptInput& input : inputs) {
    runtime_->memory().write(input.at, input.bytes.data(), input.bytes.size());
  }
}

void DeviceNetwork::run_step(DeviceFrame& frame, RunReport& report, int step) const {
  const std::vector<KeptInput> kept = keep_inputs(frame, step);
  auto lock = runtime_->lock();
  Stages stages;
  for (std::size_t i = 0; i < code_.stages.size(); ++i) {
    if (code_.layers[code_.stages[i].layers.front()].step == step) stages.push_back(i);
  }
  if (stages.empty()) return;
  const MemChunk ftmp = stepped_ftmp(frame.slab);
  const std::vector<isa::Descriptor> list = commands(frame, stages, ftmp);
  try {
    attempt(lock, list, stages, kept, frame, report);
  } catch (const Error& error) {
    note_failure(error);
    throw;
  }
}

void DeviceNetwork::run(DeviceFrame& frame, RunReport& report) const {
  const std::vector<KeptInput> kept = keep_inputs(frame, 0);
  auto lock = runtime_->lock();
  Stages stages(code_.stages.size());
  std::iota(stages.begin(), stages.end(), std::size_t{0});
  const std::vector<isa::Descriptor> list = commands(frame, stages, ftmp_);
  try {
    attempt(lock, list, stages, kept, frame, report);
  } catch (const Error& error) {
    note_failure(error);
    const bool device = error.code() == Errc::device_error ||
                        error.code() == Errc::device_timeout || error.code() == Errc::device_lost;
    if (!device || !options_.host_fallback || !bound_ || runtime_->state() == State::removed) throw;
    log(LogLevel::warning,
        fmt::format("npu: {} layers run on the CPU after {}", code_.layers.size(), error.what()));
    ++counters_->host_fallbacks;
    lock.unlock();
    put_back(kept);
    run_on_cpu(frame);
  }
}

void DeviceNetwork::attempt(Runtime::Lock& lock, const std::vector<isa::Descriptor>& commands,
                            const Stages& stages, const std::vector<KeptInput>& kept,
                            DeviceFrame& frame, RunReport& report) const {
  Runtime& runtime = *runtime_;
  // All attempts together end within twice the deadline.
  std::chrono::nanoseconds deadline = options_.deadline;
  const std::chrono::nanoseconds later = deadline * 3 / (4 * std::max(options_.retries, 1));
  const std::chrono::nanoseconds patience = deadline / (4 * (options_.retries + 1));
  const std::size_t length = commands.size();
  bool alone = options_.precheck || options_.profile_layers || frame.trace != nullptr ||
               !runtime.fits(length);
  bool needs_upload = false, is_repeated = false;
  int tries = 0;
  while (true) {
    if (!runtime.enter(lock, length, alone, frame.interrupt)) frame.interrupt->check("npu");
    if (runtime.state() == State::removed) {
      throw Error(Errc::device_lost, runtime.device()->url(), "the device is gone");
    }
    if (runtime.is_idle()) {
      const bool recovered =
          runtime.state() == State::faulted && runtime.recover(patience, *counters_);
      if (runtime.state() == State::removed) continue;
      runtime.prepare(patience);
      if (needs_upload) upload();
      if (options_.precheck || recovered || losses_ != runtime.losses()) mend();
      losses_ = runtime.losses();
      if (is_repeated) put_back(kept);
    } else if (losses_ != runtime.losses()) {
      alone = true;
      continue;
    }
    const auto begin = Trace::Clock::now();
    Outcome outcome;
    try {
      outcome = runtime.run(lock, commands, alone, deadline, frame.interrupt, *counters_);
    } catch (...) {  // the caller's memory may be freed, and the device may still work on it
      runtime.stop(patience, *counters_);
      throw;
    }
    alone = is_repeated = true;  // another attempt gets on whatever others do, and may upload
    const bool again = tries < options_.retries;
    switch (outcome.kind) {
      case Outcome::Kind::done:
        ++counters_->runs;
        report = {};
        report.shared = outcome.shared;
        if (!outcome.shared) collect(report, stages);
        // A counter of all ones is years, not a number that no integer holds.
        frame.device_time = std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(
            static_cast<double>(report.cycles) * 1e6 / std::max(runtime.caps().freq_khz, 1U),
            1e18)));
        if (frame.trace != nullptr) add_events(*frame.trace, begin, Trace::Clock::now(), report);
        return;
      case Outcome::Kind::removed:
        runtime.set_state(State::removed);
        throw Error(Errc::device_lost, runtime.device()->url(), outcome.message);
      case Outcome::Kind::thrown_out:
        continue;
      case Outcome::Kind::interrupted:
        // The caller's memory may be freed once this returns: nothing writes to it then.
        runtime.stop(patience, *counters_);
        frame.interrupt->check("npu");
        break;
      case Outcome::Kind::timeout:
        ++counters_->timeouts;
        log(LogLevel::warning, fmt::format("npu: {}", outcome.message));
        if (again) break;
        runtime.stop(patience, *counters_);
        throw Error(Errc::device_timeout, where(outcome, stages), outcome.message);
      case Outcome::Kind::fault:
        ++counters_->faults;
        log(LogLevel::warning, fmt::format("npu: {}", outcome.message));
        if (!again || !is_damage(outcome.error)) {
          throw Error(Errc::device_error, where(outcome, stages), outcome.message);
        }
        needs_upload = true;
        break;
    }
    ++tries;
    ++counters_->retries;
    deadline = later;
  }
}

void DeviceNetwork::upload() const {
  constants_.upload();
  programs_.upload();
  counters_->reloads += 2;
}

// The whole run; with layer counters also each layer, at its share of the time that the run took on
// the wall's clock: a simulated device's own clock is another.
void DeviceNetwork::add_events(Trace& trace, Trace::Clock::time_point begin,
                               Trace::Clock::time_point end, const RunReport& report) const {
  const auto facts = [](std::uint64_t cycles, std::uint64_t read, std::uint64_t written) {
    return Trace::Facts{{"cycles", std::to_string(cycles)},
                        {"ddr_read", std::to_string(read)},
                        {"ddr_write", std::to_string(written)}};
  };
  trace.add("npu", fmt::format("{} layers", code_.layers.size()), begin, end,
            facts(report.cycles, report.ddr_read, report.ddr_write));
  const auto at = [&](std::uint64_t cycle) {
    const double share =
        static_cast<double>(cycle) / static_cast<double>(std::max<std::uint64_t>(report.cycles, 1));
    return begin +
           std::chrono::duration_cast<Trace::Clock::duration>((end - begin) * std::min(share, 1.0));
  };
  for (const LayerReport& layer : report.layers) {
    trace.add("npu layers", fmt::format("{} {}", layer.kind, layer.values.back()), at(layer.begin),
              at(layer.end), facts(layer.end - layer.begin, layer.ddr_read, layer.ddr_write));
  }
}

void DeviceNetwork::collect(RunReport& report, const Stages& stages) const {
  const Runtime& runtime = *runtime_;
  runtime.latch_counters();
  report.cycles = runtime.counter(isa::perf::cycles);
  report.ddr_read = runtime.counter(isa::perf::ddr_read);
  report.ddr_write = runtime.counter(isa::perf::ddr_write);
  report.macs = runtime.counter(isa::perf::macs);
  report.instructions = runtime.counter(isa::perf::instructions);
  report.ld_busy = runtime.counter(isa::perf::ld_busy);
  report.ex_busy = runtime.counter(isa::perf::ex_busy);
  report.st_busy = runtime.counter(isa::perf::st_busy);
  if (!options_.profile_layers) return;
  // The device keeps them for the program that ran last.
  for (const std::size_t index : code_.stages[stages.back()].layers) {
    const DeviceLayer& layer = code_.layers[index];
    runtime.write(isa::reg::layer_select, static_cast<std::uint32_t>(index));
    runtime.latch_counters();
    LayerReport& to = report.layers.emplace_back();
    to.values = layer.values;
    to.kind = layer.kind;
    to.begin = runtime.counter(isa::perf::layer_begin);
    to.end = runtime.counter(isa::perf::layer_end);
    to.ld_busy = runtime.counter(isa::perf::layer_ld_busy);
    to.ex_busy = runtime.counter(isa::perf::layer_ex_busy);
    to.st_busy = runtime.counter(isa::perf::layer_st_busy);
    to.ddr_read = runtime.counter(isa::perf::layer_ddr_read);
    to.ddr_write = runtime.counter(isa::perf::layer_ddr_write);
    to.macs = runtime.counter(isa::perf::layer_macs);
  }
}

// Works on copies of the session's memory, and puts back what the layers write.
void DeviceNetwork::run_on_cpu(const DeviceFrame& frame) const {
  MemRegion& memory = runtime_->memory();
  using Key = std::pair<Place::Kind, std::uint32_t>;
  std::map<Key, std::vector<std::byte>> copies;
  const auto key_of = [](const Place& place) {
    return Key{place.kind, place.kind == Place::Kind::slab ? 0 : place.index};
  };
  const auto begin_of = [&](const Place& place) {
    Place whole;
    whole.kind = place.kind;
    whole.index = place.index;
    return frame.address(whole);
  };
  for (const Stage& stage : code_.stages) {
    for (const auto& window : {stage.input, stage.output}) {
      if (!window || copies.contains(key_of(window->place))) continue;
      std::vector<std::byte>& copy = copies[key_of(window->place)];
      copy.resize(static_cast<std::size_t>(window->bytes));
      memory.read(copy.data(), begin_of(window->place), copy.size());
    }
  }
  const auto view = [&](const Operand& edge) {
    return HostView(copies.at(key_of(edge.place)).data() + edge.place.offset, edge.shape,
                    edge.strides);
  };
  run_on_host(*bound_, view, Mode::exact);
  for (const Layer& layer : bound_->graph.layers) {
    if (layer.kind != Layer::Kind::dequantize) continue;
    const ByteRange range = byte_range(layer.edge);
    memory.write(begin_of(layer.edge.place) + range.begin,
                 copies.at(key_of(layer.edge.place)).data() + range.begin,
                 static_cast<std::uint64_t>(range.size()));
  }
}

}  // namespace tenon::npu
