// The CUDA driver, loaded when the first device is opened: nothing links against it.
#include "base/immortal.hpp"
#include "driver/driver.hpp"
#include "driver/kernel_image.hpp"
#include "driver/owner_process.hpp"
#include "driver/vendor_library.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <cuda.h>
#include <fmt/format.h>

namespace tenon::cuda {
namespace {

// clang-format off
#define TENON_CUDA_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet) \
  X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) \
  X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuModuleLoadData) X(cuModuleUnload) \
  X(cuModuleGetFunction) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemPoolCreate) \
  X(cuMemPoolDestroy) X(cuMemPoolSetAttribute) X(cuMemPoolTrimTo) X(cuMemAllocFromPoolAsync) \
  X(cuMemFreeAsync) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuStreamCreate) X(cuStreamDestroy) \
  X(cuStreamQuery) X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventDestroy) \
  X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuMemcpyHtoDAsync) \
  X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpyPeerAsync) X(cuMemsetD8Async) \
  X(cuLaunchKernel) X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphAddKernelNode) \
  X(cuGraphAddChildGraphNode) X(cuGraphInstantiate) X(cuGraphExecDestroy) \
  X(cuGraphExecKernelNodeSetParams) X(cuGraphAddDependencies) X(cuFuncGetAttribute) X(cuGraphExecChildGraphNodeSetParams) X(cuGraphLaunch) \
  X(cuStreamBeginCapture) X(cuStreamEndCapture)
// clang-format on

[[noreturn]] void throw_unavailable(std::string why) {
  throw Error(Errc::device_unavailable, "cuda", std::move(why));
}

TENON_VENDOR_LIBRARY(Functions, TENON_CUDA_FUNCTIONS);

struct Library : Functions {
  Library() : Functions("libcuda.so.1") {
    if (!found.missing().empty())
      throw_unavailable("this machine has no CUDA driver that can be used: " + found.missing());
    if (const CUresult result = p_cuInit(0); result != CUDA_SUCCESS) {
      throw_unavailable(fmt::format("the CUDA driver does not start: {}", text(result)));
    }
  }

  std::string text(CUresult result) const {
    const char* text = nullptr;
    const bool known = p_cuGetErrorString(result, &text) == CUDA_SUCCESS && text != nullptr;
    return known ? text : fmt::format("error {}", static_cast<int>(result));
  }
};

/// Stays loaded; where there is none, every call throws why.
const Library& library() {
  return process_wide([] { return Library(); });
}

class CudaDriver final : public Driver {
 public:
  explicit CudaDriver(int index) : cuda_(library()) {
    int count = 0;
    check_opening(cuda_.p_cuDeviceGetCount(&count));
    if (index >= count) {
      throw_unavailable(fmt::format("there is no device {}: this machine has {}", index, count));
    }
    check_opening(cuda_.p_cuDeviceGet(&device_, index));
    describe();
    check_opening(cuda_.p_cuDevicePrimaryCtxRetain(&context_, device_));
    try {
      enter();
      load_kernels();
      kernels_wait_ = wait_for_earlier_kernels();
      make_pool();
    } catch (...) {
      close();
      throw;
    }
  }
  ~CudaDriver() override { close(); }

  const DeviceFacts& facts() const noexcept override { return facts_; }

