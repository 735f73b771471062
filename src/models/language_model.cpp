#include "conversation_file.hpp"
#include "file_place.hpp"
#include "memory/large_pages.hpp"
#include "models/architectures.hpp"
#include "page_checks.hpp"
#include "used_cache.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/prepare_progress.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::models {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t default_context = 4096;
// Logits of every position are large: rows at once so that they take at most this much.
constexpr std::int64_t all_logits_bytes = std::int64_t{64} << 20;

Shape ids_shape(std::int64_t count) { return Shape({1, count}, i32); }
Shape rows_shape(std::int64_t count, std::int64_t width) { return Shape({1, count, width}, f32); }
Shape number_shape() { return {std::span<const Axis>(), i32}; }

Buffer number_buffer(std::int64_t number) {
  return HostBuffer::of<std::int32_t>(number_shape(), {static_cast<std::int32_t>(number)})
      .to_device(cpu_device());
}

Buffer ids_buffer(std::span<const std::int32_t> tokens) {
  return HostBuffer::of(ids_shape(static_cast<std::int64_t>(tokens.size())), tokens)
      .to_device(cpu_device());
}

bool is_true(const Buffer& flag) { return flag.to_host().values<bool>()[0]; }

/// The most probable tokens of `count` positions, -1 where no logit is a number.
template <class Choice>
std::vector<std::int32_t> chosen_tokens(const Choice& choice, std::size_t count) {
  const HostBuffer ids = choice.token.to_host();
  const HostBuffer is_nan = choice.is_nan.to_host();
  std::vector<std::int32_t> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_none = is_nan.values<bool>()[i];
    chosen.push_back(is_none ? -1 : ids.values<std::int32_t>()[i]);
  }
  return chosen;
}

template <class Buffers>
auto shapes_of(const Buffers& buffers) {
  return map_fields<Shape>(buffers,
                           [](const std::string&, const Buffer& buffer) { return buffer.shape(); });
}

/// Tells the caller of a load how far it is, and ends it when asked to.
class LoadWatch {
 public:
  LoadWatch(const io::LoadOptions& options, std::string file)
      : options_(options), file_(std::move(file)) {}

  void set_total(std::uint64_t bytes) { progress_.total_bytes = bytes; }
  void check() const {
    if (!options_.stop.stop_requested()) return;
    throw Error(Errc::cancelled, file_,
                fmt::format("loading was cancelled with {} of {} bytes ready", progress_.done_bytes,
                            progress_.total_bytes));
  }
  void advance(std::string_view weight, std::uint64_t bytes) {
    check();
    tell(weight, progress_.done_bytes + bytes);
  }
  /// Weights that are used as they lie in the file need no work.
  void finish() {
    check();
    if (progress_.done_bytes < progress_.total_bytes) tell({}, progress_.total_bytes);
  }

 private:
  void tell(std::string_view weight, std::uint64_t done) {
    progress_.done_bytes = std::min(done, progress_.total_bytes);
    progress_.tensor = weight;
    if (options_.progress) options_.progress(progress_);
  }

  const io::LoadOptions& options_;
  std::string file_;
  io::LoadProgress progress_;
};

std::uint64_t bytes_of(const WeightSet& weights) {
  std::uint64_t bytes = 0;
  for (const auto& [name, buffer] : weights.all()) {
    bytes += static_cast<std::uint64_t>(buffer.shape().bytes());
  }
  return bytes;
}

/// Low-rank adapters as weights of a model. Their names tell what they change, and how much, so that files of packed
/// weights and of conversations never have those of other adapters.
class Adapters {
 public:
  Adapters(std::span<const AdapterSource> sources, const Decoder<>& decoder)
      : values_(load_adapters(sources, decoder)) {
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    visit_fields(values_, [&](const std::string& name, const HostBuffer& values) {
      XXH3_64bits_update(&hash, name.data(), name.size());
      XXH3_64bits_update(&hash, values.bytes(), static_cast<std::size_t>(values.shape().bytes()));
    });
    for (const LayerAdapters<HostBuffer>& layer : values_.layers) {
      for (const auto* const one : {&layer.query, &layer.key, &layer.value, &layer.output,
                                    &layer.gate, &layer.up, &layer.down}) {
        if (*one) XXH3_64bits_update(&hash, &(*one)->scale, sizeof((*one)->scale));
      }
    }
    digest_ = fmt::format("{:016x}", XXH3_64bits_digest(&hash));
    const std::string prefix = fmt::format("adapters.{}.", digest_);
    std::vector<std::pair<std::string, Shape>> weights;
    visit_fields(values_, [&](const std::string& name, const HostBuffer& values) {
      weights.emplace_back(prefix + name, values.shape());
    });
    const WeightsView& view = view_.emplace("adapters", weights);
    tensors_ = map_fields<Tensor>(values_, [&](const std::string& name, const HostBuffer&) {
      return view.tensor(prefix + name);
    });
  }

  const std::string& digest() const { return digest_; }
  const DecoderAdapters<Tensor>& tensors() const { return tensors_; }
  DecoderAdapters<Buffer> on(const DevicePtr& device) const {
    return map_fields<Buffer>(values_, [&](const std::string&, const HostBuffer& values) {
      return values.to_device(device);
    });
  }

 private:
  DecoderAdapters<HostBuffer> values_;
  std::string digest_;
  std::optional<WeightsView> view_;
  DecoderAdapters<Tensor> tensors_;
};

/// The decoder with attention that is not causal: rows that are read at once see each other.
Decoder<> with_mutual_attention(Decoder<> decoder) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::unsupported, decoder.config.architecture,
                "embeddings that attend to each other in both directions: " + why);
  };
  if (decoder.config.is_recurrent()) refuse("its states only move on");
  if (decoder.config.latent) refuse("its attention is latent");
  if (decoder.config.max_alibi_bias != 0) refuse("it has ALiBi");
  if (decoder.config.attention_chunk > 0) refuse("it attends in chunks");
  for (DecoderLayer<>& layer : decoder.layers) {
    if (layer.attention) layer.attention->options.causal = false;
  }
  return decoder;
}

/// The time since the last lap.
class Stopwatch {
 public:
  std::chrono::nanoseconds lap() {
    const auto now = Clock::now();
    return now - std::exchange(last_, now);
  }

