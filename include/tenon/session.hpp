#pragma once

#include <tenon/backend.hpp>
#include <tenon/buffer.hpp>
#include <tenon/held.hpp>
#include <tenon/program.hpp>
#include <tenon/program_view.hpp>
#include <tenon/trace.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// Weights by name, with what backends made of them. Shared by sessions; thread-safe. Once a
/// backend has packed a weight, the original bytes are no longer read.
class WeightSet {
 public:
  explicit WeightSet(std::map<std::string, Buffer> weights)
      : WeightSet(std::move(weights), nullptr) {}
  /// As above; what backends pack is found in `prepared` (null: a fresh cache), and its file is
  /// written when a plan is bound.
  WeightSet(std::map<std::string, Buffer> weights, std::shared_ptr<PreparedCache> prepared);

  /// Null when there is none.
  const Buffer* find(const std::string& name) const noexcept;
  /// The weight where the CPU can address it: itself, or a copy that is made once and kept for all
  /// who ask. Errc::bad_reference when there is none, Errc::call_order when it has no data.
  Buffer on_host(const std::string& name) const;
  const std::map<std::string, Buffer>& all() const noexcept { return weights_; }
  PreparedCache& prepared() const { return *prepared_; }

 private:
  struct HostCopies;

  std::map<std::string, Buffer> weights_;
  detail::Held<PreparedCache, "WeightSet"> prepared_;
  detail::Held<HostCopies, "WeightSet"> copies_;
};

struct SessionOptions {
  /// In order of priority; a step goes to the first that does not refuse it. Empty: every
  /// registered backend, the reference last.
  std::vector<BackendPtr> backends;
  /// Plans kept, the least recently used one goes first.
  std::size_t plan_limit = 32;
  /// A step that the first backend refuses is Errc::unsupported, with its reason, when a plan is
  /// made. Otherwise it goes to a later one, and PlanReport::fallbacks and the log say so.
  bool forbid_fallback = false;
};

/// A backend with the ops that it shall run.
struct BoundView {
  BackendPtr backend;
  ProgramView ops;
};

/// What a plan looks like, for people and tests.
struct PlanReport {
  std::int64_t slab_bytes = 0;        ///< planned activation memory
  std::int64_t activation_bytes = 0;  ///< the same without reuse
  struct Part {
    std::string backend;
    std::vector<std::string> values;  ///< what it computes, in order
    std::vector<std::string> notes;   ///< what the backend has to say (Partition::notes)
  };
  std::vector<Part> parts;          ///< several values: merged into one piece of work
  std::vector<std::string> copies;  ///< values that are copied without an op asking for it
  /// A step that the first backend refused.
  struct Fallback {
    std::string value;
    std::string op;
    std::string backend;     ///< that runs it instead; "reference" computes element by element
    std::string why;         ///< the clause of the first backend that failed
    std::int64_t bytes = 0;  ///< that it reads and writes in a run
  };
  std::vector<Fallback> fallbacks;
  /// Bytes that move between memories because neighbours run on different devices.
  struct Transfer {
    std::string value;
    std::string from, to;  ///< regions
    std::int64_t bytes = 0;
  };
  std::vector<Transfer> transfers;
  /// Weights that lie where the CPU cannot address them, and are copied once, when they are bound:
  /// backends read them there. Only where weights are bound.
  std::vector<Transfer> weight_copies;
};

/// What a callback learns of a step, or of several that a backend runs as one.
struct StepEvent {
  std::span<const std::string> values;  ///< what is computed; several when merged
  std::string_view op;                  ///< of a single step; "" when merged
  const Backend& backend;
  std::span<const Buffer> inputs;   ///< in memory of the run: valid during the callback
  std::span<const Buffer> outputs;  ///< empty before the step
  bool is_merged() const noexcept { return values.size() > 1; }
};
using StepCallback = std::function<void(const StepEvent& event)>;

