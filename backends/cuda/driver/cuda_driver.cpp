// The CUDA driver, loaded when the first device is opened: nothing links against it.
#include "driver/driver.hpp"
#include "driver/kernel_image.hpp"

#include <tenon/error.hpp>

#include <array>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace tenon::cuda {
namespace {

// A function's name in the library: cuda.h maps some to later versions by macros.
#define TENON_CUDA_NAME(function) TENON_CUDA_TEXT(function)
#define TENON_CUDA_TEXT(function) #function
// clang-format off
#define TENON_CUDA_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet) \
  X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) \
  X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuModuleLoadData) X(cuModuleUnload) \
  X(cuModuleGetFunction) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuStreamCreate) \
  X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate) \
  X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuMemcpyHtoDAsync) \
  X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemsetD8Async) X(cuLaunchKernel)
// clang-format on

[[noreturn]] void throw_unavailable(std::string why) {
  throw Error(Errc::device_unavailable, "cuda", std::move(why));
}

/// The driver's functions.
struct Library {
#define TENON_CUDA_MEMBER(function) decltype(&::function) p_##function = nullptr;
  TENON_CUDA_FUNCTIONS(TENON_CUDA_MEMBER)
#undef TENON_CUDA_MEMBER

  Library() {
    void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      throw_unavailable("this machine has no CUDA driver: libcuda.so.1 cannot be loaded");
    }
#define TENON_CUDA_LOAD(function)                                                          \
  p_##function =                                                                           \
      reinterpret_cast<decltype(p_##function)>(dlsym(handle, TENON_CUDA_NAME(function)));  \
  if (p_##function == nullptr) {                                                           \
    throw_unavailable("the CUDA driver is too old: it has no " TENON_CUDA_NAME(function)); \
  }
    TENON_CUDA_FUNCTIONS(TENON_CUDA_LOAD)
#undef TENON_CUDA_LOAD
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
  static const Library loaded;
  return loaded;
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
    } catch (...) {
      cuda_.p_cuDevicePrimaryCtxRelease(device_);
      throw;
    }
  }
  ~CudaDriver() override {
    cuda_.p_cuCtxSetCurrent(context_);
    cuda_.p_cuModuleUnload(module_);
    cuda_.p_cuDevicePrimaryCtxRelease(device_);
  }

  const DeviceFacts& facts() const noexcept override { return facts_; }

  Address allocate(std::uint64_t bytes) override {
    enter();
    CUdeviceptr address = 0;
    const CUresult result = cuda_.p_cuMemAlloc(&address, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      throw Error(Errc::out_of_device_memory, facts_.name,
                  fmt::format("no room for {} bytes: {} are free", bytes, free_bytes()));
    }
    check(result, "cuMemAlloc");
    return address;
  }
  void free(Address address) noexcept override {
    cuda_.p_cuCtxSetCurrent(context_);
    cuda_.p_cuMemFree(address);
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
    check(cuda_.p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return StreamId{reinterpret_cast<std::uintptr_t>(stream)};
  }
  void destroy(StreamId stream) noexcept override {
    cuda_.p_cuCtxSetCurrent(context_);
    cuda_.p_cuStreamSynchronize(of(stream));
    cuda_.p_cuStreamDestroy(of(stream));
  }
  EventId create_event() override {
    enter();
    CUevent event = nullptr;
    check(cuda_.p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return EventId{reinterpret_cast<std::uintptr_t>(event)};
  }
  void destroy(EventId event) noexcept override {
    cuda_.p_cuCtxSetCurrent(context_);
    cuda_.p_cuEventDestroy(of(event));
  }

  void write(StreamId stream, Address to, const void* from, std::uint64_t bytes) override {
    enter();
    check(cuda_.p_cuMemcpyHtoDAsync(to, from, bytes, of(stream)), "a copy to the device");
  }
  void read(StreamId stream, void* to, Address from, std::uint64_t bytes) override {
    enter();
    check(cuda_.p_cuMemcpyDtoHAsync(to, from, bytes, of(stream)), "a copy from the device");
  }
  void copy(StreamId stream, Address to, Address from, std::uint64_t bytes) override {
    enter();
    check(cuda_.p_cuMemcpyDtoDAsync(to, from, bytes, of(stream)), "a copy on the device");
  }
  void fill(StreamId stream, Address to, std::uint8_t value, std::uint64_t bytes) override {
    enter();
    check(cuda_.p_cuMemsetD8Async(to, value, bytes, of(stream)), "a fill");
  }
  void launch(StreamId stream, Kernel kernel, const Grid& grid, const void* args) override {
    enter();
    void* parameters[] = {const_cast<void*>(args)};
    check(cuda_.p_cuLaunchKernel(functions_[static_cast<std::size_t>(kernel)], grid.blocks, 1, 1,
                                 grid.threads, 1, 1, 0, of(stream), parameters, nullptr),
          facts_of(kernel).name);
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
  void synchronize(StreamId stream) override {
    enter();
    check(cuda_.p_cuStreamSynchronize(of(stream)), "earlier work");
  }

 private:
  static CUstream of(StreamId id) {
    return reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(id));
  }
  static CUevent of(EventId id) {
    return reinterpret_cast<CUevent>(static_cast<std::uintptr_t>(id));
  }

  void check_opening(CUresult result) const {
    if (result != CUDA_SUCCESS) throw_unavailable(cuda_.text(result));
  }

  /// The context belongs to the calling thread from now on; throws what the device failed of.
  void enter() const {
    {
      const std::scoped_lock lock(mutex_);
      if (broken_) throw *broken_;
    }
    check(cuda_.p_cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  }
  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    const std::scoped_lock lock(mutex_);
    if (!broken_) {
      broken_ =
          Error(Errc::device_error, facts_.name, fmt::format("{}: {}", what, cuda_.text(result)));
    }
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
    facts_.params = {
        {"compute_capability",
         fmt::format("{}.{}", attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                     attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))},
        {"multiprocessors", std::to_string(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))},
        {"clock_khz", std::to_string(attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE))},
        {"memory_gb_per_s", fmt::format("{:.0f}", 2 * memory_hz * bytes / 1e9)},
    };
  }

  void load_kernels() {
    const CUresult result = cuda_.p_cuModuleLoadData(&module_, kernel_image());
    if (result != CUDA_SUCCESS) {
      throw_unavailable(
          fmt::format("the kernels do not load on {}: {}", facts_.name, cuda_.text(result)));
    }
    constexpr const char* names[] = {
#define TENON_CUDA_KERNEL(id, Args, kind, call) "tenon_" #id,
#include "kernels/entries.def"
#undef TENON_CUDA_KERNEL
    };
    for (std::size_t i = 0; i < kernel_count; ++i) {
      if (cuda_.p_cuModuleGetFunction(&functions_[i], module_, names[i]) != CUDA_SUCCESS) {
        throw Error(Errc::internal, "cuda", fmt::format("the module has no {}", names[i]));
      }
    }
  }

  const Library& cuda_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  std::array<CUfunction, kernel_count> functions_{};
  DeviceFacts facts_;
  mutable std::mutex mutex_;
  mutable std::optional<Error> broken_;
};

}  // namespace

DriverPtr open_cuda_driver(int index) { return std::make_shared<CudaDriver>(index); }

}  // namespace tenon::cuda
