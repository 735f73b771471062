#include "constraints.hpp"
#include "graph.hpp"
#include "host_run.hpp"
#include "network.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/ops.hpp>
#include <tenon/stepwise.hpp>

#include <algorithm>
#include <any>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>

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
  const bool one_step = step.kind == Step::Kind::op && step.op.def()->traits.pointwise &&
                        !activation_of(step.op) &&
                        (is_table_op(step.op) || step.op.as<Mul>() || step.op.as<Glu>());
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
  StoredForm form{.software = Layout(image ? "NCHW" : "*C"),
                  .hardware = Layout(image ? "NCHWc32" : "*Cc32"),
                  .quant = {}};
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

class BoundOnDevice final : public BoundPartition, public StoresIntegers {
 public:
  BoundOnDevice(std::shared_ptr<Shared> shared, std::shared_ptr<const DeviceNetwork> network,
                std::optional<Operand> output)
      : shared_(std::move(shared)), network_(std::move(network)), output_(std::move(output)) {}
  std::optional<StoredForm> stored_form() const override {
    if (!output_) return std::nullopt;
    return stored_form_of(network_->compiled().bound.graph, *output_);
  }
  std::vector<std::byte> save() const override {
    return save_network(network_->compiled(), shared_->runtime->caps());
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
  std::optional<Operand> output_;
};

GraphOptions graph_options(const Shared& shared, bool show) {
  const std::int64_t ocm_bytes = shared.caps ? std::int64_t{shared.caps->ocm_bytes} : 0;
  return {*shared.options.calibration, shared.options.fuse, show, ocm_bytes};
}

BoundGraph bound_graph(const Shared& shared, const Graph& graph, const BoundConstants& constants) {
  BindOptions bind;
  bind.per_channel = shared.options.per_channel;
  bind.profile = shared.options.profile;
  if (shared.caps) bind.profile = shared.caps->m8 ? Profile::m8 : Profile::m15;
  return bind_graph(
      graph, [&](const Operand& o) { return constant_of(o, constants.buffers); }, bind);
}

std::shared_ptr<const DeviceNetwork> on_device(Shared& shared, CompiledNetwork compiled) {
  auto network = std::make_shared<const DeviceNetwork>(shared.runtime, std::move(compiled),
                                                       shared.options, shared.counters);
  const std::scoped_lock lock(shared.mutex);
  shared.networks.push_back(network);
  return network;
}

class NpuPartition final : public Partition {
 public:
  NpuPartition(std::shared_ptr<Shared> shared, const Lowered& program, std::span<const Step> steps)
      : shared_(std::move(shared)),
        program_(program),
        graph_(build_graph(program, steps, graph_options(*shared_, /*show=*/false))) {
    if (steps.size() == 1) output_ = steps.front().output;
  }

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    const Options& options = shared_->options;
    if (options.mode != Mode::device) {
      return std::make_unique<BoundOnHost>(bound_graph(*shared_, graph_, constants), options.mode,
                                           output_);
    }
    return bound(compile_network(bound_graph(*shared_, graph_, constants), program_,
                                 shared_->runtime->caps(), {options.placement, options.merge}));
  }
  std::unique_ptr<BoundPartition> bind_saved(const BoundConstants& constants,
                                             std::span<const std::byte> saved) const override {
    const Options& options = shared_->options;
    if (options.mode != Mode::device) return bind(constants);
    return bound(restore_network(bound_graph(*shared_, graph_, constants), program_,
                                 shared_->runtime->caps(), options.merge, saved));
  }

 private:
  std::unique_ptr<BoundPartition> bound(CompiledNetwork compiled) const {
    return std::make_unique<BoundOnDevice>(shared_, on_device(*shared_, std::move(compiled)),
                                           output_);
  }

  std::shared_ptr<Shared> shared_;
  const Lowered& program_;
  Graph graph_;
  std::optional<Operand> output_;  // of the one step there is
};

/// Steps that would be one partition, run one at a time: one graph with the layers and quantisation
/// of all of them. Between steps, values stay in int8.
class SteppedGraph {
 public:
  /// With weights: one of the two, as the mode says.
  struct Bound {
    std::optional<BoundGraph> on_host;
    std::shared_ptr<const DeviceNetwork> on_device;