/// Time that steps took in the last run.
struct StepTime {
  std::vector<std::string> values;  ///< several when merged
  std::string backend;
  std::chrono::nanoseconds wall{};  ///< in all
  std::chrono::nanoseconds mem{};   ///< moving bytes between memories
  /// The compute device at work: kernels on the CPU, else the device's own count.
  std::chrono::nanoseconds device{};
  std::chrono::nanoseconds other{};  ///< the rest

  /// A step, or several whose work is one.
  struct Part {
    std::string function{};  ///< the repeated one whose values they are; empty outside of loops
    std::vector<std::string> values{};
    std::string op{};                 ///< of the step that computes most
    Shape shape{};                    ///< of its output
    std::optional<DType> weights{};   ///< of a product: the element type of its second factor
    std::int64_t count = 0;           ///< how often it ran: more than once in a loop
    std::chrono::nanoseconds wall{};  ///< in all, with waiting for other threads
    double bytes = 0;                 ///< read and written in all; NaN where data decides
    double flops = 0;                 ///< multiplications and additions in all; NaN likewise

    std::string title() const;  ///< "block: linear0, linear1"
  };
  /// What a merged piece of work spent in each of its steps, where its backend tells: "cpu" does.
  std::vector<Part> parts;
};

/// A program bound to backends: specialises to the shapes of its inputs, keeps a plan for each, and
/// runs. Owns its activations, so one thread may run it at a time (Errc::busy otherwise); forks
/// share plans and weights and run concurrently.
///
/// Options are set first; apply(), or the first run, fixes them: setting one later is
/// Errc::call_order. So is whatever is asked of a session that was moved from.
class Session {
 public:
  /// Each op goes to the first backend, in order of priority, that does not refuse it. Errors:
  /// those of verify(); Errc::bad_argument for a null backend.
  explicit Session(Program program, SessionOptions options = {});
  /// Each op goes where a view puts it; every op needs exactly one (Errc::bad_argument naming those
  /// with none or two), whose backend takes it (Errc::unsupported with its reason).
  Session(Program program, const std::vector<BoundView>& views);

  const Program& program() const;
  const std::vector<BackendPtr>& backends() const;

  /// Gives the constants their values; plans made before are rebound. The next run checks the types
  /// of weights: Errc::shape_mismatch for one that is not what a plan reads, also where only the
  /// weights bound before told its type. Errc::bad_argument for null.
  void bind(std::shared_ptr<const WeightSet> weights);

  // Options. Several of them need every step to run by itself, on a program without loops, whose
  // names are those of `unroll`: they end merging.

  /// Whether a backend may run neighbouring steps as one piece of work. Default: yes.
  void set_merge(bool merge);
  /// Each step's inputs and outputs, or its time, as a message to the log.
  void set_log_io(bool log_io);
  void set_log_time(bool log_time);
  /// Writes each step's output to FOLDER/<value>.<format, or "raw">, as Buffer::dump does. Of a
  /// backend that computes in integers, H and Q are the blocks and integers that it holds. Ends
  /// merging. Errc::bad_argument, before anything runs, names a value that has no such form.
  void set_dump_outputs(std::string folder, std::string format = "");
  void set_pre_callback(StepCallback callback);
  void set_post_callback(StepCallback callback);
  /// Whether step_times() will have something to say.
  void enable_time_profile(bool enable);
  /// Steps and copies of every run go there.
  void set_trace(std::shared_ptr<Trace> trace);
  /// Fixes the options. A second call does nothing.
  void apply();

