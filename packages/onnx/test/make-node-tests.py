"""Writes the backend tests of PyPI's `onnx` as files: python3 make-node-tests.py FOLDER

FOLDER/KIND/NAME/ gets model.onnx and test_data_set_0/{input,output}_N.pb, as `backend-test-tools generate-data` wrote them before
the package left its node tests out of it. FOLDER/tests.json lists kind, name and tolerances.
"""

import json
import os
import sys

import numpy as np
from onnx import numpy_helper

# Inputs are random: the same in each run.
np.random.seed(0)

from onnx.backend.test.case.model import collect_testcases as model_cases  # noqa: E402
from onnx.backend.test.loader import load_node_model_tests  # noqa: E402


def encoded(value, info):
    """A value of a test in the format that its type has in files."""
    kind = info.type.WhichOneof("value")
    if hasattr(value, "SerializeToString"):
        return value.SerializeToString()
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name).SerializeToString()
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name).SerializeToString()
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name).SerializeToString()
    return numpy_helper.from_array(np.asarray(value), info.name).SerializeToString()


def main(folder):
    listed = []
    for case in [*load_node_model_tests(), *model_cases()]:
        if case.model is None:  # it is to be downloaded
            continue
        graph = case.model.graph
        to = os.path.join(folder, case.kind, case.name)
        for i, (inputs, outputs) in enumerate(case.data_sets):
            os.makedirs(os.path.join(to, f"test_data_set_{i}"), exist_ok=True)
            for name, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
                for j, value in enumerate(values):
                    with open(os.path.join(to, f"test_data_set_{i}", f"{name}_{j}.pb"), "wb") as file:
                        file.write(encoded(value, infos[j]))
        with open(os.path.join(to, "model.onnx"), "wb") as file:
            file.write(case.model.SerializeToString())
        listed.append({"kind": case.kind, "name": case.name, "rtol": case.rtol, "atol": case.atol})
    with open(os.path.join(folder, "tests.json"), "w") as file:
        json.dump(sorted(listed, key=lambda test: (test["kind"], test["name"])), file, indent=1)


main(sys.argv[1])
