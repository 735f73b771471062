#pragma once

#include <tenon/device.hpp>
#include <tenon/fields.hpp>
#include <tenon/io/file.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/prepared_cache.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::io {

struct LoadProgress {
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::string_view tensor;  ///< the tensor loaded last
};

struct LoadOptions {
  std::function<void(const LoadProgress& progress)> progress;  ///< called on the loading thread
  std::stop_token stop;  ///< a request ends the load with Errc::cancelled
};

/// The file in which a PreparedCache keeps the prepared weights of a model: in `folder`, named
/// after the model, and identified by the path, sizes and modification times of the model's files.
/// Valid for weights as the files have them: a caller that changes values must add that to
/// PreparedFile::weights. Creates the folder, for this user only. Errc::io_error when that fails,
/// and for a folder that others own or may write to: their weights would be used.
PreparedFile prepared_file(const std::filesystem::path& folder, const File& model);

/// Loads the tensors of these names to a device; empty names are skipped. On the CPU the buffers
/// are pages of the file, except for small tensors, which are copied: a norm's weights would
/// otherwise keep the pages around them in memory. Errors: bad_reference (no tensor of that name),
/// cancelled, those of reading and of the device, and exceptions of `progress`.
std::map<std::string, Buffer> load_buffers(const File& file, std::span<const std::string> names,
                                           const DevicePtr& device,
                                           const LoadOptions& options = {});

/// Every tensor of the file.
std::map<std::string, Buffer> load_buffers(const File& file, const DevicePtr& device,
                                           const LoadOptions& options = {});

/// Loads a model's weights on another thread, so that it can run in parallel with compile(). Tied
/// weights (one name in two fields) are loaded once; empty tensors stay empty. The model's tensors
/// must come from file.view(). The future throws the errors of load_buffers(). Errc::out_of_memory
/// also where no thread can be started.
template <class Model>
std::future<Bufferized<Model>> load_async(const Model& model, const File& file,
                                          const DevicePtr& device, LoadOptions options = {}) {
  static_assert(tenon::detail::has_buffers<Model>,
                "a model's struct is a template whose one parameter is the type of its tensors: "
                "template <class T = Tensor> struct Net { T weight; ... }");
  return with_memory_errors("load_async", [&] {
    // Names are copied here: the model may be destroyed before the thread runs.
    auto form = map_fields<Shape>(model, [](const std::string&, const Tensor& tensor) {
      return tensor.is_empty() ? Shape() : tensor.shape();
    });
    std::vector<std::string> order;
    visit_fields(model, [&](const std::string&, const Tensor& tensor) {
      order.emplace_back(tensor.is_empty() ? std::string_view() : tensor.name());
    });
    return std::async(std::launch::async, [form = std::move(form), order = std::move(order), file,
                                           device, options = std::move(options)] {
      return with_memory_errors("load_async", [&] {
        const auto buffers = load_buffers(file, order, device, options);
        Bufferized<Model> weights;
        std::size_t next = 0;
        transform_fields(form, weights, [&](const std::string&, const Shape&, Buffer& to) {
          if (const std::string& name = order[next++]; !name.empty()) to = buffers.at(name);
        });
        return weights;
      });
    });
  });
}

/// As load_async, on this thread.
template <class Model>
Bufferized<Model> load(const Model& model, const File& file, const DevicePtr& device,
                       LoadOptions options = {}) {
  return load_async(model, file, device, std::move(options)).get();
}

}  // namespace tenon::io
