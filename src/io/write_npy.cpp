#include "base/atomic_file.hpp"
#include "npy_format.hpp"
#include "write_tensors.hpp"

#include <tenon/error.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/memory_errors.hpp>

#include <string>

#include <fmt/format.h>

namespace tenon::io {

namespace {

void save(const std::filesystem::path& path, const HostBuffer& array) {
  if (array.is_empty()) throw Error(Errc::bad_argument, "write_npy", "no array");
  const Shape& shape = array.shape();
  const std::string_view code = npy::dtype_code(shape.dtype());
  if (code.empty()) {
    throw Error(Errc::unsupported_dtype, "write_npy",
                fmt::format("{} has no type in numpy", to_string(shape)));
  }
  const char order = block_bytes(shape.dtype()) == 1 ? '|' : '<';
  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", order, code,
                  fmt::join(shape.dims(), ", "), shape.rank() == 1 ? "," : "");
  // Spaces and a line end bring the data to an aligned place.
  const std::size_t before = npy::magic.size() + 2 + sizeof(std::uint16_t);
  const std::size_t end = before + header.size() + 1;
  header.append((npy::data_alignment - end % npy::data_alignment) % npy::data_alignment, ' ');
  header += '\n';

  AtomicFile file(path);
  file.write(npy::magic);
  file.write(std::string_view("\x01\x00", 2));
  file.write_number(static_cast<std::uint16_t>(header.size()));
  file.write(header);
  write_array(file, array);
  file.commit();
}

}  // namespace

void write_npy(const std::filesystem::path& path, const HostBuffer& array) {
  with_memory_errors(path.native(), [&] { save(path, array); });
}

}  // namespace tenon::io
