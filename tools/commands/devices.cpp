#include "tool.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/null.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

Json describe(const std::string& url) {
  const DevicePtr device = Device::open(url);
  Json memories = Json::array(), registers = Json::array();
  for (const auto& region : device->mem_regions()) {
    const MemRegion::Usage usage = region->usage();
    memories.push_back({{"name", region->name()},
                        {"cpu_memory", region->is_host()},
                        {"default", region.get() == &device->default_mem_region()},
                        {"capacity_bytes", usage.capacity_bytes},
                        {"used_bytes", usage.used_bytes}});
  }
  for (const auto& region : device->reg_regions()) registers.push_back(region->name());
  return {{"url", url},
          {"protocol", device->protocol()},
          {"version", device->version()},
          {"params", device->params()},
          {"mem_regions", memories},
          {"reg_regions", registers}};
}

void print(const Json& device) {
  fmt::print("{}: protocol {}\n", device["url"].get<std::string>(),
             device["protocol"].get<std::string>());
  for (const char* facts : {"version", "params"}) {
    for (const auto& [key, value] : device[facts].items()) {
      fmt::print("  {} {} {}\n", facts, key, value.get<std::string>());
    }
  }
  for (const Json& region : device["mem_regions"]) {
    const auto capacity = region["capacity_bytes"].get<std::uint64_t>();
    fmt::print("  memory {}{}{}\n", region["name"].get<std::string>(),
               region["default"].get<bool>() ? " (default)" : "",
               capacity > 0 ? fmt::format(", {} bytes", capacity) : "");
  }
  for (const Json& region : device["reg_regions"]) {
    fmt::print("  registers {}\n", region.get<std::string>());
  }
}

}  // namespace

void add_devices(CLI::App& app, Tool& tool) {
  CLI::App& command =
      *app.add_subcommand("devices", "Devices and backends of this build on this machine");
  auto urls = std::make_shared<std::vector<std::string>>();
  command.add_option("URL", *urls,
                     "Devices to open and describe, such as cpu: or npu://sim?ocm=1MiB");
  add_json(command, tool);
  command.callback([&tool, urls] {
    tool.run = [&tool, urls] {
      register_cpu_backend();
      register_reference_backend();
      register_null_backend();
      register_npu_sim();
      if (!urls->empty()) {
        Json opened = Json::array();
        for (const std::string& url : *urls) opened.push_back(describe(url));
        if (tool.json) {
          tool.print({{"devices", opened}});
        } else {
          for (const Json& device : opened) print(device);
        }
        return;
      }
      Json devices = Json::array();
      for (const std::string& scheme : Device::schemes()) devices.push_back(scheme + ":");
      Json backends = Json::array();
      for (const std::string& name : backend_names()) {
        backends.push_back({{"name", name}, {"properties", make_backend(name)->properties()}});
      }
      if (tool.json) {
        tool.print({{"devices", devices}, {"backends", backends}});
        return;
      }
      for (const auto& device : devices) fmt::print("device  {}\n", device.get<std::string>());
      for (const auto& backend : backends) {
        fmt::print("backend {}", backend["name"].get<std::string>());
        for (const auto& [key, value] : backend["properties"].items())
          fmt::print(", {} {}", key, value.get<std::string>());
        fmt::print("\n");
      }
    };
  });
}

}  // namespace tenon::tool
