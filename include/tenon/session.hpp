#pragma once

#include <tenon/backend.hpp>
#include <tenon/buffer.hpp>
#include <tenon/event.hpp>
#include <tenon/held.hpp>
#include <tenon/interrupt.hpp>
#include <tenon/program.hpp>
#include <tenon/program_view.hpp>
#include <tenon/trace.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

namespace sessions {
struct BoundPlan;
}

/// Weights by name, with the forms that backends packed them into. Shared by sessions; thread-safe.
/// Once a backend has packed a weight, its original bytes are no longer read.
class WeightSet {
 public:
  explicit WeightSet(std::map<std::string, Buffer> weights)
      : WeightSet(std::move(weights), nullptr) {}
  /// As above, with a cache of packed weights (null: a new one), whose file is written when a plan
  /// is bound.
  WeightSet(std::map<std::string, Buffer> weights, std::shared_ptr<PreparedCache> prepared);

  /// The weight of a name; null when there is none.
  const Buffer* find(const std::string& name) const noexcept;
  /// The weight in memory that the CPU can address: itself, or a copy that is made once and kept.
  /// Errc::bad_reference when there is none, Errc::call_order when it has no data.
  Buffer on_host(const std::string& name) const;
  /// The object that the weight is, or whose bytes it has (load_object): then made once and kept.
  /// Errors as above, Errc::bad_type for another class, and those of load_object().
  Buffer as_object(const std::string& name, DType dtype) const;
  const std::map<std::string, Buffer>& all() const noexcept { return weights_; }
  PreparedCache& prepared() const { return *prepared_; }
  /// What a plan computed from weights alone (ConstantSlot::computed) under this name; null where no
  /// bound plan holds it any more.
  std::shared_ptr<const Buffer> computed(const std::string& name) const;
  void keep_computed(const std::string& name, const std::shared_ptr<const Buffer>& array) const;

 private:
  struct HostCopies;
  struct Computed;

  std::map<std::string, Buffer> weights_;
  detail::Held<PreparedCache, "WeightSet"> prepared_;
  detail::Held<HostCopies, "WeightSet"> copies_;
  detail::Held<Computed, "WeightSet"> computed_;
};

struct SessionOptions {
  /// In order of priority: a step runs on the first backend that does not refuse it. Empty: all
  /// registered backends, "reference" last.
  std::vector<BackendPtr> backends{};
  /// Maximal number of cached plans; the least recently used one is evicted. One for calls that give inputs up is kept
  /// beside that which keeps them, and not counted.
  std::size_t plan_limit = 32;
  /// A step that the first backend refuses makes planning throw Errc::unsupported, with the reason.
  /// Otherwise it runs on a later backend, and PlanReport::fallbacks and the log report it.
  bool forbid_fallback = false;
  /// Whether results lie in the memory of the first backend; otherwise in CPU memory.
  bool results_on_device = false;
};

/// A backend with the ops that it has to run.
struct BoundView {
  BackendPtr backend;
  ProgramView ops;
};

/// A description of a plan, for people and tests.
struct PlanReport {
  std::int64_t slab_bytes = 0;        ///< memory of the activations
  std::int64_t activation_bytes = 0;  ///< the same without reuse
  struct Part {
    std::string backend;
    std::vector<std::string> values;  ///< computed values, in order
    std::vector<std::string> notes;   ///< Partition::notes
  };
  std::vector<Part> parts;          ///< one with several values runs them as one
  std::vector<std::string> copies;  ///< values that are copied although no op copies them
  /// A step that the first backend refused.
  struct Fallback {
    std::string value;
    std::string op;
    std::string backend;     ///< the one that runs it; "reference" computes element by element
    std::string why;         ///< the reason of the first backend
    std::int64_t bytes = 0;  ///< read and written by the step in a run
  };
  std::vector<Fallback> fallbacks;
  /// A copy between memories because producer and consumer run on different devices. Inputs are
  /// taken to lie in CPU memory, and state that is updated where results lie.
  struct Transfer {
    std::string value;
    std::string from, to;  ///< regions
    std::int64_t bytes = 0;
  };
  std::vector<Transfer> transfers;
  /// Weights in memory that the CPU cannot address, of which backends in CPU memory read copies,
  /// made once when they are bound. Empty without bound weights.
  std::vector<Transfer> weight_copies;
  /// A value that depends on constants alone: computed once, when weights are bound, by a backend
  /// that does not compile for one set of weights (Backend::wants_unrolled). No run computes it.
  struct Computed {
    std::string value;
    std::string op;
    std::int64_t bytes = 0;  ///< of memory, as long as a bound plan reads it unpacked
  };
  std::vector<Computed> computed;
};

