#pragma once

#include <tenon/io/file.hpp>

#include <string>

namespace tenon::testing {

/// What a file holds as the text of python/tests/io_oracle.py.
std::string listing(const io::File& file);
std::string listing(const io::Metadata& metadata);
std::string listing(const HostBuffer& array);

}  // namespace tenon::testing