 private:
  Clock::time_point last_ = Clock::now();
};

}  // namespace

using NextExe = Exe<&Decoder<>::next>;

struct LanguageModel::Impl {
  Impl(io::File opened, const LanguageModelOptions& chosen)
      : file(std::move(opened)),
        options(chosen),
        device(chosen.device ? chosen.device : cpu_device()),
        compile_options(detail::on_device(
            device, {.backend = chosen.backend, .cpu_fallback = chosen.cpu_fallback})),
        config(config_of(file, options)),
        plain(placed_in(file, [&] { return Decoder<>::init(file.view(), config); })),
        decoder(plain) {
    if (!options.adapters.empty()) {
      adapters.emplace(options.adapters, plain);
      decoder = with_adapters(plain, adapters->tensors());
    }
    if (options.context < 1 || options.chunk < 1) {
      throw Error(Errc::bad_argument, "LanguageModel", "context and chunk must be positive");
    }
    check_cache();
  }

  static DecoderConfig config_of(const io::File& file, LanguageModelOptions& options) {
    DecoderConfig config = DecoderConfig::from(file);
    if (options.context == 0) options.context = std::min(config.context_length, default_context);
    config.has_long_context = options.context > config.rope.original_context;
    return config;
  }

  void set_tokenizer(text::Tokenizer made) {
    const auto tokens = static_cast<std::int64_t>(made.vocab_size());
    // Files fill their vocabulary up to the rows: with fewer tokens it is another model's.
    if (tokens != config.vocabulary) {
      throw Error(Errc::bad_tokenizer, file.path().string(),
                  fmt::format("{} tokens, but embeddings for {}", tokens, config.vocabulary));
    }
    tokenizer.emplace(std::move(made));
  }

  void check_cache() const {
    if (!options.cache) return;
    const DType type = *options.cache;
    if (!config.has_attention() && type != f32) {
      throw Error(Errc::bad_argument, "LanguageModel",
                  fmt::format("a cache of {} for {}, which has states of f32", name(type),
                              config.architecture));
    }
    if (!is_floating(type) && !is_block(type)) {
      throw Error(Errc::bad_argument, "LanguageModel",
                  fmt::format("a cache of {} cannot hold keys", name(type)));
    }
    for (const CachedHeads& cached : config.stacks()) {
      for (const std::int64_t size : {cached.key_dim, cached.value_dim}) {
        if (size % block_size(type) == 0) continue;
        throw Error(Errc::bad_argument, "LanguageModel",
                    fmt::format("a cache of {} holds blocks of {}, heads have {} numbers",
                                name(type), block_size(type), size));
      }
    }
  }
  /// Of a forward's arguments; `more` are those behind the cache.
  template <class... More>
  std::tuple<Shape, Shape, DecoderCache<Shape>, More...> shapes(std::int64_t tokens,
                                                                const More&... more) const {
    return shapes_for(ids_shape(tokens), more...);
  }
  template <class... More>
  std::tuple<Shape, Shape, DecoderCache<Shape>, More...> shapes_for(const Shape& input,
                                                                    const More&... more) const {
    return {input, number_shape(), cache_shapes(), more...};
  }
  DecoderCache<Shape> cache_shapes() const {
    return cache_shape(config, options.context, cache_type());
  }
  DType cache_type() const { return options.cache.value_or(options.backend.exact ? f32 : f16); }
  /// Another forward on the same weights, packed once for all.
  template <auto Forward>
  BoundExe<Forward> compiled(const typename Exe<Forward>::Shapes& arguments,
                             const Decoder<>& model) const {
    const auto exe = compile<Forward>(model, arguments, device, compile_options);
    return exe.bind(bound->shared_weights());
  }
  /// The same, compiled once for all conversations.
  template <auto Forward>
  BoundExe<Forward> shared(std::optional<BoundExe<Forward>>& made,
                           const typename Exe<Forward>::Shapes& arguments) {
    return shared(made, arguments, decoder);
  }
  template <auto Forward>
  BoundExe<Forward> shared(std::optional<BoundExe<Forward>>& made,
                           const typename Exe<Forward>::Shapes& arguments, const Decoder<>& model) {
    const std::scoped_lock lock(mutex);
    if (!made) made.emplace(compiled<Forward>(arguments, model));
    return made->fork();
  }
  /// The weights of `plain`, and those of the adapters.
  Bufferized<Decoder<>> complete(Bufferized<Decoder<>> weights) const {
    return adapters ? with_adapters(std::move(weights), adapters->on(device)) : weights;
  }
  /// The cache of a conversation without tokens. Keys and values that were not written are never
  /// read, so their memory need not be cleared; states begin as zeros.
  DecoderCache<Buffer> empty_cache() const {
    const DecoderCache<Shape> shapes = cache_shapes();
    DecoderCache<Buffer> cache;
    transform_fields(
        shapes, cache, [&](const std::string& path, const Shape& shape, Buffer& buffer) {
          buffer = path.starts_with("attention.") ? Buffer::allocate(shape, memory())
                                                  : HostBuffer::zeros(shape).to_device(device);
        });
    return cache;
  }
  /// The conversations that read_each() is called with. Errc::bad_argument, see there.
  std::vector<Conversation::Impl*> each_of(std::span<const Conversation> conversations,
                                           std::span<const std::int32_t> tokens) const;
  /// What saved conversations depend on.
  ConversationOrigin origin() {
    const std::string digest = with_page_checks(file, [&] {
      const std::scoped_lock lock(mutex);
      if (file_digest.empty()) file_digest = digest_of(file);
      return file_digest;
    });
    return {.architecture = config.architecture,
            .model = digest,
            .adapters = adapters ? adapters->digest() : std::string(),
            .cache = std::string(name(config.has_attention() ? cache_type() : f32)),
            .has_long_context =
                config.has_long_context && file.find("rope_factors_long.weight") != nullptr};
  }
  /// The memory that state lies in.
  MemRegion& memory() const { return compile_options.backends.front()->region(); }

  /// Programs that read a token in each of so many conversations, while nobody runs them.
  template <auto Forward>
  using IdlePrograms = std::map<std::size_t, std::vector<BoundExe<Forward>>>;

