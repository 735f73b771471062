#include "builder_cases.hpp"

#include <tenon/ops.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

IntList list_in(const Json& a, const char* name) {
  return a.contains(name) ? int_list(a.at(name)) : IntList{};
}

/// Operand `i`, or none.
Tensor optional(Operands x, std::size_t i) { return i < x.size() ? x[i] : Tensor(); }

PoolOptions pool_options(const Json& a) {
  return {.kernel = list_in(a, "kernel"),
          .stride = list_in(a, "stride"),
          .padding = list_in(a, "padding"),
          .dilation = list_in(a, "dilation"),
          .ceil_mode = a.value("ceil_mode", false),
          .count_include_pad = a.value("count_include_pad", false)};
}

BatchNormTraining trained(Operands x, const Json& a) {
  return batch_norm_training(x[0], optional(x, 1), optional(x, 2), a.at("eps").get<double>());
}

const BuilderTable vision_table = {
    {"conv3d",
     [](Operands x, const Json& a) {
       return conv3d(x[0], x[1], optional(x, 2),
                     {.stride = list_in(a, "stride"),
                      .padding = list_in(a, "padding"),
                      .dilation = list_in(a, "dilation"),
                      .groups = a.at("groups").get<std::int64_t>()});
     }},
    {"conv_transpose1d",
     [](Operands x, const Json& a) {
       return conv_transpose1d(x[0], x[1], optional(x, 2),
                               {.stride = a.at("stride").get<std::int64_t>(),
                                .padding_left = a.at("padding").get<std::int64_t>(),
                                .padding_right = a.at("padding").get<std::int64_t>(),
                                .dilation = a.at("dilation").get<std::int64_t>(),
                                .groups = a.at("groups").get<std::int64_t>()});
     }},
    {"conv_transpose3d",
     [](Operands x, const Json& a) {
       return conv_transpose3d(x[0], x[1], optional(x, 2),
                               {.stride = list_in(a, "stride"),
                                .padding = list_in(a, "padding"),
                                .output_padding = list_in(a, "output_padding"),
                                .dilation = list_in(a, "dilation"),
                                .groups = a.at("groups").get<std::int64_t>()});
     }},
    {"max_pool", [](Operands x, const Json& a) { return max_pool(x[0], pool_options(a)); }},
    {"avg_pool", [](Operands x, const Json& a) { return avg_pool(x[0], pool_options(a)); }},
    {"lp_pool",
     [](Operands x, const Json& a) {
       return lp_pool(x[0], a.at("p").get<double>(), pool_options(a));
     }},
    {"adaptive_avg_pool",
     [](Operands x, const Json& a) { return adaptive_avg_pool(x[0], list_in(a, "sizes")); }},
    {"adaptive_max_pool",
     [](Operands x, const Json& a) { return adaptive_max_pool(x[0], list_in(a, "sizes")); }},
    {"global_avg_pool", [](Operands x, const Json&) { return global_avg_pool(x[0]); }},
    {"global_max_pool", [](Operands x, const Json&) { return global_max_pool(x[0]); }},
    {"pixel_shuffle",
     [](Operands x, const Json& a) { return pixel_shuffle(x[0], a.at("r").get<std::int64_t>()); }},
    {"pixel_unshuffle",
     [](Operands x, const Json& a) {
       return pixel_unshuffle(x[0], a.at("r").get<std::int64_t>());
     }},
    {"depth_to_space",
     [](Operands x, const Json& a) { return depth_to_space(x[0], a.at("r").get<std::int64_t>()); }},
    {"space_to_depth",
     [](Operands x, const Json& a) { return space_to_depth(x[0], a.at("r").get<std::int64_t>()); }},
    {"instance_norm",
     [](Operands x, const Json& a) {
       return instance_norm(x[0], optional(x, 1), optional(x, 2), a.at("eps").get<double>());
     }},
    {"batch_norm",
     [](Operands x, const Json& a) {
       return batch_norm(x[0], x[1], x[2], optional(x, 3), optional(x, 4),
                         a.at("eps").get<double>());
     }},
    {"batch_norm_training", [](Operands x, const Json& a) { return trained(x, a).y; }},
    {"batch_norm_training_mean", [](Operands x, const Json& a) { return trained(x, a).mean; }},
    {"batch_norm_training_variance",
     [](Operands x, const Json& a) { return trained(x, a).variance; }},
    {"l2_normalize",
     [](Operands x, const Json& a) { return l2_normalize(x[0], a.at("axis").get<int>()); }},
    {"local_response_norm",
     [](Operands x, const Json& a) {
       return local_response_norm(x[0], a.at("size").get<std::int64_t>(),
                                  a.at("alpha").get<double>(), a.at("beta").get<double>(),
                                  a.at("k").get<double>());
     }},
};

TEST_CASE("builders: vision") { check_builders("vision", vision_table); }
TEST_CASE("builders: vision, fresh random cases", "[oracle]") {
  check_fresh_builders("vision", vision_table);
}

}  // namespace
}  // namespace tenon::testing
