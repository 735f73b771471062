#include "base/immortal.hpp"
#include "memory/kept_memory.hpp"
#include "memory/large_pages.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/version.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tenon {
namespace {

/// Beyond what any x86-64 process can address; refused here because allocators differ on whether
/// such a request fails or ends the process.
constexpr std::uint64_t address_space = std::uint64_t{1} << 47;
constexpr std::uint64_t max_alignment = std::uint64_t{1} << 30;

/// Alignment of every block, so that a kept block fits all requests up to it.
constexpr std::uint64_t kept_alignment = 64;

class HostRegion final : public MemRegion {
 public:
  HostRegion() : MemRegion("host") {}

  bool is_host() const noexcept override { return true; }

  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override {
    std::memmove(to, from.cptr(), size);
  }
  void write(const MemPtr& to, const void* from, std::uint64_t size) override {
    std::memmove(to.cptr(), from, size);
  }
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override {
    std::memmove(to.cptr(), from.cptr(), size);
  }

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override {
    if (size > address_space || alignment > max_alignment) throw_no_room(size, alignment);
    if (alignment <= kept_alignment) {
      if (void* const kept = take_kept_memory(size)) return MemPtr(kept);
    }
    alignment = std::max(alignment, kept_alignment);
    void* bytes = nullptr;
    if (posix_memalign(&bytes, alignment, size) != 0) {
      throw_no_room(size, alignment);
    }
    // A request for the alignment of a large page is meant to use large pages.
    if (alignment >= large_page_bytes) prefer_large_pages(bytes, size);
    return MemPtr(bytes);
  }
  void release(const MemPtr& begin, std::uint64_t size) override {
    if (keep_memory(begin.cptr(), size)) return;
    std::free(begin.cptr());
  }
};

/// The processor's own name, e.g. "AMD EPYC 9554 64-Core Processor"; "unknown" where it has none.
std::string cpu_name() {
  std::string name;
#if defined(__x86_64__)
  constexpr unsigned first = 0x80000002;  // three leaves of 16 letters each
  if (::__get_cpuid_max(0x80000000, nullptr) >= first + 2) {
    for (unsigned leaf = first; leaf < first + 3; ++leaf) {
      std::array<unsigned, 4> letters{};
      ::__get_cpuid(leaf, &letters[0], &letters[1], &letters[2], &letters[3]);
      name.append(reinterpret_cast<const char*>(letters.data()), sizeof(letters));
    }
  }
#endif
  const std::size_t begin = name.find_first_not_of(' ');
  name.erase(std::min(name.find('\0'), name.size()));
  name.erase(0, std::min(begin, name.size()));
  name.erase(name.find_last_not_of(' ') + 1);
  return name.empty() ? "unknown" : name;
}

/// Such as "Linux 6.1.0".
std::string system_name() {
  utsname names{};
  if (::uname(&names) != 0) return "unknown";
  return std::string(names.sysname) + " " + names.release;
}

std::uint64_t system_bytes(int pages) {
  const long count = ::sysconf(pages);
  return count < 0 ? 0
                   : static_cast<std::uint64_t>(count) *
                         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

class CpuDevice final : public Device {
 public:
  CpuDevice() : Device("cpu:") {
    declare(std::make_unique<HostRegion>(), true);
    init();
  }
  ~CpuDevice() override { deinit(); }

  std::string protocol() const override { return "cpu"; }
  std::map<std::string, std::string> version() const override {
    return {
        {"cpu", cpu_name()}, {"system", system_name()}, {"tenon", std::string(tenon::version())}};
  }
  std::map<std::string, std::string> params() const override {
    return {{"cores", std::to_string(std::thread::hardware_concurrency())},
            {"memory_bytes", std::to_string(system_bytes(_SC_PHYS_PAGES))},
            {"page_bytes", std::to_string(::sysconf(_SC_PAGESIZE))}};
  }
  /// Work on the CPU ends before its call returns, so that there is nothing to abort or to clear.
  void reset(int level) override { check_reset_level(level); }
};

}  // namespace

// Arrays in static objects free their chunks after main.
DevicePtr cpu_device() {
  return process_wide([]() -> DevicePtr { return std::make_shared<CpuDevice>(); });
}

}  // namespace tenon
