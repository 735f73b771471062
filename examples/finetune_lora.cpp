// Trains low-rank adapters of a language model on a text, and compares the perplexity of held-out
// text before and after:
//
//   finetune_lora [--steps N] [--stop N] [--rank N] [--length N] [--batch N] [--seed N]
//                 [--out PATH] [--checkpoint FILE] [--resume FILE] MODEL.gguf TEXT
//
// The last tenth of the text is held out. PATH gets the adapters: in the form of llama.cpp's where
// it ends in .gguf, otherwise in the form of Hugging Face's PEFT. A checkpoint holds them and the
// optimiser's state; a run that stops early, and one that is resumed from its checkpoint, end with
// the bits of a run that did not stop.
#include "lora_training.hpp"
#include "saved_number.hpp"

#include <tenon/models/adapters.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/tenon.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace tenon;
using lora_training::Training;

namespace {

struct Options {
  std::int64_t steps = 30, rank = 8, length = 128, batch = 1;
  std::int64_t stop = 0;  ///< the step after which to end early; 0: none
  std::uint64_t seed = 1;
  std::string out, checkpoint, resume, model, text;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      if (!options.text.empty()) throw Error(Errc::bad_argument, word, "is one argument too many");
      (options.model.empty() ? options.model : options.text) = word;
      continue;
    }
    if (i + 1 == argc) throw Error(Errc::bad_argument, word, "needs a value");
    const std::string value = argv[++i];
    std::string* const path = word == "--out"          ? &options.out
                              : word == "--checkpoint" ? &options.checkpoint
                              : word == "--resume"     ? &options.resume
                                                       : nullptr;
    if (path != nullptr) {
      *path = value;
      continue;
    }
    char* end = nullptr;
    const long long number = std::strtoll(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0' || number < 1) {
      throw Error(Errc::bad_argument, word, "'" + value + "' is no positive number");
    }
    if (word == "--steps") {
      options.steps = number;
    } else if (word == "--stop") {
      options.stop = number;
    } else if (word == "--rank") {
      options.rank = number;
    } else if (word == "--length") {
      options.length = number;
    } else if (word == "--batch") {
      options.batch = number;
    } else if (word == "--seed") {
      options.seed = static_cast<std::uint64_t>(number);
    } else {
      throw Error(Errc::bad_argument, word,
                  "the options are --steps, --stop, --rank, --length, --batch, --seed, --out, "
                  "--checkpoint and --resume");
    }
  }
  if (options.text.empty()) {
    throw Error(Errc::bad_argument, "finetune_lora", "needs MODEL.gguf and a text");
  }
  return options;
}

std::vector<std::int32_t> tokens_of(const std::string& path, const text::Tokenizer& tokenizer) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(Errc::not_found, path, "cannot be opened");
  return tokenizer.encode(std::string(std::istreambuf_iterator<char>(file), {}));
}

template <class T = Buffer>
struct Checkpoint {
  models::DecoderAdapters<T> adapters;
  train::AdamState<models::DecoderAdapters<T>> optimizer;
  TENON_FIELDS(adapters, optimizer)
};

/// The steps that a checkpoint is after. Its seed is taken, and another --length or --batch than its
/// own is refused. The bits are those of a run without a break where the model, the text and --steps
/// are the same, too: with another --steps the further rates are others.
std::int64_t resume(const io::File& saved, Options& options) {
  for (const auto& [name, now] : {std::pair{"length", options.length}, {"batch", options.batch}}) {
    if (const std::int64_t then = saved_number(saved, name); then != now) {
      throw Error(
          Errc::bad_argument, std::string("--") + name,
          std::to_string(now) + ", but the checkpoint was trained with " + std::to_string(then));
    }
  }
  options.seed = static_cast<std::uint64_t>(saved_number(saved, "seed"));
  return saved_number(saved, "steps");
}

