// Bringing up an NPU, step by step: open it, read its registers, access its memory, run four
// hand-written instructions, replay all of that on another device, run a compiled network with a
// profile, and handle a fault. Everything except the lines marked "simulate" is the same on
// silicon.
//
//   npu_bringup [--fault]     with a fault in the instructions written by hand
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/program.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/npu/replay.hpp>
#include <tenon/tenon.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

using namespace tenon;
namespace isa = tenon::npu::isa;

/// The parts of a device that a driver holds on to.
struct Board {
  DevicePtr device;
  RegRegion& registers = device->reg_region("npu");
  MemRegion& external = device->mem_region("etm");
  MemRegion& exchange = device->mem_region("xchg");

  std::uint32_t read(std::uint32_t reg) const {
    return static_cast<std::uint32_t>(registers.read(reg, true));
  }
  void write(std::uint32_t reg, std::uint64_t value) const {
    registers.write(reg, value & 0xFFFFFFFF, true);
  }
};

void show_registers(const Board& board) {
  std::printf("registers\n");
  for (const std::uint32_t offset : {isa::reg::id, isa::reg::version, isa::reg::caps0,
                                     isa::reg::caps1, isa::reg::caps2, isa::reg::status}) {
    const isa::RegisterInfo* info = isa::find_register(offset);
    std::printf("  %03x %-8s %08x  %s\n", offset, std::string(info->name).c_str(),
                board.read(offset), std::string(info->meaning).c_str());
  }
}

void touch_memory(const Board& board) {
  const std::string text = "written through the exchange memory, read back";
  const MemChunk chunk = board.external.malloc(text.size());
  chunk.write(text.data(), 0, text.size());
  std::string back(text.size(), ' ');
  chunk.read(back.data(), 0, back.size());
  std::printf("memory\n  %s: %s\n", to_string(chunk.begin()).c_str(), back.c_str());
  try {
    chunk.begin().cptr();  // the CPU cannot address it, and is told so
  } catch (const Error& error) {
    std::printf("  %s\n", error.what());
  }
}

/// Sleeps until the ring's FENCE has raised `fence` to a value.
void wait_for_fence(const Board& board, std::uint64_t value) {
  const std::uint32_t wanted = isa::bits::irq_fence.mask() | isa::bits::irq_fault.mask();
  const std::uint32_t pending =
      dynamic_cast<isa::DeviceControl&>(*board.device).wait_irq(wanted, std::chrono::seconds(5));
  if (pending == 0) throw Error(Errc::device_timeout, "by hand", "no interrupt within 5 s");
  if (board.read(isa::reg::fence) != value) {
    throw Error(Errc::device_error, "by hand",
                "error " + std::to_string(board.read(isa::reg::error)) + " at command " +
                    std::to_string(board.read(isa::reg::error_pc)));
  }
}

/// simulate: the nth event from now on is a fault.
void arm(Device& device, npu::simctl::FaultKind kind, std::uint32_t nth) {
  RegRegion& faults = device.reg_region("simctl");
  faults.write(npu::simctl::fault_kind, static_cast<std::uint32_t>(kind), true);
  faults.write(npu::simctl::fault_nth, nth, true);
  faults.write(npu::simctl::fault_layer, 0xFFFFFFFF, true);
  faults.write(npu::simctl::fault_arm, 1, true);
}

