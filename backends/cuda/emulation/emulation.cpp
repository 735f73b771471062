#include "emulation/emulation.hpp"

#include "device.hpp"

#include <tenon/error.hpp>

#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

template <class Number>
Number number(const DeviceUrl& url, const char* key, Number absent) {
  const std::string* const text = url.find(key);
  if (text == nullptr) return absent;
  Number value = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  if (error == std::errc() && rest == end && value > 0) return value;
  throw Error(Errc::out_of_range, url.text, fmt::format("{}={} is no positive number", key, *text));
}

FoundCompiler (*open_compiler)() = nullptr;

DriverPtr open_emulated(const DeviceUrl& url) {
  url.check_keys({"memory", "fail_allocation", "fail_launch"});
  EmulationOptions options;
  options.memory_bytes = number(url, "memory", options.memory_bytes);
  options.faults.failing_allocation = number(url, "fail_allocation", 0);
  options.faults.failing_launch = number(url, "fail_launch", 0);
  if (open_compiler != nullptr) options.compiler = open_compiler();
  return open_emulated_driver(std::move(options));
}

}  // namespace

void set_emulated_compiler(FoundCompiler (*open)()) { open_compiler = open; }

void register_emulation() { register_emulated_devices(open_emulated); }

}  // namespace tenon::cuda
