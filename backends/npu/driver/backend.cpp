#include "constraints.hpp"
#include "graph.hpp"
#include "host_run.hpp"
#include "network.hpp"
#include "saved_network.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/log.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/memory_watch.hpp>
#include <tenon/ops.hpp>
#include <tenon/stepwise.hpp>

#include <algorithm>
#include <any>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::npu {
namespace {

/// A constant of the program, or a view of one, as dense f32.
HostBuffer constant_of(const Operand& operand, std::span<const Buffer> buffers) {
  const HostBuffer whole = buffers[operand.place.index].to_host();
  const HostView view(const_cast<std::byte*>(whole.bytes()) + operand.place.offset, operand.shape,
                      operand.strides);
  const HostBuffer dense = HostBuffer::uninitialized(operand.shape);
  copy_elements(view, dense.view());
  return operand.shape.dtype() == DType::f32 ? dense : dense.to(DType::f32);
}

/// A table or a matmul has one step for all channels. Where a few channels have much larger ranges
/// than the rest, that step is too coarse for the rest.
constexpr double widest_spread = 8;

std::optional<std::string> uneven_channels(const Step& step, const ValueRange& range) {
  const bool one_step =
      step.kind == Step::Kind::op && step.op.def()->traits.pointwise && !activation_of(step.op) &&
      (is_table_op(step.op) || step.op.as<Mul>() || step.op.as<Div>() || step.op.as<Glu>());
  if (!one_step || range.channels.empty()) return std::nullopt;
  std::vector<double> reach;
  for (const Range& channel : range.channels) reach.push_back(channel.threshold);
  const auto middle = reach.begin() + static_cast<std::ptrdiff_t>(reach.size() / 2);
  std::ranges::nth_element(reach, middle);
  if (*middle <= 0 || range.tensor.threshold <= widest_spread * *middle) return std::nullopt;
  return fmt::format(
      "its channels reach to {:.3g}, half of them to {:.3g} or less: one step for all "
      "is too coarse",
      range.tensor.threshold, *middle);
}

/// The form in which the layers that write `output` hold its value.
std::optional<StoredForm> stored_form_of(const Graph& graph, const Operand& output) {
  const auto found = std::ranges::find_if(graph.layers, [&](const Layer& layer) {
    return layer.kind == Layer::Kind::dequantize && layer.edge == output;
  });
  if (found == graph.layers.end()) return std::nullopt;
  const FeatureMap& map = graph.map(found->input);
  const bool image = dims_of(output.shape, Form::image) == map.dims;
  StoredForm form = stored_form(image);
  form.quant.scale = {static_cast<float>(map.step)};
  if (!map.normratio.empty()) {
    form.quant.normratio.assign(map.normratio.begin(), map.normratio.end());
  }
  return form;
}

class SteppedGraph;

/// What the partitions of a backend share.
struct Shared {
  Options options;
  std::optional<isa::Caps> caps;     // of the device, in every mode that has one
  std::shared_ptr<Runtime> runtime;  // null in modes on the CPU
  /// Read and changed under the runtime's lock.
  std::shared_ptr<Counters> counters = std::make_shared<Counters>();
  mutable ForkAwareMutex mutex{"npu"};
  RunReport last;
  std::vector<std::weak_ptr<const DeviceNetwork>> networks;
  std::map<const Step*, std::weak_ptr<SteppedGraph>> stepped_graphs;  // by their first step

  std::vector<std::shared_ptr<const DeviceNetwork>> living() {
    const std::scoped_lock lock(mutex);
    std::vector<std::shared_ptr<const DeviceNetwork>> result;
    std::erase_if(networks, [&](const auto& weak) {
      auto network = weak.lock();
      if (network) result.push_back(network);
      return !network;
    });
    return result;
  }
};

/// `output`: that of the only step, or none.
class BoundOnHost final : public BoundPartition, public StoresIntegers {
 public:
  BoundOnHost(BoundGraph bound, Mode mode, std::optional<Operand> output)
      : bound_(std::move(bound)), mode_(mode), output_(std::move(output)) {}
  void run(HostFrame& frame) const override {
    run_on_host(bound_, [&](const Operand& edge) { return frame.view(edge); }, mode_);
  }
  std::optional<StoredForm> stored_form() const override {
    if (!output_ || mode_ != Mode::exact) return std::nullopt;
    return stored_form_of(bound_.graph, *output_);
  }