/// Rows of `width` tokens from these places on: i32 [rows, width].
HostBuffer windows(std::span<const std::int32_t> tokens, std::span<const std::size_t> begins,
                   std::int64_t width) {
  HostBuffer ids =
      HostBuffer::uninitialized(Shape({static_cast<std::int64_t>(begins.size()), width}, i32));
  auto to = ids.mutable_values<std::int32_t>().begin();
  for (const std::size_t begin : begins) {
    to = std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(begin), width, to);
  }
  return ids;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options = parse(argc, argv);
  const DevicePtr device = Device::open("cpu:");
  const io::File file = io::open(options.model);
  const WeightsView view = file.view();
  const models::DecoderConfig config = models::DecoderConfig::from(file);
  const Training<> training{models::Decoder<>::init(view, config)};
  const auto tokens = tokens_of(options.text, models::load_tokenizer(file));
  const auto width = static_cast<std::size_t>(options.length) + 1;
  const std::size_t trained = tokens.size() - tokens.size() / 10;
  if (tokens.size() - trained < width) {
    throw Error(
        Errc::truncated, options.text,
        "a tenth of its " + std::to_string(tokens.size()) + " tokens is less than a window");
  }
  const auto seen = std::span(tokens).first(trained), held = std::span(tokens).subspan(trained);

  const models::LoraConfig lora{.rank = options.rank,
                                .alpha = 2.0 * static_cast<double>(options.rank)};
  const auto shapes = models::adapter_shapes(training.decoder, lora);
  auto adapters = train::initialize(shapes, options.seed, device, models::lora_initial);
  auto state = training.optimizer.start(adapters, device);
  const Shape row({1, static_cast<std::int64_t>(width)}, i32);
  std::int64_t done = 0;
  if (!options.resume.empty()) {
    const io::File saved = io::open(options.resume);
    auto read = train::load(saved, Checkpoint<>{adapters, state}, device);
    adapters = std::move(read.adapters);
    state = std::move(read.optimizer);
    done = resume(saved, options);
  }
  const auto step_exe = compile<&Training<>::step>(
      training, {shapes, train::shapes_of(state), row.with_dim(0, options.batch), Shape({}, f32)},
      device);
  const auto loss_exe = compile<&Training<>::loss>(training, {shapes, row}, device);
  Bufferized<Training<>> weights;
  weights.decoder = io::load(training.decoder, file, device);
  auto step = step_exe.bind(weights);
  auto loss = loss_exe.bind(weights);

  const auto perplexity = [&] {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t begin = 0; begin + width <= held.size() && count < 8; begin += width - 1) {
      const Buffer ids =
          windows(held, std::span(&begin, 1), static_cast<std::int64_t>(width)).to_device(device);
      sum += loss(adapters, ids).to_host().at({});
      ++count;
    }
    return std::exp(sum / static_cast<double>(count));
  };
  const double before = perplexity();
  const std::int64_t last =
      options.stop > 0 ? std::min(options.stop, options.steps) : options.steps;
  const train::WarmupCosine rate{.peak = 2e-3, .warmup = 5, .total = options.steps};
  const auto start = std::chrono::steady_clock::now();
  double mean = 0;
  for (std::int64_t i = done; i < last; ++i) {
    // Everything random follows from the seed and the step.
    std::mt19937_64 random(options.seed * 1'000'003 + static_cast<std::uint64_t>(i));
    std::vector<std::size_t> begins(static_cast<std::size_t>(options.batch));
    for (std::size_t& begin : begins) begin = random() % (seen.size() - width + 1);
    Buffer now;
    std::tie(adapters, state, now) =
        step(std::move(adapters), std::move(state),
             windows(seen, begins, static_cast<std::int64_t>(width)).to_device(device),
             train::scalar(rate.at(i), f32, device));
    const double value = now.to_host().at({});
    mean = i == done ? value : 0.9 * mean + 0.1 * value;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "\rstep %lld of %lld, loss %.3f, %.2f s a step ",
                 static_cast<long long>(i + 1), static_cast<long long>(options.steps), mean,
                 passed.count() / static_cast<double>(i + 1 - done));
  }
  std::fprintf(stderr, "\n");
  if (!options.checkpoint.empty()) {
    const auto number = [](std::int64_t value) {
      return HostBuffer::of<std::int64_t>(Shape({1}, i64), {value});
    };
    train::save(options.checkpoint, Checkpoint<>{adapters, state},
                {{"steps", number(std::max(done, last))},
                 {"length", number(options.length)},
                 {"batch", number(options.batch)},
                 {"seed", number(static_cast<std::int64_t>(options.seed))}});
  }
  if (!options.out.empty()) models::save_adapters(options.out, adapters, lora, config);
  std::printf("perplexity of the held-out text: %.2f before, %.2f after %lld steps\n", before,
              perplexity(), static_cast<long long>(std::max(done, last)));
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
