// Every line of example on docs/xrt.md, compiled; and the proof that none is missing here.

#include "io/temp_folder.hpp"

#include <tenon/backend.hpp>
#include <tenon/backends/npu.hpp>
#include <tenon/buffer.hpp>
#include <tenon/device.hpp>
#include <tenon/io/network.hpp>
#include <tenon/layout.hpp>
#include <tenon/program_view.hpp>
#include <tenon/quant_params.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cassert>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

// The examples name what they do not use.
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace tenon {
namespace xrt_page {

// Declared only: with external linkage nobody misses the definitions.
struct SamplePartition : Partition {
  std::unique_ptr<BoundPartition> bind(const BoundConstants&) const override;
};
struct SampleBound : BoundPartition {
  void run(HostFrame& frame) const override;
};
struct Sample : Backend {
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step>) const override;
  std::optional<std::string> refuses(const Step& step) const override;
};

}  // namespace xrt_page

namespace {

using namespace std::chrono_literals;

template <class... T>
void use(const T&...) {}
template <class... T>
void log_line(const T&...) {}
bool device_is_done() { return true; }

// Compiled, not called: the functions of the tests next to this one run what they name.

void opening(std::span<const Shape> shapes, const std::map<std::string, Buffer>& weights) {
  DevicePtr host_device = cpu_device();
  {
    DevicePtr host = cpu_device();
  }
  {
    MemRegion& host = cpu_device()->default_mem_region();
  }
  {
    DevicePtr npu = Device::open("npu://sim?mac=32x32&ocm=2MiB");
  }
  io::Network net = io::load_network("net.json", "net.raw");
  {
    ProgramView ops = view(net.program, {0, 1, 5});
  }
  DType type = net.program.main().values[0].shape->dtype();
  for (ValueId id : net.program.main().results) use(net.program.main().values[id]);
  BackendPtr npu;
  {
    BackendPtr host = make_backend("cpu");
  }
  BackendPtr host;
  {
    Session session(net.program, {.backends = {npu, make_backend("cpu")}});
  }
  {
    Session session(net.program, {.backends = {npu, host}});
  }
  BoundView part{npu, view(net.program, {3, 4})};
  {
    Session session(net.program,
                    {{host, view(net.program, {0, 1, 2})}, {npu, view(net.program, {3, 4})}});
  }
  Session session = Session::load("net.snap", {npu, host});
  for (const std::string& op : op_names(net.program)) session.step_to(op);
  session.save("net.snap");
  const BackendPtr& first = session.backends()[0];
  bool is_npu = session.backends()[0]->name() == "npu";
  for (const auto& part : session.report(shapes).parts) log_line(part.backend, part.values);
  std::vector<std::string> ops = op_names(session.program());
  session.bind(std::make_shared<WeightSet>(weights));
  session.apply();
}

void running(Session& session, const Buffer& x, std::vector<Buffer>& outputs, MemRegion& region,
             const Shape& shape, std::span<const Shape> shapes) {
  {
    std::vector<Buffer> y = session.forward({x});
  }
  session.forward({x}, outputs);
  MemChunk chunk = region.malloc(std::uint64_t(shape.bytes()), true, 4096);
  Buffer y = session.step_to("conv1", {x});
  session.set_log_io(true);
  session.set_log_time(true);
  session.set_dump_outputs("./dump", "HQB");
  session.set_post_callback([](const StepEvent& e) { use(e.op, e.outputs); });
  session.enable_time_profile(true);
  for (const StepTime& t : session.step_times()) use(t.wall, t.mem, t.device, t.other);
  std::chrono::nanoseconds time = session.total_time();
  Session mine = session.fork();
  Session part = session.view(2, 5);
  session.set_merge(false);
  use(session.report(shapes).transfers);
  session.explain("conv1", shapes);
}

void pointers(std::byte* bytes) {
  MemPtr null;
  assert(null.is_null());
  {
    MemPtr p(static_cast<void*>(bytes));
  }
  {
    MemPtr p(std::uint64_t{0x4000'0000});
  }
  MemPtr p(bytes, 0x4000'0000);
  if (p.kind() == MemPtr::Kind::addr) use(p.addr());
  {
    std::byte* bytes = p.cptr();
  }
  MemPtr next = p + 40;
}

class Dram : public MemRegion {
 public:
  explicit Dram(MemRegion& udma);
  void init() override;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override;
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override;
};

void memory(MemRegion& region, MemRegion& other_region, const MemPtr& to, const MemPtr& from,
            std::uint64_t size, RegRegion& npu, MemChunk chunk, const MemChunk& other,
            char (&bytes)[64]) {
  {
    MemChunk c = region.malloc_at(MemPtr(std::uint64_t{8192}), 1024);
  }
  region.free(chunk.begin());
  region.copy(to, from, size);
  region.copy(to, other_region, from, size);
  ChunkDeleter free_it = [](const MemPtr& begin) { std::free(begin.cptr()); };
  for (const MemChunk& c : region.all_chunks()) use(c.begin(), c.size_bytes());
  std::optional<MemChunk> c = region.chunk(MemPtr(std::uint64_t{4096}), 1024);
  double share = region.usage().fragmentation();
  npu.write(0x18, 1, /*relative=*/true);
  chunk.read(bytes, /*offset=*/0, 64);
  chunk.copy_from(other);
  if (chunk.is_on(region)) chunk.free();
  MemPtr begin = chunk.begin();
}

struct Udma : MemRegion {
  Udma();
};
struct Registers : RegRegion {
  using RegRegion::RegRegion;
};

/// Templates, since the regions are only declared.
template <class Udma, class Dram, class Registers>
class BoardOf : public Device {
 public:
  explicit BoardOf(const DeviceUrl& url) : Device(url.text) {
    declare(std::make_unique<Udma>());
    MemRegion& udma = *mem_regions()[0];
    declare(std::make_unique<Dram>(udma), true);
    const std::uint64_t base = 0, size = 0;
    declare(std::make_unique<Registers>("npu", base, size), true);
    url.check_keys({"npu", "dma"});
    const std::string* base_text = nullptr;
    {
      const std::string* base = url.find("npu");
    }
    init();
  }
};

class Board : public Device {
 public:
  explicit Board(const DeviceUrl& url) : Device(url.text) {}
  ~Board() override { deinit(); }
  std::string protocol() const override { return "board"; }
  std::map<std::string, std::string> version() const override { return {}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int level) override { check_reset_level(level); }
};

void devices(const DevicePtr& device, const DeviceUrl& url) {
  Device::register_scheme("axi", [](const DeviceUrl& url) { return std::make_shared<Board>(url); });
  url.check_keys({"npu", "dma"});
  const std::string* base = url.find("npu");
  {
    MemRegion& dram = device->mem_region("plddr");
  }
  {
    MemRegion& dram = device->default_mem_region();
  }
  RegRegion& npu = device->default_reg_region();
  for (const auto& [part, version] : device->version()) log_line(part, version);
  std::string name = device->url();
  device->reset(0);
  MemRegion& ocm = device->mem_region("ocm");
}

void buffers(MemRegion& dram, MemRegion& host, const MemChunk& chunk, std::ostream& stream,
             std::int64_t q, std::int64_t channel, const QuantParams& params) {
  Shape type = Shape({1, 416, 416, 3}, f32).with_layout("NHWC");
  DType small = i8, half_size = f16;
  Layout hard("NCHWc32");
  bool blocked = hard.is_blocked();
  std::int64_t size = type.bytes();
  {
    Buffer x(type, chunk, /*offset_bytes=*/0);
  }
  {
    Buffer later(type);
  }
  Buffer later(type, [&] { return device_is_done(); });
  Buffer x = HostBuffer::zeros(type).to_device(cpu_device());
  DType t = x.shape().dtype();
  MemPtr begin = x.data();
  later.set_data(chunk);
  later.malloc_on(cpu_device()->default_mem_region());
  if (!x.is_on(dram)) x = x.to(dram);
  bool shared = x.to(host).chunk() == x.chunk();
  x.fill<float>([](std::size_t i) { return float(i); });
  bool done = x.wait_for(1000ms, 1ms);
  x.dump(stream, "SFT");
  x.set_format({.extent = 40, .software = Layout("NHWC"), .quant = QuantParams{.scale = {0.1f}}});
  double real = double(q) * params.factor(channel);
  {
    double q = 1;
    double real = q * params.factor(channel);
  }
}

void backends(Session& session) {
  Session mine = session.fork();
  session.step_times();
}

void npu_backend(const DevicePtr& device, std::shared_ptr<const npu::CalibrationTable> table) {
  npu::backend(device, {.calibration = table, .mode = npu::Mode::fake_quantized});
}

std::string without_spaces(std::string_view text) {
  std::string result;
  std::copy_if(text.begin(), text.end(), std::back_inserter(result),
               [](unsigned char c) { return std::isspace(c) == 0; });
  return result;
}

}  // namespace

TEST_CASE("docs/xrt.md: every example is compiled here") {
  const std::string page = testing::read_bytes("docs/xrt.md");
  REQUIRE_FALSE(page.empty());
  const std::string source = without_spaces(testing::read_bytes("tests/devices/xrt_page_test.cpp"));
  int examples = 0;
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t end = std::min(page.find('\n', at), page.size());
    const std::string_view line = std::string_view(page).substr(at, end - at);
    at = end + 1;
    // The last cell of a row, where it is code: | XRT | Tenon | `code` |
    if (!line.starts_with("| ") || !line.ends_with("` |")) continue;
    const std::size_t begin = line.rfind("| `");
    const std::string_view code = line.substr(begin + 3, line.size() - 3 - (begin + 3));
    if (!code.ends_with(';') && !code.ends_with('}')) continue;  // a table of names
    if (code.find("...") != std::string_view::npos) continue;    // an outline
    ++examples;
    INFO(code);
    CHECK(source.find(without_spaces(code)) != std::string::npos);
  }
  CHECK(examples > 80);
}

}  // namespace tenon