/// The arguments of a callback: a step, or several that a backend runs as one.
struct StepEvent {
  std::span<const std::string> values;  ///< computed values; several when merged
  std::string_view op;                  ///< of a single step; "" when merged
  std::string_view function;            ///< of a single step: see Step; "" when merged
  const Backend& backend;
  std::span<const Buffer> inputs;   ///< in the run's memory: valid during the callback
  std::span<const Buffer> outputs;  ///< empty before the step
  bool is_merged() const noexcept { return values.size() > 1; }
};
using StepCallback = std::function<void(const StepEvent& event)>;

/// Time of a step, or of several that a backend runs as one, in the last run.
struct StepTime {
  std::vector<std::string> values;  ///< several when merged
  std::string backend;
  std::chrono::nanoseconds wall{};  ///< in total
  std::chrono::nanoseconds mem{};   ///< copies between memories
  /// Computing: wall time of CPU kernels, or the device's own measurement.
  std::chrono::nanoseconds device{};
  std::chrono::nanoseconds other{};  ///< the rest

  /// A step of a merged piece of work, or several that were computed together.
  struct Part {
    std::string function{};  ///< the repeated function of the values; empty outside of loops
    std::vector<std::string> values{};
    std::string op{};                 ///< of the step that computes most
    Shape shape{};                    ///< of that step's output
    std::optional<DType> weights{};   ///< of a matrix multiplication: dtype of its second operand
    std::int64_t count = 0;           ///< how often it ran: more than once in a loop
    std::chrono::nanoseconds wall{};  ///< in total, including waiting for other threads
    double bytes = 0;                 ///< read and written in total; NaN: dependent on data
    double flops = 0;                 ///< multiplications and additions in total; NaN likewise

    std::string title() const;  ///< "block: linear0, linear1"
  };
  /// The time of each step of a merged piece of work, where its backend measures it ("cpu" does).
  std::vector<Part> parts;
};

struct SubmitOptions {
  std::vector<Event> after{};  ///< the run begins after these; their errors are the run's
};

/// Which weights a snapshot of a session contains.
enum class SavedWeights : std::uint8_t {
  all,      ///< every one: it loads on any device
  digests,  ///< none, only their digests: load() is given the same weights
  /// Those that some partition reads unchanged (biases, tables), and of the others only what
  /// backends packed or compiled: it loads on the same kind of device, and runs the plans that were
  /// saved without being given weights.
  needed,
};

/// A program bound to backends: plans it for the shapes of its inputs, caches the plans, and runs
/// it. Owns its activations, so that only one thread may run it at a time (Errc::busy); forks share
/// plans and weights and run concurrently.
///
/// Options must be set before apply() or the first run; setting one later throws Errc::call_order.
/// So does every use of a moved-from session.
class Session {
 public:
  /// Each op runs on the first backend, in order of priority, that does not refuse it. Errors:
  /// those of verify(); Errc::bad_argument for a null backend, Errc::unavailable without any.
  explicit Session(Program program, SessionOptions options = {});
  /// Each op runs on the backend of the view that has it. Errc::bad_argument, naming the ops,
  /// unless every op is in exactly one view; Errc::unsupported, with the reason, where the backend
  /// refuses an op.
  Session(Program program, std::span<const BoundView> views);
  /// The same for views that are written out; `{}` are no options. (No overload takes a vector:
  /// GCC 12 would try to make one of `{.plan_limit = 4}`, as it ignores the names.)
  Session(Program program, std::initializer_list<BoundView> views);

  const Program& program() const;
  const std::vector<BackendPtr>& backends() const;

  /// Binds the values of the constants; existing plans are rebound. Errc::bad_argument for null.
  /// The next run throws Errc::shape_mismatch for a weight whose type is not the one that a plan
  /// was made for, also where that type came from the weights bound before.
  void bind(std::shared_ptr<const WeightSet> weights);

  // Options. Those that "end merging" make every step run by itself, on a program whose only
  // loops have conditions: names are those of `unroll`, and within these loops of their functions.