 private:
  BoundGraph bound_;
  Mode mode_;
  std::optional<Operand> output_;
};

/// `form`: of the only step's value. `calibration`: what it was compiled with, as text.
class BoundOnDevice final : public BoundPartition, public StoresIntegers {
 public:
  BoundOnDevice(std::shared_ptr<Shared> shared, std::shared_ptr<const DeviceNetwork> network,
                std::optional<StoredForm> form, std::shared_ptr<const std::string> calibration)
      : shared_(std::move(shared)),
        network_(std::move(network)),
        form_(std::move(form)),
        calibration_(std::move(calibration)) {}
  std::optional<StoredForm> stored_form() const override { return form_; }
  /// A restored partition uses no constants of the program: its own are in device memory.
  SavedPartition save() const override {
    return {save_network(network_->code(), network_->constants(), form_, *calibration_,
                         shared_->runtime->caps()),
            ConstantUse()};
  }
  void run_on_device(DeviceFrame& frame) const override {
    RunReport report;
    network_->run(frame, report);
    const std::scoped_lock lock(shared_->mutex);
    shared_->last = std::move(report);
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<const DeviceNetwork> network_;
  std::optional<StoredForm> form_;
  std::shared_ptr<const std::string> calibration_;
};

using TablePtr = std::shared_ptr<const CalibrationTable>;

constexpr std::string_view no_calibration =
    "no calibration is given, so it only runs what was saved: npu::calibrate() makes one from "
    "samples of the inputs";

const CalibrationTable& required(const TablePtr& calibration) {
  if (calibration == nullptr) throw Error(Errc::unsupported, "npu", std::string(no_calibration));
  return *calibration;
}

GraphOptions graph_options(const Shared& shared, const CalibrationTable& calibration, bool show) {
  const std::int64_t ocm_bytes = shared.caps ? std::int64_t{shared.caps->ocm_bytes} : 0;
  return {calibration, shared.options.fuse, show, ocm_bytes};
}

BoundGraph bound_graph(const Shared& shared, const Graph& graph, const BoundConstants& constants) {
  BindOptions bind;
  bind.per_channel = shared.options.per_channel;
  bind.profile = shared.options.profile;
  if (shared.caps) bind.profile = shared.caps->m8 ? Profile::m8 : Profile::m15;
  return bind_graph(
      graph, [&](const Operand& o) { return constant_of(o, constants.buffers); }, bind);
}

std::shared_ptr<const DeviceNetwork> on_device(Shared& shared, DeviceCode code,
                                               std::optional<BoundGraph> bound) {
  auto network = std::make_shared<const DeviceNetwork>(
      shared.runtime, std::move(code), std::move(bound), shared.options, shared.counters);
  const std::scoped_lock lock(shared.mutex);
  std::erase_if(shared.networks, [](const auto& weak) { return weak.expired(); });
  shared.networks.push_back(network);
  return network;
}

/// Of a network that makes `value`.
std::vector<std::string> notes_of(const std::vector<OverwrittenInput>& inputs,
                                  std::string_view value) {
  std::int64_t bytes = 0;
  for (const OverwrittenInput& input : inputs) bytes += input.bytes;
  if (bytes == 0) return {};
  return {fmt::format(
      "{}: {} bytes of inputs are copied before each run, as results are written over them", value,
      bytes)};
}

/// What was saved of a partition: constants and programs for a device, which nothing is left to do
/// for.
class RestoredPartition final : public Partition {
 public:
  RestoredPartition(std::shared_ptr<Shared> shared, SavedNetwork network)
      : shared_(std::move(shared)),
        network_(std::move(network)),
        calibration_(std::make_shared<const std::string>(std::move(network_.calibration))) {}

  std::unique_ptr<BoundPartition> bind(const BoundConstants&) const override {
    return std::make_unique<BoundOnDevice>(
        shared_, on_device(*shared_, network_.code, std::nullopt), network_.form, calibration_);
  }
  std::optional<ConstantUse> constant_use() const override { return ConstantUse(); }
  std::vector<std::string> notes() const override {
    return notes_of(network_.code.overwritten, network_.code.layers.back().values.back());
  }

