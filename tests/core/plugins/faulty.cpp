// Plugins with one fault each; the build compiles this file once per fault and defines its name.
#include <tenon/backend.hpp>
#include <tenon/error.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

namespace {

using namespace tenon;

class IdleBackend final : public Backend {
 public:
  explicit IdleBackend(std::string_view name) : name_(name) {}
  std::string_view name() const noexcept override { return name_; }
  MemRegion& region() const override { return cpu_device()->default_mem_region(); }
  std::optional<std::string> refuses(const Step&) const override {
    throw 7;
  }  // what no backend may
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step>) const override {
    throw std::runtime_error("no compiler here");
  }
  std::map<std::string, std::string> properties() const override { throw std::bad_alloc(); }

 private:
  std::string_view name_;
};

template <const char* const& name>
BackendPtr make(const BackendOptions&) {
  return std::make_shared<const IdleBackend>(name);
}

[[maybe_unused]] constexpr const char* own_name = "faulty";
[[maybe_unused]] constexpr const char* other_name = "other";

#if defined(FAULT_OLD_ABI)
const PluginDescriptor descriptor{
    .abi_version = plugin_abi_version - 1, .name = own_name, .create = make<own_name>};
#elif defined(FAULT_NEW_ABI)
const PluginDescriptor descriptor{
    .abi_version = plugin_abi_version + 1, .name = own_name, .create = make<own_name>};
#elif defined(FAULT_SHORT)
const PluginDescriptor descriptor{.struct_bytes = 8, .name = own_name, .create = make<own_name>};
#elif defined(FAULT_NO_NAME)
const PluginDescriptor descriptor{.name = "", .create = make<own_name>};
#elif defined(FAULT_NO_CREATE)
const PluginDescriptor descriptor{.name = own_name};
#elif defined(FAULT_HALF_SCHEME)
const PluginDescriptor descriptor{.name = own_name, .create = make<own_name>, .scheme = "fake"};
#elif defined(FAULT_OTHER_NAME)
const PluginDescriptor descriptor{.name = own_name, .create = make<other_name>};
#elif defined(FAULT_INIT_ERROR)
const PluginDescriptor descriptor{.name = own_name,
                                  .create = [](const BackendOptions&) -> BackendPtr {
                                    throw Error(Errc::device_lost, "card 3", "gone since boot");
                                  }};
#elif defined(FAULT_INIT_FOREIGN)
const PluginDescriptor descriptor{
    .name = own_name,
    .create = [](const BackendOptions&) -> BackendPtr { throw std::uint64_t{7}; }};
#elif defined(FAULT_INIT_NULL)
const PluginDescriptor descriptor{.name = own_name,
                                  .create = [](const BackendOptions&) { return BackendPtr(); }};
#elif defined(FAULT_UNAVAILABLE)
const PluginDescriptor descriptor{.name = own_name,
                                  .unavailable = [] { return "this CPU has no AMX"; },
                                  .create = make<own_name>};
#elif defined(FAULT_UNDEFINED)
}  // namespace
extern "C" bool no_library_has_this();
namespace {
const PluginDescriptor descriptor{.name = own_name, .create = [](const BackendOptions& options) {
                                    return no_library_has_this() ? make<own_name>(options)
                                                                 : nullptr;
                                  }};
#elif defined(FAULT_TAKEN_NAME)
constexpr const char* taken = "null";
const PluginDescriptor descriptor{.name = taken, .create = make<taken>};
#elif defined(FAULT_MISSING_LIBRARY)
}  // namespace
extern "C" int tenon_absent() noexcept;
namespace {
const PluginDescriptor descriptor{.struct_bytes = static_cast<std::uint32_t>(tenon_absent()),
                                  .name = own_name,
                                  .create = make<own_name>};
#else  // faults only when it is used; a newer minor version: its descriptor goes on behind ours
struct Longer {
  PluginDescriptor known;
  std::uint64_t later = 1;
};
const Longer longer{{.struct_bytes = sizeof(Longer), .name = own_name, .create = make<own_name>}};
const PluginDescriptor& descriptor = longer.known;
#endif

}  // namespace

#if defined(FAULT_NO_ENTRY)
extern "C" int tenon_plugin_of_another_library() noexcept { return descriptor.name != nullptr; }
#elif defined(FAULT_NULL)
extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept {
  return descriptor.name == nullptr ? &descriptor : nullptr;
}
#else
extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept { return &descriptor; }
#endif
