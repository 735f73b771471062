#include "bindings.hpp"
#include "cuda.hpp"

#include <tenon/backend.hpp>
#include <tenon/backends/cpu.hpp>
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_remote.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/calibration.hpp>
#include <tenon/error.hpp>

#include <chrono>
#include <initializer_list>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

/// How Python holds a backend: the library's pointers are to constants.
struct PythonBackend {
  BackendPtr backend;
};

std::shared_ptr<const quant::CalibrationTable> table_of(nb::handle text) {
  return std::make_shared<const quant::CalibrationTable>(
      quant::CalibrationTable::from_text(nb::cast<std::string>(nb::str(text))));
}

/// The value of an enumeration with this name.
template <class Enum>
Enum named(const std::string& option, const std::string& word, std::initializer_list<Enum> all) {
  std::string known;
  for (const Enum one : all) {
    if (word == to_string(one)) return one;
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", to_string(one));
  }
  throw Error(Errc::bad_argument, "Backend",
              fmt::format("{}='{}' is none of {}", option, word, known));
}

/// The fields of npu::Options by their names; the deadline in seconds.
npu::Options npu_options(const nb::kwargs& words) {
  using npu::Mode, npu::Placement;
  npu::Options options;
  const std::map<std::string, bool*> flags{{"fuse", &options.fuse},
                                           {"merge", &options.merge},
                                           {"per_channel", &options.per_channel},
                                           {"precheck", &options.precheck},
                                           {"profile_layers", &options.profile_layers},
                                           {"host_fallback", &options.host_fallback}};
  for (const auto& [key, value] : words) {
    const auto word = nb::cast<std::string>(key);
    try {
      if (const auto flag = flags.find(word); flag != flags.end()) {
        *flag->second = nb::cast<bool>(value);
      } else if (word == "mode") {
        options.mode = named(word, nb::cast<std::string>(value),
                             {Mode::device, Mode::exact, Mode::fake_quantized, Mode::floating});
      } else if (word == "placement") {
        options.placement = named(
            word, nb::cast<std::string>(value),
            {Placement::none, Placement::global, Placement::dp, Placement::evict, Placement::best});
      } else if (word == "deadline") {
        options.deadline = std::chrono::duration_cast<std::chrono::milliseconds>(
            to_limit(nb::cast<double>(value)));
      } else if (word == "retries") {
        options.retries = nb::cast<int>(value);
      } else {
        throw Error(Errc::bad_argument, "Backend",
                    fmt::format("an NPU has no option '{}'; it has mode, placement, deadline, "
                                "retries, fuse, merge, per_channel, precheck, profile_layers and "
                                "host_fallback",
                                word));
      }
    } catch (const nb::cast_error&) {
      throw Error(
          Errc::bad_argument, "Backend",
          fmt::format("{}={} has another type", word, nb::cast<std::string>(nb::repr(value))));
    }
  }
  return options;
}

/// What the driver knows of an NPU, as Python's objects.
const npu::Npu& npu_of(const PythonBackend& self) {
  if (const auto* npu = dynamic_cast<const npu::Npu*>(self.backend.get())) return *npu;
  throw Error(Errc::bad_argument, "Backend", fmt::format("'{}' is no NPU", self.backend->name()));
}

nb::dict to_dict(const npu::Counters& counters) {
  nb::dict facts;
  facts["runs"] = counters.runs;
  facts["timeouts"] = counters.timeouts;
  facts["faults"] = counters.faults;
  facts["retries"] = counters.retries;
  facts["resets"] = counters.resets;
  facts["reloads"] = counters.reloads;
  facts["lost_interrupts"] = counters.lost_interrupts;
  facts["host_fallbacks"] = counters.host_fallbacks;
  facts["thrown_out"] = counters.thrown_out;
  facts["most_in_flight"] = counters.most_in_flight;
  return facts;
}

/// The numbers that reports of runs and of layers share.
template <class Report>
nb::dict work_of(const Report& report) {
  nb::dict facts;
  facts["ddr_read"] = report.ddr_read;
  facts["ddr_write"] = report.ddr_write;
  facts["macs"] = report.macs;
  facts["ld_busy"] = report.ld_busy;
  facts["ex_busy"] = report.ex_busy;
  facts["st_busy"] = report.st_busy;
  return facts;
}

