#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/io/metadata.hpp>

#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace tenon::io {

/// An array to write. Views are written as dense row-major arrays.
struct NamedTensor {
  std::string name;
  HostBuffer data;
};

// Both writers make a temporary file beside `path`, flush it to the device and rename it, so that
// `path` is the old file or the new one, whole, whatever happens. They may be given tensors that
// are mapped from `path` itself: the old pages stay readable. On failure nothing is left behind.
// Errc::io_error with the system's words; Errc::not_regular_file when `path` is a directory, pipe
// or device; Errc::duplicate_name, Errc::bad_key (an empty name) and Errc::bad_encoding for names.

/// Writes a safetensors file, byte for byte as the reference implementation does: larger element
/// types first, then by name; header padded to 8 bytes. Errc::unsupported_dtype for block types,
/// Errc::bad_key for the reserved name `__metadata__`.
void save_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Writes a GGUF file, version 3, in the order given. The alignment is `general.alignment` where
/// `metadata` holds it (u32, Errc::bad_type; a power of two from 8 to 1 MiB, Errc::bad_alignment)
/// and 32 otherwise. Errc::unsupported_dtype for bool and unsigned types, Errc::bad_shape for a
/// rank above 4.
void save_gguf(const std::filesystem::path& path, const Metadata& metadata,
               std::span<const NamedTensor> tensors);

}  // namespace tenon::io
