// The driver without the simulator: linked without it, on a device that only keeps books. What is
// submitted must be whole: segments inside of memory that was allocated, programs that decode and
// whose tokens are balanced, fences that rise.
#include "npu/driver_rig.hpp"
#include "support/fake_device.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/program.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/npu/isa/structures.hpp>
#include <tenon/ops.hpp>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;

constexpr std::uint64_t etm_base = 0x1'0000'0000;
constexpr std::uint64_t xchg_base = 0x8000'0000;

class Recorder;

/// 32-bit registers; what is written is kept, some answer what a device would.
class BookRegisters final : public RegRegion {
 public:
  explicit BookRegisters(Recorder& device) : RegRegion("npu", 0, 0x1000), device_(device) {}
  std::uint64_t read(std::uint64_t address, bool relative = false) const override;
  void write(std::uint64_t address, std::uint64_t value, bool relative = false) override;

 private:
  Recorder& device_;
};

/// A device that does nothing with its commands but write them down and raise its fence.
class Recorder final : public Device, public isa::DeviceControl {
 public:
  Recorder() : Device("npu://recorder") {
    xchg = static_cast<FakeRegion*>(
        &declare(std::make_unique<FakeRegion>("xchg", xchg_base, std::uint64_t{1} << 20, true)));
    etm = static_cast<FakeRegion*>(&declare(
        std::make_unique<FakeRegion>("etm", etm_base, std::uint64_t{16} << 20, false), true));
    declare(std::make_unique<BookRegisters>(*this));
    init();
    values[isa::reg::id] = isa::device_id;
    values[isa::reg::version] = isa::version;
    values[isa::reg::caps0] = isa::bits::array_rows.put(16) | isa::bits::array_cols.put(16);
    values[isa::reg::caps1] = 64 << 10;
    values[isa::reg::caps2] = 32 << 10;
    values[isa::reg::caps3] = isa::bits::wbuf.put(2) | isa::bits::queue_depth.put(8);
    values[isa::reg::freq_khz] = 800'000;
    values[isa::reg::ddr_kbps] = 12'800'000;
  }
  ~Recorder() override { deinit(); }

  std::string protocol() const override { return "recorder"; }
  std::map<std::string, std::string> version() const override { return {{"recorder", "1"}}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int level) override {
    check_reset_level(level);
    for (const std::uint64_t reg :
         {isa::reg::cmdq_base_lo, isa::reg::cmdq_base_hi, isa::reg::cmdq_size, isa::reg::cmdq_head,
          isa::reg::cmdq_tail, isa::reg::control, isa::reg::status, isa::reg::error,
          isa::reg::irq_status, isa::reg::irq_mask}) {
      values[reg] = 0;
    }
    if (level > 0) values[isa::reg::fence] = 0;
  }

  std::uint32_t wait_irq(std::uint32_t mask, std::chrono::nanoseconds) override {
    const std::uint32_t pending = values[isa::reg::irq_status] & mask;
    return pending;
  }
  void sync(const MemPtr&, std::uint64_t, Direction) override {}

  // The doorbell: everything up to `tail` is done at once.
  void ring(std::uint32_t tail) {
    if (isa::bits::enable.get(values[isa::reg::control]) == 0) return;
    const std::uint64_t base =
        values[isa::reg::cmdq_base_lo] | std::uint64_t{values[isa::reg::cmdq_base_hi]} << 32;
    if (base < xchg_base || values[isa::reg::cmdq_size] == 0) {
      values[isa::reg::status] = isa::bits::fault.mask();
      values[isa::reg::error] = static_cast<std::uint32_t>(isa::ErrorCode::bad_command);
      return;
    }
    std::uint32_t& head = values[isa::reg::cmdq_head];
    while (head != tail) {
      std::array<std::byte, isa::Descriptor::size_bytes> bytes{};
      xchg->read(bytes.data(), MemPtr(base + std::uint64_t{head} * bytes.size()), bytes.size());
      bool clear = false;
      const auto command = isa::unpack<isa::Descriptor>(bytes.data(), &clear);
      CHECK(clear);
      take(command);
      head = (head + 1) % values[isa::reg::cmdq_size];
    }
  }

