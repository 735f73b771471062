#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/io/options.hpp>

#include <filesystem>

namespace tenon::io {

/// Reads an array of numpy's npy format (versions 1 to 3), into owned memory, row-major and in
/// native byte order whatever the file's order is.
///
/// Errors  bad_magic, unsupported_version, truncated, trailing_data  the file's structure
///         syntax, limit_exceeded, bad_key, duplicate_name           the header's dictionary
///         unsupported_dtype                                         records, objects, strings, dates,
///                                                                   c16 and other long numbers
///         bad_shape, shape_overflow                                 the shape
HostBuffer read_npy(const std::filesystem::path& path, const Limits& limits = {});

/// Writes an array as npy version 1, little-endian, row-major; replaces `path` atomically, as
/// save_safetensors() does. Errc::unsupported_dtype for bf16 and block types, which numpy lacks.
void write_npy(const std::filesystem::path& path, const HostBuffer& array);

}  // namespace tenon::io
