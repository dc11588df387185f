"""Writes trees.json: margins of boosted trees by the Python package of XGBoost. Run with xgboost 1.7.6 and numpy below 2."""
import json
import pathlib

import numpy as np
import xgboost

random = np.random.default_rng(3)
ROWS, FEATURES, ROUNDS, SHOWN = 60, 4, 12, 12


def softmax(scores):
    each = np.exp(scores - scores.max(1, keepdims=True))
    return each / each.sum(1, keepdims=True)


def smoothed(label_smoothing, classes):
    """Cross entropy with label smoothing, by the diagonal of its second derivatives."""
    def objective(scores, matrix):
        share = np.eye(classes)[matrix.get_label().astype(int)] * (1 - label_smoothing) + label_smoothing / classes
        p = softmax(scores.reshape(-1, classes))
        return (p - share).reshape(-1, 1), (p * (1 - p)).reshape(-1, 1)
    return objective


x = np.round(random.normal(size=(ROWS, FEATURES)), 3).astype(np.float32)
x[random.random(x.shape) < 0.1] = np.nan  # missing
whole = np.nan_to_num(x)
number = np.round(whole[:, 0] * 2 - whole[:, 1] ** 2 + random.normal(size=ROWS) * 0.3, 3)
label = (whole[:, 0] + whole[:, 2] * whole[:, 3] > 0).astype(int)
kinds = np.digitize(whole[:, 0] - whole[:, 1], [-0.6, 0.7])

BY_LEAVES = {"grow_policy": "lossguide", "max_leaves": 6, "max_depth": 0}
BY_LEVELS = {"grow_policy": "depthwise", "max_depth": 3, "max_leaves": 0}
# name, loss, its options, target, outputs of the model, options of the model that are not the package's words, the package's own
cases = [
    ("a logit", "bce_with_logits", {}, label, 1, {"max_leaves": 6}, {**BY_LEAVES, "objective": "binary:logistic"}, None),
    ("logits", "cross_entropy", {}, kinds, 3, {"max_leaves": 0, "max_depth": 3}, {**BY_LEVELS, "objective": "multi:softprob", "num_class": 3}, None),
    ("few bins, penalties", "cross_entropy", {}, kinds, 3,
     {"max_leaves": 6, "max_bin": 8, "l1": 0.2, "l2": 0.5, "min_child_weight": 2.0, "min_gain": 0.3},
     {**BY_LEAVES, "max_bin": 8, "alpha": 0.2, "lambda": 0.5, "min_child_weight": 2.0, "gamma": 0.3, "objective": "multi:softprob",
      "num_class": 3}, None),
    # Derivatives of squares are 2 (f - y) and 2, those of the package half of that: so are its penalties.
    ("a number", "mse", {}, number, 1, {"max_leaves": 6, "l2": 2.0, "min_child_weight": 2.0}, {**BY_LEAVES, "objective": "reg:squarederror"}, None),
    ("smoothed, by the diagonal", "cross_entropy", {"label_smoothing": 0.1}, kinds, 3, {"max_leaves": 6, "curvature": "diagonal"},
     {**BY_LEAVES, "num_class": 3, "disable_default_eval_metric": 1}, smoothed(0.1, 3)),
]
result = {"features": [[None if np.isnan(v) else round(float(v), 3) for v in row] for row in x], "rounds": ROUNDS, "rate": 0.2, "cases": []}
for name, loss, options, target, outputs, model, words, objective in cases:
    matrix = xgboost.DMatrix(x, label=target)
    booster = xgboost.train({"tree_method": "hist", "eta": 0.2, "base_score": 0.5 if words.get("objective") == "binary:logistic" else 0.0,
                             "nthread": 1, "verbosity": 0, **words}, matrix, ROUNDS, obj=objective)
    margins = booster.predict(matrix, output_margin=True).reshape(ROWS, -1)
    result["cases"].append({"name": name, "loss": loss, "options": options, "target": target.tolist(), "outputs": outputs, "model": model,
                            "margins": np.round(margins[:SHOWN].astype(float), 7).tolist()})
path = pathlib.Path(__file__).with_suffix(".json")
cases = ",\n".join(json.dumps(case) for case in result.pop("cases"))
path.write_text(json.dumps(result)[:-1] + f', "cases": [\n{cases}\n]}}\n')
