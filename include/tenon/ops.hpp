// Every op: contracts, attribute structs and builders.
#pragma once

#include <tenon/ops/activation.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cache_update.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/embedding.hpp>
#include <tenon/ops/glu.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/pool2d.hpp>
#include <tenon/ops/predicate.hpp>
#include <tenon/ops/quantize.hpp>
#include <tenon/ops/rope.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/ops/softmax.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>