 private:
  std::shared_ptr<Shared> shared_;
  SavedNetwork network_;
  std::shared_ptr<const std::string> calibration_;
};

class NpuPartition final : public Partition {
 public:
  NpuPartition(std::shared_ptr<Shared> shared, TablePtr calibration, const Lowered& program,
               std::span<const Step> steps)
      : shared_(std::move(shared)),
        calibration_(std::move(calibration)),
        program_(program),
        steps_(steps),
        graph_(build_graph(program, steps,
                           graph_options(*shared_, required(calibration_), /*show=*/false))) {
    if (steps.size() == 1) output_ = steps.front().output;
    if (shared_->options.mode == Mode::device) {
      overwritten_ = overwritten_inputs(program, steps, /*is_stepped=*/false);
    }
  }
  std::vector<std::string> notes() const override {
    return notes_of(overwritten_, steps_.back().value);
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    const Options& options = shared_->options;
    if (options.mode != Mode::device) {
      return std::make_unique<BoundOnHost>(bound_graph(*shared_, graph_, constants), options.mode,
                                           output_);
    }
    // With the device's own copy of the constants, nothing is left for the CPU to fall back to.
    if (!constants.prepared.has_file() || options.host_fallback) return compiled(constants);
    const std::string key = this->key(constants);
    if (auto kept = bound_as_kept(constants, key)) return kept;
    auto made = compiled(constants);
    auto saved = std::make_shared<const std::vector<std::byte>>(made->save().bytes);
    constants.prepared.keep(key, {*saved, saved});
    return made;
  }

 private:
  /// Names all that the programs depend on, besides the weights; constants that the program made
  /// itself are none.
  std::string key(const BoundConstants& constants) const {
    const Options& options = shared_->options;
    std::string facts =
        fmt::format("{} {} {} {} {} {}\n{}", digest_of(program_, steps_), options.fuse,
                    options.merge, options.per_channel, to_string(options.placement),
                    describe(shared_->runtime->caps()), calibration_->of(program_).to_text());
    for (std::size_t i = 0; i < program_.constants.size(); ++i) {
      if (program_.constants[i].folded) facts += constants.key(i) + "\n";
    }
    const XXH128_hash_t digest = XXH3_128bits(facts.data(), facts.size());
    return fmt::format("npu/{:016x}{:016x}", digest.high64, digest.low64);
  }

  std::unique_ptr<BoundPartition> bound_as_kept(const BoundConstants& constants,
                                                const std::string& key) const {
    const auto kept = constants.prepared.kept(key);
    if (!kept) return nullptr;
    try {
      return RestoredPartition(
                 shared_, restore_network(kept->bytes, program_, steps_, shared_->runtime->caps()))
          .bind(constants);
    } catch (const Error& error) {
      if (error.code() != Errc::incompatible && error.code() != Errc::corrupt) throw;
      log(LogLevel::warning, fmt::format("npu: compiled again: {}", error.what()));
      return nullptr;
    }
  }

  std::unique_ptr<BoundPartition> compiled(const BoundConstants& constants) const {
    const Options& options = shared_->options;
    CompiledNetwork compiled =
        compile_network(bound_graph(*shared_, graph_, constants), program_,
                        shared_->runtime->caps(), {options.placement, options.merge});
    auto form = output_ ? stored_form_of(compiled.bound.graph, *output_) : std::nullopt;
    DeviceCode code = take_code(compiled);
    code.overwritten = overwritten_;
    std::optional<BoundGraph> fallback;
    if (options.host_fallback) fallback = std::move(compiled.bound);
    return std::make_unique<BoundOnDevice>(
        shared_, on_device(*shared_, std::move(code), std::move(fallback)), std::move(form),
        std::make_shared<const std::string>(calibration_->of(program_).to_text()));
  }

  std::shared_ptr<Shared> shared_;
  TablePtr calibration_;
  const Lowered& program_;
  std::span<const Step> steps_;
  Graph graph_;
  std::optional<Operand> output_;  // of the one step there is
  std::vector<OverwrittenInput> overwritten_;
};

/// Steps that would be one partition, run one at a time: one graph with the layers and quantisation
/// of all of them. Between steps, values stay in int8.
class SteppedGraph {
 public:
  /// With weights: one of the two, as the mode says.
  struct Bound {
    std::optional<BoundGraph> on_host;
    std::shared_ptr<const DeviceNetwork> on_device;
    Graph graph;
  };