  Address allocate(std::uint64_t bytes) override {
    enter();
    CUdeviceptr address = 0;
    CUresult result = allocate_once(address, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pool_ != nullptr) {  // what the pool keeps may do
      check(cuda_.p_cuStreamSynchronize(memory_stream_), "earlier work");
      check(cuda_.p_cuMemPoolTrimTo(pool_, 0), "cuMemPoolTrimTo");
      result = allocate_once(address, bytes);
    }
    if (is_lack_of_room(result)) {
      throw Error(Errc::out_of_device_memory, facts_.name,
                  fmt::format("no room for {} bytes: {} are free", bytes, free_bytes()));
    }
    check(result, "an allocation");
    // Any stream may use it from here on.
    if (pool_ != nullptr) check(cuda_.p_cuStreamSynchronize(memory_stream_), "an allocation");
    return address;
  }
  void free(Address address) noexcept override {
    if (!enter_to_free()) return;
    if (pool_ != nullptr) {
      cuda_.p_cuMemFreeAsync(address, memory_stream_);
    } else {
      cuda_.p_cuMemFree(address);
    }
  }
  void* allocate_pinned(std::uint64_t bytes) override {
    enter();
    void* memory = nullptr;
    const CUresult result = cuda_.p_cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (is_lack_of_room(result)) {
      throw Error(Errc::out_of_memory, facts_.name, fmt::format("no {} bytes to pin", bytes));
    }
    check(result, "cuMemHostAlloc");
    return memory;
  }
  void free_pinned(void* memory) noexcept override {
    if (enter_to_free()) cuda_.p_cuMemFreeHost(memory);
  }
  std::uint64_t free_bytes() const override {
    enter();
    std::size_t free = 0, total = 0;
    check(cuda_.p_cuMemGetInfo(&free, &total), "cuMemGetInfo");
    return free;
  }