// (a + b) / 2 on 32 lanes of int8: two loads, an addition, a store, and a ring of one RUN and one
// FENCE to have them done.
void run_by_hand(const Board& board) {
  isa::Load load;
  load.segment = static_cast<std::uint32_t>(isa::Segment::input);
  load.row_bytes = 64;         // both lines at once
  load.deps.push_next = true;  // EX may begin
  isa::Elementwise add;
  add.deps.pop_prev = true;
  add.deps.push_next = true;  // ST may begin
  add.function = static_cast<std::uint32_t>(isa::EwFunction::add);
  add.b_line = 1;
  add.out_line = 2;
  add.lanes = 32;
  add.m1 = add.m2 = 1;
  add.s = 1;
  add.lo = -128;
  add.hi = 127;
  isa::Store store;
  store.deps.pop_prev = true;
  store.segment = static_cast<std::uint32_t>(isa::Segment::output);
  store.ocm_addr = 64;
  store.row_bytes = 32;
  isa::Program program;
  program.instructions = {load, add, store, isa::Halt()};
  program.ocm_bytes = 96;
  const std::vector<std::byte> bytes = isa::assemble(program);
  std::printf("by hand\n%s", isa::disassemble(program).c_str());

  const MemChunk code = board.external.malloc(bytes.size(), true, 4096);
  const MemChunk data = board.external.malloc(96);
  code.write(bytes.data(), 0, bytes.size());
  std::array<std::int8_t, 96> values{};
  for (int i = 0; i < 32; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(3 * i);
    values[static_cast<std::size_t>(i + 32)] = static_cast<std::int8_t>(-i);
  }
  data.write(values.data(), 0, 96);

  const auto segment = [](isa::Segment which, std::uint64_t base, std::uint64_t size) {
    isa::Descriptor command;
    command.kind = static_cast<std::uint32_t>(isa::Command::segment);
    command.arg0 = static_cast<std::uint64_t>(which);
    command.arg1 = base;
    command.arg2 = size;
    return command;
  };
  isa::Descriptor run, fence;
  run.kind = static_cast<std::uint32_t>(isa::Command::run);
  run.arg1 = bytes.size();
  fence.kind = static_cast<std::uint32_t>(isa::Command::fence);
  fence.flags = isa::fence_irq;
  fence.arg0 = board.read(isa::reg::fence) + 1;
  const std::uint64_t at = data.begin().addr();
  const std::vector<isa::Descriptor> commands{
      segment(isa::Segment::instr, code.begin().addr(), bytes.size()),
      segment(isa::Segment::input, at, 64), segment(isa::Segment::output, at + 64, 32), run, fence};
  const MemChunk ring = board.exchange.malloc(16 * isa::Descriptor::size_bytes, true, 4096);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const auto packed = isa::pack(commands[i]);
    ring.write(packed.data(), i * packed.size(), packed.size());
  }
  board.write(isa::reg::cmdq_base_lo, ring.begin().addr());
  board.write(isa::reg::cmdq_base_hi, ring.begin().addr() >> 32);
  board.write(isa::reg::cmdq_size, 16);
  board.write(isa::reg::irq_mask, isa::bits::irq_fence.mask() | isa::bits::irq_fault.mask());
  board.write(isa::reg::control, isa::bits::enable.mask());
  board.write(isa::reg::cmdq_tail, commands.size());  // the doorbell
  wait_for_fence(board, fence.arg0);
  board.write(isa::reg::perf_latch, 1);
  data.read(values.data(), 0, 96);
  std::printf("  (3 i - i) / 2 for i = 0, 10, 31: %d %d %d, in %u cycles\n", values[64], values[74],
              values[95], board.read(isa::perf::cycles));
  board.write(isa::reg::control, isa::bits::reset.mask());  // as it was before
}

/// A small convolutional network with weights around zero.
struct Network {
  Program program;
  std::shared_ptr<const WeightSet> weights;
  HostBuffer image;
};

Network make_network() {
  Graph graph;
  const Tensor x = graph.input("image", Shape({1, 3, 32, 32}, f32));
  const auto conv = [&](const Tensor& in, const char* name, std::int64_t outputs) {
    const Tensor w = graph.constant(name, Shape({outputs, in.shape()[1], 3, 3}, f32));
    return relu(conv2d(in, w, {}, {.padding = {1, 1}}));
  };
  const Tensor a = max_pool2d(conv(x, "conv1", 32), {.kernel = {2, 2}});
  const Tensor b = conv(a, "conv2", 32) + a;
  const Tensor c = max_pool2d(conv(b, "conv3", 64), {.kernel = {2, 2}});
  const Tensor scores =
      linear(flatten(c, 1, 3), graph.constant("head", Shape({10, 64 * 8 * 8}, f32)));
  Network network;
  network.program = graph.program({&scores, 1});
  std::map<std::string, Buffer> weights;
  for (const auto& [name, shape] : {std::pair{"conv1", Shape({32, 3, 3, 3}, f32)},
                                    {"conv2", Shape({32, 32, 3, 3}, f32)},
                                    {"conv3", Shape({64, 32, 3, 3}, f32)},
                                    {"head", Shape({10, 4096}, f32)}}) {
    HostBuffer values = HostBuffer::zeros(shape);
    const double width = 1.5 / std::sqrt(static_cast<double>(shape.elements() / shape[0]));
    double phase = static_cast<double>(weights.size());
    for (float& value : values.mutable_values<float>()) {
      phase += 2.399963;  // the golden angle: even, and never the same twice
      value = static_cast<float>(width * std::sin(phase * phase));
    }
    weights.emplace(name, values.to_device(cpu_device()));
  }
  network.weights = std::make_shared<const WeightSet>(std::move(weights));
  network.image = HostBuffer::zeros(Shape({1, 3, 32, 32}, f32));
  double phase = 0;
  for (float& value : network.image.mutable_values<float>()) {
    value = static_cast<float>(std::cos(phase += 0.37));
  }
  return network;
}