  SteppedGraph(std::shared_ptr<Shared> shared, const Lowered& program, std::span<const Step> steps)
      : shared_(std::move(shared)),
        program_(program),
        steps_(steps),
        graph_(build_graph(
            program, steps,
            graph_options(*shared_, required(shared_->options.calibration), /*show=*/true))) {}

  const Graph& graph() const noexcept { return graph_; }

  /// The same for every step that is bound to the same constants.
  std::shared_ptr<const Bound> bind(const BoundConstants& constants) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(bound_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<const Bound>& known = bound_[constants.buffers.data()];
    if (auto living = known.lock()) return living;
    auto made = std::make_shared<Bound>();
    BoundGraph graph = bound_graph(*shared_, graph_, constants);
    made->graph = graph.graph;
    if (shared_->options.mode != Mode::device) {
      made->on_host = std::move(graph);
    } else {
      CompiledNetwork compiled = compile_network(
          std::move(graph), program_, shared_->runtime->caps(), {Placement::none, /*merge=*/false});
      DeviceCode code = take_code(compiled);
      code.overwritten = overwritten_inputs(program_, steps_, /*is_stepped=*/true);
      made->on_device = on_device(*shared_, std::move(code), std::nullopt);
    }
    known = made;
    return made;
  }

 private:
  std::shared_ptr<Shared> shared_;
  const Lowered& program_;
  std::span<const Step> steps_;
  Graph graph_;
  ForkAwareMutex mutex_{"npu"};
  std::map<const Buffer*, std::weak_ptr<const Bound>> bound_;
};

/// One step of a SteppedGraph. `alone` computes its value where the graph does not store it, since
/// it is inside a layer.
class BoundStep final : public BoundPartition, public StoresIntegers {
 public:
  BoundStep(std::shared_ptr<Shared> shared, std::shared_ptr<const SteppedGraph::Bound> stepped,
            int index, Operand output, std::unique_ptr<BoundPartition> alone)
      : shared_(std::move(shared)),
        stepped_(std::move(stepped)),
        index_(index),
        output_(std::move(output)),
        alone_(std::move(alone)) {}

  void run(HostFrame& frame) const override {
    run_step_on_host(
        *stepped_->on_host, [&](const Operand& edge) { return frame.view(edge); },
        shared_->options.mode, index_, frame.scratch);
    if (alone_) alone_->run(frame);
  }
  void run_on_device(DeviceFrame& frame) const override {
    RunReport report;
    stepped_->on_device->run_step(frame, report, index_);
    {
      const std::scoped_lock lock(shared_->mutex);
      shared_->last = std::move(report);
    }
    if (!alone_) return;
    const std::chrono::nanoseconds before = frame.device_time;
    alone_->run_on_device(frame);
    frame.device_time += before;
  }
  std::optional<StoredForm> stored_form() const override {
    if (alone_) return dynamic_cast<const StoresIntegers&>(*alone_).stored_form();
    const bool integers = !stepped_->on_host || shared_->options.mode == Mode::exact;
    return integers ? stored_form_of(stepped_->graph, output_) : std::nullopt;
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<const SteppedGraph::Bound> stepped_;
  int index_;
  Operand output_;
  std::unique_ptr<BoundPartition> alone_;
};

class StepPartition final : public Partition {
 public:
  StepPartition(std::shared_ptr<Shared> shared, std::shared_ptr<SteppedGraph> stepped,
                const Lowered& program, std::span<const Step> steps, std::size_t index)
      : shared_(std::move(shared)),
        stepped_(std::move(stepped)),
        output_(steps[index].output),
        index_(index) {
    if (stepped_->graph().shown[index] != no_map) return;
    alone_ = std::make_unique<NpuPartition>(shared_, shared_->options.calibration, program,
                                            steps.subspan(index, 1));
  }

