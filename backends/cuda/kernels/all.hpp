// Every kernel of entries.def.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/attention_tensor.hpp"
#include "kernels/boxes.hpp"
#include "kernels/fourier.hpp"
#include "kernels/gemv.hpp"
#include "kernels/images.hpp"
#include "kernels/linear.hpp"
#include "kernels/linear_tensor.hpp"
#include "kernels/matmul_codes.hpp"
#include "kernels/move.hpp"
#include "kernels/order.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/recurrence.hpp"
#include "kernels/reduce.hpp"
#include "kernels/rows.hpp"
#include "kernels/sampling.hpp"