nb::dict to_dict(const npu::RunReport& report) {
  nb::dict facts = work_of(report);
  facts["shared"] = report.shared;
  facts["cycles"] = report.cycles;
  facts["instructions"] = report.instructions;
  nb::list layers;
  for (const npu::LayerReport& layer : report.layers) {
    nb::dict one = work_of(layer);
    one["values"] = layer.values;
    one["kind"] = layer.kind;
    one["begin"] = layer.begin;
    one["end"] = layer.end;
    layers.append(one);
  }
  facts["layers"] = layers;
  return facts;
}

nb::dict to_dict(const npu::NetworkReport& report) {
  nb::dict facts;
  facts["text"] = report.text;
  facts["disassembly"] = report.disassembly;
  facts["placement"] = std::string(to_string(report.placement));
  facts["layers"] = report.layers;
  facts["programs"] = report.programs;
  facts["constant_bytes"] = report.constant_bytes;
  facts["ftmp_bytes"] = report.ftmp_bytes;
  facts["on_chip_bytes"] = report.on_chip_bytes;
  facts["predicted_cycles"] = report.predicted_cycles;
  facts["predicted_read"] = report.predicted_read;
  facts["predicted_write"] = report.predicted_write;
  facts["macs"] = report.macs;
  return facts;
}

/// Threads, precision, the calibration with which a device computes in int8, and an NPU's options.
BackendOptions options_of(int threads, bool exact, nb::handle calibration, const nb::kwargs& words,
                          const std::string& kind) {
  BackendOptions options;
  options.threads = threads;
  options.exact = exact;
  if (kind != "npu" && words.size() > 0) {
    throw Error(Errc::bad_argument, "Backend",
                fmt::format("'{}' has no option '{}'", kind,
                            nb::cast<std::string>((*words.begin()).first)));
  }
  if (calibration.is_none() && words.size() == 0) return options;
  if (kind == "npu") {
    npu::Options npu = npu_options(words);
    if (!calibration.is_none()) npu.calibration = table_of(calibration);
    options.device = std::move(npu);
    return options;
  }
  cpu::Options cpu;
  cpu.int8 = table_of(calibration);
  options.device = std::move(cpu);
  return options;
}

std::uint64_t address_of(const MemPtr& pointer) {
  return pointer.has_addr()
             ? pointer.addr()
             : static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer.cptr()));
}

void check_range(const MemChunk& chunk, std::uint64_t offset, std::uint64_t size) {
  if (offset <= chunk.size_bytes() && size <= chunk.size_bytes() - offset) return;
  throw Error(Errc::out_of_range, "MemChunk",
              fmt::format("{} bytes from {} on, of {}", size, offset, chunk.size_bytes()));
}

}  // namespace

DevicePtr to_device(nb::handle object) {
  if (object.is_none()) return cpu_device();
  if (nb::isinstance<nb::str>(object)) {
    const auto url = nb::cast<std::string>(object);
    if (url.starts_with("cuda:")) {
      const nb::gil_scoped_release no_gil;  // loading a driver takes long
      return open_cuda_device(url);
    }
    return Device::open(url == "cpu" ? "cpu:" : url);
  }
  if (nb::isinstance<Device>(object)) return nb::cast<DevicePtr>(object);
  throw nb::type_error(fmt::format("{} is no device and no URL of one, such as \"npu://sim\"",
                                   nb::cast<std::string>(nb::repr(object)))
                           .c_str());
}

std::vector<BackendPtr> to_backends(nb::handle object, const BackendOptions& options,
                                    bool for_saved) {
  const auto of_device = [&](const DevicePtr& device) {
    BackendOptions own = options;
    // What was saved has been calibrated.
    if (for_saved && DeviceUrl::parse(device->url()).scheme == "npu") own.device = npu::Options();
    return device_backends(device, own);
  };
  if (object.is_none()) return default_backends(options);
  if (nb::isinstance<PythonBackend>(object)) return {nb::cast<PythonBackend&>(object).backend};
  if (nb::isinstance<Device>(object)) return of_device(nb::cast<DevicePtr>(object));
  if (nb::isinstance<nb::str>(object)) {
    const auto word = nb::cast<std::string>(object);
    if (word.find(':') != std::string::npos) return of_device(to_device(object));
    return {make_backend(word, options)};
  }
  std::vector<BackendPtr> backends;
  for (const nb::handle item : object) {
    for (BackendPtr& backend : to_backends(item, options, for_saved)) {
      backends.push_back(std::move(backend));
    }
  }
  return backends;
}

