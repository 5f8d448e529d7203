"""Every class and function of the reference has an example in its docstring, which runs by itself and prints what it says."""

import doctest
import pkgutil
import re
import warnings
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

pytestmark = pytest.mark.unchecked

mpl.use("Agg")
REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def members(module):
    """The names that the page of a module shows."""
    own = [name for name, found in vars(module).items() if getattr(found, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_") and callable(getattr(module, name))])


def shown():
    """Every class and function of the reference, by its dotted name."""
    result = {}
    for page in sorted(REFERENCE.glob("*.md")):
        for dotted in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE):
            found = pkgutil.resolve_name(dotted)
            if "." in getattr(found, "__qualname__", ""):
                continue  # a method, which the example of its class shows
            names = members(found) if isinstance(found, ModuleType) else [""]
            result |= {f"{dotted}.{name}".strip("."): getattr(found, name) if name else found for name in names}
    return result


SHOWN = shown()


def test_the_reference_begins_with_the_two_estimators():
    text = (REFERENCE / "estimators.md").read_text()
    assert re.findall(r"\]\((\w+\.md)\)", text)[:2] == ["regressor.md", "classifier.md"]
    for page, name in (("regressor", "gwi.GWIRegressor"), ("classifier", "gwi.GWIClassifier")):
        assert f"\n::: {name}\n" in (REFERENCE / f"{page}.md").read_text()
    assert len(SHOWN) > 100


@pytest.mark.parametrize("name", SHOWN)
def test_the_example_of_a_docstring_runs_by_itself_and_keeps_its_word(name):
    text = SHOWN[name].__doc__ or ""
    assert "\n    Examples:\n        >>> " in text, f"{name} has no section `Examples:`"
    example = doctest.DocTestParser().get_doctest(text, {"__name__": "example"}, name, None, None)
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner().run(example, out=said.append)
    plt.close("all")
    assert said == [], "".join(said)
    # Examples that show nothing teach little.
    assert any(step.want for step in example.examples), f"the example of {name} shows no output"
