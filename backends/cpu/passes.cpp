#include "passes.hpp"

#include "adapt.hpp"
#include "convolution/channels_last.hpp"
#include "convolution/merge.hpp"
#include "convolution/split.hpp"
#include "gathered_sum.hpp"
#include "int8/integer_product.hpp"
#include "int8/quantize.hpp"
#include "matmul/merged_linear.hpp"
#include "matmul/tiled_values.hpp"
#include "recomputed_values.hpp"

namespace tenon::cpu {
namespace {

using Steps = PartitionSteps;
using Options = PassOptions;

constexpr Pass pass_list[] = {
    // Before steps are adapted: of the program as it was given.
    {"note products of f32", nullptr,
     [](Steps& p, const Options&) { note_dequantized_products(p.steps, p.leaves, p.notes); }},
    // Before the rest, which sees steps that have a kernel.
    {"adapt", nullptr,
     [](Steps& p, const Options&) { p.shared_bytes = adapt_steps(p.steps, 0, p.notes); }},
    // Before whatever merges ops or moves operands: registered kernels were asked about these.
    {"registered kernels", nullptr,
     [](Steps& p, const Options&) { p.registered = take_registered_steps(p.steps); }},
    // Before quantising, which takes a convolution's residual and activation with it.
    {"merge convolutions", nullptr,
     [](Steps& p, const Options&) { merge_convolutions(p.steps, p.leaves); }},
    // Before linear layers take activations: those in int8 are convolutions of one pixel.
    {"quantise convolutions", [](const Options& options) { return options.int8 != nullptr; },
     [](Steps& p, const Options& options) {
       quantize_convolutions(p.steps, p.leaves, p.program, p.original, *options.int8, p.notes);
     }},
    {"merge integer products", nullptr,
     [](Steps& p, const Options&) { merge_integer_products(p.steps, p.leaves, p.notes); }},
    {"merge linear layers", nullptr,
     [](Steps& p, const Options&) { merge_linears(p.program, p.original, p.steps); }},
    // In another order than that of the single steps, which exact results keep.
    {"merge gathered sums", [](const Options& options) { return !options.exact; },
     [](Steps& p, const Options&) { merge_gathered_sums(p.program, p.original, p.steps); }},
    // Behind merging, which leaves fewer images to place.
    {"channels last", nullptr,
     [](Steps& p, const Options&) { put_channels_last(p.steps, p.leaves); }},
    // Behind the layouts, since runs of steps on one image are judged by the bytes they move.
    {"split batches", nullptr,
     [](Steps& p, const Options&) {
       p.shared_bytes = split_batches(p.steps, p.leaves, p.shared_bytes);
     }},
    // Behind merging: a merged activation writes tiles, too.
    {"tiled values", [](const Options& options) { return !options.exact; },
     [](Steps& p, const Options&) {
       p.shared_bytes = keep_values_tiled(p.program, p.original, p.steps, p.shared_bytes);
     }},
    // Behind the layouts, which permute the axes of single element-wise steps.
    {"fuse element-wise steps", nullptr,
     [](Steps& p, const Options&) { p.groups = fuse_points(p.program, p.original, p.steps); }},
    // Last: of what is left in the slab.
    {"recomputed values", [](const Options& options) { return options.threads > 1; },
     [](Steps& p, const Options&) {
       p.recomputed_bytes = recompute_small_values(p.program, p.original, p.steps);
     }},
};

}  // namespace

PartitionSteps::PartitionSteps(const Lowered& whole, std::span<const Step> part)
    : program(whole),
      original(part),
      leaves(edges(whole, part).writes),
      steps(part.begin(), part.end()) {}

std::span<const Pass> passes() noexcept { return pass_list; }

void run_passes(PartitionSteps& partition, const PassOptions& options) {
  for (const Pass& pass : passes()) {
    if (pass.applies == nullptr || pass.applies(options)) pass.run(partition, options);
  }
}

}  // namespace tenon::cpu
