#pragma once

#include "conversation_file.hpp"
#include "file_place.hpp"
#include "models/architectures.hpp"
#include "page_checks.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/worker_threads.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::models {

constexpr std::int64_t default_context = 4096;

inline Shape ids_shape(std::int64_t count) { return Shape({1, count}, i32); }
inline Shape rows_shape(std::int64_t count, std::int64_t width) {
  return Shape({1, count, width}, f32);
}
inline Shape number_shape() { return {std::span<const Axis>(), i32}; }

/// Low-rank adapters as weights of a model. Their names tell what they change, and how much, so that files of packed
/// weights and of conversations never have those of other adapters.
class AdapterWeights {
 public:
  AdapterWeights(std::span<const AdapterSource> sources, const Decoder<>& decoder)
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

/// The time since the last lap.
class Stopwatch {
 public:
  std::chrono::nanoseconds lap() {
    const auto now = Clock::now();
    return now - std::exchange(last_, now);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

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
    if (!config.is_causal) {
      throw Error(Errc::unsupported, file.path().string(),
                  fmt::format("{}, an encoder whose tokens see those that follow, which makes no "
                              "text: SentenceEncoder reads it, as `tenon embed` does",
                              config.architecture));
    }
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
  DecoderCache<Shape> cache_shapes() const { return cache_shapes(options.context); }
  DecoderCache<Shape> cache_shapes(std::int64_t positions) const {
    return cache_shape(config, positions, cache_type());
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
  DecoderCache<Buffer> empty_cache() const { return empty_cache(options.context); }
  DecoderCache<Buffer> empty_cache(std::int64_t positions) const {
    const DecoderCache<Shape> shapes = cache_shapes(positions);
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
  /// Calls `run` with each number in [0, count), on the threads of a backend that lends them.
  void share(std::int64_t count, const std::function<void(std::int64_t)>& run) const {
    for (const BackendPtr& backend : compile_options.backends) {
      const auto* const threads = dynamic_cast<const WorkerThreads*>(backend.get());
      if (threads != nullptr) return threads->share(count, run);
    }
    for (std::int64_t i = 0; i < count; ++i) run(i);
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
  std::optional<AdapterWeights> adapters;
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

}  // namespace tenon::models
