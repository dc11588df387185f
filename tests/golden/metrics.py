"""Writes metrics.json: outputs, targets, and what scikit-learn says of them. Run with scikit-learn 1.9."""
import json
import pathlib
import warnings

import numpy as np
from sklearn import metrics

warnings.simplefilter("ignore")  # of classes that nothing is said to be: 0, as here
random = np.random.default_rng(5)


def classes_of(output):
    return (output.reshape(len(output)) > 0).astype(int) if output.ndim == 1 or output.shape[-1] == 1 else output.argmax(-1)


def probabilities(output):
    if output.ndim == 1 or output.shape[-1] == 1:
        positive = 1 / (1 + np.exp(-output.reshape(len(output))))
        return np.stack([1 - positive, positive], 1)
    exponents = np.exp(output - output.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


result = []


def data(classes, output, target):
    result.append({"classes": classes, "shape": list(output.shape), "output": output.ravel().tolist(), "target_shape": list(target.shape),
                   "target": target.ravel().tolist(), "values": []})


def add(plugin, options, value):
    result[-1]["values"].append({"plugin": plugin, "options": options, "value": None if np.isnan(value) else float(value)})


SHARES = {"precision": metrics.precision_score, "recall": metrics.recall_score, "f1": metrics.f1_score}
for classes, width, rows, present in ((4, 4, 30, [0, 1, 2, 3]), (6, 6, 40, [1, 2, 4]), (5, 5, 12, [3]), (3, 3, 1, [2]), (2, 2, 25, [0, 1]),
                                      (2, 1, 25, [0, 1]), (2, 1, 9, [0]), (2, 0, 14, [1])):
    target = random.choice(present, rows)
    output = np.round(2 * random.standard_normal((rows, width) if width else rows), 3)
    if width == 6:
        output[:, 5] -= 100  # neither a target nor said
    said = classes_of(output)
    data(classes, output, target)
    for ignored in (None, present[0]) if len(present) > 2 else (None,):
        counts = np.ones(rows, bool) if ignored is None else target != ignored
        options = {} if ignored is None else {"ignore_index": ignored}
        truth, answer = target[counts], said[counts]
        for name, function in SHARES.items():
            for average in ("macro", "micro", "weighted") + ("positive",) * (classes == 2):
                binary = {"average": "binary", "pos_label": 1} if average == "positive" else {"average": average}
                add(name, options | {"average": average}, function(truth, answer, zero_division=0, **binary))
        add("balanced_accuracy", options, metrics.balanced_accuracy_score(truth, answer))
        add("log_loss", options, metrics.log_loss(truth, probabilities(output)[counts], labels=range(classes)))

for rows, columns, offset, noise in ((30, 0, 0.0, 1.0), (30, 1, 1e6, 1.0), (20, 3, -50.0, 0.3), (8, 0, 3.0, 0.0), (1, 0, 1.0, 1.0)):
    shape = (rows, columns) if columns else (rows,)
    target = offset + random.standard_normal(shape)
    for truth in (target, np.full(shape, offset)):
        output = truth + noise * random.standard_normal(shape)
        data(0, output, truth)
        add("r2", {}, metrics.r2_score(truth, output))
        add("rmse", {}, metrics.mean_squared_error(truth, output) ** 0.5)
        add("mae", {}, metrics.mean_absolute_error(truth, output))
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text("[\n" + ",\n".join(json.dumps(case) for case in result) + "\n]\n")
