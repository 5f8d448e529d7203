"""The gallery says what its scripts say: pages, notebooks and pictures are those of the scripts, run again by `make test-all`."""

import base64
import io
import json
import os
import re

import pytest
from PIL import Image
from tools import gallery

ROOT, SCRIPTS = gallery.ROOT, gallery.scripts()
NAMES = [script.stem for script in SCRIPTS]


def written(script, ending):
    return gallery.PAGES / f"{gallery.slug(script)}.{ending}"


def small_script(folder, code):
    script = folder / "01_small_one.py"
    script.write_text(f"# %% [markdown]\n# # A title\n#\n# What it\n# shows.\n#\n# More.\n\n# %%\n{code}\n")
    return script


def test_there_are_a_dozen_notebooks_and_each_is_short():
    assert len(SCRIPTS) >= 12
    code = {script.name: [line for line in script.read_text().splitlines() if line and line[0] != "#"] for script in SCRIPTS}
    assert {name: len(lines) for name, lines in code.items() if len(lines) > 130} == {}


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_page_and_notebook_have_the_cells_of_the_script(script):
    cells = gallery.cells(script)
    page, notebook = written(script, "md").read_text(), json.loads(written(script, "ipynb").read_text())
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]] == [(c.kind, c.source) for c in cells]
    assert re.findall(r"```python\n(.*?)\n```", page, re.DOTALL) == [cell.source for cell in cells if cell.kind == "code"]
    assert all(cell.source in page for cell in cells)


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_page_and_notebook_show_the_same_output_and_pictures(script):
    page, notebook = written(script, "md").read_text(), json.loads(written(script, "ipynb").read_text())
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    printed = ["".join(output["text"]).rstrip() for output in outputs if output["output_type"] == "stream"]
    assert re.findall(r"```text\n(.*?)\n```", page, re.DOTALL) == printed
    inside = [base64.b64decode(output["data"]["image/png"]) for output in outputs if output["output_type"] == "display_data"]
    shown = [(gallery.PAGES / path).read_bytes() for path in re.findall(r"\]\((images/.*?\.png)\)", page)]
    assert shown == inside
    assert 1 <= len(shown) <= 4
    assert max(map(len, shown)) <= gallery.MOST_BYTES


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_notebook_is_valid_in_version_4_5(script):
    notebook = json.loads(written(script, "ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert notebook["metadata"]["kernelspec"].keys() >= {"name", "display_name"}
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in ids)
    for cell in notebook["cells"]:
        common = {"cell_type", "id", "metadata", "source"}
        assert set(cell) == common if cell["cell_type"] == "markdown" else common | {"execution_count", "outputs"}
        for output in cell.get("outputs", []):
            wanted = {"stream": {"name", "text"}, "display_data": {"data", "metadata"}}[output["output_type"]]
            assert set(output) == wanted | {"output_type"}


def test_the_index_has_a_card_for_each_script_and_a_thumbnail_that_can_be_seen():
    assert (gallery.PAGES / "index.md").read_text() == gallery.index(SCRIPTS)
    for script in SCRIPTS:
        with Image.open(gallery.PAGES / "images" / f"{gallery.slug(script)}-small.png") as small:
            assert small.size == gallery.THUMBNAIL
            assert small.convert("L").getextrema()[0] < 128


def test_nothing_is_left_of_scripts_that_are_gone():
    names = {gallery.slug(script) for script in SCRIPTS}
    assert {path.stem for path in gallery.PAGES.glob("*.*")} == names | {"index"}
    assert {path.stem.rpartition("-")[0] for path in (gallery.PAGES / "images").iterdir()} == names


def test_a_script_is_run_cell_by_cell_with_what_it_prints_warns_and_draws(tmp_path):
    code = """print("seen")
x = 2

# %%
import matplotlib.pyplot as plt
import warnings
from gwi.exceptions import GWIWarning
for _ in range(2):
    warnings.warn("take care", GWIWarning, stacklevel=1)
plt.plot([1, x])

# %%
x + 1

# %%
object()"""
    title, first, second, third, fourth = done = gallery.run(small_script(tmp_path, code))
    assert (gallery.title(done), gallery.summary(done)) == ("A title", "What it shows.")
    assert (title.kind, first.printed) == ("markdown", "seen\n")
    assert second.printed == "GWIWarning: take care\n"  # once, and without the list of lines that plot returns
    assert Image.open(io.BytesIO(base64.b64decode(second.pictures[0]))).format == "PNG"
    assert Image.open(io.BytesIO(base64.b64decode(second.thumbnail))).size == gallery.THUMBNAIL
    assert (third.printed, third.pictures) == ("3\n", ())
    assert fourth.printed == ""  # an address differs from run to run
    page = gallery.page(tmp_path / "01_small_one.py", done)
    assert "```text\nseen\n```" in page
    assert "(images/small-one-1.png)" in page


def test_a_script_that_fails_says_which_and_why(tmp_path):
    with pytest.raises(RuntimeError, match=r"01_small_one.py failed:\n(.|\n)*ZeroDivisionError"):
        gallery.run(small_script(tmp_path, "1 / 0"))


def test_a_line_too_wide_for_a_page_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="A line of 100 letters is printed, and a page shows 88: xxx"):
        gallery.run(small_script(tmp_path, "print('x' * 100)"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_a_script_prints_what_its_page_shows(script):
    if "GWI_DATA" in script.read_text() and "GWI_DATA" not in os.environ:
        pytest.skip("needs the tables in the folder GWI_DATA")
    assert gallery.page(script, gallery.run(script)) == written(script, "md").read_text()
