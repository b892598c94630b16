#pragma once

/// Everything for a training loop besides its model: gradients averaged over the ranks, optimizers
/// with whole or sharded state, clipping, and a scale for f16.
#include <acc/clip.hpp>
#include <acc/gradient_reducer.hpp>
#include <acc/loss_scaler.hpp>
#include <acc/optimizer.hpp>
#include <acc/parameter.hpp>
#include <acc/scheduler.hpp>
