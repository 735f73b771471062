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
  std::string_view tensor;  ///< the one that was just loaded
};

struct LoadOptions {
  std::function<void(const LoadProgress& progress)> progress;  ///< called on the loading thread
  std::stop_token stop;  ///< a request ends the load with Errc::cancelled
};

/// Where a PreparedCache keeps what is made of a model's files: a file in `folder`, named after the
/// model, that says which path, sizes and times of writing the model's files have. For
/// weights as these files hold them: who changes values says so in PreparedFile::weights. Makes the
/// folder, for this user alone. Errc::io_error when that is impossible, and for a folder that
/// others own or may write in: weights that they put there would be used.
PreparedFile prepared_file(const std::filesystem::path& folder, const File& model);

/// Buffers of these tensors on a device, empty names left out. On the CPU they are the file's own
/// pages, but for small ones: a norm's weights in use would hold the pages around them as well.
/// Errors: bad_reference (no tensor of that name), cancelled, those of reading and of the
/// device, and whatever `progress` throws.
std::map<std::string, Buffer> load_buffers(const File& file, std::span<const std::string> names,
                                           const DevicePtr& device,
                                           const LoadOptions& options = {});

/// Loads a model's weights on another thread: runs in parallel with compile. Tied weights (one name
/// in two fields) are loaded once; tensors that are empty stay so. The model's tensors must come
/// from file.view(). The future throws Errc::cancelled, and what load_buffers throws.
/// Errc::out_of_memory also where no thread can be started.
template <class Model>
std::future<Bufferized<Model>> load_async(const Model& model, const File& file,
                                          const DevicePtr& device, LoadOptions options = {}) {
  return with_memory_errors("load_async", [&] {
    // Names are taken here: the model may be gone when the thread runs.
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