  /// One of them for a call.
  template <auto Forward>
  class EachProgram {
   public:
    EachProgram(Impl& model, IdlePrograms<Forward>& idle, std::size_t count)
        : model_(model), idle_(idle), count_(count), exe_(made()) {}
    ~EachProgram() {
      const std::scoped_lock lock(model_.mutex);
      std::vector<BoundExe<Forward>>& idle = idle_[count_];
      if (idle.size() < idle.capacity()) idle.push_back(std::move(exe_));
    }
    EachProgram(const EachProgram&) = delete;
    EachProgram& operator=(const EachProgram&) = delete;
    BoundExe<Forward>& operator*() { return exe_; }

   private:
    BoundExe<Forward> made() {
      const std::scoped_lock lock(model_.mutex);
      std::vector<BoundExe<Forward>>& idle = idle_[count_];
      if (!idle.empty()) {
        BoundExe<Forward> taken = std::move(idle.back());
        idle.pop_back();
        return taken;
      }
      idle.reserve(idle.capacity() + 1);  // for when it is given back
      const auto rows = static_cast<std::int64_t>(count_);
      return model_.compiled<Forward>(
          {Shape({rows, 1}, i32), Shape({rows}, i32),
           std::vector<DecoderCache<Shape>>(count_, model_.cache_shapes())},
          model_.decoder);
    }

    Impl& model_;
    IdlePrograms<Forward>& idle_;
    std::size_t count_;
    BoundExe<Forward> exe_;
  };

  io::File file;
  LanguageModelOptions options;
  DevicePtr device;
  CompileOptions compile_options;  // one set of backends for all that is compiled
  DecoderConfig config;
  Decoder<> plain;  // as the file has it
  std::optional<Adapters> adapters;
  Decoder<> decoder;
  std::optional<text::Tokenizer> tokenizer;
  std::optional<NextExe> next;
  std::optional<BoundExe<&Decoder<>::next>> bound;
  ForkAwareMutex mutex{"LanguageModel"};
  std::string file_digest;  // once it was asked for, as what follows
  std::optional<BoundExe<&Decoder<>::all>> all;
  std::optional<BoundExe<&Decoder<>::greedy>> greedy;
  std::optional<BoundExe<&Decoder<>::all_greedy>> all_greedy;
  std::optional<BoundExe<&Decoder<>::guess>> guess;
  std::optional<BoundExe<&Decoder<>::sampled>> sampled;
  std::optional<BoundExe<&Decoder<>::sampled_again>> sampled_again;
  std::optional<BoundExe<&Decoder<>::next_of_rows>> causal_rows, mutual_rows;
  std::optional<BoundExe<&Decoder<>::next_of_image>> image_rows;
  IdlePrograms<&Decoder<>::next_each> each;
  IdlePrograms<&Decoder<>::greedy_each> each_greedy;
  LoadTimes load_times;
};

struct Conversation::Impl {
  /// Drawing tokens where the model runs.
  struct Sampling {
    BoundExe<&Decoder<>::sampled> step;
    std::optional<BoundExe<&Decoder<>::sampled_again>> again{};
    nn::SamplerOptions options{};
    nn::SamplingInputs<Buffer> inputs{};  // the options, in the model's memory
  };
  /// The last token that a program has chosen, and where it lies: what the next step reads.
  struct DrawnToken {
    Buffer buffer{};
    std::int32_t id = -1;
  };

  std::shared_ptr<LanguageModel::Impl> model;
  BoundExe<&Decoder<>::next> next;
  // Made when they are first asked for.
  std::optional<BoundExe<&Decoder<>::all>> all;
  std::optional<BoundExe<&Decoder<>::greedy>> greedy;
  std::optional<BoundExe<&Decoder<>::all_greedy>> all_greedy;
  std::optional<BoundExe<&Decoder<>::guess>> guess;
  std::optional<Sampling> sampling;
  std::optional<BoundExe<&Decoder<>::next_of_rows>> causal_rows, mutual_rows;
  std::optional<BoundExe<&Decoder<>::next_of_image>> image_rows;
  DrawnToken drawn;
  DecoderCache<Buffer> cache;
  std::vector<std::int32_t> tokens;  // that it holds
  std::vector<ImagePlace> images;    // among them, where positions of images have two axes
  HostBuffer logits;
  bool cache_in_large_pages = false;
  std::chrono::nanoseconds plan_time{};
  const void* planned_exe = nullptr;
  std::size_t planned_tokens = 0;
  bool profile = false;
  std::shared_ptr<Trace> trace{};
  std::vector<StepTime> times{};
  bool has_lost_states = false;  // the next read begins with new ones
  std::unique_ptr<std::atomic_flag> is_used = std::make_unique<std::atomic_flag>();

