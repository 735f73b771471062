"""Rates by step, counted from 0, for tenon.train: rate.at(step)."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class WarmupCosine:
    """Rates that grow linearly for `warmup` steps up to `peak`, then fall as half a cosine to `floor` at `total`."""
    peak: float = 1e-3
    floor: float = 0.0
    warmup: int = 0
    total: int = 1

    def at(self, step):
        """The rate of a step, counted from 0."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if step >= self.total:
            return self.floor
        done = (step - self.warmup) / (self.total - self.warmup)
        return self.floor + (self.peak - self.floor) * 0.5 * (1 + math.cos(math.pi * done))


@dataclasses.dataclass(frozen=True)
class StepDecay:
    """start * factor^(step / every, rounded down); `every` below 1 is 1."""
    start: float = 1e-3
    factor: float = 0.1
    every: int = 1

    def at(self, step):
        """The rate of a step, counted from 0."""
        return self.start * self.factor ** (step // max(self.every, 1))


@dataclasses.dataclass(frozen=True)
class MilestoneDecay:
    """start, times factor from each of these steps on: torch's MultiStepLR."""
    start: float = 1e-3
    factor: float = 0.1
    milestones: tuple = ()

    def at(self, step):
        """The rate of a step, counted from 0."""
        return self.start * self.factor ** sum(step >= one for one in self.milestones)


@dataclasses.dataclass(frozen=True)
class ExponentialDecay:
    """start * factor^step."""
    start: float = 1e-3
    factor: float = 0.99

    def at(self, step):
        """The rate of a step, counted from 0."""
        return self.start * self.factor**step


@dataclasses.dataclass(frozen=True)
class PolynomialDecay:
    """floor + (start - floor) (1 - step / total)^power, from `total` on floor; power 1 is a line."""
    start: float = 1e-3
    floor: float = 0.0
    power: float = 1.0
    total: int = 1

    def at(self, step):
        """The rate of a step, counted from 0."""
        return self.floor + (self.start - self.floor) * (1 - min(step, self.total) / max(self.total, 1)) ** self.power


@dataclasses.dataclass(frozen=True)
class CosineRestarts:
    """Halves of a cosine from peak to floor, the first of `period` steps, each `factor` times as long as the one before
    (Loshchilov and Hutter, arXiv:1608.03983). Counts below 1 are 1."""
    peak: float = 1e-3
    floor: float = 0.0
    period: int = 1
    factor: int = 1

    def at(self, step):
        """The rate of a step, counted from 0."""
        period = max(self.period, 1)
        if self.factor <= 1:
            step %= period
        while step >= period:
            step, period = step - period, period * self.factor
        return self.floor + (self.peak - self.floor) * 0.5 * (1 + math.cos(math.pi * step / period))


@dataclasses.dataclass(frozen=True)
class OneCycle:
    """From peak / start_divisor up to peak in the first `rise` of the steps, then down to peak / start_divisor /
    end_divisor at step total - 1, as halves of a cosine or, with `linear`, as lines (Smith and Topin, arXiv:1708.07120)."""
    peak: float = 1e-3
    total: int = 2
    rise: float = 0.3
    start_divisor: float = 25.0
    end_divisor: float = 1e4
    linear: bool = False

    def at(self, step):
        """The rate of a step, counted from 0."""
        start, top, last = self.peak / self.start_divisor, self.rise * self.total - 1, self.total - 1

        def between(a, b, done):
            return a + (b - a) * (done if self.linear else 0.5 * (1 - math.cos(math.pi * done)))

        if step <= top:
            return between(start, self.peak, step / top if top > 0 else 1.0)
        done = 1.0 if last <= top else min(1.0, (step - top) / (last - top))
        return between(self.peak, start / self.end_divisor, done)


@dataclasses.dataclass(frozen=True)
class Warmup:
    """Rates of another schedule behind `steps` steps of linear growth to its first one."""
    rates: object
    steps: int = 1

    def at(self, step):
        """The rate of a step, counted from 0."""
        if step < self.steps:
            return self.rates.at(0) * (step + 1) / (self.steps + 1)
        return self.rates.at(step - self.steps)


class PlateauDecay:
    """A rate that is multiplied by `factor` when a measure has not become better for more than `patience` times:
    torch's ReduceLROnPlateau.

        rate = PlateauDecay(1e-3)
        for epoch in range(epochs):
            ...                            # steps at rate.now
            rate.see(loss_of_held_out_data)

    Better is less by `threshold` of the best, with `relative` false by `threshold` itself; with `largest` true, more.
    After a change `cooldown` measures do not count. The rate stays at or above `floor`."""

    def __init__(self, start=1e-3, factor=0.1, patience=10, threshold=1e-4, relative=True, cooldown=0, floor=0.0,
                 largest=False):
        if not 0 <= factor < 1:
            raise ValueError(f"PlateauDecay: factor {factor} is outside [0, 1)")
        self.now, self.factor, self.patience, self.floor, self.cooldown = start, factor, patience, floor, cooldown
        self.threshold, self.relative, self.largest = threshold, relative, largest
        self.best, self.waited, self.cooling = math.inf if not largest else -math.inf, 0, 0

    def _is_better(self, measure):
        step = self.threshold if self.largest else -self.threshold
        bound = self.best * (1 + step) if self.relative else self.best + step
        return measure > bound if self.largest else measure < bound

    def see(self, measure):
        """The rate after another measure, such as the loss of an epoch."""
        measure = float(measure)
        self.waited += 1
        if self._is_better(measure):
            self.best, self.waited = measure, 0
        if self.cooling > 0:
            self.cooling, self.waited = self.cooling - 1, 0
        if self.waited > self.patience:
            lower = max(self.now * self.factor, self.floor)
            self.now = lower if self.now - lower > 1e-8 else self.now
            self.cooling, self.waited = self.cooldown, 0
        return self.now
