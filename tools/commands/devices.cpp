#include "tool.hpp"

#include <tenon/backends/null.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/npu/replay.hpp>

#include <fstream>
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

/// Replays a trace on the device and reports the differences.
void replay_trace(const std::string& url, const std::string& path, const Tool& tool) {
  std::ifstream trace(path);
  if (!trace) throw Error(Errc::not_found, path, "no such trace");
  const DevicePtr device = Device::open(url);
  const npu::ReplayReport report = npu::replay(*device, trace);
  if (tool.json) {
    Json differences = Json::array();
    for (const npu::ReplayDifference& difference : report.differences) {
      differences.push_back({{"line", difference.line}, {"what", difference.what}});
    }
    tool.print({{"url", url},
                {"lines", report.lines},
                {"register_writes", report.register_writes},
                {"registers_compared", report.registers_compared},
                {"registers_skipped", report.registers_skipped},
                {"waits", report.waits},
                {"bytes_written", report.bytes_written},
                {"bytes_compared", report.bytes_compared},
                {"differences", differences},
                {"gave_up", report.gave_up}});
  } else {
    fmt::print(
        "{} lines: {} registers written, {} compared, {} skipped; {} waits; {} bytes written, "
        "{} "
        "compared\n",
        report.lines, report.register_writes, report.registers_compared, report.registers_skipped,
        report.waits, report.bytes_written, report.bytes_compared);
    for (const npu::ReplayDifference& difference : report.differences) {
      fmt::print("{}:{}: {}\n", path, difference.line, difference.what);
    }
  }
  if (report.matches()) return;
  throw Error(Errc::device_error, url,
              fmt::format("the device differs from the trace in {} place{}{}",
                          report.differences.size(), report.differences.size() == 1 ? "" : "s",
                          report.gave_up ? " and perhaps more" : ""));
}

void run(const Tool& tool, const std::vector<std::string>& urls, const std::string& trace) {
  register_null_backend();
  if (!trace.empty()) {
    if (urls.size() != 1) {
      throw Error(Errc::bad_argument, "--replay",
                  "needs exactly one URL, of the device to replay on");
    }
    return replay_trace(urls.front(), trace, tool);
  }
  if (!urls.empty()) {
    Json opened = Json::array();
    for (const std::string& url : urls) opened.push_back(describe(url));
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
}

}  // namespace

void add_devices(CLI::App& app, Tool& tool) {
  Command command(app, tool, "devices", "Devices and backends of this build on this machine");
  auto urls = std::make_shared<std::vector<std::string>>();
  command.option("URL", *urls, "Devices to open and describe, such as cpu: or npu://sim?ocm=1MiB");
  auto trace = std::make_shared<std::string>();
  command.option("--replay", *trace,
                 "Trace of an NPU (npu://sim?trace=FILE) to replay on the device of the one URL");
  add_json(command);
  command.runs([&tool, urls, trace] { run(tool, *urls, *trace); });
}

}  // namespace tenon::tool