  /// Held while somebody uses it.
  class Use {
   public:
    explicit Use(Impl& conversation) : is_used_(*conversation.is_used) {
      if (!is_used_.test_and_set()) return;
      throw Error(Errc::busy, "Conversation",
                  "is in use, on another thread or because what it calls uses it; a model has any "
                  "number of conversations");
    }
    ~Use() { is_used_.clear(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::atomic_flag& is_used_;
  };

  static std::shared_ptr<Impl> make(std::shared_ptr<LanguageModel::Impl> model) {
    BoundExe<&Decoder<>::next> next = model->bound->fork();
    DecoderCache<Buffer> cache = model->empty_cache();
    return std::make_shared<Impl>(Impl{std::move(model),
                                       std::move(next),
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       {},
                                       std::move(cache),
                                       {},
                                       {},
                                       {}});
  }

  template <class Bound>
  void watch(Bound& exe) const {
    exe.enable_time_profile(profile);
    exe.set_trace(trace);
  }
  void set_watch(bool wanted, std::shared_ptr<Trace> to) {
    if (all || greedy || all_greedy || guess || sampling || causal_rows || mutual_rows ||
        image_rows) {
      throw Error(Errc::call_order, "Conversation", "options are set before the first read");
    }
    next.enable_time_profile(wanted);
    next.set_trace(to);
    profile = wanted;
    trace = std::move(to);
  }

  void check(std::span<const std::int32_t> more) const {
    if (more.empty()) throw Error(Errc::bad_argument, "Conversation", "no tokens to read");
    check_room(more.size());
    for (const std::int32_t token : more) {
      if (token < 0 || token >= model->config.vocabulary) {
        throw Error(Errc::out_of_range, "Conversation",
                    fmt::format("token {} outside [0, {})", token, model->config.vocabulary));
      }
    }
  }

  void check_room(std::size_t more) const {
    if (static_cast<std::int64_t>(more) <= capacity() - position()) return;
    throw Error(
        Errc::limit_exceeded, "Conversation",
        fmt::format("{} tokens after {} do not fit a context of {}", more, position(), capacity()));
  }
  static std::size_t count_rows(std::span<const float> rows, std::int64_t width) {
    const auto size = static_cast<std::size_t>(width);
    if (rows.empty() || rows.size() % size != 0) {
      throw Error(Errc::bad_argument, "Conversation",
                  fmt::format("{} numbers are no rows of {}", rows.size(), width));
    }
    return rows.size() / size;
  }
  /// The same of embeddings: how many there are.
  std::size_t check_rows(std::span<const float> rows, RowAttention attention) const {
    const DecoderConfig& config = model->config;
    const std::size_t count = count_rows(rows, config.width);
    if (attention == RowAttention::mutual && config.window > 0 &&
        static_cast<std::int64_t>(count) > config.window) {
      throw Error(Errc::unsupported, config.architecture,
                  fmt::format("{} embeddings that attend to each other in a window of {}", count,
                              config.window));
    }
    check_room(count);
    return count;
  }
  /// The same of an image whose positions have two axes.
  std::size_t check_image(std::span<const float> rows, const ImageGrid& grid) const {
    const DecoderConfig& config = model->config;
    if (!config.image_axes) {
      throw Error(Errc::unsupported, config.architecture,
                  "images with positions of two axes: the model has no rotation for them");
    }
    const std::size_t count = count_rows(rows, config.image_row());
    if (grid.rows < 1 || grid.columns < 1 || grid.rows > capacity() || grid.columns > capacity() ||
        grid.embeddings() != static_cast<std::int64_t>(count)) {
      throw Error(
          Errc::bad_argument, "Conversation",
          fmt::format("{} embeddings are no image of {} x {}", count, grid.rows, grid.columns));
    }
    check_room(count);
    return count;
  }

  // Attention reads a long context from large pages a quarter faster. From the beginning they would
  // cost short conversations the memory of a full context: every layer has its own range.
  void settle_cache() {
    if (cache_in_large_pages || 4 * position() < capacity() || !model->memory().is_host()) return;
    cache_in_large_pages = true;
    visit_fields(cache.attention, [](const std::string&, const Buffer& part) {
      move_to_large_pages(part.host_view().data, static_cast<std::size_t>(part.shape().bytes()));
    });
  }
  std::int64_t capacity() const { return model->options.context; }
  std::int64_t position() const { return static_cast<std::int64_t>(tokens.size()); }
  /// The last position up to `wanted` that states can go back to.
  std::int64_t rewindable(std::int64_t wanted) const {
    if (wanted >= position()) return position();
    if (model->config.is_recurrent()) return 0;
    // The beginning of embeddings that were read at once: some may have seen those behind them.
    const std::int32_t at = wanted < 0 ? 0 : tokens[static_cast<std::size_t>(wanted)];
    return at < 0 ? -1 - std::int64_t{at} : wanted;
  }
  void rewind(std::int64_t wanted) {
    if (wanted == position()) return;
    if (model->config.is_recurrent()) has_lost_states = true;  // back to the beginning
    tokens.resize(static_cast<std::size_t>(wanted));
    while (!images.empty() && images.back().end > wanted) images.pop_back();
    settle_shift();
  }
  /// What is added to the number of a new token for its position.
  std::int32_t shift() const { return images.empty() ? 0 : images.back().shift; }
  void settle_shift() {
    if (cache.shift) cache.shift = number_buffer(shift());
  }
  std::vector<UsedPart> used() const {
    return tokens.empty() ? std::vector<UsedPart>() : used_parts(model->config, cache, position());
  }

  /// Plans a forward on an input for so many positions, unless the last one had as many. `more`: its
  /// arguments behind the cache.
  template <class Bound, class... More>
  void plan(Bound& exe, const Shape& input, std::size_t count, const More&... more) {
    if (planned_exe == &exe && planned_tokens == count) return;
    Stopwatch watch;
    exe.prepare(model->shapes_for(input, shapes_of(more)...));
    plan_time += watch.lap();
    planned_exe = &exe;
    planned_tokens = count;
  }

  template <class Bound>
  void keep_times(const Bound& exe) {
    const std::span<const StepTime> taken = exe.step_times();
    times.insert(times.end(), taken.begin(), taken.end());
  }

  /// Whether a run that ends early would leave states between two positions. Runs of several tokens
  /// work on a copy; of one token that copy would be much of the time.
  bool moves_states(std::size_t count) const { return model->config.is_recurrent() && count == 1; }

  /// Room for more tokens, so that they can be added when they were read.
  void reserve(std::size_t more) {
    const std::size_t needed = tokens.size() + more;
    if (needed > tokens.capacity()) tokens.reserve(std::max(needed, 2 * tokens.capacity()));
  }

  /// Before a step: new states where they were lost.
  void begin() {
    if (!has_lost_states) return;
    cache = model->empty_cache();
    settle_shift();
    has_lost_states = false;
  }
  void lose_states() {
    has_lost_states = true;
    tokens.clear();
    images.clear();
  }

  /// What reading the tokens `read` gives. When it throws, the cache is what it was; states of a run of one
  /// token are lost.
  template <class Bound, class... More>
  auto step(Bound& exe, std::span<const std::int32_t> read, const More&... more) {
    const bool is_drawn = read.size() == 1 && read.front() == drawn.id;
    return step_of(exe, is_drawn ? drawn.buffer.with_shape(ids_shape(1)) : ids_buffer(read), read,
                   more...);
  }
  /// The same of an input that stands for `read`.
  template <class Bound, class... More>
  auto step_of(Bound& exe, const Buffer& input, std::span<const std::int32_t> read,
               const More&... more) {
    plan(exe, input.shape(), read.size(), more...);
    reserve(read.size());
    begin();
    DecoderCache<Buffer> states;  // further handles, so that the run does not write to them
    if (model->config.is_recurrent() && !moves_states(read.size())) {
      states = cache;
      states.attention.clear();  // of which a run writes behind the positions that it has
    }
    auto state = [&] {
      try {
        return exe(input, number_buffer(position()), std::move(cache), more...);
      } catch (...) {
        if (moves_states(read.size())) lose_states();
        throw;
      }
    }();
    keep_times(exe);
    cache = std::move(state.cache);
    model->file.check_pages();
    tokens.insert(tokens.end(), read.begin(), read.end());
    settle_cache();
    return state;
  }

  /// The same in chunks: what reading the last of them gives.
  template <class Bound, class... More>
  auto steps(Bound& exe, std::span<const std::int32_t> all_tokens, const Interrupt& interrupt,
             const More&... more) {
    const auto chunk = static_cast<std::size_t>(model->options.chunk);
    times.clear();
    const auto read = [&](std::span<const std::int32_t> piece) {
      interrupt.check("Conversation");
      exe.set_interrupt(moves_states(piece.size()) ? Interrupt() : interrupt);
      return step(exe, piece, more...);
    };
    std::span<const std::int32_t> rest = all_tokens;
    for (; rest.size() > chunk; rest = rest.subspan(chunk)) read(rest.first(chunk));
    return read(rest);
  }

  /// A program of its own that reads tokens, made when it is first asked for; `shared` is the model's.
  template <auto Forward>
  BoundExe<Forward>& own(std::optional<BoundExe<Forward>>& exe,
                         std::optional<BoundExe<Forward>>& shared, std::int64_t first) {
    if (!exe) {
      exe.emplace(model->shared<Forward>(shared, model->shapes(first)));
      watch(*exe);
    }
    return *exe;
  }

  /// Reads tokens in chunks, and calls `take` with what each gives and with its size.
  template <class Bound, class Take>
  void each_step(Bound& exe, std::span<const std::int32_t> read, std::size_t chunk,
                 const Interrupt& interrupt, const Take& take) {
    times.clear();
    while (!read.empty()) {
      interrupt.check("Conversation");
      const auto piece = read.first(std::min(chunk, read.size()));
      exe.set_interrupt(moves_states(piece.size()) ? Interrupt() : interrupt);
      take(step(exe, piece), piece.size());
      read = read.subspan(piece.size());
    }
  }

  /// Reads `count` rows, at most `chunk` at once, by `read(rows, ids, number of the first)`, and gives what the last one
  /// does.
  template <class Bound, class Read>
  auto row_steps(Bound& exe, std::span<const float> rows, std::size_t count, std::size_t chunk,
                 const Interrupt& interrupt, const Read& read) {
    const std::vector<std::int32_t> ids(count, static_cast<std::int32_t>(-1 - position()));
    const std::size_t width = rows.size() / count;
    times.clear();
    const auto read_piece = [&](std::size_t begin, std::size_t size) {
      interrupt.check("Conversation");
      exe.set_interrupt(moves_states(size) ? Interrupt() : interrupt);
      const HostBuffer piece = HostBuffer::of(
          rows_shape(static_cast<std::int64_t>(size), static_cast<std::int64_t>(width)),
          rows.subspan(begin * width, size * width));
      return read(piece.to_device(model->device), std::span(ids).first(size), begin);
    };
    std::size_t begin = 0;
    for (; count - begin > chunk; begin += chunk) read_piece(begin, chunk);
    return read_piece(begin, count - begin);
  }

  /// What reading embeddings gives, all at once where each attends to all.
  auto read_rows(std::span<const float> rows, RowAttention attention, const Interrupt& interrupt) {
    const std::size_t count = check_rows(rows, attention);
    const bool is_mutual = attention == RowAttention::mutual;
    const std::size_t chunk = is_mutual ? count : static_cast<std::size_t>(model->options.chunk);
    auto& exe = is_mutual ? mutual_rows : causal_rows;
    if (!exe) {
      const auto first = static_cast<std::int64_t>(std::min(count, chunk));
      exe.emplace(model->shared<&Decoder<>::next_of_rows>(
          is_mutual ? model->mutual_rows : model->causal_rows,
          model->shapes_for(rows_shape(first, model->config.width)),
          is_mutual ? with_mutual_attention(model->decoder) : model->decoder));
      watch(*exe);
    }
    return row_steps(*exe, rows, count, chunk, interrupt,
                     [&](const Buffer& piece, std::span<const std::int32_t> ids, std::size_t) {
                       return step_of(*exe, piece, ids);
                     });
  }

  /// The same of an image whose positions have two axes.
  auto read_image(std::span<const float> rows, const ImageGrid& grid, const Interrupt& interrupt) {
    const std::size_t count = check_image(rows, grid);
    const auto chunk = static_cast<std::size_t>(model->options.chunk);
    const auto places_shape = [](std::size_t size) {
      return Shape({3, static_cast<std::int64_t>(size)}, i32);
    };
    if (!image_rows) {
      const std::size_t first = std::min(count, chunk);
      image_rows.emplace(model->shared<&Decoder<>::next_of_image>(
          model->image_rows,
          model->shapes_for(rows_shape(static_cast<std::int64_t>(first), model->config.image_row()),
                            places_shape(first))));
      watch(*image_rows);
    }
    const std::int64_t first = position(), start = first + shift();
    const auto read = [&](const Buffer& piece, std::span<const std::int32_t> ids,
                          std::size_t begin) {
      HostBuffer places = HostBuffer::uninitialized(places_shape(ids.size()));
      const auto axes = places.mutable_values<std::int32_t>();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto at = static_cast<std::int64_t>(begin + i);
        axes[i] = static_cast<std::int32_t>(start);
        axes[ids.size() + i] = static_cast<std::int32_t>(start + at / grid.columns);
        axes[2 * ids.size() + i] = static_cast<std::int32_t>(start + at % grid.columns);
      }
      auto state = step_of(*image_rows, piece, ids, places.to_device(cpu_device()));
      if (begin > 0) images.pop_back();
      // Of an image that is read in part, too: what follows stands behind the greatest position.
      const std::int64_t done = position() - first;
      const std::int64_t extent =
          std::max(std::min(done, grid.columns), (done + grid.columns - 1) / grid.columns);
      images.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(position()),
                        static_cast<std::int32_t>(start + extent - position())});
      settle_shift();
      return state;
    };
    images.reserve(images.size() + 1);
    return row_steps(*image_rows, rows, count, chunk, interrupt, read);
  }

  /// The number of a token, i32[1], which the next step may read.
  std::int32_t taken(Buffer token) {
    drawn.id = token.to_host().values<std::int32_t>()[0];
    drawn.buffer = std::move(token);
    return drawn.id;
  }

  /// Tokens in the first piece of a text.
  std::int64_t first_piece(std::span<const std::int32_t> text) const {
    return std::min(static_cast<std::int64_t>(text.size()), model->options.chunk);
  }

  /// Ready to draw by these options after reading `read`.
  Sampling& sampling_for(const nn::SamplerOptions& options, std::span<const std::int32_t> history,
                         std::span<const std::int32_t> read) {
    const std::int64_t vocabulary = model->config.tokens;
    const auto on_device = [&](const HostBuffer& values) {
      return values.to_device(model->device);
    };
    if (sampling && sampling->options == options) {
      sampling->inputs.seen = on_device(nn::seen_tokens(options, history, vocabulary));
      return *sampling;
    }
    auto inputs = map_fields<Buffer>(
        nn::sampling_inputs(options, history, vocabulary),
        [&](const std::string&, const HostBuffer& values) { return on_device(values); });
    if (!sampling) {
      sampling.emplace(Sampling{model->shared<&Decoder<>::sampled>(
          model->sampled, model->shapes(first_piece(read), shapes_of(inputs)))});
      watch(sampling->step);
    }
    sampling->options = options;
    sampling->inputs = std::move(inputs);
    return *sampling;
  }

  /// Of read_each() with one conversation: the programs that there are for it.
  HostBuffer next_logits(std::span<const std::int32_t> read, const Interrupt& interrupt) {
    const Use use(*this);
    check(read);
    return steps(next, read, interrupt).logits.to_host();
  }
  std::vector<std::int32_t> most_probable(std::span<const std::int32_t> read,
                                          const Interrupt& interrupt) {
    const Use use(*this);
    check(read);
    auto choice = steps(own(greedy, model->greedy, 1), read, interrupt);
    return {is_true(choice.is_nan) ? -1 : taken(std::move(choice.token))};
  }

  /// One token in each of several conversations with one model; `result_of` is called with what the step gives. When it
  /// throws, they are what they were, but for states that only move on, which are lost.
  template <auto Forward, class ResultOf>
  static auto step_each(std::span<Impl* const> all, std::span<const std::int32_t> read,
                        LanguageModel::Impl::IdlePrograms<Forward>& idle,
                        const Interrupt& interrupt, const ResultOf& result_of) {
    LanguageModel::Impl& model = *all.front()->model;
    std::deque<Use> uses;
    for (std::size_t i = 0; i < all.size(); ++i) {
      uses.emplace_back(*all[i]);
      all[i]->check(read.subspan(i, 1));
    }
    interrupt.check("LanguageModel::read_each");
    LanguageModel::Impl::EachProgram<Forward> program(model, idle, all.size());
    (*program).set_interrupt(model.config.is_recurrent() ? Interrupt() : interrupt);
    std::vector<std::int32_t> past;
    for (Impl* const one : all) {
      one->reserve(1);
      one->begin();
      past.push_back(static_cast<std::int32_t>(one->position()));
    }
    const auto count = static_cast<std::int64_t>(all.size());
    const Buffer ids = HostBuffer::of(Shape({count, 1}, i32), read).to_device(cpu_device());
    const Buffer places = HostBuffer::of(Shape({count}, i32), std::span<const std::int32_t>(past))
                              .to_device(cpu_device());
    std::vector<DecoderCache<Buffer>> caches(all.size());
    const auto swap_caches = [&](std::vector<DecoderCache<Buffer>>& with) {
      for (std::size_t i = 0; i < all.size(); ++i) std::swap(all[i]->cache, with[i]);
    };
    swap_caches(caches);
    bool has_run = false;
    try {
      auto state = (*program)(ids, places, std::move(caches));
      swap_caches(state.caches);
      has_run = true;
      model.file.check_pages();
      auto result = result_of(state);
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i]->times.clear();
        all[i]->tokens.push_back(read[i]);
        all[i]->settle_cache();
      }
      return result;
    } catch (...) {
      if (!has_run) swap_caches(caches);
      for (Impl* const one : all) {
        if (model.config.is_recurrent()) one->lose_states();
      }
      throw;
    }
  }

  std::int32_t sample(std::span<const std::int32_t> read, const nn::SamplerOptions& options,
                      std::span<const std::int32_t> history, const Interrupt& interrupt) {
    Sampling& now = sampling_for(options, history, read);
    auto made = steps(now.step, read, interrupt, now.inputs);
    if (is_true(made.is_known)) return taken(made.token);
    if (!now.again) {
      now.again.emplace(model->shared<&Decoder<>::sampled_again>(
          model->sampled_again, {made.logits.shape(), number_shape(), shapes_of(now.inputs)}));
      watch(*now.again);
    }
    auto again = (*now.again)(made.logits, number_buffer(position()), now.inputs);
    keep_times(*now.again);
    if (is_true(again.is_known)) return taken(again.token);
    // A logit is NaN, or none above -inf.
    const HostBuffer rows = made.logits.to_host();
    const auto vocabulary = static_cast<std::size_t>(model->config.tokens);
    nn::SamplerOptions here = options;
    here.seed += static_cast<std::uint64_t>(position());
    return nn::Sampler(here).sample(rows.values<float>().first(vocabulary), history);
  }
};

