#pragma once

#include "base/atomic_file.hpp"

#include <tenon/io/metadata.hpp>
#include <tenon/shape.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

namespace tenon::io {

/// A tensor of a GGUF file to be written.
struct TensorPlan {
  std::string_view name;
  Shape shape;
};

/// Writes a file as save_gguf does, with its errors, named after `caller`; `write_data(i, file)`
/// appends exactly the bytes of tensor i, in order.
void write_gguf(const std::filesystem::path& path, const Metadata& metadata,
                std::span<const TensorPlan> tensors, std::string_view caller,
                const std::function<void(std::size_t, AtomicFile&)>& write_data);

}  // namespace tenon::io