  void take(const isa::Descriptor& command) {
    commands.push_back(command);
    switch (static_cast<isa::Command>(command.kind)) {
      case isa::Command::segment:
        REQUIRE(command.arg0 < 5);
        segments[command.arg0] = {command.arg1, command.arg2};
        CHECK(command.arg1 % 64 == 0);
        check_is_allocated(command.arg1, command.arg2);
        break;
      case isa::Command::run:
        check_program(command.arg0, command.arg1);
        break;
      case isa::Command::fence:
        CHECK(command.arg0 > values[isa::reg::fence]);
        CHECK(((command.flags & isa::fence_irq) != 0 || command.arg0 == 1));  // 1 ends no run
        values[isa::reg::fence] = static_cast<std::uint32_t>(command.arg0) | fence_bits;
        values[isa::reg::irq_status] |= isa::bits::irq_fence.mask();
        break;
      default:
        FAIL_CHECK("an unexpected command " << command.kind);
    }
  }

  void check_is_allocated(std::uint64_t begin, std::uint64_t size) const {
    bool inside = false;
    for (const MemChunk& chunk : etm->all_chunks()) {
      const std::uint64_t from = chunk.begin().addr();
      inside = inside || (from <= begin && begin + size <= from + chunk.size_bytes());
    }
    CHECK(inside);
  }

  // Decodes it, follows its tokens, and checks every access against the segments.
  void check_program(std::uint64_t offset, std::uint64_t size) {
    const auto [base, limit] = segments[static_cast<std::size_t>(isa::Segment::instr)];
    REQUIRE(offset + size <= limit);
    std::vector<std::byte> bytes(size);
    etm->read(bytes.data(), MemPtr(base + offset), size);
    const isa::Program program = isa::parse_program(bytes);
    CHECK(program.ocm_bytes <= values[isa::reg::caps1]);
    CHECK(program.acc_bytes <= values[isa::reg::caps2]);
    std::map<std::pair<int, int>, int> tokens;
    for (const isa::Instruction& instruction : program.instructions) {
      const isa::Engine engine = isa::engine(instruction);
      if (engine == isa::Engine::all) continue;
      const isa::Deps deps = isa::common(instruction).deps;
      const auto own = static_cast<int>(engine);
      const auto before = static_cast<int>(isa::previous(engine));
      const auto after = static_cast<int>(isa::next(engine));
      if (deps.pop_prev) --tokens[{before, own}];
      if (deps.pop_next) --tokens[{after, own}];
      for (const auto& [pair, count] : tokens) {
        CHECK(count >= 0);
        CHECK(count <= 255);
      }
      if (deps.push_prev) ++tokens[{own, before}];
      if (deps.push_next) ++tokens[{own, after}];
      if (const auto* load = std::get_if<isa::Load>(&instruction)) {
        const std::uint64_t end =
            load->offset + (load->rows - 1ULL) * load->ddr_stride + load->row_bytes;
        CHECK(end <= segments[load->segment].second);
      }
      if (const auto* store = std::get_if<isa::Store>(&instruction)) {
        const std::uint64_t end =
            store->offset + (store->rows - 1ULL) * store->ddr_stride + store->row_bytes;
        CHECK(end <= segments[store->segment].second);
      }
    }
    for (const auto& [pair, count] : tokens) CHECK(count == 0);
    ++programs;
  }

  FakeRegion* xchg = nullptr;
  FakeRegion* etm = nullptr;
  mutable std::map<std::uint64_t, std::uint32_t> values;
  std::vector<isa::Descriptor> commands;
  std::array<std::pair<std::uint64_t, std::uint64_t>, 5> segments{};
  int programs = 0;
  std::uint32_t fence_bits = 0;  ///< that the fence has besides what it was asked for
  bool fails = false;            ///< every read of a register
  int writes = 0;                ///< of registers, so far
  int reset_at_write = 0;        ///< somebody resets the device before this one
};