LanguageModel LanguageModel::load(const std::filesystem::path& path,
                                  const LanguageModelOptions& options) {
  return with_memory_errors(path.native(), [&] {
    Stopwatch watch;
    LoadWatch progress(options.load, path.filename().string());
    progress.check();
    const io::File file = io::open(path, {.access = io::Access::guarded});
    return with_page_checks(file, [&] {
      auto impl = std::make_shared<Impl>(file, options);
      LoadTimes& times = impl->load_times;
      const auto prepared = options.packed_folder.empty()
                                ? std::make_shared<PreparedCache>()
                                : std::make_shared<PreparedCache>(
                                      io::prepared_file(options.packed_folder, impl->file));
      auto tokenizer = std::async(std::launch::async, [&file = impl->file, prepared] {
        return load_tokenizer(file, *prepared);
      });
      auto loading = io::load_async(impl->plain, impl->file, impl->device,
                                    {.progress = {}, .stop = options.load.stop});
      times.map += watch.lap();
      impl->next.emplace(impl->decoder, impl->shapes(1), impl->compile_options);
      if (!options.lazy)
        static_cast<void>(impl->next->report());  // planned while weights are mapped
      times.plan += watch.lap();
      impl->bound.emplace(impl->next->bind(impl->complete(loading.get()), prepared));
      progress.set_total(bytes_of(impl->bound->weights()));
      times.map += watch.lap();
      if (!options.lazy) {
        const PrepareProgress listening([&progress](std::string_view weight, std::uint64_t bytes) {
          progress.advance(weight, bytes);
        });
        impl->bound->prepare(impl->shapes(1));
      }
      progress.finish();
      times.pack += watch.lap();
      impl->set_tokenizer(tokenizer.get());
      // Headers and vocabularies have been read.
      for (const auto& shard : impl->file.shards()) {
        shard->advise(0, shard->size(), io::InputFile::Advice::dont_need);
      }
      times.tokenizer += watch.lap();
      return LanguageModel(std::move(impl));
    });
  });
}

