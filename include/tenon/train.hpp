#pragma once

#include <tenon/grad.hpp>
#include <tenon/train/adaptive_optimizers.hpp>
#include <tenon/train/checkpoint.hpp>
#include <tenon/train/fields.hpp>
#include <tenon/train/groups.hpp>
#include <tenon/train/initialize.hpp>
#include <tenon/train/optimizers.hpp>
#include <tenon/train/schedules.hpp>
