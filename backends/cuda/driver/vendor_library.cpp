#include "driver/vendor_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tenon::cuda {

VendorSymbols::VendorSymbols(const char* file)
    : file_(file), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) missing_ = fmt::format("{} cannot be loaded", file);
}

void* VendorSymbols::address_of(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* const address = dlsym(handle_, name);
  if (address == nullptr && missing_.empty()) missing_ = fmt::format("{} has no {}", file_, name);
  return address;
}

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace tenon::cuda
