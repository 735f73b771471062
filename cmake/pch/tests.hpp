// What most tests include, for TENON_PCH.
#pragma once

#include "library.hpp"

#include <chrono>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include <catch2/catch.hpp>