  /// Runs the program. Inputs in the order of the entry function's parameters, on any region; an
  /// input that the program updates is overwritten when this call holds its last handle (pass it by
  /// std::move) and copied otherwise. Errc::bad_input names an input that does not fit; outputs are
  /// fresh, in CPU memory.
  ///
  /// Inputs are taken when the call succeeds. When it throws, `inputs` holds every handle again. Of
  /// an input that was overwritten, the elements that the program updates may then be old, new or
  /// anything; all others are as they were. So a KV cache still holds what was read before, and the
  /// call can be made again.
  std::vector<Buffer> forward(std::vector<Buffer>&& inputs);
  std::vector<Buffer> forward(const std::vector<Buffer>& inputs);
  /// As above, into memory of the caller on any region; shapes must match (Errc::bad_input). An
  /// output may lie where an input does: it is written when the input has been read for the last
  /// time. Outputs that overlap each other: Errc::alias.
  void forward(std::vector<Buffer>&& inputs, std::span<Buffer> outputs);
  void forward(const std::vector<Buffer>& inputs, std::span<Buffer> outputs);

  /// Runs on until the op that makes `value` has run, and returns its output. Goes on from where
  /// the last call stopped; the inputs count at the first call, and may be left out later. After
  /// the last op, or after forward(), the next call begins anew. Ends merging for this session.
  /// Errc::bad_reference when no op has that name, Errc::call_order when it has been passed.
  Buffer step_to(std::string_view value, std::vector<Buffer> inputs = {});

  /// What forward() does before it runs, for inputs of these types: makes the plan, and has
  /// backends compile it and pack the weights, unless all that is done. Errors: those of binding.
  void prepare(std::span<const Shape> inputs);

  /// Makes the plan for these inputs, or finds it, and describes it.
  PlanReport report(std::span<const Shape> inputs);

  /// Why each backend refuses the op that makes `value`, or that it takes it; one line per backend,
  /// then what the one that runs it notes of it.
  std::vector<std::string> explain(std::string_view value, std::span<const Shape> inputs);

  /// Of the last run, when enable_time_profile() was called; steps in the order they ran.
  std::span<const StepTime> step_times() const;
  /// Of the last forward(), always.
  std::chrono::nanoseconds total_time() const;

  /// Writes program, options, plans made so far with what backends compiled, and the weights, or
  /// only their digests, to one file (snapshot.hpp), atomically.
  struct SaveOptions {
    bool weights = true;
  };
  void save(const std::filesystem::path& path, const SaveOptions& options) const;
  void save(const std::filesystem::path& path) const { save(path, SaveOptions{}); }
  /// The session of a file, on backends of the same names in the same order. Weights in the file
  /// stay mapped; where it has digests only, `weights` must hold what they were made of. Whether
  /// steps merge is as it was saved: set_merge is Errc::call_order. Errors: those of
  /// Snapshot::open; Errc::incompatible naming the field that does not fit (another version of the
  /// library alone does not matter: what a file holds has a format number of its own, and a refusal
  /// by that number says which version wrote the file), Errc::bad_reference
  /// naming a weight that is missing, Errc::corrupt for a manifest that makes no sense.
  static Session load(const std::filesystem::path& path, std::vector<BackendPtr> backends,
                      std::shared_ptr<const WeightSet> weights = {});

  /// A session of its own activations and options on the same plans and weights.
  Session fork() const;
  /// The same, but on the activation memory of `other`: the two run one at a time.
  Session fork(const Session& other) const;
  /// A session that runs only ops [first, last) (`extract`), on the same backends and weights.
  Session view(std::size_t first, std::size_t last) const;

 private:
  struct Shared;
  struct Bound;
  struct State;
  class Run;
  class Loader;
  Session() = default;
  Session(std::shared_ptr<Shared> shared);
  void change_option(std::string_view option);
  std::vector<Buffer> run(std::vector<Buffer>& inputs, std::span<Buffer> given);
  Buffer run_to(std::string_view value, std::vector<Buffer> inputs);
  void write_to(const std::filesystem::path& path, const SaveOptions& options) const;

  detail::Held<Shared, "Session"> shared_;
  detail::Held<Bound, "Session"> bound_;
  detail::Held<State, "Session"> state_;
};

}  // namespace tenon
