#include "tool.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/null.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>

#include <fmt/format.h>

namespace tenon::tool {

void add_devices(CLI::App& app, Tool& tool) {
  CLI::App& command =
      *app.add_subcommand("devices", "Devices and backends of this build on this machine");
  add_json(command, tool);
  command.callback([&tool] {
    tool.run = [&tool] {
      register_cpu_backend();
      register_reference_backend();
      register_null_backend();
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
