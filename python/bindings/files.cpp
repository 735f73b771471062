#include "bindings.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/io/quantize.hpp>
#include <tenon/io/save.hpp>

#include <cstring>

#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tenon::python {
namespace {

using std::filesystem::path;

/// Text of a file, which need not be UTF-8: bytes where it is not.
nb::object to_text(std::string_view text) {
  PyObject* const decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
  if (decoded != nullptr) return nb::steal(decoded);
  PyErr_Clear();
  return nb::bytes(text.data(), text.size());
}

template <class T>
nb::list numbers(const io::MetaArray& array) {
  nb::list items;
  for (std::size_t i = 0; i < array.size(); ++i) {
    T value;
    std::memcpy(&value, array.bytes().data() + i * sizeof(T), sizeof(T));
    items.append(nb::cast(value));
  }
  return items;
}

nb::list to_list(const io::MetaArray& array) {
  using io::MetaType;
  switch (array.element_type()) {
    case MetaType::u8:
      return numbers<std::uint8_t>(array);
    case MetaType::i8:
      return numbers<std::int8_t>(array);
    case MetaType::u16:
      return numbers<std::uint16_t>(array);
    case MetaType::i16:
      return numbers<std::int16_t>(array);
    case MetaType::u32:
      return numbers<std::uint32_t>(array);
    case MetaType::i32:
      return numbers<std::int32_t>(array);
    case MetaType::f32:
      return numbers<float>(array);
    case MetaType::u64:
      return numbers<std::uint64_t>(array);
    case MetaType::i64:
      return numbers<std::int64_t>(array);
    case MetaType::f64:
      return numbers<double>(array);
    case MetaType::boolean: {
      nb::list items;
      for (const std::byte item : array.bytes()) items.append(nb::bool_(item != std::byte{0}));
      return items;
    }
    case MetaType::string:
    case MetaType::array:
      break;
  }
  nb::list items;
  for (const std::string_view item : array.strings()) items.append(to_text(item));
  return items;
}

nb::object to_python(const io::MetaValue& value) {
  return std::visit(
      [](const auto& held) -> nb::object {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string_view>) {
          return to_text(held);
        } else if constexpr (std::is_same_v<T, io::MetaArray>) {
          return to_list(held);
        } else {
          return nb::cast(held);
        }
      },
      value);
}

void set_list(io::Metadata& metadata, const std::string& key, const nb::handle value) {
  std::vector<std::string> texts;
  std::vector<std::int64_t> integers;
  std::vector<double> reals;
  for (const nb::handle item : value) {
    if (nb::isinstance<nb::str>(item)) {
      texts.push_back(nb::cast<std::string>(item));
    } else if (nb::isinstance<nb::int_>(item)) {
      integers.push_back(nb::cast<std::int64_t>(item));
    } else {
      reals.push_back(nb::cast<double>(item));
    }
  }
  if (!texts.empty()) {
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    metadata.set_strings(key, views);
  } else if (!reals.empty()) {
    reals.insert(reals.end(), integers.begin(), integers.end());
    metadata.set_array<double>(key, reals);
  } else {
    metadata.set_array<std::int64_t>(key, integers);
  }
}

io::Metadata to_metadata(const nb::dict& entries) {
  io::Metadata metadata;
  for (const auto& [key, value] : entries) {
    const auto name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::bool_>(value)) {
      metadata.set(name, nb::cast<bool>(value));
    } else if (nb::isinstance<nb::int_>(value)) {
      // GGUF's readers expect the smallest of u32, i64 that holds it.
      const auto number = nb::cast<std::int64_t>(value);
      if (number >= 0 && number <= std::int64_t{0xffffffff}) {
        metadata.set(name, static_cast<std::uint32_t>(number));
      } else {
        metadata.set(name, number);
      }
    } else if (nb::isinstance<nb::float_>(value)) {
      metadata.set(name, static_cast<float>(nb::cast<double>(value)));
    } else if (nb::isinstance<nb::str>(value)) {
      metadata.set(name, std::string_view(nb::cast<std::string>(value)));
    } else {
      set_list(metadata, name, value);
    }
  }
  return metadata;
}

std::vector<io::NamedTensor> to_tensors(nb::handle mapping) {
  std::vector<io::NamedTensor> tensors;
  for (const auto& [name, array] : named_items(mapping)) {
    tensors.push_back({name, to_host_buffer(array)});
  }
  return tensors;
}

}  // namespace