  /// Whether a backend may run adjacent steps as one. Default: yes.
  void set_merge(bool merge);
  /// Log the inputs and outputs of each step, or its time.
  void set_log_io(bool log_io);
  void set_log_time(bool log_time);
  /// Writes each step's output to FOLDER/<value>.<format, or "raw">, as Buffer::dump does. For a
  /// backend that computes in integers, formats H and Q give its own blocks and integers. Ends
  /// merging. The run throws Errc::bad_argument, before its first step, for a value that has no
  /// such form, and names it.
  void set_dump_outputs(std::string folder, std::string format = "");
  void set_pre_callback(StepCallback callback);
  void set_post_callback(StepCallback callback);
  /// Whether runs record step_times().
  void enable_time_profile(bool enable);
  /// Records the steps and copies of every run in `trace`.
  void set_trace(std::shared_ptr<Trace> trace);
  /// Fixes the options. A second call does nothing.
  void apply();

  /// From now on, a call ends with Errc::cancelled or Errc::timeout once the interrupt is due. It
  /// is checked between steps, within steps of the CPU's backend, and while waiting for a device, for
  /// an input that is not ready, or for the runs that were submitted before.
  /// May be changed at any time between calls.
  void set_interrupt(Interrupt interrupt);

  /// Runs the program. Inputs are in the order of the entry function's parameters, in any region;
  /// an input that the program updates is overwritten when this call has its last handle (pass it
  /// by std::move) and copied otherwise. Outputs are new buffers in CPU memory, or in the memory of
  /// the first backend (SessionOptions::results_on_device). Where a result can be computed in the
  /// memory of an input of which this call has the last handle, it is. Errc::bad_input names an
  /// input that does not fit.
  ///
  /// Inputs are consumed when the call succeeds. When it throws, `inputs` has every handle again.
  /// In an input that is updated in place, the elements that the program updates then have
  /// unspecified values, and all others are unchanged: a KV cache still holds the positions before
  /// the call, and the call can be repeated. An input whose memory was reused for other values is
  /// poisoned with the call's error.
  std::vector<Buffer> forward(std::vector<Buffer>&& inputs);
  std::vector<Buffer> forward(const std::vector<Buffer>& inputs);
  /// As above. This call ends when `interrupt` is due, too: its token takes the place of that of set_interrupt(), and
  /// of two deadlines the earlier one counts.
  std::vector<Buffer> forward(std::vector<Buffer>&& inputs, const Interrupt& interrupt);
  /// As above, into the caller's buffers in any region, whose shapes must match (Errc::bad_input).
  /// An output may share memory with an input: it is written after the last read of the input.
  /// Errc::alias for outputs that overlap each other. When it throws, their elements, and those of
  /// inputs that they share memory with, have unspecified values.
  void forward(std::vector<Buffer>&& inputs, std::span<Buffer> outputs);
  void forward(const std::vector<Buffer>& inputs, std::span<Buffer> outputs);

  /// Submits a run and returns at once: results become ready when it has ended, and have its error
  /// if it fails. Runs of a session, and of those that share its activations, are executed one
  /// after another on a thread of their own; forward() waits for earlier ones. Inputs may be
  /// results of other submitted work that are not ready yet: their memory is reused as if they
  /// were, so that state is updated in place from run to run. Inputs in CPU memory that a device
  /// reads are copied to it while earlier runs work. Nobody may write to the inputs before the
  /// results are ready.
  ///
  /// Errors: those of planning and binding, which are done before it returns (see prepare()), and
  /// Errc::bad_input; when it throws, `inputs` has every handle again. Callbacks are called on the
  /// session's thread. Inputs of a run that fails later are not given back: pass copies of handles
  /// that are still needed.
  std::vector<Buffer> submit(std::vector<Buffer>&& inputs, const SubmitOptions& options = {});
  std::vector<Buffer> submit(const std::vector<Buffer>& inputs, const SubmitOptions& options = {});

  /// Runs up to and including the op that computes `value`, and returns its output. Continues where
  /// the last call stopped; inputs are read at the first call and may be omitted later. After the
  /// last op, or after forward(), the next call starts from the beginning. Ends merging for this
  /// session. Errc::bad_reference when no op has that name, Errc::call_order when it has run
  /// already.
  Buffer step_to(std::string_view value, std::vector<Buffer> inputs = {});

