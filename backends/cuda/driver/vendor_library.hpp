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

// A library's functions as members of a struct, p_NAME each: `functions(X)` is a list X(name) ... .
// Names that a header maps to others by macros are looked up as those.
#define TENON_VENDOR_TEXT(function) #function
#define TENON_VENDOR_MEMBER(function) decltype(&::function) p_##function = nullptr;
#define TENON_VENDOR_FIND(function) found.find(p_##function, TENON_VENDOR_TEXT(function));
#define TENON_VENDOR_LIBRARY(Library, functions)                                      \
  struct Library {                                                                    \
    functions(TENON_VENDOR_MEMBER) VendorSymbols found;                               \
    explicit Library(const char* file) : found(file) { functions(TENON_VENDOR_FIND) } \
  }

/// A library that stays loaded.
class VendorSymbols {
 public:
  explicit VendorSymbols(const char* file);
  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(address_of(name));
  }
  /// Why it cannot be used: it is not there, or lacks a function. Empty: it can.
  const std::string& missing() const noexcept { return missing_; }

 private:
  void* address_of(const char* name);

  const char* file_;
  void* handle_;
  std::string missing_;
};

/// "13.0.2" of 130002.
std::string version_text(std::size_t version);

/// The libraries are loaded when they are first asked for: nothing links against them.
Vendor<GemmCall> open_cublaslt();
Vendor<ConvolutionCall> open_cudnn();

}  // namespace tenon::cuda
