// Parts that vision encoders of several families have.
#pragma once

#include <tenon/models/vision.hpp>
#include <tenon/nn.hpp>
#include <tenon/weights_view.hpp>

namespace tenon::models {

/// The feed-forward part of a layer, with a gate where the file has one. Files of llama.cpp's first converters have the
/// names of "ffn_up" and "ffn_down" exchanged.
nn::FeedForward<> feed_forward_part(const WeightsView& view, const VisionConfig& config);

}  // namespace tenon::models
