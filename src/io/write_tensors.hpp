#pragma once

#include "base/atomic_file.hpp"

#include <tenon/io/save.hpp>

#include <span>
#include <string_view>

namespace tenon::io {

/// Throws bad_argument for an empty buffer, bad_key, bad_encoding or duplicate_name for names that
/// no file can hold; `caller` stands in the error.
void check_tensor_names(std::span<const NamedTensor> tensors, std::string_view caller);

/// Appends the elements of an array as a dense row-major one.
void write_array(AtomicFile& file, const HostBuffer& array);

}  // namespace tenon::io
