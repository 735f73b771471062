#include "write_tensors.hpp"

#include "names.hpp"

#include <tenon/error.hpp>

#include <limits>
#include <string>
#include <vector>

namespace tenon::io {

void check_tensor_names(std::span<const NamedTensor> tensors, std::string_view caller) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) {
    check_name(tensor.name, "tensor name", std::numeric_limits<std::uint64_t>::max(), caller);
    if (tensor.data.is_empty()) {
      throw Error(Errc::bad_argument, std::string(caller),
                  "tensor " + quote_name(tensor.name) + " has no array");
    }
    names.push_back(tensor.name);
  }
  if (const auto pair = find_duplicate(names, sorted_positions(names))) {
    throw Error(Errc::duplicate_name, std::string(caller),
                "two tensors are named " + quote_name(names[pair->first]));
  }
}

void write_array(AtomicFile& file, const HostBuffer& array) {
  const HostBuffer dense = array.is_contiguous() ? array : array.contiguous();
  file.write({dense.bytes(), static_cast<std::size_t>(dense.shape().bytes())});
}

}  // namespace tenon::io
