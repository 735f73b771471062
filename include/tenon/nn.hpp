#pragma once

#include <tenon/nn/attention.hpp>
#include <tenon/nn/conv.hpp>
#include <tenon/nn/embedding.hpp>
#include <tenon/nn/feed_forward.hpp>
#include <tenon/nn/kv_cache.hpp>
#include <tenon/nn/latent_attention.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/nn/mamba.hpp>
#include <tenon/nn/mixture_of_experts.hpp>
#include <tenon/nn/norm.hpp>
#include <tenon/nn/pooling.hpp>
#include <tenon/nn/recurrent.hpp>
#include <tenon/nn/rwkv.hpp>
#include <tenon/nn/sampler.hpp>
#include <tenon/nn/token_sampling.hpp>
