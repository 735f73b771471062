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
  /// One per Lowered::constants, where its weight lies. Those that steps of a backend in CPU memory
  /// read are there.
  std::span<const Buffer> buffers;
  PreparedCache& prepared;
  /// By index: the name under which `prepared` may have what is made of a constant. Of a weight, its
  /// own; of ConstantSlot::folded ones, which may be called the same in another program on these
  /// weights, with a digest of the bytes. For constants that the partition uses, on the thread that binds, until
  /// bind() returns.
  std::function<const std::string&(std::size_t constant)> key;
};

/// Which constants a partition uses, by their indices in Lowered::constants.
struct ConstantUse {
  /// A constant that is used only in the form that BoundConstants::prepared keeps under `key`; its
  /// own bytes are needed only where that form is missing.
  struct Kept {
    std::size_t constant = 0;
    std::string key;
  };
  std::vector<std::size_t> read;  ///< their own bytes are read, by bind() or by runs
  std::vector<Kept> kept;
  /// Keys under which bind() keeps what is no form of one constant, such as compiled kernels: it
  /// makes again what is missing.
  std::vector<std::string> made{};
};

/// A bound partition as bytes, from which Backend::restore() makes an equal one.
struct SavedPartition {
  std::vector<std::byte> bytes;
  std::optional<ConstantUse> use{};  ///< of the restored one, as Partition::constant_use()
};

/// A partition with its weights in place, ready to run. Immutable: may run in several sessions at
/// once, each with its own memory.
class BoundPartition {
 public:
  virtual ~BoundPartition() = default;
  // Run every step: run() where Backend::region() is CPU memory, run_on_device() elsewhere. A
  // backend implements one of them; the default of both throws Errc::internal. They throw errors
  // that depend on data (an index out of range), naming the op; the contents of outputs are then
  // unspecified.
  virtual void run(HostFrame& frame) const;
  virtual void run_on_device(DeviceFrame& frame) const;
  /// For Backend::restore(). No bytes if Backend::compile() makes an equal partition quickly and
  /// without further options.
  virtual SavedPartition save() const { return {}; }
};

/// Consecutive steps of a lowered program, compiled by one backend.
class Partition {
 public:
  virtual ~Partition() = default;
  /// Size of the working memory that a run needs at HostFrame::scratch, 64-byte aligned.
  virtual std::int64_t scratch_bytes() const { return 0; }
  virtual std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const = 0;
  /// How values are computed, for people to read: one `value: what` each.
  virtual std::vector<std::string> notes() const { return {}; }
  /// The constants that bind() and runs need; in a snapshot without weights the others may have no
  /// data. std::nullopt: all constants of its steps.
  virtual std::optional<ConstantUse> constant_use() const { return std::nullopt; }
};

/// A compute resource. Which ops it supports is answered by refuses(); no member is named after an
/// op.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const noexcept = 0;
  /// The memory of its operands.
  virtual MemRegion& region() const = 0;
  /// Why it cannot run this step (the constraint that fails); nothing when it can. For a loop, it
  /// is asked about each step of the body.
  virtual std::optional<std::string> refuses(const Step& step) const = 0;
  /// Compiles steps of `program` that it does not refuse. `program` outlives the partition.
  virtual std::unique_ptr<Partition> compile(const Lowered& program,
                                             std::span<const Step> steps) const = 0;
  /// The inverse of BoundPartition::save(), for the same steps on an equal device: makes a
  /// partition from the bytes `saved` without compiling and without asking refuses(). The bytes are
  /// untrusted. Errors: Errc::incompatible, naming how the device or options that they were saved
  /// for differ from this backend's; Errc::corrupt. The default throws Errc::incompatible.
  virtual std::unique_ptr<Partition> restore(const Lowered& program, std::span<const Step> steps,
                                             std::span<const std::byte> saved) const;
  /// Compiles steps that restore() refused, with what was saved besides the weights (a
  /// calibration). Errors: those of require_accepted(). By default compile().
  virtual std::unique_ptr<Partition> recompile(const Lowered& program, std::span<const Step> steps,
                                               std::span<const std::byte> saved) const;
  /// Whether it compiles straight-line programs only. Loops are then unrolled before lowering, and
  /// every step's value has a unique name.
  virtual bool wants_unrolled() const noexcept { return false; }
  /// Properties for people to read: instruction set, threads, ...
  virtual std::map<std::string, std::string> properties() const { return {}; }
};

