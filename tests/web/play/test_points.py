"""Points in one dimension: what is fitted, what the Python that is handed out does, and which request counts."""

import asyncio
import threading
import time
from dataclasses import asdict, replace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from gwi._progress import progress, silent, told_to
from gwi.exceptions import UserError
from gwi.web.play.asked import COVARIANCES, KERNELS, LIKELIHOODS, MEANS, MOST_POINTS, asked_of
from gwi.web.play.newest import MOST_PAGES, Newest, SupersededError
from gwi.web.play.one_dimension import NUM_DRAWN, draw
from gwi.web.play.presets import presets
from gwi.web.play.source_code import source_of

pytestmark = pytest.mark.unchecked
PRESETS = {preset.name: preset for preset in presets()}


def asked(preset="few", **choices):
    found = PRESETS[preset]
    return asked_of({"points": found.points, "window": found.window[:2], **found.choices, **choices})


def executed(source, monkeypatch, tmp_path, capsys):
    """The names that the program leaves behind."""
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    # Drawing takes longer than fitting; one test draws.
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **options: None)
    names = {}
    exec(compile(source, "play.py", "exec"), names)
    plt.close("all")
    assert "inducing points" in capsys.readouterr().out
    return names


# Every choice once, and combinations in which one choice changes what another does.
CHOICES = [
    *({"mean": name} for name in MEANS),
    *({"kernel": name, "lengthscale": 0.8} for name in KERNELS),
    {"kernel": "rq"},
    *({"covariance": name} for name in COVARIANCES),
    {"weight": 0.3},
    {"covariance": "wasserstein", "weight": 20, "num_inducing": 4},
    {"covariance": "titsias", "weight": 20},
    {"covariance": "box", "num_inducing": 5, "mean": "trees"},
    *({"likelihood": name, "preset": "counts"} for name in LIKELIHOODS if name != "log-normal"),
    {"likelihood": "log-normal", "preset": "positive"},
]


@pytest.mark.parametrize("choices", CHOICES, ids=lambda choices: " ".join(map(str, choices.values())))
def test_the_python_gives_the_digits_of_the_page(choices, monkeypatch, tmp_path, capsys):
    choices = dict(choices)
    if (preset := choices.pop("preset", "few")) == "positive":
        few = PRESETS["few"]
        wanted = asked_of({"points": [[x, y + 3] for x, y in few.points], "window": few.window[:2], **choices})
    else:
        wanted = asked(preset, **choices)
    drawn = draw(wanted, silent)
    names = executed(source_of(wanted), monkeypatch, tmp_path, capsys)
    least = 0 if wanted.likelihood in ("log-normal", "poisson") else -np.inf
    same = {"mean": names["mean"], "prior_share": names["prior_share"], "x": names["grid"]}
    same |= {"y_low": names["found"]["lower"], "y_high": names["found"]["upper"]}
    same |= {"f_high": names["mean"] + names["half"], "f_low": np.maximum(names["mean"] - names["half"], least)}
    for name, values in same.items():
        np.testing.assert_array_equal(getattr(drawn, name), values, err_msg=name)


def test_the_python_draws_a_picture(monkeypatch, tmp_path, capsys):
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    exec(compile(source_of(asked(mean="line")), "play.py", "exec"), {})
    plt.close("all")
    assert (tmp_path / "play.png").read_bytes()[:4] == b"\x89PNG"


def test_choices_change_the_fit():
    usual = draw(asked(), silent)
    for name, value in {"kernel": "matern32", "lengthscale": 0.3, "covariance": "zero", "weight": 1e4, "num_inducing": 3}.items():
        other = draw(asked(**{name: value}), silent)
        assert np.abs(other.f_high - usual.f_high).max() > 0.01, name
    for name in ("network", "trees", "line"):
        assert np.abs(draw(asked(mean=name), silent).mean - usual.mean).max() > 0.1, name


def test_curves_are_in_order_and_the_share_is_one_far_away():
    found = {name: draw(asked(name), silent) for name in PRESETS}
    for drawn in found.values():
        assert drawn.x.shape == (NUM_DRAWN,)
        assert (drawn.f_low <= drawn.mean + 1e-12).all()
        assert (drawn.mean <= drawn.f_high + 1e-12).all()
        assert (drawn.y_low <= drawn.y_high).all()
        assert drawn.noise_std > 0
    wide = draw(replace(asked("wave"), window=(-50.0, 50.0)), silent)
    assert wide.prior_share[0] > 0.99
    near = np.abs(wide.x - 3.9) < 1
    assert wide.prior_share[near].max() < 0.05
    drawn = found["wave"]
    gap, seen = np.abs(drawn.x) < 0.5, np.abs(np.abs(drawn.x) - 3.5) < 0.5
    width = drawn.f_high - drawn.f_low
    assert width[gap].min() > 3 * width[seen].max()