  std::int64_t scratch_bytes() const override {
    const Mode mode = shared_->options.mode;
    return mode == Mode::device ? 0 : kept_bytes(stepped_->graph(), mode);
  }
  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    return std::make_unique<BoundStep>(shared_, stepped_->bind(constants), static_cast<int>(index_),
                                       output_, alone_ ? alone_->bind(constants) : nullptr);
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<SteppedGraph> stepped_;
  Operand output_;
  std::size_t index_;
  std::unique_ptr<NpuPartition> alone_;
};

constexpr int most_retries = 1000;
/// 30 years, for as long as the sums of times in nanoseconds stay in 64 bits.
constexpr std::chrono::milliseconds longest_deadline = std::chrono::hours(24 * 365 * 30);

class NpuBackend final : public Npu, public StepCompiler, public MemoryWatch {
 public:
  NpuBackend(const DevicePtr& device, Options options) : shared_(std::make_shared<Shared>()) {
    if (options.deadline <= std::chrono::milliseconds(0) || options.deadline > longest_deadline ||
        options.retries < 0 || options.retries > most_retries) {
      throw Error(Errc::bad_argument, "npu::backend",
                  fmt::format("a deadline of {} ms and {} retries: possible are 1 ms to 30 years, "
                              "and 0 to {} retries",
                              options.deadline.count(), options.retries, most_retries));
    }
    if (device) {
      std::shared_ptr<Runtime> runtime = Runtime::of(device);
      shared_->caps = runtime->caps();
      if (options.mode == Mode::device) shared_->runtime = std::move(runtime);
    } else if (options.mode == Mode::device) {
      throw Error(Errc::bad_argument, "npu::backend", "no device is given");
    }
    shared_->options = std::move(options);
  }

  std::string_view name() const noexcept override { return "npu"; }
  MemRegion& region() const override {
    return shared_->runtime ? shared_->runtime->memory() : cpu_device()->default_mem_region();
  }
  bool wants_unrolled() const noexcept override { return true; }

  std::optional<std::string> refuses(const Step& step) const override {
    return refusal(step, shared_->options.calibration.get());
  }

  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    return std::make_unique<NpuPartition>(shared_, shared_->options.calibration, program, steps);
  }
  std::unique_ptr<Partition> restore(const Lowered& program, std::span<const Step> steps,
                                     std::span<const std::byte> saved) const override {
    const Options& options = shared_->options;
    if (options.mode != Mode::device) {
      throw Error(Errc::incompatible, "npu",
                  fmt::format("saved for a device, and the mode is {}", to_string(options.mode)));
    }
    if (options.host_fallback) {
      throw Error(Errc::incompatible, "npu",
                  "host_fallback is set, and the CPU runs nothing that was saved for a device");
    }
    return std::make_unique<RestoredPartition>(
        shared_, restore_network(saved, program, steps, shared_->runtime->caps()));
  }
  /// With the backend's own calibration where it has one.
  std::unique_ptr<Partition> recompile(const Lowered& program, std::span<const Step> steps,
                                       std::span<const std::byte> saved) const override {
    TablePtr calibration = shared_->options.calibration;
    if (calibration == nullptr) {
      calibration = std::make_shared<const CalibrationTable>(calibration_of(saved));
    }
    for (const Step& step : steps) {
      if (const auto why = refusal(step, calibration.get())) {
        throw Error(Errc::unsupported, step.value, fmt::format("npu: {}", *why));
      }
    }
    return std::make_unique<NpuPartition>(shared_, std::move(calibration), program, steps);
  }
  std::unique_ptr<Partition> compile_step(const Lowered& program, std::span<const Step> steps,
                                          std::size_t index) const override {
    return std::make_unique<StepPartition>(shared_, stepped_graph_of(program, steps), program,
                                           steps, index);
  }

  std::map<std::string, std::string> properties() const override {
    std::map<std::string, std::string> facts{
        {"mode", std::string(to_string(shared_->options.mode))},
        {"placement", std::string(to_string(shared_->options.placement))},
    };
    if (shared_->runtime) {
      const isa::Caps& caps = *shared_->caps;
      facts["array"] = fmt::format("{}x{}", caps.array_rows, caps.array_cols);
      facts["ocm"] = std::to_string(caps.ocm_bytes);
      facts["acc"] = std::to_string(caps.acc_bytes);
      facts["clock"] = fmt::format("{} kHz", caps.freq_khz);
      facts["device"] = shared_->runtime->device()->url();
    }
    return facts;
  }

  State state() const override {
    if (!shared_->runtime) return State::open;
    const auto lock = shared_->runtime->lock();
    return shared_->runtime->state();
  }
  Counters counters() const override {
    if (!shared_->runtime) return {};
    const auto lock = shared_->runtime->lock();
    return *shared_->counters;
  }
  RunReport last_run() const override {
    const std::scoped_lock lock(shared_->mutex);
    return shared_->last;
  }

