#include "constraints.hpp"
#include "graph.hpp"
#include "host_run.hpp"
#include "network.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/error.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <any>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

/// A constant of the program as dense f32, whatever its type and its place in a view.
HostBuffer constant_of(const Operand& operand, std::span<const Buffer> buffers) {
  const HostBuffer whole = buffers[operand.place.index].to_host();
  const HostView view(const_cast<std::byte*>(whole.bytes()) + operand.place.offset, operand.shape,
                      operand.strides);
  const HostBuffer dense = HostBuffer::uninitialized(operand.shape);
  copy_elements(view, dense.view());
  return operand.shape.dtype() == DType::f32 ? dense : dense.to(DType::f32);
}

/// A table or a product has one step for all channels. Where a few channels reach much further than
/// the most, that step is too coarse for the others.
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

/// What the partitions of a backend share.
struct Shared {
  Options options;
  std::shared_ptr<Runtime> runtime;  // null in modes on the CPU
  mutable std::mutex mutex;
  RunReport last;
  std::vector<std::weak_ptr<const DeviceNetwork>> networks;

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

class BoundOnHost final : public BoundPartition {
 public:
  BoundOnHost(BoundGraph bound, Mode mode) : bound_(std::move(bound)), mode_(mode) {}
  void run(HostFrame& frame) const override {
    run_on_host(bound_, [&](const Operand& edge) { return frame.view(edge); }, mode_);
  }

 private:
  BoundGraph bound_;
  Mode mode_;
};

class BoundOnDevice final : public BoundPartition {
 public:
  BoundOnDevice(std::shared_ptr<Shared> shared, std::shared_ptr<const DeviceNetwork> network)
      : shared_(std::move(shared)), network_(std::move(network)) {}
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
};

class NpuPartition final : public Partition {
 public:
  NpuPartition(std::shared_ptr<Shared> shared, const Lowered& program, std::span<const Step> steps)
      : shared_(std::move(shared)),
        program_(program),
        graph_(
            build_graph(program, steps, {*shared_->options.calibration, shared_->options.fuse})) {}

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    const Options& options = shared_->options;
    if (options.mode != Mode::device) {
      return std::make_unique<BoundOnHost>(bound_graph(constants), options.mode);
    }
    return on_device(compile_network(bound_graph(constants), program_, shared_->runtime->caps(),
                                     {options.placement, options.merge}));
  }
  std::unique_ptr<BoundPartition> bind_saved(const BoundConstants& constants,
                                             std::span<const std::byte> saved) const override {
    const Options& options = shared_->options;
    if (options.mode != Mode::device) return bind(constants);
    return on_device(restore_network(bound_graph(constants), program_, shared_->runtime->caps(),
                                     options.merge, saved));
  }

 private:
  BoundGraph bound_graph(const BoundConstants& constants) const {
    BindOptions bind;
    bind.per_channel = shared_->options.per_channel;
    bind.profile = shared_->options.profile;
    if (shared_->runtime) {
      bind.profile = shared_->runtime->caps().m8 ? Profile::m8 : Profile::m15;
    }
    return bind_graph(
        graph_, [&](const Operand& o) { return constant_of(o, constants.buffers); }, bind);
  }
  std::unique_ptr<BoundPartition> on_device(CompiledNetwork compiled) const {
    auto network = std::make_shared<const DeviceNetwork>(shared_->runtime, std::move(compiled),
                                                         shared_->options);
    const std::scoped_lock lock(shared_->mutex);
    shared_->networks.push_back(network);
    return std::make_unique<BoundOnDevice>(shared_, std::move(network));
  }

  std::shared_ptr<Shared> shared_;
  const Lowered& program_;
  Graph graph_;
};

class NpuBackend final : public Npu {
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
    if (options.mode == Mode::device) {
      if (!device) throw Error(Errc::bad_argument, "npu::backend", "no device is given");
      shared_->runtime = std::make_shared<Runtime>(device);
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
    if (shared_->runtime) {
      const isa::Caps& caps = shared_->runtime->caps();
      if (auto failure = exceeds_device(step, caps.ocm_bytes, caps.acc_bytes)) return failure;
    }
    const ValueRange* range = shared_->options.calibration->find(step.value);
    if (range == nullptr) return fmt::format("'{}' is not calibrated", step.value);
    return uneven_channels(step, *range);
  }

  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    return std::make_unique<NpuPartition>(shared_, program, steps);
  }

  std::map<std::string, std::string> properties() const override {
    std::map<std::string, std::string> facts{
        {"mode", std::string(to_string(shared_->options.mode))},
        {"placement", std::string(to_string(shared_->options.placement))},
    };
    if (shared_->runtime) {
      const isa::Caps& caps = shared_->runtime->caps();
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
    return shared_->runtime->counters();
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
