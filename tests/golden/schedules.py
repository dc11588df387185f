"""Writes schedules.json: factors (and momenta) of schedules. Run with torch 2.11 and mpmath 1.3.

torch   from torch.optim.lr_scheduler, base learning rate 1
exact   from the closed forms in 40 digits
paper   vectors that others published: the tests of mosaicml/composer and kozistr/pytorch_optimizer, and values
        that were worked out by hand or with an older torch
Times are steps that are done before the one that uses the factor.
"""
import json
import math
import pathlib
import warnings

import mpmath as mp
import torch
from torch.optim import lr_scheduler as torch_lr

warnings.filterwarnings("ignore")
mp.mp.dps = 40
cases = []


def case(source, plugin, options, steps, at, factor, momentum=None):
    entry = {"source": source, "plugin": plugin, "options": options, "steps": steps, "at": list(at),
             "factor": [float(f) for f in factor]}
    if momentum is not None:
        entry["momentum"] = [float(m) for m in momentum]
    cases.append(entry)


def ba(count):
    return f"{count}ba"


def share(percent, steps):
    """As Duration::steps rounds."""
    return math.floor(percent / 100 * steps + 0.5)


def times(steps, beyond=True):
    """All of a short run, some of a long one, its ends, and an overrun by a tenth."""
    found = set(range(steps + 1)) if steps <= 10 else {
        0, 1, 2, 3, 7, steps // 3, steps // 2, steps - 3, steps - 2, steps - 1, steps,
        *(steps * i // 37 for i in range(37)), *(steps * i // 10 for i in range(10)), *(steps * i // 10 - 1 for i in range(1, 10))}
    if beyond:
        found |= {steps + 1, steps + max(1, steps // 10)}
    return sorted(found)


# ---- torch ----

def optimizer(momentum):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9 if momentum else 0.0)


def from_torch(plugin, options, steps, make, momentum=False, last=None):
    """`make` makes a scheduler for an optimizer; up to a thousand steps it is stepped, beyond it is asked for
    its closed form."""
    sgd = optimizer(momentum)
    scheduler = make(sgd)
    wanted = [t for t in times(steps, False) if t <= (steps - 1 if last is None else last)]
    factors, momenta = [], []
    if steps <= 1000:
        for t in range(max(wanted) + 1):
            if t in wanted:
                factors.append(sgd.param_groups[0]["lr"])
                momenta.append(sgd.param_groups[0]["momentum"])
            sgd.step()
            if t < max(wanted):
                scheduler.step()
    else:
        closed = getattr(scheduler, "_get_closed_form_lr", scheduler.get_lr)
        for t in wanted:
            scheduler.last_epoch = t
            factors.append(float(closed()[0]))
            momenta.append(sgd.param_groups[0]["momentum"])
    case("torch", plugin, options, steps, wanted, factors, momenta if momentum else None)


def torch_cases():
    for T in (1, 2, 5, 10, 1000, 1000000):
        from_torch("constant", {"value": 1 / 3, "length": "5ba"}, T, lambda o: torch_lr.ConstantLR(o, 1 / 3, 5))
        from_torch("linear", {"start_factor": 1 / 3, "end_factor": 1.0, "length": "5ba"}, T, lambda o: torch_lr.LinearLR(o))
        from_torch("linear", {}, T, lambda o: torch_lr.LinearLR(o, 1.0, 0.0, T))
        from_torch("step", {"gamma": 0.5, "every": "30%"}, T, lambda o: torch_lr.StepLR(o, max(1, share(30, T)), 0.5))
        falls = [share(p, T) for p in (30, 60, 90)]
        if T >= 5:
            from_torch("multi_step", {}, T, lambda o: torch_lr.MultiStepLR(o, falls, 0.1))
        from_torch("exponential", {"gamma": 0.9 if T <= 1000 else 0.99999, "per": "1ba"}, T,
                   lambda o: torch_lr.ExponentialLR(o, 0.9 if T <= 1000 else 0.99999))
        from_torch("cosine", {}, T, lambda o: torch_lr.CosineAnnealingLR(o, T))
        from_torch("polynomial", {"power": 2.0}, T, lambda o: torch_lr.PolynomialLR(o, T, 2.0))
        from_torch("polynomial", {"power": 0.9, "length": "5ba"}, T, lambda o: torch_lr.PolynomialLR(o, 5, 0.9))
        if T <= 1000:
            from_torch("warm_restarts", {"first": "4ba", "mult": 2}, T, lambda o: torch_lr.CosineAnnealingWarmRestarts(o, 4, 2))
            from_torch("warm_restarts", {"first": "3ba"}, T, lambda o: torch_lr.CosineAnnealingWarmRestarts(o, 3))
        from_torch("one_cycle", {}, T, lambda o: torch_lr.OneCycleLR(o, 1.0, T), momentum=T <= 1000)
        from_torch("one_cycle", {"anneal": "linear", "three_phase": True, "pct_start": 0.4, "div_factor": 10.0,
                                 "final_div_factor": 100.0, "base_momentum": 0.8, "max_momentum": 0.9}, T,
                   lambda o: torch_lr.OneCycleLR(o, 1.0, T, pct_start=0.4, anneal_strategy="linear", div_factor=10,
                                                 final_div_factor=100, base_momentum=0.8, max_momentum=0.9,
                                                 three_phase=True), momentum=T <= 1000)
        for mode, up, down, gamma in (("triangular", 4, 4, 1.0), ("triangular2", 3, 5, 1.0), ("exp_range", 5, 2, 0.999)):
            if mode == "triangular2" and T > 1000:
                continue  # torch raises an OverflowError
            from_torch("cyclic", {"mode": mode, "low_factor": 0.1, "up": ba(up), "down": ba(down), "gamma": gamma}, T,
                       lambda o: torch_lr.CyclicLR(o, 0.1, 1.0, up, down, mode, gamma), momentum=T <= 1000)
    linear = {"type": "linear", "start_factor": 0.1, "end_factor": 1.0}
    from_torch("sequence", {"parts": [linear | {"budget": "3ba"}, {"type": "cosine", "length": "7ba"}]}, 10,
               lambda o: torch_lr.SequentialLR(o, [torch_lr.LinearLR(o, 0.1, 1.0, 3), torch_lr.CosineAnnealingLR(o, 7)], [3]))
    from_torch("sequence", {"parts": [linear | {"budget": "10%"}, {"type": "constant", "budget": "40%"},
                                      {"type": "step", "gamma": 0.5, "every": "100ba"}]}, 1000,
               lambda o: torch_lr.SequentialLR(o, [torch_lr.LinearLR(o, 0.1, 1.0, 100), torch_lr.ConstantLR(o, 1.0, 1),
                                                   torch_lr.StepLR(o, 100, 0.5)], [100, 500]))
    from_torch("chain", {"parts": [{"type": "constant", "value": 0.1, "length": "2ba"},
                                   {"type": "exponential", "gamma": 0.9, "per": "1ba"}]}, 1000,
               lambda o: torch_lr.ChainedScheduler([torch_lr.ConstantLR(o, 0.1, 2), torch_lr.ExponentialLR(o, 0.9)]))


def plateau_cases():
    """Factors that were used between evaluations of these metrics."""
    generator = torch.Generator().manual_seed(3)
    noisy = (1 / torch.arange(1, 61).double().sqrt() + 0.2 * torch.rand(60, generator=generator, dtype=torch.float64)).tolist()
    for metrics, options in (
            ([1] + [.9] * 8 + [.8] * 3, {"patience": 2}),
            (noisy, {"patience": 1, "factor": 0.5}),
            (noisy, {"patience": 0, "factor": 0.7, "cooldown": 3, "min_factor": 0.2}),
            (noisy, {"patience": 2, "factor": 0.3, "threshold": 0.05, "threshold_mode": "absolute"}),
            (noisy, {"patience": 0, "factor": 0.1}),  # down to where eps ends it
            ([-m for m in noisy], {"patience": 1, "mode": "max", "threshold": 0.1}),
            (noisy, {"patience": 1, "mode": "max", "threshold": 0.01, "threshold_mode": "absolute", "cooldown": 1})):
        sgd = optimizer(False)
        words = {"relative": "rel", "absolute": "abs"}
        scheduler = torch_lr.ReduceLROnPlateau(
            sgd, options.get("mode", "min"), options.get("factor", 0.1), options.get("patience", 10),
            options.get("threshold", 1e-4), words[options.get("threshold_mode", "relative")], options.get("cooldown", 0),
            options.get("min_factor", 0.0), 1e-8)
        used = []
        for metric in metrics:
            used.append(sgd.param_groups[0]["lr"])
            scheduler.step(metric)
        cases.append({"source": "torch", "plugin": "plateau", "options": options, "metrics": metrics, "factor": used})


# ---- closed forms ----

one = mp.mpf(1)


def progress(t, length):
    return min(one, mp.mpf(t) / length) if length > 0 else one


def half_cosine(u):
    return (1 + mp.cos(mp.pi * u)) / 2


def rex(beta):
    return lambda t, T: (1 - progress(t, T)) / ((1 - mp.mpf(beta)) + mp.mpf(beta) * (1 - progress(t, T)))


def restarts(first, mult):
    def factor(t, T):
        t, length = min(t, T), first
        at_end = t == T
        while t >= length:
            if at_end and t == length:
                return mp.mpf(0)
            t, length = t - length, length * mult
        return half_cosine(mp.mpf(t) / length)
    return factor


def one_cycle(first, last, three_phase=False, pct=0.3, shape=half_cosine):
    def factor(t, T, values):
        start, peak, middle, end = values
        up, down = mp.mpf(pct) * T - 1, 2 * mp.mpf(pct) * T - 2
        phases = [(mp.mpf(0), up, start, peak)] + (
            [(up, down, peak, middle), (down, mp.mpf(T - 1), middle, end)] if three_phase else [(up, mp.mpf(T - 1), peak, end)])
        for i, (begin, finish, a, b) in enumerate(phases):
            if t <= finish or i + 1 == len(phases):
                u = min(one, (t - begin) / (finish - begin)) if finish > begin else one
                return b + (a - b) * shape(u)
    return lambda t, T: factor(t, T, (mp.mpf(first), one, mp.mpf(first), mp.mpf(last)))


def cyclic(low, up, down, scale):
    def factor(t, T):
        t = min(t, T)
        cycle, step = divmod(t, up + down)
        way = mp.mpf(step) / up if step <= up else mp.mpf(up + down - step) / down
        return mp.mpf(low) + (1 - mp.mpf(low)) * way * scale(cycle, t)
    return factor


def wsd(percent, shape):
    def factor(t, T):
        decay = share(percent, T)
        if t < T and t <= T - decay:
            return one
        return shape(progress(t - (T - decay), decay))
    return factor


def exact_cases():
    third, tenth = 1 / 3, mp.mpf(0.1)
    down = lambda u: 1 - u  # noqa: E731
    forms = [
        ("constant", {"value": third, "length": "5ba"}, lambda t, T: mp.mpf(third) if min(t, T) < 5 else one),
        ("linear", {}, lambda t, T: 1 - progress(t, T)),
        ("linear", {"start_factor": third, "end_factor": 1.0, "length": "5ba"},
         lambda t, T: mp.mpf(third) + (1 - mp.mpf(third)) * progress(min(t, T), 5)),
        ("step", {"every": "3ba", "gamma": 0.999}, lambda t, T: mp.mpf(0.999) ** (min(t, T) // 3) if T <= 1000 else None),
        ("step", {}, lambda t, T: tenth ** (min(t, T) // max(1, share(30, T)))),
        ("multi_step", {}, lambda t, T: tenth ** sum(share(p, T) <= min(t, T) for p in (30, 60, 90))),
        ("exponential", {}, lambda t, T: mp.mpf(0.01) ** progress(t, T)),
        ("exponential", {"gamma": 0.99999, "per": "1ba"}, lambda t, T: mp.mpf(0.99999) ** min(t, T)),
        ("cosine", {}, lambda t, T: half_cosine(progress(t, T))),
        ("cosine", {"min_factor": 0.1, "length": "7ba"}, lambda t, T: tenth + (1 - tenth) * half_cosine(progress(min(t, T), 7))),
        ("warm_restarts", {"first": "4ba", "mult": 2}, restarts(4, 2)),
        ("warm_restarts", {"first": "5ba"}, restarts(5, 1)),
        ("polynomial", {"power": 2.0}, lambda t, T: (1 - progress(t, T)) ** 2),
        ("polynomial", {"power": 0.5}, lambda t, T: mp.sqrt(1 - progress(t, T))),
        ("one_cycle", {"cycle_momentum": False}, one_cycle(one / 25, one / 25 / 10000)),
        ("one_cycle", {"anneal": "linear", "three_phase": True}, one_cycle(one / 25, one / 25 / 10000, True, shape=down)),
        ("cyclic", {"up": "4ba"}, cyclic(0.1, 4, 4, lambda cycle, t: one)),
        ("cyclic", {"up": "3ba", "down": "5ba", "mode": "triangular2"}, cyclic(0.1, 3, 5, lambda cycle, t: mp.mpf(2) ** -cycle)),
        ("cyclic", {"up": "5ba", "mode": "exp_range", "gamma": 0.99999}, cyclic(0.1, 5, 5, lambda cycle, t: mp.mpf(0.99999) ** t)),
        ("inverse_sqrt", {"rise": "4ba"}, lambda t, T: min((min(t, T) + one) / 4, mp.sqrt(4 / (min(t, T) + one)))),
        ("wsd", {}, wsd(20, lambda u: 1 - mp.sqrt(u))),
        ("wsd", {"curve": "linear"}, wsd(20, down)),
        ("wsd", {"curve": "cosine", "decay": "50%"}, wsd(50, half_cosine)),
        ("rex", {}, rex(0.5)),
        ("rex", {"beta": 0.9}, rex(0.9)),
        ("rex", {"beta": 0.0}, rex(0.0)),
        ("chain", {"parts": [{"type": "rex"}, {"type": "cosine"}]},
         lambda t, T: rex(0.5)(t, T) * half_cosine(progress(t, T))),
        ("sequence", {"parts": [{"type": "constant", "budget": "40%"}, {"type": "rex"}]},
         lambda t, T: one if t < share(40, T) else rex(0.5)(t - share(40, T), T - share(40, T))),
    ]
    for T in (1, 2, 5, 10, 1000, 1000000):
        for plugin, options, form in forms:
            at = times(T)
            if form(0, T) is not None:
                case("exact", plugin, options, T, at, [form(t, T) for t in at])


# ---- published ----

def paper(plugin, options, steps, at, factor, momentum=None):
    case("paper", plugin, options, steps, at, factor, momentum)


def paper_cases():
    places = [0, 10, 20, 25, 50, 75, 90, 95, 99, 100]
    paper("rex", {}, 100, places, [1, .947368, .888889, .857143, .666667, .4, .181818, .095238, .019802, 0])
    paper("rex", {"beta": 0.9}, 100, places, [1, .989011, .97561, .967742, .909091, .769231, .526316, .344828, .091743, 0])
    paper("linear", {"delay": "50%"}, 100, [75], [.5])
    paper("rex", {"delay": "25%"}, 100, [50, 75], [.8, .5])
    paper("cosine", {}, 10, range(11), [1, .975528, .904508, .793893, .654508, .5, .345492, .206107, .095492, .024472, 0])
    paper("warm_restarts", {"first": "4ba", "mult": 2}, 20, range(14),
          [1, .853553, .5, .146447, 1, .96194, .853553, .691342, .5, .308658, .146447, .03806, 1, .990393])
    paper("polynomial", {"power": 2.0, "length": "10ba"}, 20, range(12), [1, .81, .64, .49, .36, .25, .16, .09, .04, .01, 0, 0])
    paper("linear", {"start_factor": 1 / 3, "end_factor": 1.0, "length": "5ba"}, 10, range(7),
          [.333333, .466667, .6, .733333, .866667, 1, 1])
    paper("one_cycle", {}, 10, range(10), [.04, .52, 1, .950485, .811746, .611262, .388742, .188258, .049519, .000004],
          [.95, .9, .85, .854952, .868826, .888874, .911126, .931174, .945048, .95])
    paper("one_cycle", {"anneal": "linear", "three_phase": True}, 10, range(10),
          [.04, .52, 1, .52, .04, .032001, .024002, .016002, .008003, .000004])
    paper("cyclic", {"low_factor": 0.1, "up": "4ba"}, 20, range(10), [.1, .325, .55, .775, 1, .775, .55, .325, .1, .325])
    paper("sequence", {"parts": [{"type": "linear", "start_factor": 0.1, "end_factor": 1.0, "budget": "3ba"}, {"type": "cosine"}]},
          10, range(10), [.1, .4, .7, 1, .950484, .811745, .61126, .38874, .188255, .049516])
    paper("chain", {"parts": [{"type": "constant", "value": 0.1, "length": "2ba"},
                              {"type": "exponential", "gamma": 0.9, "per": "1ba"}]}, 10, range(6),
          [.1, .09, .81, .729, .6561, .59049])
    paper("wsd", {"warmup": "3ba", "decay": "3ba"}, 10, range(11), [0, .333333, .666667, 1, 1, 1, 1, 1, .42265, .183503, 0])
    paper("wsd", {"warmup": "3ba", "decay": "3ba", "curve": "cosine"}, 10, range(7, 11), [1, .75, .25, 0])
    cases.append({"source": "paper", "plugin": "plateau", "options": {"patience": 2}, "metrics": [1] + [.9] * 8 + [.8] * 3,
                  "factor": [1] * 5 + [.1] * 3 + [.01] * 4})
    # kozistr/pytorch_optimizer, its test of REXScheduler: values after a step
    paper("rex", {}, 5, range(1, 6), [.888889, .75, .571429, .333333, 0])
    # mosaicml/composer, its tests of schedulers: 1000 epochs of 1000 batches, and a fifth of it (ratio 0.2)
    paper("cosine", {}, 1000000, [333333, 666667], [.75, .25])
    for steps in (1000000, 200000):
        scaled = lambda *at: [t * steps // 1000000 for t in at]  # noqa: E731
        thirty = {"length": f"{30 / 1000000 * 100}%"}
        paper("linear", {}, steps, scaled(100000, 200000, 400000), [.9, .8, .6])
        paper("cosine", {}, steps, scaled(0, 500000, 1000000), [1, .5, 0])
        paper("cosine", thirty | {"min_factor": 0.5}, steps, scaled(0, 10, 15, 20, 30, 50), [1, .875, .75, .625, .5, .5])
        paper("warm_restarts", {"first": thirty["length"]}, steps, scaled(0, 10, 15, 20, 30, 40), [1, .75, .5, .25, 1, .75])


torch_cases()
plateau_cases()
exact_cases()
paper_cases()
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text("[\n" + ",\n".join(json.dumps(each) for each in cases) + "\n]\n")
