#pragma once

#include "driver/routines.hpp"

#include <memory>
#include <optional>
#include <string>

namespace tenon::cuda {

/// A function of one of NVIDIA's libraries, on the current context's device. Thread-safe.
template <class Call>
class VendorFunction {
 public:
  virtual ~VendorFunction() = default;
  /// Why it does not compute calls of these sizes and types, or nothing. Addresses are not read.
  virtual std::optional<std::string> refuses(const Call& call) = 0;
  /// Submits to a CUstream; returns what went wrong, or nothing.
  virtual std::optional<std::string> run(const Call& call, void* stream) = 0;
};

/// `about`: the library and its version, or why there is none.
template <class Call>
struct Vendor {
  std::unique_ptr<VendorFunction<Call>> function;
  std::string about;
};

/// The libraries are loaded when they are first asked for: nothing links against them.
Vendor<GemmCall> open_cublaslt();
Vendor<ConvolutionCall> open_cudnn();

}  // namespace tenon::cuda
