#pragma once

#include <tenon/buffer.hpp>
#include <tenon/device.hpp>
#include <tenon/lowered.hpp>
#include <tenon/prepared_cache.hpp>

#include <any>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// Weights under the names of a plan's constants.
struct BoundConstants {
  std::span<const Buffer> buffers;  ///< one per Lowered::constants
  PreparedCache& prepared;
};

/// A partition with its weights in place, ready to run. Immutable: may run in several sessions at
/// once, each with its own memory.
class BoundPartition {
 public:
  virtual ~BoundPartition() = default;
  // Runs every step; the first where Backend::region() is CPU memory, the second elsewhere. A
  // backend implements its one; the other throws Errc::internal. Throws what data can cause, naming
  // the op; outputs then hold anything.
  virtual void run(HostFrame& frame) const;
  virtual void run_on_device(DeviceFrame& frame) const;
  /// What binding made, for Partition::bind_saved; nothing where making it again is as good.
  virtual std::vector<std::byte> save() const { return {}; }
};

/// A stretch of a lowered program compiled by one backend.
class Partition {
 public:
  virtual ~Partition() = default;
  /// Working memory that a run needs at HostFrame::scratch, 64-byte aligned.
  virtual std::int64_t scratch_bytes() const { return 0; }
  virtual std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const = 0;
  /// Facts for people about how values are computed, one `value: what` each.
  virtual std::vector<std::string> notes() const { return {}; }
  /// bind() with what save() of such a partition gave, in a session that was saved: the same
  /// program, shapes and weights. Errc::incompatible naming what differs from this device,
  /// Errc::corrupt. The default makes it all again.
  virtual std::unique_ptr<BoundPartition> bind_saved(const BoundConstants& constants,
                                                     std::span<const std::byte> saved) const;
};

/// A compute resource. Per-op support is data inside; nothing here is named after an op.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const noexcept = 0;
  /// Where its operands live.
  virtual MemRegion& region() const = 0;
  /// Why it cannot run this step (the clause that failed), or nothing when it can. Loops are asked
  /// about by their body's steps.
  virtual std::optional<std::string> refuses(const Step& step) const = 0;
  /// Compiles steps of `program` that it does not refuse. `program` outlives the partition.
  virtual std::unique_ptr<Partition> compile(const Lowered& program,
                                             std::span<const Step> steps) const = 0;
  /// Whether it compiles straight-line programs only: loops are then unrolled before lowering, and
  /// every step's value has a name of its own.
  virtual bool wants_unrolled() const noexcept { return false; }
  /// Facts for people: instruction set, threads, ...
  virtual std::map<std::string, std::string> properties() const { return {}; }
};

using BackendPtr = std::shared_ptr<const Backend>;

struct BackendOptions {
  int threads = 0;     ///< 0: one per available CPU
  bool exact = false;  ///< keep activations in f32; no quantised intermediate values
  /// What one kind of device wants to know beyond that: its backend names the type, such as
  /// npu::Options or cpu::Options.
  std::any device{};
};

/// The backends of this process by name. Those linked in statically announce themselves when their
/// `register_*` function is called; plugins when loaded.
using BackendFactory = BackendPtr (*)(const BackendOptions& options);
void register_backend(std::string_view name, BackendFactory factory);  ///< Errc::duplicate_name
std::vector<std::string> backend_names();
/// Errc::unavailable naming the known ones.
BackendPtr make_backend(std::string_view name, const BackendOptions& options = {});
/// One of each registered backend in order of preference: the reference last, "null" not at all.
std::vector<BackendPtr> default_backends(const BackendOptions& options = {});

/// Makes the backend of an open device. Throws Errc::bad_argument for options without what it
/// needs, saying what that is.
using DeviceBackendFactory = BackendPtr (*)(const DevicePtr& device, const BackendOptions& options);
/// Says who serves the devices of a URL scheme ("npu"); once per scheme (Errc::duplicate_name),
/// though the same factory may come again.
void register_device_backend(std::string_view scheme, DeviceBackendFactory factory);
/// The backends that serve an open device, in order of priority: for a device of the scheme "cpu"
/// the default_backends(), for others the one registered for the scheme. Errc::unavailable naming
/// the known schemes.
std::vector<BackendPtr> device_backends(const DevicePtr& device,
                                        const BackendOptions& options = {});

/// Version of the plugin interface; a plugin built for another major version is refused.
inline constexpr std::uint32_t plugin_abi_version = 3;

/// What a plugin's entry point returns. The memory belongs to the plugin and stays valid while it
/// is loaded.
struct PluginDescriptor {
  std::uint32_t struct_bytes = sizeof(PluginDescriptor);
  std::uint32_t abi_version = plugin_abi_version;
  const char* name = nullptr;
  /// Null, or why this machine cannot run the backend.
  const char* (*unavailable)() = nullptr;
  BackendPtr (*create)(const BackendOptions& options) = nullptr;
  /// Null, or the URL scheme of the devices that it serves by `create_for`; `create` may then be
  /// null.
  const char* scheme = nullptr;
  BackendPtr (*create_for)(const DevicePtr& device, const BackendOptions& options) = nullptr;
};

/// The one symbol of a plugin: `extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept`.
inline constexpr const char* plugin_entry = "tenon_plugin";

/// Loads a shared library and registers its backend; returns the backend's name. `path` names a
/// file; no folders are searched. Makes one backend to see that it can. Loading a file twice, under
/// whatever path, counts up; each load needs one unload. What the backend throws arrives as Error,
/// foreign exceptions as Errc::plugin_fault. Thread-safe.
/// Errors: Errc::plugin_load with the loader's text, invalid_plugin without a usable entry point,
/// abi_mismatch, unsupported when the plugin says that this machine cannot run it, plugin_init,
/// duplicate_name.
std::string load_plugin(const std::string& path);
/// Undoes one load. Errc::busy while backends made by it, their sessions, or weights they have
/// packed are alive; Errc::bad_reference when it is not loaded.
void unload_plugin(std::string_view name);

}  // namespace tenon