  StreamId create_stream() override {
    enter();
    CUstream stream = nullptr;
    check_room(cuda_.p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return StreamId{reinterpret_cast<std::uintptr_t>(stream)};
  }
  void destroy(StreamId stream) noexcept override {
    if (!enter_to_free()) return;
    cuda_.p_cuStreamSynchronize(of(stream));
    cuda_.p_cuStreamDestroy(of(stream));
  }
  EventId create_event() override {
    enter();
    CUevent event = nullptr;
    check_room(cuda_.p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return EventId{reinterpret_cast<std::uintptr_t>(event)};
  }
  void destroy(EventId event) noexcept override {
    if (enter_to_free()) cuda_.p_cuEventDestroy(of(event));
  }

  void write(StreamId stream, Address to, const void* from, std::uint64_t bytes) override {
    enter();
    check_room(cuda_.p_cuMemcpyHtoDAsync(to, from, bytes, of(stream)), "a copy to the device");
  }
  void read(StreamId stream, void* to, Address from, std::uint64_t bytes) override {
    enter();
    check_room(cuda_.p_cuMemcpyDtoHAsync(to, from, bytes, of(stream)), "a copy from the device");
  }
  void copy(StreamId stream, Address to, Address from, std::uint64_t bytes) override {
    enter();
    check_room(cuda_.p_cuMemcpyDtoDAsync(to, from, bytes, of(stream)), "a copy on the device");
  }
  void fill(StreamId stream, Address to, std::uint8_t value, std::uint64_t bytes) override {
    enter();
    check_room(cuda_.p_cuMemsetD8Async(to, value, bytes, of(stream)), "a fill");
  }
  void copy_from_peer(StreamId stream, Address to, Driver& peer, Address from,
                      std::uint64_t bytes) override {
    enter();
    const auto& other = static_cast<const CudaDriver&>(peer);
    check_room(cuda_.p_cuMemcpyPeerAsync(to, context_, from, other.context_, bytes, of(stream)),
               "a copy from another device");
  }
  bool is_peer(const Driver& other) const noexcept override {
    return dynamic_cast<const CudaDriver*>(&other) != nullptr;
  }

  std::string about(Routine routine) override {
    enter();
    return routine == Routine::gemm ? gemm().about : convolution().about;
  }
  std::optional<std::string> refuses(const GemmCall& call) override {
    enter();
    return gemm().function == nullptr ? gemm().about : gemm().function->refuses(call);
  }
  std::optional<std::string> refuses(const ConvolutionCall& call) override {
    enter();
    return convolution().function == nullptr ? convolution().about
                                             : convolution().function->refuses(call);
  }
  std::uint64_t workspace_bytes() const noexcept override { return std::uint64_t{32} << 20; }

  const FoundCompiler& kernel_compiler() override {
    enter();
    const std::scoped_lock lock(vendor_mutex_);
    if (!compiler_) compiler_ = open_nvrtc(capability_);
    return *compiler_;
  }
  std::shared_ptr<const GeneratedKernel> load(std::span<const std::byte> image,
                                              std::size_t args_bytes) override {
    enter();
    auto loaded = std::make_shared<LoadedKernel>(*this, args_bytes);
    CUresult result = cuda_.p_cuModuleLoadData(&loaded->module, image.data());
    if (result == CUDA_SUCCESS) {
      result = cuda_.p_cuModuleGetFunction(&loaded->function, loaded->module, "tenon_fused");
    }
    // A device that failed says so at the next call.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
      throw Error(Errc::corrupt, facts_.name,
                  fmt::format("a generated kernel does not load: {}", cuda_.text(result)));
    }
    check_room(result, "a generated kernel");
    return loaded;
  }

  void launch(StreamId stream, const Work& work) override {
    enter();
    if (work.routine != Routine::none) return run_routine(of(stream), work);
    void* parameters[] = {const_cast<void*>(work.args)};
    check_room(cuda_.p_cuLaunchKernel(function_of(work), work.grid.blocks, 1, 1, work.grid.threads,
                                      1, 1, 0, of(stream), parameters, nullptr),
               name_of(work));
  }

  GraphId create_graph(std::span<const Work> work, bool overlaps) override {
    enter();
    auto graph = std::make_unique<Graph>(cuda_);
    check_room(cuda_.p_cuGraphCreate(&graph->nodes, 0), "cuGraphCreate");
    for (std::size_t i = 0; i < work.size(); ++i) {
      add_node(*graph, work[i]);
      if (i > 0)
        add_edge(*graph, overlaps && kernels_wait_ && is_kernel(work[i - 1]) && is_kernel(work[i]));
    }
    check_room(cuda_.p_cuGraphInstantiate(&graph->executable, graph->nodes, 0),
               "cuGraphInstantiate");
    return GraphId{reinterpret_cast<std::uintptr_t>(graph.release())};
  }
  void update(GraphId graph, std::size_t node, const Work& work) override {
    enter();
    const CUgraphNode changed = of(graph)->order.at(node);
    if (work.routine != Routine::none) {
      const Graph captured = capture(work);
      check_room(cuda_.p_cuGraphExecChildGraphNodeSetParams(of(graph)->executable, changed,
                                                            captured.nodes),
                 "cuGraphExecChildGraphNodeSetParams");
      return;
    }
    void* parameters[] = {const_cast<void*>(work.args)};
    const CUDA_KERNEL_NODE_PARAMS node_params = node_of(work, parameters);
    check_room(cuda_.p_cuGraphExecKernelNodeSetParams(of(graph)->executable, changed, &node_params),
               "cuGraphExecKernelNodeSetParams");
  }
  void launch(StreamId stream, GraphId graph) override {
    enter();
    check_room(cuda_.p_cuGraphLaunch(of(graph)->executable, of(stream)), "cuGraphLaunch");
  }
  void destroy(GraphId graph) noexcept override {
    const std::unique_ptr<Graph> owned(of(graph));
    if (!enter_to_free()) owned->forget();
  }

  void record(EventId event, StreamId stream) override {
    enter();
    check(cuda_.p_cuEventRecord(of(event), of(stream)), "cuEventRecord");
  }
  void wait(StreamId stream, EventId event) override {
    enter();
    check(cuda_.p_cuStreamWaitEvent(of(stream), of(event), 0), "cuStreamWaitEvent");
  }
  bool has_happened(EventId event) override {
    enter();
    const CUresult result = cuda_.p_cuEventQuery(of(event));
    if (result == CUDA_ERROR_NOT_READY) return false;
    check(result, "earlier work");
    return true;
  }
  void synchronize(EventId event) override {
    enter();
    check(cuda_.p_cuEventSynchronize(of(event)), "earlier work");
  }
  void synchronize(StreamId stream) override {
    enter();
    check(cuda_.p_cuStreamSynchronize(of(stream)), "earlier work");
  }
  void synchronize() override {
    enter();
    check(cuda_.p_cuCtxSynchronize(), "earlier work");
  }

 private:
  static CUstream of(StreamId id) {
    return reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(id));
  }
  static CUevent of(EventId id) {
    return reinterpret_cast<CUevent>(static_cast<std::uintptr_t>(id));
  }

