"""What fits, commands and stored model files gave is what they give: the record of `tests/golden`.

Where processor and versions are those of the record (`tests/golden/record/environment.json`), numbers agree to 1e-8 times one
plus their size, and texts exactly. Networks are trained in float32 and kernels by hundreds of steps, so that another processor or
another version of torch or numpy gives other digits, and no one is to blame. There, the stored model files still predict the
same to 1e-8 and odd files get the same sentences; fits are compared loosely, to a tenth of an array's spread or size, and
texts with their numbers masked.

A change that is meant is recorded again: `python -m tests.golden record`.
"""

import pytest

from golden import commands, stored
from golden.answers import outcome
from golden.classifier_cases import CLASSIFIERS
from golden.content import MODELS, RECORD, differences, is_same_machine, loose_differences, read
from golden.regressor_cases import REGRESSORS

pytestmark = pytest.mark.unchecked

TOLERANCE = 1e-8
IS_SAME_MACHINE = is_same_machine(RECORD)
WANTED = {group: read(RECORD, group) for group in ("regressors", "classifiers", "models", "commands", "odd_files")}
# Draws follow the signs of a factorisation, and measures of a diagnosis are ratios of what may be tiny.
NOT_COMPARED_LOOSELY = ("sample", "measures", "score_source")


def check(found, group, name, ignored=NOT_COMPARED_LOOSELY):
    wanted = WANTED[group][name]
    said = differences(found, wanted, TOLERANCE) if IS_SAME_MACHINE else loose_differences(found, wanted, ignored=ignored)
    assert not said, "\n".join(said)


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_gives_what_is_recorded(name):
    check(outcome(REGRESSORS[name]), "regressors", name)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_gives_what_is_recorded(name):
    check(outcome(CLASSIFIERS[name]), "classifiers", name)


@pytest.mark.parametrize("name", commands.SESSIONS)
def test_commands_say_and_write_what_is_recorded(name):
    if name == "usage" and not IS_SAME_MACHINE:
        pytest.skip("the parser of arguments words its help by its version")
    found = commands.outcome(commands.SESSIONS[name])
    scores = tuple(key for key in found.numbers if key.endswith(": output"))
    check(found, "commands", name, ignored=scores)


@pytest.mark.parametrize("name", stored.NAMES)
def test_a_stored_model_predicts_what_is_recorded(name):
    wanted = WANTED["models"][name]
    said = differences(stored.predicted(MODELS, name, wanted), wanted, TOLERANCE)
    assert not said, "\n".join(said)


@pytest.fixture(scope="module")
def base_model():
    with commands.base_model() as path:
        yield path


# Of the same runs, cli/test_odd_files compares the words too.
@pytest.mark.slow
@pytest.mark.parametrize("name", commands.CASES)
def test_an_odd_file_gets_the_sentence_that_is_recorded(name, base_model):
    said = differences(commands.odd_outcome(name, base_model), WANTED["odd_files"][name])
    assert not said, "\n".join(said)


def test_every_recorded_case_is_run():
    known = {
        "regressors": REGRESSORS,
        "classifiers": CLASSIFIERS,
        "models": stored.NAMES,
        "commands": commands.SESSIONS,
        "odd_files": commands.CASES,
    }
    for group, names in known.items():
        assert set(names) == set(WANTED[group]), group