  std::vector<NetworkReport> networks() const override {
    return with_memory_errors("npu", [&] {
      std::vector<NetworkReport> reports;
      for (const auto& network : shared_->living()) reports.push_back(report(*network));
      return reports;
    });
  }

  int precheck() const override {
    return with_memory_errors("npu", [&] {
      int mended = 0;
      for (const auto& network : shared_->living()) {
        auto lock = shared_->runtime->lock();
        shared_->runtime->enter(lock, 0, /*alone=*/true, nullptr);
        mended += network->mend();
      }
      return mended;
    });
  }

  std::uint64_t memory_epoch() const override {
    if (!shared_->runtime) return 0;
    const auto lock = shared_->runtime->lock();
    return shared_->runtime->memory_epoch(shared_->options.deadline / 8);
  }

 private:
  std::optional<std::string> refusal(const Step& step, const CalibrationTable* calibration) const {
    if (auto failure = failed_constraint(step)) return failure;
    const std::optional<isa::Caps>& caps = shared_->caps;
    if (caps) {
      if (auto failure = exceeds_device(step, caps->ocm_bytes, caps->acc_bytes)) return failure;
    }
    if (calibration == nullptr) return std::string(no_calibration);
    const ValueRange* range = calibration->find(step.value);
    if (range == nullptr) return fmt::format("'{}' is not calibrated", step.value);
    if (!range->tensor.is_finite()) {
      return fmt::format("'{}' had infinities or NaN when it was calibrated", step.value);
    }
    if (caps && !range->channels.empty()) {
      if (auto failure = factors_exceed(step, caps->ocm_bytes)) return failure;
    }
    return uneven_channels(step, *range);
  }

  std::shared_ptr<SteppedGraph> stepped_graph_of(const Lowered& program,
                                                 std::span<const Step> steps) const {
    const std::scoped_lock lock(shared_->mutex);
    std::erase_if(shared_->stepped_graphs,
                  [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<SteppedGraph>& known = shared_->stepped_graphs[steps.data()];
    if (auto living = known.lock()) return living;
    auto made = std::make_shared<SteppedGraph>(shared_, program, steps);
    known = made;
    return made;
  }

  static NetworkReport report(const DeviceNetwork& network) {
    const DeviceCode& code = network.code();
    NetworkReport report;
    report.text = code.text;
    report.disassembly = disassemble(code);
    report.placement = code.placement;
    report.layers = code.layers.size();
    report.programs = code.stages.size();
    report.constant_bytes = static_cast<std::int64_t>(network.constants().size());
    report.ftmp_bytes = code.ftmp_bytes;
    report.on_chip_bytes = code.on_chip_bytes;
    report.predicted_cycles = code.predicted.cycles;
    report.predicted_read = code.predicted.ddr_read;
    report.predicted_write = code.predicted.ddr_write;
    report.macs = code.predicted.macs;
    return report;
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::string_view to_string(State state) noexcept {
  constexpr std::string_view names[] = {"open", "running", "faulted", "removed"};
  return names[static_cast<std::size_t>(state)];
}

std::shared_ptr<const Npu> backend(DevicePtr device, Options options) {
  return std::make_shared<const NpuBackend>(device, std::move(options));
}

std::vector<ConstraintText> constraint_texts() {
  std::vector<ConstraintText> texts;
  for (const Constraint& constraint : constraints()) {
    texts.push_back({constraint.op, constraint.clause});
  }
  return texts;
}

}  // namespace tenon::npu

namespace tenon {
namespace {

BackendPtr backend_of_device(const DevicePtr& device, const BackendOptions& options) {
  const auto* const given = std::any_cast<npu::Options>(&options.device);
  if (given == nullptr) {
    throw Error(Errc::bad_argument, device->url(),
                "BackendOptions::device holds no npu::Options: put one there, with a calibration "
                "that npu::calibrate() makes from samples of the inputs; in Python, "
                "Backend(url, calibration=calibrate(...)), or the URL for Session.load()");
  }
  if (options.exact) {
    throw Error(Errc::unsupported, device->url(), "an NPU computes in int8; 'exact' is for CPUs");
  }
  return npu::backend(device, *given);
}

}  // namespace

void register_npu_backend() { register_device_backend("npu", backend_of_device); }

}  // namespace tenon