const DecoderConfig& LanguageModel::config() const { return impl_->config; }
const text::Tokenizer& LanguageModel::tokenizer() const { return *impl_->tokenizer; }
const io::File& LanguageModel::file() const { return impl_->file; }
std::int64_t LanguageModel::context() const { return impl_->options.context; }
std::int64_t LanguageModel::chunk() const { return impl_->options.chunk; }
const LoadTimes& LanguageModel::load_times() const { return impl_->load_times; }
const Program& LanguageModel::program() const { return impl_->next->program(); }
PlanReport LanguageModel::plan() const { return impl_->next->report(); }

std::optional<text::ChatFormat> LanguageModel::chat_format() const {
  return load_chat_format(impl_->file, *impl_->tokenizer);
}

Conversation LanguageModel::conversation() const {
  return with_memory_errors("LanguageModel::conversation",
                            [&] { return Conversation(Conversation::Impl::make(impl_.shared())); });
}

std::vector<Conversation::Impl*> LanguageModel::Impl::each_of(
    std::span<const Conversation> conversations, std::span<const std::int32_t> tokens) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::bad_argument, "LanguageModel::read_each", why);
  };
  if (conversations.empty()) refuse("no conversations");
  if (conversations.size() != tokens.size()) {
    refuse(fmt::format("{} tokens for {} conversations", tokens.size(), conversations.size()));
  }
  std::vector<Conversation::Impl*> found;
  for (const Conversation& conversation : conversations) {
    Conversation::Impl* const one = &*conversation.impl_;
    if (one->model.get() != this) refuse("a conversation is one of another model");
    if (std::ranges::find(found, one) != found.end()) refuse("a conversation stands there twice");
    found.push_back(one);
  }
  return found;
}