void bind_devices(nb::module_& module) {
  register_cpu_backend();
  register_reference_backend();
  register_npu_sim();
  register_npu_remote();
  register_npu_backend();
  register_cuda();

  auto chunk = nb::class_<MemChunk>(module, "MemChunk", "A piece of a device's memory");
  chunk.def_prop_ro("address", [](const MemChunk& self) { return address_of(self.begin()); });
  chunk.def_prop_ro("size_bytes", &MemChunk::size_bytes);
  chunk.def_prop_ro("region", [](const MemChunk& self) { return self.region().name(); });
  chunk.def_prop_ro("is_freed", &MemChunk::is_freed);
  chunk.def(
      "read",
      [](const MemChunk& self, std::uint64_t offset, std::optional<std::uint64_t> size) {
        check_range(self, offset, size.value_or(0));
        std::string bytes(static_cast<std::size_t>(size.value_or(self.size_bytes() - offset)),
                          '\0');
        self.read(bytes.data(), offset, bytes.size());
        return nb::bytes(bytes.data(), bytes.size());
      },
      nb::arg("offset") = 0, nb::arg("size").none() = nb::none());
  chunk.def(
      "write",
      [](const MemChunk& self, const nb::bytes& bytes, std::uint64_t offset) {
        self.write(bytes.c_str(), offset, bytes.size());
      },
      nb::arg("bytes"), nb::arg("offset") = 0);
  chunk.def(
      "free",
      [](MemChunk& self) {
        if (self.use_count() > 1) {
          throw Error(Errc::busy, "MemChunk.free", "arrays are in this memory");
        }
        self.free();
      },
      "Frees the memory now. Errc::busy while arrays are in it, those of numpy and others among "
      "them");
  chunk.def(
      "buffer",
      [](const MemChunk& self, nb::handle type, std::uint64_t offset) {
        return Buffer(to_shape(type), self, offset);
      },
      nb::arg("type"), nb::arg("offset") = 0,
      "An array of this type at an offset, which shares the memory");

  auto region = nb::class_<MemRegion>(module, "MemRegion", "One memory of a device");
  region.def_prop_ro("name", &MemRegion::name);
  region.def_prop_ro("is_host", &MemRegion::is_host, "Whether the CPU can address it");
  region.def(
      "malloc",
      [](MemRegion& self, std::uint64_t size, std::uint64_t alignment) {
        return self.malloc(size, true, alignment);
      },
      nb::arg("size"), nb::arg("alignment") = 64);
  region.def(
      "buffer",
      [](MemRegion& self, nb::handle type) { return Buffer::allocate(to_shape(type), self); },
      nb::arg("type"), "A new array here, uninitialised");
  region.def_prop_ro("usage", [](const MemRegion& self) {
    const MemRegion::Usage usage = self.usage();
    nb::dict facts;
    facts["used_bytes"] = usage.used_bytes;
    facts["peak_bytes"] = usage.peak_bytes;
    facts["capacity_bytes"] = usage.capacity_bytes;
    facts["largest_hole_bytes"] = usage.largest_hole_bytes;
    facts["fragmentation"] = usage.fragmentation();
    return facts;
  });

  auto registers = nb::class_<RegRegion>(module, "RegRegion", "One bank of a device's registers");
  registers.def_prop_ro("name", &RegRegion::name);
  registers.def_prop_ro("base", &RegRegion::base);
  registers.def_prop_ro("size_bytes", &RegRegion::size_bytes);
  registers.def("read", &RegRegion::read, nb::arg("address"), nb::arg("relative") = false);
  registers.def("write", &RegRegion::write, nb::arg("address"), nb::arg("value"),
                nb::arg("relative") = false);

  auto device = nb::class_<Device>(module, "Device", "The memory and registers behind one URL");
  device.def(nb::new_(&to_device), nb::arg("url") = "cpu:", "As Device.open");
  device.def_static("open", &to_device, nb::arg("url") = "cpu:",
                    "Opens \"cpu:\", \"npu://sim?ocm=2MiB\", \"cuda:0\", ...");
  device.def_static("schemes", &Device::schemes);
  device.def_prop_ro("url", &Device::url);
  device.def_prop_ro("protocol", &Device::protocol);
  device.def_prop_ro("version", &Device::version);
  device.def_prop_ro("params", &Device::params);
  device.def("reset", &Device::reset, nb::arg("level") = 0);
  device.def_prop_ro("mem_regions", [](const Device& self) {
    nb::list names;
    for (const auto& one : self.mem_regions()) names.append(one->name());
    return names;
  });
  device.def_prop_ro("reg_regions", [](const Device& self) {
    nb::list names;
    for (const auto& one : self.reg_regions()) names.append(one->name());
    return names;
  });
  device.def(
      "mem_region",
      [](const Device& self, std::optional<std::string> name) -> MemRegion& {
        return name ? self.mem_region(*name) : self.default_mem_region();
      },
      nb::arg("name").none() = nb::none(), nb::rv_policy::reference_internal);
  device.def(
      "reg_region",
      [](const Device& self, std::optional<std::string> name) -> RegRegion& {
        return name ? self.reg_region(*name) : self.default_reg_region();
      },
      nb::arg("name").none() = nb::none(), nb::rv_policy::reference_internal);
  device.def("__repr__", [](const Device& self) { return fmt::format("Device {}", self.url()); });

  auto backend = nb::class_<PythonBackend>(
      module, "Backend", "A compute resource, by its name (\"cpu\", \"reference\") or its device");
  backend.def(
      "__init__",
      [](PythonBackend* self, nb::handle what, int threads, bool exact, nb::handle calibration,
         const nb::kwargs& words) {
        const bool is_name = nb::isinstance<nb::str>(what) &&
                             nb::cast<std::string>(what).find(':') == std::string::npos;
        if (is_name) {
          const auto name = nb::cast<std::string>(what);
          new (self) PythonBackend{
              make_backend(name, options_of(threads, exact, calibration, words, name))};
          return;
        }
        const DevicePtr opened = to_device(what);
        const std::string scheme = DeviceUrl::parse(opened->url()).scheme;
        new (self) PythonBackend{
            device_backends(opened, options_of(threads, exact, calibration, words, scheme))
                .front()};
      },
      nb::arg("name_or_device"), nb::arg("threads") = 0, nb::arg("exact") = false,
      nb::arg("calibration") = nb::none(), nb::arg("options"),
      "`threads`: 0 is one per CPU. `exact`: activations stay f32. `calibration`: the text of a "
      "table, with which a network runs in int8. An NPU also takes the fields of npu::Options by "
      "name: mode (\"device\", \"exact\", \"fake_quantized\", \"floating\"), placement, deadline "
      "(seconds), retries, fuse, merge, per_channel, precheck, profile_layers, host_fallback");
  backend.def_static("names", &backend_names, "The registered backends");
  backend.def_prop_ro("name",
                      [](const PythonBackend& self) { return std::string(self.backend->name()); });
  backend.def_prop_ro("properties",
                      [](const PythonBackend& self) { return self.backend->properties(); });
  backend.def("__repr__", [](const PythonBackend& self) {
    return fmt::format("Backend {}", self.backend->name());
  });
  backend.def_prop_ro(
      "state",
      [](const PythonBackend& self) { return std::string(to_string(npu_of(self).state())); },
      "Of an NPU: \"open\", \"running\", \"faulted\" or \"removed\"");
  backend.def_prop_ro(
      "counters", [](const PythonBackend& self) { return to_dict(npu_of(self).counters()); },
      "Of an NPU: runs, faults, retries and so on since the backend was made, as a dict");
  backend.def_prop_ro(
      "last_run", [](const PythonBackend& self) { return to_dict(npu_of(self).last_run()); },
      "Of an NPU: what the device counted in the last partition that ran; with profile_layers by "
      "layer, too");
  backend.def_prop_ro(
      "networks",
      [](const PythonBackend& self) {
        nb::list found;
        for (const npu::NetworkReport& one : npu_of(self).networks()) found.append(to_dict(one));
        return found;
      },
      "Of an NPU: what the compiler made of each bound partition, a dict whose \"text\" is for "
      "people");
  backend.def(
      "precheck",
      [](const PythonBackend& self) {
        const npu::Npu& npu = npu_of(self);
        const nb::gil_scoped_release no_gil;
        return npu.precheck();
      },
      "Of an NPU: uploads constants and programs whose checksums are wrong; their number");
  module.def("load_plugin", &load_plugin, nb::arg("path"),
             "Loads a shared library with a backend, and returns the backend's name");
  module.def("unload_plugin", &unload_plugin, nb::arg("name"));
}

}  // namespace tenon::python
