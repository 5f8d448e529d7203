"""The documentation tells the truth: equations have code and tests, tables come from records, imports point one way."""

import importlib
import inspect
import re
import unicodedata
from pathlib import Path

import jaxtyping
import pytest
import torch
from benchmarks.render import pages as rendering
from jaxtyping import Float

import gwi
import processes
from checking import checked

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "gwi"

# Every label of an equation or theorem in the paper's source.
PAPER_LABELS = [
    "eq:ELBO",
    "eq:def_KLD",
    "eq:Generalized_loss",
    "eq:kernel_cond",
    "eq:cov_op",
    "thm:GP_as_GM",
    "eq:WD_Gaussians",
    "eq:GL_exact",
    "eq:ELL",
    "eq:WD_approx1",
    "eq:WD_approx2",
    "eq:ARD_kernel",
    "eq:svgp_mean",
    "eq:r_SVGP",
    "eq:Posterior_As_Optimum",
    "ap:eq:ptw_ev",
    "thm:ptws_eval",
    "eq:ptws_convergence",
    "eq:ap:WD_Gaussians",
    "eq:spec_CPQ",
    "eq:multiclass_ell",
    "eq:predictive_distr",
    "ap_eq:_NLL",
    "ap:Batch_Mode",
    "ap:Classification",
    "ap:Implementation",
    "ap:model_misspecification",
]


def equation_rows():
    text = (ROOT / "docs" / "equations.md").read_text()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in cells if row[0] not in ("label", "---")]


# Read as text: to parse all tests would take each test process a second.
TEST_NAMES = {
    name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^ *def (\w+)\(", path.read_text(), re.MULTILINE)
}


def resolve(dotted):
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{dotted} cannot be imported")


@pytest.mark.parametrize("row", equation_rows(), ids=lambda row: row[0].strip("`"))
def test_each_equation_has_code_that_imports_and_a_test_that_exists(row):
    label, _, code, test = row
    found = resolve(code.strip("`"))
    assert test.strip("`") in TEST_NAMES, f"no test called {test}"
    printed = re.match(r"`((?:eq|thm|ap_eq):[^`]+)`", label)
    if printed and code.startswith("`gwi."):
        assert printed[1] in (found.__doc__ or "") or printed[1] in inspect.getmodule(found).__doc__
    assert printed is None or printed[1].replace(" ", "_") in PAPER_LABELS


def test_every_label_of_the_paper_is_accounted_for():
    text = (ROOT / "docs" / "equations.md").read_text().replace("ap_eq: NLL", "ap_eq:_NLL")
    assert [label for label in PAPER_LABELS if f"`{label}`" not in text] == []


def test_every_promise_of_reliability_names_tests_that_exist():
    said = (ROOT / "docs" / "results" / "reliability.md").read_text().split("## Tests\n")[1].split("\n## ")[0]
    promises = re.findall(r"^\d+\. .*", said, re.MULTILINE)
    assert len(promises) == 15
    for promise in promises:
        found = re.findall(r"`(tests/[\w/]+\.py)` ((?:`test_\w+`(?:, )?)+)", promise)
        assert found, promise
        for path, names in found:
            text = (ROOT / path).read_text()
            assert all(f"def {name}(" in text for name in re.findall(r"test_\w+", names)), promise


def test_only_linalg_factorises():
    forbidden = re.compile(r"torch\.linalg\.(cholesky|inv|pinv|solve\()|torch\.(cholesky|inverse)\(|\.inverse\(\)")
    for path in SOURCE.rglob("*.py"):
        if path.stem != "linalg":
            assert not forbidden.search(path.read_text()), path.name


def test_every_public_name_is_documented():
    for name in gwi.__all__:
        assert (getattr(gwi, name).__doc__ or "").strip(), name


def test_the_site_shows_the_version():
    assert f"\ncopyright: gwi {gwi.__version__}, " in (ROOT / "mkdocs.yml").read_text()


def test_type_checkers_and_the_reference_see_every_public_name():
    text = (SOURCE / "__init__.py").read_text()
    assert [name for name in gwi.__all__ if f" import {name} as {name}\n" not in text] == []


def without_code(page):
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def places(page):
    """What a link can name in a page: its headings, in the letters that the site makes of them, and names given in it."""
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} (.+)$", without_code(page), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        plain = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode().lower()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())
        found.append(slug)
    numbered = {slug if i == found.index(slug) else f"{slug}_{found[:i].count(slug)}" for i, slug in enumerate(found)}
    return numbered | set(re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text()))


@pytest.mark.parametrize("page", rendering.pages(), ids=lambda page: page.name)
def test_tables_are_those_of_the_records(page):
    assert rendering.rendered(page.read_text()) == page.read_text(), "run `python -m benchmarks.render`"


@pytest.mark.parametrize("page", rendering.pages(), ids=lambda page: page.name)
def test_links_pictures_and_places_in_pages_exist(page):
    for target, place in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", without_code(page)):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        if place and linked.suffix == ".md":
            assert place in places(linked), f"{target}#{place}"


def test_a_place_in_a_page_has_the_name_that_the_site_gives_it(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# `A` matrix, β = 1: [is it](there.md)?\n\n```python\n# no heading\n```\n\n## Twice\n\n## Twice\n")
    assert places(page) == {"a-matrix-1-is-it", "twice", "twice_1"}


@pytest.mark.unchecked
def test_the_readme_runs_as_a_script_and_prints_what_it_shows():
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    code = "import torch\ntorch.set_num_threads(1)\n" + "".join(block for block, _ in blocks)
    result = processes.run(["-c", code], check=True)
    assert result.stdout == "".join(shown for _, shown in blocks)


@pytest.mark.unchecked
def test_the_demo_says_what_it_did_and_draws_a_picture(tmp_path):
    picture = tmp_path / "demo.png"
    result = processes.run(["script", str(ROOT / "examples" / "demo.py")], "--output", picture, check=True)
    assert picture.stat().st_size > 20_000
    for word in ("Data", "Prior", "Covariance", "Coverage", "Picture"):
        assert word in result.stdout
    shares = [int(share) for share in re.findall(r"(\d+)% of the", result.stdout)]
    assert shares[0] >= 93
    assert shares[1] >= 80


def test_a_letter_means_one_size_in_a_call_and_the_answer_is_checked_too():
    rows, of_rows, of_columns = (Float[torch.Tensor, shape] for shape in ("N D", "N", "D"))

    @checked
    def weighted(x: rows, weight: of_rows, keep: bool = True) -> of_columns:
        return weight @ x if keep else weight

    x = torch.zeros(3, 2)
    assert weighted(x, torch.zeros(3)).shape == (2,)
    with pytest.raises(jaxtyping.TypeCheckError, match="Parameter annotations"):
        weighted(x, torch.zeros(2))
    with pytest.raises(jaxtyping.TypeCheckError, match="Parameter annotations"):
        weighted(x, torch.zeros(3), "yes")
    with pytest.raises(jaxtyping.TypeCheckError, match="return"):
        weighted(x, torch.zeros(3), keep=False)
    # Sizes of one call are nothing to the next.
    assert weighted(torch.zeros(5, 4), torch.zeros(5)).shape == (4,)


def test_shapes_are_checked_while_tests_run():
    with pytest.raises(jaxtyping.TypeCheckError):
        gwi.core.linalg.cholesky(torch.zeros(3))