def test_scales_are_in_the_unit_of_x():
    narrow = asked("few", lengthscale=0.8)
    drawn = draw(narrow, silent)
    assert drawn.lengthscale == pytest.approx(0.8)
    stretched = replace(narrow, x=tuple(100 * x for x in narrow.x), window=(-700.0, 700.0), lengthscale=80.0)
    np.testing.assert_allclose(draw(stretched, silent).mean, drawn.mean, atol=1e-6)
    inducing = draw(asked("few"), silent).inducing
    np.testing.assert_allclose(inducing, sorted(narrow.x), atol=1e-9)


def test_a_point_that_moves_keeps_the_kernel_and_costs_less():
    rested = draw(asked("wave", kernel="rq"), silent)
    held = {name: value for name, value in asdict(rested.held).items() if value}
    moving = draw(asked("wave", kernel="rq", moving=True, held=held), silent)
    assert moving.held == pytest.approx(rested.held)
    np.testing.assert_allclose(moving.mean, rested.mean, atol=0.05)
    steps = []
    draw(asked("wave", mean="network", moving=True), lambda stage, share: steps.append(stage))
    few = steps.count("network")
    draw(asked("wave", mean="network"), lambda stage, share: steps.append(stage))
    assert 0 < few <= 41 < steps.count("network")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"points": [[0, 1], [1, 2]]}, "3 or more different places; there are 2"),
        ({"points": [[0, 1], [0, 2], [0, 3]]}, "there are 1"),
        ({"points": [[0, 1, 2]]}, "pairs"),
        ({"points": [[0, None], [1, 1], [2, 2]]}, "y of a point must be a number"),
        ({"points": [[0, True], [1, 1], [2, 2]]}, "y of a point must be a number"),
        ({"points": [[0, 1e300], [1, 1], [2, 2]]}, "y of a point must be a number"),
        ({"points": [[float("nan"), 1], [1, 1], [2, 2]]}, "x of a point must be a number"),
        ({"points": [[i, i] for i in range(MOST_POINTS + 1)]}, "takes up to 200"),
        ({"window": [1, 1]}, "must be the smaller one"),
        ({"mean": "os.system"}, "mean must be one of gp, network"),
        ({"kernel": ["rbf"]}, "kernel must be one of"),
        ({"weight": -1}, "weight must be a positive number"),
        ({"lengthscale": "1"}, "lengthscale must be a number"),
        ({"num_inducing": 2.5}, "whole number"),
        ({"num_inducing": 10**5}, "whole number"),
    ],
)
def test_what_cannot_be_fitted_is_one_sentence(change, said):
    usual = {"points": [[0, 1], [1, 2], [2, 1]], "window": [0, 1]}
    with pytest.raises(UserError, match=said) as caught:
        asked_of(usual | change)
    assert "\n" not in str(caught.value)


def test_work_tells_its_listener_which_may_end_it():
    heard = []

    def until_the_network(stage, share):
        heard.append(stage)
        if stage == "network":
            raise SupersededError

    with pytest.raises(SupersededError):
        draw(asked("wave", mean="network"), until_the_network)
    assert heard[0] == "prior"
    assert heard.count("network") == 1
    with told_to(until_the_network), progress(False) as report:
        assert report is until_the_network
    with progress(False) as report:
        assert report is silent


def test_of_each_page_only_the_newest_request_is_answered():
    newest, begun, waiting = Newest(), threading.Event(), threading.Event()
    ran = []

    def slow(report):
        ran.append("slow")
        begun.set()
        waiting.wait(10)
        report("half", 0.5)
        ran.append("slow went on")

    def quick(name):
        return lambda report: ran.append(name) or name

    async def story():
        first = asyncio.create_task(newest.run("a", slow))
        await asyncio.to_thread(begun.wait, 10)
        second, other = (asyncio.create_task(newest.run(page, quick(name))) for page, name in (("a", "second"), ("b", "other")))
        await asyncio.sleep(0)
        third = asyncio.create_task(newest.run("a", quick("third")))
        await asyncio.sleep(0)
        waiting.set()
        return await asyncio.gather(first, second, other, third, return_exceptions=True)

    first, second, other, third = asyncio.run(story())
    newest.close()
    assert isinstance(first, SupersededError)
    assert isinstance(second, SupersededError)
    assert (other, third) == ("other", "third")
    assert ran == ["slow", "other", "third"]


def test_who_leaves_ends_his_work_and_few_pages_are_remembered():
    newest, begun = Newest(), threading.Event()
    ended = []

    def endless(report):
        try:
            begun.set()
            while True:
                report("on", 0.0)
                time.sleep(0.001)
        except SupersededError:
            ended.append(True)
            raise

    async def story():
        task = asyncio.create_task(newest.run("a", endless))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        assert await newest.run("b", lambda report: 1) == 1
        for i in range(3 * MOST_PAGES):
            await newest.run(f"page {i}", silent_work)

    def silent_work(report):
        return None

    asyncio.run(story())
    newest.close()
    assert ended == [True]
    assert len(newest._last) <= MOST_PAGES
