#!/usr/bin/env python3
"""Writes what PyTorch's optimisers do to a small network, for tests/train/optimizers_test.cpp:

    python3 python/tests/train_reference.py tests/train/data/optimizers.safetensors

A perceptron (tanh, cross-entropy) takes STEPS steps on the same batch, in f64. Per optimiser NAME the
file has NAME.losses [STEPS] before each step, and the parameters afterwards. Lion is not in PyTorch; its
update is written out here after the paper. PyTorch's Muon runs in f64, too, in the place of its bf16, of the weights;
the biases go to SGD at a tenth of the rate. "rates.NAME" are what schedules give for RATE_STEPS steps, and
"rates.plateau.measures" what the last one sees. Needs torch, numpy and safetensors.
"""
import inspect
import sys

import numpy as np
import torch
from safetensors.numpy import save_file

STEPS, RATE, RATE_STEPS = 20, 0.05, 30


def lion(parameters, state, rate=RATE, beta1=0.9, beta2=0.99, decay=0.1):
    with torch.no_grad():
        for name, p in parameters.items():
            m, g = state.setdefault(name, torch.zeros_like(p)), p.grad
            p.mul_(1 - rate * decay).sub_(rate * torch.sign(beta1 * m + (1 - beta1) * g))
            state[name] = beta2 * m + (1 - beta2) * g


def muon_in_f64():
    module = torch.optim._muon
    text = inspect.getsource(module._zeropower_via_newtonschulz)
    exec(text.replace("bfloat16", "float64"), module.__dict__)


class MuonAndSgd:
    def __init__(self, parameters):
        matrices = [p for p in parameters if p.ndim == 2]
        self.both = (torch.optim.Muon(matrices, lr=RATE, weight_decay=0.1),
                     torch.optim.SGD([p for p in parameters if p.ndim != 2], lr=0.1 * RATE, momentum=0.9))

    def step(self):
        for one in self.both:
            one.step()


def schedules(arrays):
    from torch.optim import lr_scheduler as of

    made = {
        "milestones": (0.5, lambda o: of.MultiStepLR(o, [3, 4, 17], 0.3)),
        "steps": (0.5, lambda o: of.StepLR(o, 7, 0.3)),
        "exponential": (0.5, lambda o: of.ExponentialLR(o, 0.9)),
        "polynomial": (0.5, lambda o: of.PolynomialLR(o, 20, 1.7)),
        "restarts": (0.5, lambda o: of.CosineAnnealingWarmRestarts(o, 4, 2, 0.01)),
        "same_restarts": (0.5, lambda o: of.CosineAnnealingWarmRestarts(o, 7, 1, 0.01)),
        "one_cycle": (0.5, lambda o: of.OneCycleLR(o, 0.5, RATE_STEPS)),
        "one_cycle_lines": (0.5, lambda o: of.OneCycleLR(o, 0.5, RATE_STEPS, pct_start=0.45, anneal_strategy="linear",
                                                         div_factor=10, final_div_factor=100)),
    }
    for name, (rate, make) in made.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate, momentum=0.9)
        schedule, rates = make(optimizer), []
        for step in range(RATE_STEPS):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if step + 1 < RATE_STEPS:
                schedule.step()
        arrays[f"rates.{name}"] = np.array(rates)
    rng = np.random.default_rng(5)
    measures = 2 + np.exp(-np.arange(60) / 8) + 0.02 * rng.normal(size=60)
    arrays["rates.plateau.measures"] = measures
    for name, options in {"plateau": {}, "plateau_most": {"mode": "max", "threshold": 0.01, "threshold_mode": "abs"},
                          "plateau_most_relative": {"mode": "max", "cooldown": 1}}.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        schedule = of.ReduceLROnPlateau(optimizer, factor=0.4, patience=3, **{"cooldown": 2, "min_lr": 0.01} | options)
        rates = []
        for measure in measures:
            schedule.step(measure)
            rates.append(optimizer.param_groups[0]["lr"])
        arrays[f"rates.{name}"] = np.array(rates)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=RATE),
    "momentum": lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=RATE, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=0.1),
    "lion": None,
    "clipped": lambda p: torch.optim.SGD(p, lr=RATE),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=RATE, weight_decay=0.01),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(p, lr=RATE, momentum=0.8, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=RATE, lr_decay=0.1, weight_decay=0.01,
                                             initial_accumulator_value=0.2),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=RATE * 20, weight_decay=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=RATE, weight_decay=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=RATE, weight_decay=0.01),
    "nadamw": lambda p: torch.optim.NAdam(p, lr=RATE, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda p: torch.optim.RAdam(p, lr=RATE, weight_decay=0.01),
    "radamw": lambda p: torch.optim.RAdam(p, lr=RATE, weight_decay=0.1, decoupled_weight_decay=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=RATE * 2, weight_decay=0.1, eps=(2.0**-23, 1e-3)),
    "muon": MuonAndSgd,
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=0.1, betas=(0.9, 0.5), amsgrad=True),
    "asgd": lambda p: torch.optim.ASGD(p, lr=RATE, lambd=0.1, t0=8, weight_decay=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=RATE, step_sizes=(1e-3, 0.1)),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=10 * RATE, max_iter=1, history_size=4),
}


def main(path):
    rng = np.random.default_rng(7)
    start = {"up.weight": rng.normal(0, 0.5, (6, 5)), "up.bias": rng.normal(0, 0.1, 6),
             "down.weight": rng.normal(0, 0.5, (3, 6)), "down.bias": rng.normal(0, 0.1, 3)}
    x, labels = rng.normal(size=(8, 5)), rng.integers(0, 3, 8)
    arrays = {f"start.{name}": value for name, value in start.items()} | {"x": x, "labels": labels}
    schedules(arrays)
    muon_in_f64()
    for optimizer, make in OPTIMIZERS.items():
        p = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
        torch_optimizer = make(list(p.values())) if make else None
        losses, state = [], {}
        for _ in range(STEPS):
            hidden = torch.tanh(torch.tensor(x) @ p["up.weight"].T + p["up.bias"])
            loss = torch.nn.functional.cross_entropy(hidden @ p["down.weight"].T + p["down.bias"],
                                                     torch.tensor(labels))
            for value in p.values():
                value.grad = None
            loss.backward()
            losses.append(loss.item())
            if optimizer == "clipped":
                torch.nn.utils.clip_grad_norm_(p.values(), 0.1)
            if optimizer == "lbfgs":
                torch_optimizer.step(lambda loss=loss: loss)
            elif torch_optimizer:
                torch_optimizer.step()
            else:
                lion(p, state)
        arrays[f"{optimizer}.losses"] = np.array(losses)
        arrays |= {f"{optimizer}.{name}": value.detach().numpy() for name, value in p.items()}
        if optimizer == "asgd":
            arrays |= {f"asgd.average.{name}": torch_optimizer.state[value]["ax"].numpy() for name, value in p.items()}
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, path)


if __name__ == "__main__":
    main(sys.argv[1])
