"""Runs files of ONNX by the evaluator of PyPI's `onnx`: python3 check-exports.py FOLDER

FOLDER/exports.json lists file, inputs and outputs, with name, type and shape, and the raw elements in files of their own. Prints what is
wrong, and how many files are right.
"""

import json
import os
import sys

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator


def main(folder):
    def read(value):
        elements = np.fromfile(os.path.join(folder, value["file"]), dtype=value["type"])
        return elements.reshape(value["shape"])

    with open(os.path.join(folder, "exports.json")) as file:
        exports = json.load(file)
    wrong = 0
    for export in exports:
        try:
            path = os.path.join(folder, export["file"])
            onnx.checker.check_model(path, full_check=True)
            evaluator = ReferenceEvaluator(path)
            for run in export["runs"]:
                results = evaluator.run(None, {value["name"]: read(value) for value in run["inputs"]})
                for value, result in zip(run["outputs"], results, strict=True):
                    np.testing.assert_allclose(result, read(value), rtol=0, atol=export["tolerance"], err_msg=value["name"])
                    assert list(result.shape) == value["shape"], f"{value['name']}: {list(result.shape)}"
        except Exception as error:  # noqa: BLE001
            wrong += 1
            print(f"{export['name']}: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
    print(f"{len(exports) - wrong} of {len(exports)} exports are right")
    sys.exit(1 if wrong else 0)


main(sys.argv[1])