HostBuffer forward(const Network& network, const BackendPtr& backend) {
  Session session(network.program, {.backends = {backend, make_backend("reference")}});
  session.bind(network.weights);
  return session.forward({network.image.to_device(cpu_device())})[0].to_host();
}

void run_network(const DevicePtr& device) {
  const Network network = make_network();
  npu::Options options;
  options.calibration = std::make_shared<const npu::CalibrationTable>(npu::calibrate(
      network.program, *network.weights, std::vector<std::vector<HostBuffer>>{{network.image}}));
  options.profile_layers = true;
  const HostBuffer real = forward(network, make_backend("reference"));
  std::printf("a network\n");
  for (const npu::Placement placement : {npu::Placement::none, npu::Placement::best}) {
    options.placement = placement;
    const auto backend = npu::backend(device, options);
    const HostBuffer found = forward(network, backend);
    const npu::RunReport run = backend->last_run();
    std::printf(
        "  placement %-4s  %llu cycles, %llu bytes of external traffic, score 0: %+.3f "
        "(f32: %+.3f)\n",
        std::string(to_string(placement)).c_str(), static_cast<unsigned long long>(run.cycles),
        static_cast<unsigned long long>(run.ddr_read + run.ddr_write), found.at({0, 0}),
        real.at({0, 0}));
    if (placement != npu::Placement::best) continue;
    for (const npu::LayerReport& layer : run.layers) {
      std::printf("    %-16s %-14s %6llu to %6llu  %8llu bytes  %9llu MACs\n",
                  layer.values.back().c_str(), layer.kind.c_str(),
                  static_cast<unsigned long long>(layer.begin),
                  static_cast<unsigned long long>(layer.end),
                  static_cast<unsigned long long>(layer.ddr_read + layer.ddr_write),
                  static_cast<unsigned long long>(layer.macs));
    }
  }

  // A transient fault is retried; a permanent one is an error that names the location.
  const auto backend = npu::backend(device, options);
  std::printf("faults\n");
  arm(*device, npu::simctl::FaultKind::hang, 5);
  const HostBuffer after_hang = forward(network, backend);
  std::printf("  a lost token: score 0 %+.3f after %llu retry\n", after_hang.at({0, 0}),
              static_cast<unsigned long long>(backend->counters().retries));
  arm(*device, npu::simctl::FaultKind::bus_error, 4);
  try {
    forward(network, backend);
  } catch (const Error& error) {
    std::printf("  a bus error: %d %s\n", number(error.code()), error.where().c_str());
  }
  std::printf("  and then: score 0 %+.3f\n", forward(network, backend).at({0, 0}));
}

/// Replays the trace of one device on another and compares the answers: a test for silicon that
/// needs no driver.
void run_again(const std::string& trace, const std::string& url) {
  std::ifstream lines(trace);
  const npu::ReplayReport report = npu::replay(*Device::open(url), lines);
  std::printf(
      "again, on %s\n  %zu lines of trace, %zu registers and %llu bytes compared, %zu differ\n",
      url.c_str(), report.lines, report.registers_compared,
      static_cast<unsigned long long>(report.bytes_compared), report.differences.size());
}

/// A file that is removed at the end.
struct TemporaryFile {
  std::string path;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

int main(int argc, char** argv) try {
  const bool with_fault = argc > 1 && std::string(argv[1]) == "--fault";
  if (argc > (with_fault ? 2 : 1)) {
    throw Error(Errc::bad_argument, argv[argc - 1], "the one option is --fault");
  }
  register_reference_backend();
  register_npu_sim();  // simulate
  const std::string url = "npu://sim?mac=32x32&ocm=256KiB&acc=128KiB";
  const TemporaryFile trace{
      (std::filesystem::temp_directory_path() / ("npu_bringup_" + std::to_string(getpid())))
          .string()};
  {
    const DevicePtr device = Device::open(url + "&trace=" + trace.path);
    std::printf("%s, protocol %s\n", url.c_str(), device->protocol().c_str());
    const Board board{device};
    show_registers(board);
    touch_memory(board);
    if (with_fault) arm(*device, npu::simctl::FaultKind::bus_error, 1);
    run_by_hand(board);
  }
  run_again(trace.path, url + "&freq=100MHz&sched=random&seed=7");
  run_network(Device::open(url));
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
