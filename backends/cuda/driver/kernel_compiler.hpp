// Kernels whose text is generated: compiled while the library runs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace tenon::cuda {

/// Thread-safe.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  /// What an image depends on besides the text: the compiler and its version, the headers that texts
  /// include, the device's architecture.
  virtual std::string identity() const = 0;
  /// An image for Driver::load. Errc::internal, with what the compiler says.
  virtual std::vector<std::byte> compile(const std::string& text) = 0;
};

/// `about`: the compiler, or why there is none.
struct FoundCompiler {
  std::unique_ptr<KernelCompiler> compiler;
  std::string about;
};

/// NVRTC for devices of a compute capability (90: 9.0). Loaded when it is first asked for.
FoundCompiler open_nvrtc(int capability);

/// A loaded kernel.
class GeneratedKernel {
 public:
  explicit GeneratedKernel(std::size_t args_bytes) : args_bytes_(args_bytes) {}
  virtual ~GeneratedKernel() = default;
  std::size_t args_bytes() const noexcept { return args_bytes_; }

 private:
  std::size_t args_bytes_;
};

}  // namespace tenon::cuda
