// The backend "cuda" of device cuda:0 as a plugin: what `load_plugin` opens.
#include "base/immortal.hpp"
#include "driver/driver.hpp"

#include <tenon/backends/cuda.hpp>
#include <tenon/error.hpp>

#include <string>

namespace {

const char* why_unavailable() {
  const std::string& why = tenon::process_wide([]() -> std::string {
    try {
      tenon::cuda::open_cuda_driver(0);
      return {};
    } catch (const tenon::Error& error) {
      return error.message();
    }
  });
  return why.empty() ? nullptr : why.c_str();
}

}  // namespace

extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept {
  static const tenon::PluginDescriptor descriptor{
      .name = "cuda", .unavailable = why_unavailable, .create = tenon::make_cuda_backend};
  return &descriptor;
}
