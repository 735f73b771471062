#pragma once

#include <tenon/memory_errors.hpp>
