#include "fuzz/memory_file.hpp"

#include <stdexcept>
#include <string>
#include <variant>

#include <sys/mman.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

std::uint64_t sum_bytes(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (const std::byte value : bytes) sum = sum * 31 + static_cast<std::uint64_t>(value);
  return sum;
}

std::uint64_t sum_text(std::string_view text) { return sum_bytes(std::as_bytes(std::span(text))); }

}  // namespace

void fail(const char* why) { throw std::logic_error(why); }

MemoryPath::MemoryPath(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  if (descriptor_ < 0) fail("memfd_create failed");
  if (::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    fail("write failed");
  }
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryPath::~MemoryPath() { ::close(descriptor_); }

std::string scratch_file(std::string_view name) {
  const char* const folder = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  return std::string(folder) + "/tenon_fuzz_" + std::to_string(::getpid()) + "_" +
         std::string(name);
}

std::shared_ptr<const io::InputFile> memory_file(std::span<const std::uint8_t> bytes,
                                                 io::Access access) {
  const MemoryPath file({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return io::InputFile::open(file.path(), access);
}

std::uint64_t sum_of(const io::Metadata& metadata, std::span<const io::TensorEntry> tensors) {
  std::uint64_t sum = 0;
  for (const io::Metadata::Entry& entry : metadata.entries()) {
    sum += sum_text(entry.key);
    if (metadata.find(entry.key) != &entry.value) fail("a key does not find its value");
    if (const auto* text = std::get_if<std::string_view>(&entry.value)) sum += sum_text(*text);
    if (const auto* array = std::get_if<io::MetaArray>(&entry.value)) {
      sum += sum_bytes(array->bytes());
      for (const std::string_view text : array->strings()) sum += sum_text(text);
    }
  }
  for (const io::TensorEntry& tensor : tensors) {
    const HostBuffer data = tensor.data();
    if (static_cast<std::uint64_t>(data.shape().bytes()) != tensor.size_bytes) fail("another size");
    sum += sum_text(tensor.name);
    sum += sum_bytes({data.bytes(), static_cast<std::size_t>(tensor.size_bytes)});
  }
  return sum;
}

}  // namespace tenon::testing