void bind_files(nb::module_& module) {
  auto file = nb::class_<io::File>(
      module, "File",
      "A GGUF or safetensors model, of one file or several: a mapping from names to arrays");
  file.def_prop_ro("path", &io::File::path);
  file.def_prop_ro("format",
                   [](const io::File& self) { return std::string(io::name(self.format())); });
  file.def_prop_ro("metadata", [](const io::File& self) {
    nb::dict entries;
    for (const io::Metadata::Entry& entry : self.metadata().entries()) {
      entries[nb::str(entry.key.data(), entry.key.size())] = to_python(entry.value);
    }
    return entries;
  });
  file.def("keys", [](const io::File& self) {
    std::vector<std::string> names;
    for (const io::TensorEntry& entry : self.tensors()) names.push_back(entry.name);
    return names;
  });
  file.def(
      "type", [](const io::File& self, const std::string& name) { return self.at(name).shape; },
      nb::arg("name"), "Shape and element type of a tensor, without reading it");
  file.def(
      "__getitem__",
      [](const io::File& self, const std::string& name) { return self.at(name).data(); },
      "A tensor as pages of the file");
  file.def("__contains__", [](const io::File& self, const std::string& name) {
    return self.find(name) != nullptr;
  });
  file.def("__len__", [](const io::File& self) { return self.tensors().size(); });
  file.def("values", [](const io::File& self) {
    std::vector<HostBuffer> arrays;
    for (const io::TensorEntry& entry : self.tensors()) arrays.push_back(entry.data());
    return arrays;
  });
  file.def(
      "items",
      [](const io::File& self) {
        std::vector<std::pair<std::string, HostBuffer>> items;
        for (const io::TensorEntry& entry : self.tensors()) {
          items.emplace_back(entry.name, entry.data());
        }
        return items;
      },
      "(name, array) of each tensor");
  file.def("__iter__", [](nb::handle self) { return nb::iter(self.attr("keys")()); });
  file.def(
      "weights",
      [](const io::File& self, nb::handle device) {
        std::vector<std::string> names;
        for (const io::TensorEntry& entry : self.tensors()) names.push_back(entry.name);
        const DevicePtr target = to_device(device);
        const nb::gil_scoped_release no_gil;
        return io::load_buffers(self, names, target);
      },
      nb::arg("device") = nb::none(),
      "Every tensor on a device, by name: for Session(program, weights)");
  file.def("__repr__", [](const io::File& self) {
    return fmt::format("File {} ({}), {} tensors", self.path().string(), io::name(self.format()),
                       self.tensors().size());
  });

  module.def(
      "open",
      [](const path& from, bool follow_links_outside) {
        const nb::gil_scoped_release no_gil;
        return io::open(from, {.follow_links_outside = follow_links_outside});
      },
      nb::arg("path"), nb::kw_only(), nb::arg("follow_links_outside") = false,
      "Opens a GGUF or safetensors file, an index of shards, or a model's folder; "
      "`follow_links_outside`: an index may name links that lead out of its folder");
  module.def(
      "save_safetensors",
      [](const path& to, nb::handle tensors, const std::map<std::string, std::string>& metadata) {
        const std::vector<io::NamedTensor> all = to_tensors(tensors);
        const nb::gil_scoped_release no_gil;
        io::save_safetensors(to, all, metadata);
      },
      nb::arg("path"), nb::arg("tensors"),
      nb::arg("metadata") = std::map<std::string, std::string>());
  module.def(
      "save_gguf",
      [](const path& to, nb::handle tensors, const nb::dict& metadata) {
        const io::Metadata entries = to_metadata(metadata);
        const std::vector<io::NamedTensor> all = to_tensors(tensors);
        const nb::gil_scoped_release no_gil;
        io::save_gguf(to, entries, all);
      },
      nb::arg("path"), nb::arg("tensors"), nb::arg("metadata") = nb::dict());
  module.def(
      "read_npy",
      [](const path& from) {
        const nb::gil_scoped_release no_gil;
        return io::read_npy(from);
      },
      nb::arg("path"));
  module.def(
      "write_npy",
      [](const path& to, nb::handle array) { io::write_npy(to, to_host_buffer(array)); },
      nb::arg("path"), nb::arg("array"));

  module.def(
      "quantize_types",
      [] {
        nb::list names;
        for (const std::string_view name : io::quantize_types()) {
          names.append(nb::str(name.data(), name.size()));
        }
        return names;
      },
      "The types and mixes that quantize() takes");
  module.def(
      "quantize",
      [](const path& in, const path& out, const std::string& type, int threads,
         bool allow_requantize, bool pure, nb::object progress, std::optional<double> timeout) {
        io::QuantizeOptions options;
        options.threads = threads;
        options.allow_requantize = allow_requantize;
        options.pure = pure;
        options.interrupt = to_interrupt(timeout);
        if (!progress.is_none()) {
          options.progress = [&progress](const io::QuantizeProgress& at) {
            const PythonCall call;
            progress(nb::str(at.tensor.data(), at.tensor.size()), at.done_bytes, at.total_bytes);
          };
        }
        io::QuantizeResult result;
        {
          const nb::gil_scoped_release no_gil;
          result = io::quantize_gguf(in, out, type, options);
        }
        nb::dict facts;
        facts["tensors"] = result.tensors;
        facts["converted"] = result.converted;
        facts["fallbacks"] = result.fallbacks;
        facts["wide_fallbacks"] = result.wide_fallbacks;
        facts["elements"] = result.elements;
        facts["bytes_before"] = result.bytes_before;
        facts["bytes_after"] = result.bytes_after;
        return facts;
      },
      nb::arg("path_in"), nb::arg("path_out"), nb::arg("type"), nb::kw_only(),
      nb::arg("threads") = 0, nb::arg("allow_requantize") = false, nb::arg("pure") = false,
      nb::arg("progress") = nb::none(), nb::arg("timeout") = nb::none(),
      "Writes a GGUF file again with weights in other types; `progress` is called with (tensor, "
      "bytes done, bytes in all)");
}

}  // namespace tenon::python