  struct LoadedKernel final : GeneratedKernel {
    LoadedKernel(const CudaDriver& owner, std::size_t args_bytes)
        : GeneratedKernel(args_bytes), driver(owner) {}
    ~LoadedKernel() override {
      if (module != nullptr && driver.enter_to_free()) driver.cuda_.p_cuModuleUnload(module);
    }
    const CudaDriver& driver;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
  };

  /// A graph and what it is launched by, with its nodes in order.
  struct Graph {
    explicit Graph(const Library& library) : cuda(library) {}
    ~Graph() {
      if (executable != nullptr) cuda.p_cuGraphExecDestroy(executable);
      if (nodes != nullptr) cuda.p_cuGraphDestroy(nodes);
    }
    Graph(Graph&& other) noexcept
        : cuda(other.cuda),
          nodes(std::exchange(other.nodes, nullptr)),
          executable(std::exchange(other.executable, nullptr)),
          order(std::move(other.order)) {}
    Graph& operator=(Graph&&) = delete;
    void forget() noexcept {
      executable = nullptr;
      nodes = nullptr;
    }

    const Library& cuda;
    CUgraph nodes = nullptr;
    CUgraphExec executable = nullptr;
    std::vector<CUgraphNode> order;
  };
  static Graph* of(GraphId id) { return reinterpret_cast<Graph*>(static_cast<std::uintptr_t>(id)); }
  CUfunction function_of(const Work& work) const {
    if (work.generated != nullptr) {
      return static_cast<const LoadedKernel*>(work.generated)->function;
    }
    return functions_[static_cast<std::size_t>(work.kernel)];
  }
  CUDA_KERNEL_NODE_PARAMS node_of(const Work& work, void** parameters) const {
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = function_of(work);
    node.gridDimX = work.grid.blocks;
    node.blockDimX = work.grid.threads;
    node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = parameters;
    return node;
  }

  static bool is_kernel(const Work& work) { return work.routine == Routine::none; }

  void add_node(Graph& graph, const Work& work) {
    CUgraphNode made = nullptr;
    if (is_kernel(work)) {
      void* parameters[] = {const_cast<void*>(work.args)};
      const CUDA_KERNEL_NODE_PARAMS node = node_of(work, parameters);
      check_room(cuda_.p_cuGraphAddKernelNode(&made, graph.nodes, nullptr, 0, &node),
                 name_of(work));
    } else {
      const Graph captured = capture(work);
      check_room(cuda_.p_cuGraphAddChildGraphNode(&made, graph.nodes, nullptr, 0, captured.nodes),
                 name_of(work));
    }
    graph.order.push_back(made);
  }
  /// Between the last two nodes.
  void add_edge(Graph& graph, bool overlaps) {
    CUgraphEdgeData edge{};
    if (overlaps) {
      edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    }
    const CUgraphNode* const last = &graph.order.back();
    check_room(cuda_.p_cuGraphAddDependencies(graph.nodes, last - 1, last, &edge, 1),
               "cuGraphAddDependencies");
  }
  /// What a library's function launches.
  Graph capture(const Work& work) {
    const std::scoped_lock lock(capture_mutex_);
    if (capture_stream_ == nullptr) {
      check_room(cuda_.p_cuStreamCreate(&capture_stream_, CU_STREAM_NON_BLOCKING),
                 "cuStreamCreate");
    }
    if (work.routine == Routine::gemm) {  // made, if it can be, before the capture
      gemm();
    } else {
      convolution();
    }
    Graph captured(cuda_);
    check_room(cuda_.p_cuStreamBeginCapture(capture_stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
               "cuStreamBeginCapture");
    const std::optional<std::string> error = call_routine(capture_stream_, work);
    const CUresult ended = cuda_.p_cuStreamEndCapture(capture_stream_, &captured.nodes);
    if (error) fail_routine(capture_stream_, *error);
    check_room(ended, "cuStreamEndCapture");
    return captured;
  }
  void run_routine(CUstream stream, const Work& work) {
    if (const auto error = call_routine(stream, work)) fail_routine(stream, *error);
  }
  std::optional<std::string> call_routine(CUstream stream, const Work& work) {
    return work.routine == Routine::gemm
               ? gemm().function->run(*static_cast<const GemmCall*>(work.args), stream)
               : convolution().function->run(*static_cast<const ConvolutionCall*>(work.args),
                                             stream);
  }
  /// A library that fails, as for lack of memory, is an error of the call alone where the device
  /// works.
  [[noreturn]] void fail_routine(CUstream stream, const std::string& error) const {
    const CUresult state = cuda_.p_cuStreamQuery(stream);
    if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) fail(error);
    throw Error(Errc::device_error, facts_.name, error);
  }
  Vendor<GemmCall>& gemm() {
    const std::scoped_lock lock(vendor_mutex_);
    if (!gemm_) gemm_ = open_cublaslt();
    return *gemm_;
  }
  Vendor<ConvolutionCall>& convolution() {
    const std::scoped_lock lock(vendor_mutex_);
    if (!convolution_) convolution_ = open_cudnn();
    return *convolution_;
  }