using BackendPtr = std::shared_ptr<const Backend>;

/// Asks a backend about steps that it was not chosen for: Errc::unsupported, naming the value and
/// the constraint, where it refuses one.
void require_accepted(const Backend& backend, std::span<const Step> steps);

struct BackendOptions {
  int threads = 0;     ///< 0: one per available CPU
  bool exact = false;  ///< keep activations in f32; no quantised intermediate values
  /// Options of one kind of device, in the type that its backend documents: cpu::Options,
  /// npu::Options. Empty: the backend's defaults. Options of another type count as empty, since
  /// default_backends() gives the same ones to all backends.
  std::any device{};
};

/// The backends of this process by name. A statically linked backend is registered by its
/// `register_*` function, a plugin when it is loaded.
using BackendFactory = BackendPtr (*)(const BackendOptions& options);
/// Errc::duplicate_name for the name of another one, Errc::bad_argument without a name or a factory.
void register_backend(std::string_view name, BackendFactory factory);
std::vector<std::string> backend_names();
/// Makes a backend by its name. Errc::unavailable, naming the registered ones, and where its factory
/// makes none.
BackendPtr make_backend(std::string_view name, const BackendOptions& options = {});
/// One of each registered backend in order of priority: "reference" last, without "null".
std::vector<BackendPtr> default_backends(const BackendOptions& options = {});

/// Makes the backend of an open device. Throws Errc::bad_argument, naming what is missing, for
/// options that lack something it needs.
using DeviceBackendFactory = BackendPtr (*)(const DevicePtr& device, const BackendOptions& options);
/// Registers the factory for devices of a URL scheme ("npu"). Errc::duplicate_name for a scheme
/// that has another factory; registering the same one again does nothing.
void register_device_backend(std::string_view scheme, DeviceBackendFactory factory);
/// The backends for an open device, in order of priority: default_backends() for the scheme "cpu",
/// otherwise the one registered for the device's scheme. Errc::unavailable, naming the known
/// schemes, and for "cpu" where no backend is registered.
std::vector<BackendPtr> device_backends(const DevicePtr& device,
                                        const BackendOptions& options = {});

/// Version of the plugin interface; a plugin built for another major version is refused.
inline constexpr std::uint32_t plugin_abi_version = 7;

struct KernelDef;
struct OpDef;

/// Where a plugin adds ops and kernels: in the program that loads it, for a plugin may have a copy
/// of the core of its own. As register_op and register_kernel.
struct PluginRegistry {
  void (*add_op)(const OpDef& def);
  void (*add_kernel)(std::string_view backend, const KernelDef& kernel);
};

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
  /// Null, or adds ops and kernels: when it is loaded, after a backend has been made. `create` and
  /// `create_for` may then both be null. Programs refer to what was added, so such a plugin stays
  /// loaded, and so it does when this throws.
  void (*add)(const PluginRegistry& registry) = nullptr;
};

/// The one symbol of a plugin: `extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept`.
inline constexpr const char* plugin_entry = "tenon_plugin";

/// Loads a shared library and registers its backend; returns the backend's name. `path` names a
/// file; no folders are searched. Makes one backend as a check. Loads of one file are counted,
/// under whatever path; each needs one unload. Errors that the backend throws are passed on as
/// Error, foreign exceptions as Errc::plugin_fault. Thread-safe.
///
/// Errors  plugin_load     with the loader's text
///         invalid_plugin  no usable entry point
///         abi_mismatch    built for another plugin_abi_version
///         unsupported     the plugin reports that this machine cannot run it
///         plugin_init     its backend cannot be made
///         duplicate_name  a backend of its name is registered
std::string load_plugin(const std::string& path);
/// Undoes one load. Errc::busy while backends made by it, their sessions, or weights that they
/// packed are alive, and for a plugin that added ops or kernels; Errc::bad_reference when no such
/// plugin is loaded.
void unload_plugin(std::string_view name);

}  // namespace tenon