HostBuffer LanguageModel::read_each(std::span<const Conversation> conversations,
                                    std::span<const std::int32_t> tokens,
                                    const Interrupt& interrupt) const {
  return with_memory_errors("LanguageModel::read_each", [&] {
    const std::vector<Conversation::Impl*> all = impl_->each_of(conversations, tokens);
    if (all.size() == 1) return all[0]->next_logits(tokens, interrupt);
    return Conversation::Impl::step_each(all, tokens, impl_->each, interrupt,
                                         [](const auto& state) { return state.logits.to_host(); });
  });
}

std::vector<std::int32_t> LanguageModel::read_each_greedy(
    std::span<const Conversation> conversations, std::span<const std::int32_t> tokens,
    const Interrupt& interrupt) const {
  return with_memory_errors("LanguageModel::read_each_greedy", [&] {
    const std::vector<Conversation::Impl*> all = impl_->each_of(conversations, tokens);
    if (all.size() == 1) return all[0]->most_probable(tokens, interrupt);
    return Conversation::Impl::step_each(
        all, tokens, impl_->each_greedy, interrupt,
        [&](const auto& choice) { return chosen_tokens(choice, all.size()); });
  });
}

Conversation LanguageModel::restore(const std::filesystem::path& path) const {
  return with_memory_errors(path.native(), [&] {
    const ConversationFile file(path, impl_->origin(), context(), config().vocabulary,
                                config().image_axes.has_value());
    auto made = Conversation::Impl::make(impl_.shared());
    made->tokens = file.tokens();
    made->images = file.images();
    made->settle_shift();
    file.read(made->used());
    return Conversation(std::move(made));
  });
}

Conversation Conversation::fork() const {
  return with_memory_errors("Conversation::fork", [&] {
    const Impl::Use use(*impl_);
    auto made = Impl::make(impl_->model);
    made->tokens = impl_->tokens;
    made->images = impl_->images;
    made->settle_shift();
    copy_parts(impl_->used(), made->used());
    return Conversation(std::move(made));
  });
}

void Conversation::save(const std::filesystem::path& path) const {
  with_memory_errors(path.native(), [&] {
    const Impl::Use use(*impl_);
    write_conversation(path, impl_->model->origin(), capacity(), impl_->tokens, impl_->images,
                       impl_->used());
  });
}

std::span<const float> Conversation::read(std::span<const std::int32_t> tokens,
                                          const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    impl_->logits = impl_->steps(impl_->next, tokens, interrupt).logits.to_host();
    return impl_->logits.values<float>();
  });
}

std::int32_t Conversation::read_greedy(std::span<const std::int32_t> tokens,
                                       const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_greedy", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    auto& greedy = impl_->own(impl_->greedy, impl_->model->greedy, impl_->first_piece(tokens));
    auto choice = impl_->steps(greedy, tokens, interrupt);
    if (is_true(choice.is_nan)) {
      throw Error(Errc::bad_input, "Conversation", "no logit is a number");
    }
    return impl_->taken(std::move(choice.token));
  });
}

std::int32_t Conversation::read_sampled(std::span<const std::int32_t> tokens,
                                        const nn::SamplerOptions& sampler,
                                        std::span<const std::int32_t> history,
                                        const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_sampled", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    return impl_->sample(tokens, sampler, history, interrupt);
  });
}

