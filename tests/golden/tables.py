"""Writes tables.json: tables with gaps and categories, as features by scikit-learn's SimpleImputer (with its indicator),
OneHotEncoder and StandardScaler, found on the training rows and applied to others; classes by LabelEncoder. Run with
pandas 2 or 3 and scikit-learn 1.8."""
import io
import json
import pathlib

import numpy as np
import pandas as pd
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler

TRAIN = """age,job,"city, state",income,grade,rate
39,clerk,"Springfield, IL",1200.5,2,yes
,teacher,"Portland, OR",800,1,no
51,clerk,"Springfield, IL",?,3,no
28,"""+'"say ""hi"""'+""","Portland, OR",950.25,2,maybe
39,teacher,"Springfield, IL",800,10,yes
NA,clerk,"two
lines",3000,2,no
44,,"Portland, OR",NaN,1,yes
51,teacher,"Portland, OR",1200.5,1,maybe
"""
OTHER = """rate,income,grade,"city, state",job,age
no,,3,"Portland, OR",astronaut,
yes,100,7,"Boston, MA",teacher,61
maybe,1e3,10,"Springfield, IL",,39
"""
GAPS = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "?"]
NUMBERS, CATEGORIES, TARGET = ["age", "income"], ["job", "city, state", "grade"], "rate"


def read(text):
    return pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=GAPS, dtype={name: str for name in CATEGORIES})


def levels(column):
    found = list(dict.fromkeys(column))
    try:
        return sorted(found, key=float)
    except ValueError:
        return sorted(found, key=lambda text: text.encode())


def features(missing, standardize, indicator):
    train, other = read(TRAIN), read(OTHER)
    parts = {"train": {}, "other": {}}
    strategy = {"mean": "mean", "median": "median", "mode": "most_frequent", "constant": "constant"}[missing]
    for name in NUMBERS:
        imputer = SimpleImputer(strategy=strategy, fill_value=-1.0).fit(train[[name]])
        moments = StandardScaler().fit(train[[name]].dropna())
        for split, table in (("train", train), ("other", other)):
            value = imputer.transform(table[[name]])
            parts[split][name] = [moments.transform(pd.DataFrame(value, columns=[name])) if standardize else value]
    for name in CATEGORIES:
        fill = "(missing)" if missing == "constant" else train[name].mode().min()
        filled = train[name].fillna(fill)
        encoder = OneHotEncoder(categories=[levels(filled)], handle_unknown="ignore", sparse_output=False).fit(filled.to_frame())
        for split, table in (("train", train), ("other", other)):
            parts[split][name] = [encoder.transform(table[name].fillna(fill).to_frame())]
    if indicator:
        for name in NUMBERS + CATEGORIES:
            if train[name].isna().any():
                for split, table in (("train", train), ("other", other)):
                    gaps = MissingIndicator(features="all").fit_transform(table[[name]].astype(object))
                    parts[split][name].append(gaps.astype(float))
    order = [name for name in train.columns if name != TARGET]
    return {split: np.hstack([part for name in order for part in parts[split][name]]).tolist() for split in parts}


cases = []
for missing in ("mean", "median", "mode", "constant"):
    for standardize in (False, True):
        for indicator in (False, True):
            cases.append({"options": {"missing": missing, "constant": -1.0, "standardize": standardize, "indicator": indicator},
                          **features(missing, standardize, indicator)})
labels = LabelEncoder().fit(read(TRAIN)[TARGET])
golden = {"train": TRAIN, "other": OTHER, "cases": cases, "labels": labels.classes_.tolist(),
          "classes": {"train": labels.transform(read(TRAIN)[TARGET]).tolist(),
                      "other": labels.transform(read(OTHER)[TARGET]).tolist()}}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")
