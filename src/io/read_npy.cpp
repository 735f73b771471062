#include "names.hpp"
#include "npy_format.hpp"
#include "npy_header.hpp"
#include "parsed_file.hpp"

#include <tenon/error.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon::io {
namespace {

struct Frame {
  std::uint64_t header_begin = 0;
  std::uint64_t header_bytes = 0;
};

Frame read_frame(const InputFile& file, const Limits& limits) {
  const auto fail = [&](Errc code, int at, const std::string& message) {
    throw Error(code, fmt::format("{}:{}", file.name(), at), message);
  };
  std::array<char, npy::magic.size() + 2> begin{};
  file.read(0, std::as_writable_bytes(std::span(begin)));
  const std::string_view magic(begin.data(), npy::magic.size());
  if (magic != npy::magic) {
    fail(Errc::bad_magic, 0, fmt::format("found {}, expected \\x93NUMPY", quote_name(magic)));
  }
  const int major = static_cast<unsigned char>(begin[npy::magic.size()]);
  if (major < 1 || major > npy::newest_version) {
    fail(Errc::unsupported_version, npy::magic.size(),
         fmt::format("version {}, versions 1 to {} can be read", major, npy::newest_version));
  }
  std::uint32_t length = 0;  // of 2 bytes in version 1, of 4 later
  const std::size_t width = major == 1 ? 2 : 4;
  file.read(begin.size(), std::as_writable_bytes(std::span(&length, 1)).first(width));
  if (length > limits.header_bytes) {
    fail(Errc::limit_exceeded, begin.size(),
         fmt::format("a header of {} bytes, at most {} are allowed", length, limits.header_bytes));
  }
  return {begin.size() + width, length};
}

void swap_bytes(std::span<std::byte> bytes, std::size_t size) {
  for (std::size_t i = 0; i + size <= bytes.size(); i += size) {
    std::ranges::reverse(bytes.subspan(i, size));
  }
}

HostBuffer read(const std::filesystem::path& path, const Limits& limits) {
  const auto file = InputFile::open(path, Access::read);
  const Frame frame = read_frame(*file, limits);
  if (frame.header_bytes > file->size() - frame.header_begin) {
    throw Error(
        Errc::truncated, fmt::format("{}:{}", file->name(), frame.header_begin),
        fmt::format("a header of {} bytes, the file has {}", frame.header_bytes, file->size()));
  }
  std::string text(static_cast<std::size_t>(frame.header_bytes), '\0');
  file->read(frame.header_begin, std::as_writable_bytes(std::span(text)));
  const npy::Header header = npy::parse_header(text, file->name(), frame.header_begin);

  // Column-major bytes are the row-major bytes of the array with its axes reversed.
  const std::string where = fmt::format("{}:{}", file->name(), frame.header_begin);
  std::vector<std::int64_t> dims = header.dims;
  if (header.is_column_major) std::ranges::reverse(dims);
  const Shape stored = file_shape(dims, header.dtype, where, "array");
  const std::uint64_t data_begin = frame.header_begin + frame.header_bytes;
  const std::uint64_t available = file->size() - data_begin;
  const auto needed = static_cast<std::uint64_t>(stored.bytes());
  if (available != needed) {
    throw Error(available < needed ? Errc::truncated : Errc::trailing_data,
                fmt::format("{}:{}", file->name(), data_begin),
                fmt::format("{} takes {} bytes, {} follow", to_string(stored), needed, available));
  }
  HostBuffer array = HostBuffer::uninitialized(stored);
  const std::span<std::byte> bytes(array.view().data, static_cast<std::size_t>(needed));
  file->read(data_begin, bytes);
  if (header.is_big_endian) {
    const std::int64_t unit = block_bytes(is_complex(header.dtype) ? f32 : header.dtype);
    swap_bytes(bytes, static_cast<std::size_t>(unit));
  }
  if (header.dtype == DType::boolean) {
    for (std::byte& value : bytes) value = value == std::byte{0} ? std::byte{0} : std::byte{1};
  }
  if (!header.is_column_major || stored.rank() < 2) return array;
  std::vector<int> order;
  for (int axis = stored.rank() - 1; axis >= 0; --axis) order.push_back(axis);
  return array.permute(order).contiguous();
}

}  // namespace

HostBuffer read_npy(const std::filesystem::path& path, const Limits& limits) {
  return with_memory_errors(path.native(), [&] { return read(path, limits); });
}

}  // namespace tenon::io