  CUresult allocate_once(CUdeviceptr& address, std::uint64_t bytes) {
    return pool_ != nullptr
               ? cuda_.p_cuMemAllocFromPoolAsync(&address, bytes, pool_, memory_stream_)
               : cuda_.p_cuMemAlloc(&address, bytes);
  }
  /// A pool keeps what is freed, up to a limit, for later allocations: neither waits for the device.
  void make_pool() {
    constexpr cuuint64_t kept_bytes = cuuint64_t{1} << 30;
    if (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) return;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    check_opening(cuda_.p_cuStreamCreate(&memory_stream_, CU_STREAM_NON_BLOCKING));
    check_opening(cuda_.p_cuMemPoolCreate(&pool_, &properties));
    cuuint64_t limit = kept_bytes;
    check_opening(cuda_.p_cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &limit));
  }

  /// Frees what the constructor has made, and what came later.
  void close() noexcept {
    if (!process_.is_this()) return;
    if (enter_to_free()) {
      gemm_.reset();
      convolution_.reset();
      if (capture_stream_ != nullptr) cuda_.p_cuStreamDestroy(capture_stream_);
      if (memory_stream_ != nullptr) {
        cuda_.p_cuStreamSynchronize(memory_stream_);
        cuda_.p_cuStreamDestroy(memory_stream_);
      }
      if (pool_ != nullptr) cuda_.p_cuMemPoolDestroy(pool_);
      for (const CUmodule module : modules_) cuda_.p_cuModuleUnload(module);
    }
    cuda_.p_cuDevicePrimaryCtxRelease(device_);
  }

  /// As enter(), to free something: also when the device failed. False in a child of fork(), where
  /// the driver does not work.
  bool enter_to_free() const noexcept {
    return process_.is_this() && cuda_.p_cuCtxSetCurrent(context_) == CUDA_SUCCESS;
  }
  /// An absurd size counts as too large, too.
  static bool is_lack_of_room(CUresult result) {
    return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_INVALID_VALUE;
  }
  /// Of what makes something or submits work: lack of memory is an error of that call alone.
  void check_room(CUresult result, const char* what) const {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      throw Error(Errc::out_of_device_memory, facts_.name, fmt::format("{}: no room", what));
    }
    check(result, what);
  }

  void check_opening(CUresult result) const {
    if (result != CUDA_SUCCESS) fail_opening(result, cuda_.text(result));
  }
  [[noreturn]] void fail_opening(CUresult result, std::string why) const {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) throw_unavailable(std::move(why));
    throw Error(Errc::out_of_device_memory, "cuda", std::move(why));
  }

  /// The context belongs to the calling thread from now on; throws what the device failed of.
  void enter() const {
    process_.check(facts_.name);
    {
      const std::scoped_lock lock(mutex_);
      if (broken_) throw *broken_;
    }
    check(cuda_.p_cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  }
  void check(CUresult result, const char* what) const {
    if (result != CUDA_SUCCESS) fail(fmt::format("{}: {}", what, cuda_.text(result)));
  }
  /// From now on every call throws this, or what came before it.
  [[noreturn]] void fail(std::string why) const {
    const std::scoped_lock lock(mutex_);
    if (!broken_) broken_ = Error(Errc::device_error, facts_.name, std::move(why));
    throw *broken_;
  }

  int attribute(CUdevice_attribute which) const {
    int value = 0;
    check_opening(cuda_.p_cuDeviceGetAttribute(&value, which, device_));
    return value;
  }
  void describe() {
    std::array<char, 256> name{};
    check_opening(cuda_.p_cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_));
    std::size_t memory = 0;
    check_opening(cuda_.p_cuDeviceTotalMem(&memory, device_));
    int version = 0;
    check_opening(cuda_.p_cuDriverGetVersion(&version));
    facts_.name = name.data();
    facts_.protocol = "cuda";
    facts_.memory_bytes = memory;
    facts_.version = {{"driver", fmt::format("{}.{}", version / 1000, version % 1000 / 10)}};
    // Both edges of a clock carry a bit.
    const double memory_hz = 1e3 * attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    const double bytes = attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0;
    capability_ = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    facts_.params = {
        {"compute_capability", fmt::format("{}.{}", capability_ / 10, capability_ % 10)},
        {"multiprocessors", std::to_string(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))},
        {"clock_khz", std::to_string(attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE))},
        {"memory_gb_per_s", fmt::format("{:.0f}", 2 * memory_hz * bytes / 1e9)},
    };
  }

  void load_kernels() {
    for (const void* image : kernel_images()) {
      CUmodule module = nullptr;
      const CUresult result = cuda_.p_cuModuleLoadData(&module, image);
      if (result != CUDA_SUCCESS) {
        fail_opening(result, fmt::format("the kernels do not load on {}: {}", facts_.name,
                                         cuda_.text(result)));
      }
      modules_.push_back(module);
    }
    constexpr const char* names[] = {
#define TENON_CUDA_KERNEL(id, Args, kind, call) "tenon_" #id,
#include "kernels/entries.def"
#undef TENON_CUDA_KERNEL
    };
    for (std::size_t i = 0; i < kernel_count; ++i) {
      const bool is_found = std::ranges::any_of(modules_, [&](CUmodule module) {
        return cuda_.p_cuModuleGetFunction(&functions_[i], module, names[i]) == CUDA_SUCCESS;
      });
      if (!is_found) {
        throw Error(Errc::internal, "cuda", fmt::format("no module has {}", names[i]));
      }
    }
  }

  /// Whether kernels have the instructions by which one waits for those before it.
  bool wait_for_earlier_kernels() const {
    int version = 0;
    check_opening(
        cuda_.p_cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION, functions_.front()));
    return capability_ >= 90 && version >= 90;
  }

  const Library& cuda_;
  CUdevice device_ = 0;
  int capability_ = 0;  ///< 90: 9.0
  bool kernels_wait_ = false;
  CUcontext context_ = nullptr;
  std::vector<CUmodule> modules_;
  std::array<CUfunction, kernel_count> functions_{};
  std::mutex vendor_mutex_;
  std::optional<Vendor<GemmCall>> gemm_;
  std::optional<Vendor<ConvolutionCall>> convolution_;
  std::optional<FoundCompiler> compiler_;
  std::mutex capture_mutex_;
  CUstream capture_stream_ = nullptr;
  CUmemoryPool pool_ = nullptr;  ///< null where the device has none
  CUstream memory_stream_ = nullptr;
  DeviceFacts facts_;
  OwnerProcess process_;
  mutable std::mutex mutex_;
  mutable std::optional<Error> broken_;
};

}  // namespace

DriverPtr open_cuda_driver(int index) { return std::make_shared<CudaDriver>(index); }

}  // namespace tenon::cuda