    const Graph& graph() const {
      return on_host ? on_host->graph : on_device->compiled().bound.graph;
    }
  };

  SteppedGraph(std::shared_ptr<Shared> shared, const Lowered& program, std::span<const Step> steps)
      : shared_(std::move(shared)),
        program_(program),
        graph_(build_graph(program, steps, graph_options(*shared_, /*show=*/true))) {}

  const Graph& graph() const noexcept { return graph_; }

  /// The same for every step that is bound to the same constants.
  std::shared_ptr<const Bound> bind(const BoundConstants& constants) {
    const std::scoped_lock lock(mutex_);
    std::weak_ptr<const Bound>& known = bound_[constants.buffers.data()];
    if (auto living = known.lock()) return living;
    auto made = std::make_shared<Bound>();
    BoundGraph graph = bound_graph(*shared_, graph_, constants);
    if (shared_->options.mode != Mode::device) {
      made->on_host = std::move(graph);
    } else {
      made->on_device =
          on_device(*shared_, compile_network(std::move(graph), program_, shared_->runtime->caps(),
                                              {Placement::none, /*merge=*/false}));
    }
    known = made;
    return made;
  }

 private:
  std::shared_ptr<Shared> shared_;
  const Lowered& program_;
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
    return integers ? stored_form_of(stepped_->graph(), output_) : std::nullopt;
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
    alone_ = std::make_unique<NpuPartition>(shared_, program, steps.subspan(index, 1));
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

class NpuBackend final : public Npu, public StepCompiler {
 public:
  NpuBackend(const DevicePtr& device, Options options) : shared_(std::make_shared<Shared>()) {
    if (!options.calibration) {
      throw Error(Errc::bad_argument, "npu::backend",
                  "no calibration is given: npu::calibrate() makes one from samples of the inputs");
    }
    if (options.deadline <= std::chrono::milliseconds(0) || options.retries < 0) {
      throw Error(Errc::bad_argument, "npu::backend",
                  fmt::format("a deadline of {} ms and {} retries", options.deadline.count(),
                              options.retries));
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
    if (auto failure = failed_constraint(step)) return failure;
    const std::optional<isa::Caps>& caps = shared_->caps;
    if (caps) {
      if (auto failure = exceeds_device(step, caps->ocm_bytes, caps->acc_bytes)) return failure;
    }
    const ValueRange* range = shared_->options.calibration->find(step.value);
    if (range == nullptr) return fmt::format("'{}' is not calibrated", step.value);
    if (caps && !range->channels.empty()) {
      if (auto failure = factors_exceed(step, caps->ocm_bytes)) return failure;
    }
    return uneven_channels(step, *range);
  }

  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    return std::make_unique<NpuPartition>(shared_, program, steps);
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
    std::vector<NetworkReport> reports;
    for (const auto& network : shared_->living()) reports.push_back(report(network->compiled()));
    return reports;
  }

  int precheck() const override {
    int mended = 0;
    for (const auto& network : shared_->living()) {
      const auto lock = shared_->runtime->lock();
      mended += network->mend();
    }
    return mended;
  }

 private:
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

  static NetworkReport report(const CompiledNetwork& network) {
    NetworkReport report;
    report.text = describe(network);
    report.disassembly = disassemble(network);
    report.placement = network.placement;
    report.layers = network.bound.graph.layers.size();
    report.programs = network.stages.size();
    report.constant_bytes = network.constant_bytes;
    report.ftmp_bytes = network.ftmp_bytes;
    for (std::size_t i = 0; i < network.places.size(); ++i) {
      if (network.places[i].where != MapPlace::Where::ocm) continue;
      report.on_chip_bytes += map_bytes(network.bound.graph.maps[i].dims, network.places[i].log2c);
    }
    report.predicted_cycles = network.predicted.cycles;
    report.predicted_read = network.predicted.ddr_read;
    report.predicted_write = network.predicted.ddr_write;
    report.macs = network.predicted.macs;
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
                "that npu::calibrate() makes from samples of the inputs");
  }
  if (options.exact) {
    throw Error(Errc::unsupported, device->url(), "an NPU computes in int8; 'exact' is for CPUs");
  }
  return npu::backend(device, *given);
}

}  // namespace

void register_npu_backend() { register_device_backend("npu", backend_of_device); }

}  // namespace tenon