void Conversation::read_all(std::span<const std::int32_t> tokens,
                            const std::function<void(std::span<const float>, std::int64_t)>& take,
                            const Interrupt& interrupt) {
  with_memory_errors("Conversation::read_all", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    LanguageModel::Impl& model = *impl_->model;
    const std::int64_t rows = std::clamp<std::int64_t>(
        all_logits_bytes / (model.config.vocabulary * 4), 1, model.options.chunk);
    auto& all = impl_->own(impl_->all, model.all,
                           std::min<std::int64_t>(rows, static_cast<std::int64_t>(tokens.size())));
    impl_->each_step(all, tokens, static_cast<std::size_t>(rows), interrupt,
                     [&](const auto& state, std::size_t count) {
                       const HostBuffer logits = state.logits.to_host();
                       take(logits.values<float>(), static_cast<std::int64_t>(count));
                     });
  });
}

std::span<const float> Conversation::read_all(std::span<const std::int32_t> tokens,
                                              const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_all", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    const LanguageModel::Impl& model = *impl_->model;
    auto& all = impl_->own(impl_->all, impl_->model->all, impl_->first_piece(tokens));
    const auto count = static_cast<std::int64_t>(tokens.size());
    const bool is_one = count <= model.options.chunk;
    HostBuffer whole;
    if (!is_one) whole = HostBuffer::uninitialized(Shape({count, model.config.vocabulary}, f32));
    std::size_t written = 0;
    impl_->each_step(all, tokens, static_cast<std::size_t>(model.options.chunk), interrupt,
                     [&](const auto& state, std::size_t) {
                       HostBuffer logits = state.logits.to_host();
                       if (is_one) {
                         whole = std::move(logits);
                         return;
                       }
                       const auto values = logits.template values<float>();
                       std::ranges::copy(values,
                                         whole.mutable_values<float>().subspan(written).begin());
                       written += values.size();
                     });
    impl_->logits = std::move(whole);
    return impl_->logits.values<float>();
  });
}

std::vector<std::int32_t> Conversation::read_all_greedy(std::span<const std::int32_t> tokens,
                                                        const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_all_greedy", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    auto& all_greedy =
        impl_->own(impl_->all_greedy, impl_->model->all_greedy, impl_->first_piece(tokens));
    std::vector<std::int32_t> chosen;
    impl_->each_step(all_greedy, tokens, static_cast<std::size_t>(impl_->model->options.chunk),
                     interrupt, [&](const auto& choice, std::size_t count) {
                       const std::vector<std::int32_t> some = chosen_tokens(choice, count);
                       chosen.insert(chosen.end(), some.begin(), some.end());
                     });
    return chosen;
  });
}

Conversation::Guess Conversation::read_guess(std::span<const std::int32_t> tokens,
                                             const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_guess", [&] {
    const Impl::Use use(*impl_);
    impl_->check(tokens);
    auto& guess = impl_->own(impl_->guess, impl_->model->guess, impl_->first_piece(tokens));
    auto made = impl_->steps(guess, tokens, interrupt);
    const float probability = made.probability.to_host().template values<float>()[0];
    return Guess{impl_->taken(std::move(made.token)), probability};
  });
}

std::span<const float> Conversation::read_embeddings(std::span<const float> rows,
                                                     RowAttention attention,
                                                     const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_embeddings", [&] {
    const Impl::Use use(*impl_);
    impl_->logits = impl_->read_rows(rows, attention, interrupt).logits.to_host();
    return impl_->logits.values<float>();
  });
}

std::span<const float> Conversation::read_image(std::span<const float> rows, const ImageGrid& grid,
                                                const Interrupt& interrupt) {
  return with_memory_errors("Conversation::read_image", [&] {
    const Impl::Use use(*impl_);
    impl_->logits = impl_->read_image(rows, grid, interrupt).logits.to_host();
    return impl_->logits.values<float>();
  });
}

std::span<const std::int32_t> Conversation::tokens() const { return impl_->tokens; }
std::int64_t Conversation::position() const { return impl_->position(); }
std::int64_t Conversation::capacity() const { return impl_->model->options.context; }
std::chrono::nanoseconds Conversation::plan_time() const { return impl_->plan_time; }

void Conversation::enable_time_profile(bool enable) {
  const Impl::Use use(*impl_);
  impl_->set_watch(enable, impl_->trace);
}
void Conversation::set_trace(std::shared_ptr<Trace> trace) {
  const Impl::Use use(*impl_);
  impl_->set_watch(impl_->profile, std::move(trace));
}
std::span<const StepTime> Conversation::step_times() const { return impl_->times; }

void Conversation::rewind(std::int64_t position) {
  const Impl::Use use(*impl_);
  if (position < 0 || position > impl_->position()) {
    throw Error(Errc::out_of_range, "Conversation::rewind",
                fmt::format("to {} of {} tokens", position, impl_->position()));
  }
  if (position != impl_->rewindable(position)) {
    const std::string why =
        impl_->model->config.is_recurrent()
            ? fmt::format("states of {} go back to 0 only", impl_->model->config.architecture)
            : fmt::format("it is among embeddings that were read at once, from {} on",
                          impl_->rewindable(position));
    throw Error(Errc::unsupported, "Conversation::rewind",
                fmt::format("to {} of {} tokens: {}", position, impl_->position(), why));
  }
  impl_->rewind(position);
}

std::int64_t Conversation::rewindable(std::int64_t position) const {
  return impl_->rewindable(position);
}

std::size_t Conversation::keep_prefix_of(std::span<const std::int32_t> tokens) {
  const Impl::Use use(*impl_);
  if (tokens.empty()) throw Error(Errc::bad_argument, "Conversation::keep_prefix_of", "no tokens");
  const auto [held, unused] = std::ranges::mismatch(
      impl_->tokens, tokens.first(tokens.size() - 1),
      [](std::int32_t one, std::int32_t other) { return one == other && one >= 0; });
  impl_->rewind(impl_->rewindable(held - impl_->tokens.begin()));
  return impl_->tokens.size();
}

bool Conversation::is_of(const LanguageModel& model) const {
  return impl_->model == model.impl_.shared();
}

LanguageModel Conversation::model() const { return LanguageModel(impl_->model); }

bool Conversation::is_same(const Conversation& other) const {
  return impl_.shared() == other.impl_.shared();
}

}  // namespace tenon::models