  /// The preparation of forward() for inputs of these types: makes the plan, has backends compile
  /// it, and packs the weights, unless that was done before. Errors: those of binding.
  void prepare(std::span<const Shape> inputs);

  /// Describes the plan for these inputs; makes it if needed.
  PlanReport report(std::span<const Shape> inputs);

  /// For the op that computes `value`, one line per backend: that it accepts the op, or why it
  /// refuses it; then the notes of the backend that runs it.
  std::vector<std::string> explain(std::string_view value, std::span<const Shape> inputs);

  /// Times of the last run, when enable_time_profile() was called; in the order that steps ran.
  /// Waits for submitted runs.
  std::span<const StepTime> step_times() const;
  /// Wall time of the last run; always measured. Waits for submitted runs.
  std::chrono::nanoseconds total_time() const;

  struct SaveOptions {
    SavedWeights weights = SavedWeights::all;
    /// Also save what backends made of the weights (packed weights, an NPU's constants), which is
    /// used in place when the file is loaded. SavedWeights::needed implies it.
    bool prepared = false;
  };
  /// Writes the program, plans, what backends compiled for them and the session's options (merging,
  /// plan_limit, forbid_fallback, results_on_device) to one file (snapshot.hpp), atomically, with
  /// the weights that `options` select. For a deployment: `session.prepare(inputs)` for each set of
  /// sizes, then `save(path, {.weights = SavedWeights::needed})`.
  ///
  /// Errors: those of writing a file, and with SavedWeights::needed or `prepared` those of
  /// prepare(); Errc::call_order for weights that the file needs and that have no data.
  void save(const std::filesystem::path& path, const SaveOptions& options) const;
  void save(const std::filesystem::path& path) const { save(path, SaveOptions{}); }
  /// Loads a saved session, on backends of the same names in the same order; `{}`: on those that
  /// make_backend() makes of the names. The file stays mapped; if it has only digests of the weights, `weights` must hold the weights themselves. Merging is
  /// as saved: set_merge() throws Errc::call_order.
  ///
  /// On a device equal to the one it was saved on, partitions run as they were saved: an NPU's
  /// backend compiles nothing and may be made without a calibration, and with SavedWeights::needed
  /// or `prepared` the CPU's packs nothing. On another device they are compiled and packed again,
  /// which is logged, if the file has the weights or `weights` are given.
  ///
  /// Errors: those of Snapshot::open; Errc::incompatible for other backends, and, naming what
  /// differs, for a device that needs weights which are missing; Errc::bad_reference, naming a
  /// missing weight; Errc::corrupt for an invalid manifest. A file of another version of the
  /// library can be loaded if this one reads the format number of its content; the error about that
  /// number names the version that wrote the file. Plans of an older format are compiled again.
  static Session load(const std::filesystem::path& path, std::vector<BackendPtr> backends,
                      std::shared_ptr<const WeightSet> weights = {});

  /// A session with its own activations and options, and the same plans and weights.
  Session fork() const;
  /// The same, but in the activation memory of `other`: only one of the two may run at a time, and
  /// a run of one ends what step_to() has begun in the other (Errc::call_order there).
  Session fork(const Session& other) const;
  /// A session that runs only ops [first, last) (`extract`), with the same backends and weights.
  Session view(std::size_t first, std::size_t last) const;

 private:
  struct Shared;
  struct Bound;
  struct State;
  class Run;
  class Loader;
  class Saver;
  Session() = default;
  Session(std::shared_ptr<Shared> shared);
  void change_option(std::string_view option);
  std::vector<Buffer> run(std::vector<Buffer>& inputs, std::span<Buffer> given,
                          const Interrupt& interrupt);
  std::vector<Buffer> start(std::vector<Buffer>& inputs, const SubmitOptions& options);
  std::shared_ptr<const sessions::BoundPlan> plan_of(std::span<const Buffer> inputs,
                                                     bool keeps_all);
  Buffer run_to(std::string_view value, std::vector<Buffer> inputs);
  static std::size_t stage_of(const Run& run, std::string_view value);

  detail::Held<Shared, "Session"> shared_;
  detail::Held<Bound, "Session"> bound_;
  detail::Held<State, "Session"> state_;
};

}  // namespace tenon