std::uint64_t BookRegisters::read(std::uint64_t address, bool relative) const {
  if (device_.fails) throw Error(Errc::io_error, "npu", "no answer for now");
  return device_.values[offset_of(address, relative)];
}

void BookRegisters::write(std::uint64_t address, std::uint64_t value, bool relative) {
  const std::uint64_t offset = offset_of(address, relative);
  const auto bits = static_cast<std::uint32_t>(value);
  if (++device_.writes == device_.reset_at_write) device_.reset(0);
  if (offset == isa::reg::control && isa::bits::reset.get(bits) != 0) return device_.reset(0);
  if (offset == isa::reg::irq_status) {
    device_.values[offset] &= ~bits;
    return;
  }
  device_.values[offset] = bits;
  if (offset == isa::reg::cmdq_tail) device_.ring(bits);
}

Network sample_network() {
  return make_network(
      {Shape({2, 20, 12, 12}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const auto conv = [&](const Tensor& x, const char* name, std::int64_t o, std::int64_t k) {
          return conv2d(x, graph.constant(name, Shape({o, x.shape()[1], k, k}, f32)), {},
                        {.padding = {k / 2, k / 2}});
        };
        const Tensor a = relu(conv(in[0], "a", 64, 3));
        const Tensor b = silu(conv(a, "b", 64, 1));
        const Tensor c = max_pool2d(a + b, {.kernel = {2, 2}});
        return {c, linear(flatten(c, 1, 3), graph.constant("d", Shape({10, 64 * 36}, f32)))};
      },
      11);
}

TEST_CASE("npu wall: what the driver submits to a device that is no simulator is whole") {
  register_reference_backend();
  const Network network = sample_network();
  for (const bool merge : {true, false}) {
    for (const Placement placement : {Placement::none, Placement::best}) {
      INFO("merge " << merge << " placement " << to_string(placement));
      auto device = std::make_shared<Recorder>();
      {
        Options options = options_for(network);
        options.merge = merge;
        options.placement = placement;
        const auto npu = backend(device, options);
        const auto outputs = run(network, npu, network.sample(1));
        CHECK(outputs.size() == 2);
        CHECK(npu->counters().runs == 1);
        CHECK(npu->counters().lost_interrupts == 0);
        CHECK(npu->state() == State::open);
        CHECK((merge ? device->programs < 4 : device->programs > 4));
        CHECK(npu->properties().at("array") == "16x16");
      }
      // Everything was given back.
      CHECK(device->etm->all_chunks().empty());
      CHECK(device->xchg->all_chunks().empty());
    }
  }
}

TEST_CASE("npu wall: a reset by somebody else between any two registers costs a retry at most") {
  register_reference_backend();
  const Network network = sample_network();
  auto device = std::make_shared<Recorder>();
  const auto npu = backend(device, options_for(network));
  device->reset(0);  // so that the run sets up the ring
  int before = device->writes;
  run(network, npu, network.sample(1));
  const int writes = device->writes - before;
  CHECK(writes > 10);
  for (int nth = 1; nth <= writes; ++nth) {
    INFO("before write " << nth << " of " << writes);
    device->reset(0);
    device->reset_at_write = device->writes + nth;
    const std::uint64_t retries = npu->counters().retries;
    CHECK_NOTHROW(run(network, npu, network.sample(1)));
    CHECK(npu->counters().retries <= retries + 1);
  }
  CHECK(npu->counters().runs == 1 + static_cast<std::uint64_t>(writes));
  CHECK(npu->counters().retries >= 3);
}

TEST_CASE("npu wall: a fence that has nearly risen to its end begins again") {
  register_reference_backend();
  const Network network = sample_network();
  auto device = std::make_shared<Recorder>();
  device->values[isa::reg::fence] = 0xFFFF'FFFE;
  const auto npu = backend(device, options_for(network));
  for (int round = 0; round < 3; ++round) run(network, npu, network.sample(1));
  CHECK(npu->counters().runs == 3);
  CHECK(npu->counters().timeouts == 0);
  CHECK(device->values[isa::reg::fence] > 0);
  CHECK(device->values[isa::reg::fence] < 100);
}

TEST_CASE("npu wall: a fence that nobody asked for ends no run") {
  register_reference_backend();
  const Network network = sample_network();
  auto device = std::make_shared<Recorder>();
  const auto npu = backend(device, options_for(network));
  run(network, npu, network.sample(1));
  device->fence_bits = 0x8000'0000;
  const std::string what =
      expect_error(Errc::device_error, [&] { run(network, npu, network.sample(1)); });
  CHECK(contains(what, "the fence is 0x80000003, and the last one asked for 0x3"));
  device->fence_bits = 0;
  CHECK_NOTHROW(run(network, npu, network.sample(1)));
}

TEST_CASE("npu wall: who fails to enter alone keeps nobody out") {
  register_reference_backend();
  const Network network = sample_network();
  auto device = std::make_shared<Recorder>();
  const auto npu = backend(device, options_for(network));
  Session session(network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(network.weights);
  session.set_interrupt({.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30)});
  const auto forward = [&] { session.forward({network.sample(1)[0].to_device(cpu_device())}); };
  forward();
  device->fails = true;
  expect_error(Errc::io_error, [&] { npu->precheck(); });
  device->fails = false;
  CHECK_NOTHROW(forward());
}

TEST_CASE("npu wall: deadlines and retries are what times in nanoseconds have room for") {
  register_reference_backend();
  const Network network = sample_network();
  const auto with = [&](std::chrono::milliseconds deadline, int retries) {
    Options options = options_for(network);
    options.deadline = deadline;
    options.retries = retries;
    run(network, backend(std::make_shared<Recorder>(), options), network.sample(1));
  };
  constexpr std::chrono::milliseconds longest = std::chrono::hours(30 * 365 * 24);
  CHECK_NOTHROW(with(longest, 1000));
  CHECK_NOTHROW(with(longest, 0));
  using std::chrono::milliseconds;
  expect_error(Errc::bad_argument, [&] { with(milliseconds(1), 1001); });
  expect_error(Errc::bad_argument, [&] { with(milliseconds(1), (1 << 30) - 1); });
  expect_error(Errc::bad_argument, [&] { with(longest + milliseconds(1), 1); });
  expect_error(Errc::bad_argument, [&] { with(milliseconds::max(), 1); });
}

TEST_CASE("npu wall: what is no NPU, or another one, is refused") {
  const Network network = sample_network();
  expect_error(Errc::bad_argument, [&] { backend(nullptr, options_for(network)); });
  expect_error(Errc::bad_argument, [&] {
    Options options = options_for(network);
    backend(cpu_device(), options);
  });
  expect_error(Errc::bad_argument, [&] {
    Options options = options_for(network, Mode::exact);
    options.deadline = std::chrono::milliseconds(0);
    backend(nullptr, options);
  });
  auto other = std::make_shared<Recorder>();
  other->values[isa::reg::version] = 2 << 16;
  expect_error(Errc::unsupported_version, [&] { backend(other, options_for(network)); });
  other->values[isa::reg::id] = isa::gone;
  expect_error(Errc::device_lost, [&] { backend(other, options_for(network)); });
}

TEST_CASE("npu wall: the driver's sources include device interfaces and the instruction set only") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("backends/npu/driver")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cpp" && extension != ".hpp") continue;
    ++files;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with("#include")) continue;
      INFO(entry.path() << ": " << line);
      const std::string name = line.substr(line.find_first_of("<\"") + 1);
      const bool own = line.find('"') != std::string::npos && name.find('/') == std::string::npos;
      const bool standard = name.find('/') == std::string::npos;
      CHECK((own || standard || name.starts_with("tenon/") || name.starts_with("npu/isa/") ||
             name.starts_with("fmt/")));
      CHECK(name.find("npu_sim") == std::string::npos);
    }
  }
  CHECK(files > 20);
}

}  // namespace
}  // namespace tenon::npu
