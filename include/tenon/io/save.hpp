#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/io/metadata.hpp>

#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace tenon::io {

/// An array to write. Strided arrays are written densely, in row-major order.
struct NamedTensor {
  std::string name;
  HostBuffer data;
};

// Both writers replace `path` atomically: they write a temporary file beside it, flush that to the
// device and rename it. On failure the temporary file is removed. Tensors may be mapped from `path`
// itself: the old pages stay readable.
//
// Errors  io_error          with the system's message
//         not_regular_file  `path` is a directory, pipe or device
//         bad_argument      `path` is empty
//         duplicate_name    two tensors have one name
//         bad_key           a name is empty
//         bad_encoding      a name is not UTF-8

/// Writes a safetensors file with the bytes of the reference implementation: larger element types
/// first, then by name; header padded to a multiple of 8 bytes. Errc::unsupported_dtype for block
/// types, Errc::bad_key for the reserved name `__metadata__`.
void save_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Writes a GGUF file, version 3, in the order given. The alignment is `general.alignment` of
/// `metadata`, and 32 without it; it must be a u32 (Errc::bad_type) and a power of two from 8 to
/// 1 MiB (Errc::bad_alignment). Errc::unsupported_dtype for bool and unsigned types,
/// Errc::bad_shape for a rank above 4.
void save_gguf(const std::filesystem::path& path, const Metadata& metadata,
               std::span<const NamedTensor> tensors);

}  // namespace tenon::io
