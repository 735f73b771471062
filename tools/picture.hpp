// Pictures from files, for models that read images.
#pragma once

#include <tenon/host_buffer.hpp>

#include <cstdint>
#include <filesystem>
#include <string>

namespace tenon::tool {

/// The pixels of a picture, u8 RGB [height, width, 3]; an alpha channel is left out. Binary PPM (P6, of
/// 8 bits), and PNG and JPEG where the build found libpng and libjpeg. Errors, which name the path:
/// not_found, io_error, bad_magic (another format), unsupported (a format or colours that this build does
/// not read), corrupt, limit_exceeded for a side above 32,768 pixels, more than
/// 2^28 of them, or a file above 1 GiB.
HostBuffer read_picture(const std::filesystem::path& path);

/// The same of a file's bytes, which errors call `name`. There may be up to `max_pixels` pixels, by what the file says of its
/// sizes before there is memory for them.
HostBuffer decode_picture(std::string bytes, std::string name, std::int64_t max_pixels);

}  // namespace tenon::tool
