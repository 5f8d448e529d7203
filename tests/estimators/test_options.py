"""The options of both estimators: few, the same in both, and with parts that scikit-learn's tools reach inside."""

import inspect
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV

from class_data import three_classes
from gwi import GWIClassifier, GWIRegressor, load
from gwi.core.kernels import default_kernel
from gwi.core.networks import mlp
from gwi.exceptions import GWIWarning
from gwi.fitting.plan import classification_members
from gwi.parts import Covariance, Features, Frozen, Gaussian, Joint, Network, Paper, RobustMax, Softmax
from waves import wave

pytestmark = pytest.mark.unchecked

ESTIMATORS = (GWIRegressor, GWIClassifier)


def table(estimator, num_rows=40):
    return wave(num_rows) if estimator is GWIRegressor else three_classes(num_rows)


def test_both_have_the_same_options_but_for_one_each():
    numbers, classes = (list(inspect.signature(estimator).parameters) for estimator in ESTIMATORS)
    shared = [name for name in numbers if name != "prior_mean"]
    assert [name for name in classes if name != "class_weight"] == shared
    assert len(shared) <= 13


# Parameters


@pytest.mark.parametrize("covariance", ["titsias", Covariance("titsias")], ids=["string", "object"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_options_inside_a_part_are_set_from_its_name_and_from_the_object(estimator, covariance):
    model = estimator(covariance=covariance).set_params(covariance__weight=2.0, covariance__num_inducing=7)
    assert isinstance(model.covariance, Covariance)
    assert (model.covariance.kind, model.covariance.weight, model.covariance.num_inducing) == ("titsias", 2.0, 7)
    assert model.get_params()["covariance__weight"] == 2.0
    assert model.get_params()["covariance__kernel_fit"] == "targets"


def test_the_likelihood_is_reached_inside_too():
    assert GWIRegressor().set_params(likelihood__noise="constant").likelihood.noise == "constant"
    assert GWIClassifier(likelihood="robust-max").set_params(likelihood__epsilon=0.05).likelihood.epsilon == 0.05
    with pytest.raises(ValueError, match="epsilon"):
        GWIClassifier().set_params(likelihood__epsilon=0.05)  # The softmax has none.


def test_a_part_and_an_option_inside_it_may_be_set_together():
    model = GWIRegressor().set_params(covariance__weight=2.0, covariance="wasserstein")
    assert (model.covariance.kind, model.covariance.weight) == ("wasserstein", 2.0)
    model.set_params(covariance__weight="auto", covariance=Covariance("titsias", weight=3.0), max_time=9.0)
    assert (model.covariance.kind, model.covariance.weight, model.max_time) == ("titsias", "auto", 9.0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_unknown_options_are_refused_by_name(estimator):
    with pytest.raises(ValueError, match="nonsense"):
        estimator().set_params(nonsense=1)
    with pytest.raises(ValueError, match="nonsense"):
        estimator().set_params(covariance__nonsense=1)


def test_a_clone_has_equal_parts_of_its_own():
    likelihood = Gaussian("constant", tails="normal", conformal=True)
    model = GWIRegressor(Network((8,)), covariance=Covariance("zero", weight=2.0), likelihood=likelihood, kernel=Features("0"))
    copy = clone(model)
    kept, copied = model.get_params(), copy.get_params()
    parts = ("mean", "covariance", "likelihood", "kernel")
    assert all(copied[name] is not kept[name] and type(copied[name]) is type(kept[name]) for name in parts)
    plain = [name for name in kept if name not in parts]
    assert {name: copied[name] for name in plain} == {name: kept[name] for name in plain}
    copy.set_params(covariance__weight=3.0)
    assert model.covariance.weight == 2.0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_fit_changes_no_option(estimator):
    model = estimator("svgp", covariance="titsias", random_state=0)
    before = model.get_params()
    assert model.fit(*table(estimator)).get_params() == before


def test_a_grid_search_finds_options_inside_parts():
    model = GWIRegressor("svgp", random_state=0)
    grid = {"covariance__weight": [1e-6, "auto"], "likelihood__noise": ["constant", "input-dependent"]}
    search = GridSearchCV(model, grid, cv=2, scoring=lambda fitted, x, y: -fitted.nll(x, y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GWIWarning)
        search.fit(*wave(120))
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(np.unique(search.cv_results_["mean_test_score"])) == 4
    best = search.best_estimator_
    assert best.covariance.weight == search.best_params_["covariance__weight"]
    assert best.likelihood.noise == search.best_params_["likelihood__noise"]
    assert model.covariance == "auto"


# Parts


def test_a_part_in_its_default_form_is_what_its_name_says():
    x, y = wave(40)
    named, given = (
        GWIRegressor("svgp", covariance=covariance, likelihood=likelihood, random_state=0).fit(x, y).predict(x, return_std=True)
        for covariance, likelihood in (("titsias", "gaussian"), (Covariance("titsias"), Gaussian()))
    )
    np.testing.assert_array_equal(named, given)
    x, y = three_classes(40)
    named, given = (
        GWIClassifier("svgp", likelihood=likelihood, random_state=0).fit(x, y).predict_proba(x)
        for likelihood in ("robust-max", RobustMax())
    )
    np.testing.assert_array_equal(named, given)


def test_the_size_of_our_network_is_that_of_the_part():
    model = GWIRegressor(["svgp", Network((5, 3), max_steps=4, per_fold=1)], random_state=0).fit(*wave(40))
    assert [member.name for member in model.summary_.members] == ["svgp", "network"]
    (network,) = [member.mean.module for member in model._fit.stacked.members if member.name == "network"]
    assert [tuple(weight.shape) for weight in network.weights] == [(5, 1, 5), (5, 5, 3), (5, 3, 1)]


def test_one_of_a_list_may_be_frozen():
    x, y = wave(80)
    module = mlp(1, hidden=(4,), generator=torch.Generator().manual_seed(0))
    before = [parameter.clone() for parameter in module.parameters()]
    model = GWIRegressor([Frozen(module), LinearRegression()], random_state=0)
    model.fit(x[:50], y[:50], validation=(x[50:], y[50:]))
    assert [member.name for member in model.summary_.members] == ["Sequential", "LinearRegression"]
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


KEPT = {
    "numbers": GWIRegressor(
        "svgp",
        covariance=Covariance("wasserstein", weight=2.0, num_inducing=9, inducing_points="random", kernel_fit="residuals"),
        likelihood=Gaussian("constant", tails="normal", conformal=True),
        max_time=60.0,
        random_state=0,
    ),
    "network": GWIRegressor(Network((4,), max_steps=5), random_state=0),
    "classes": GWIClassifier("linear", likelihood=RobustMax(0.03), covariance=Covariance(num_inducing=8), random_state=0),
    "softmax": GWIClassifier("linear", likelihood=Softmax(), tempering="per-class", random_state=0),
}


@pytest.mark.filterwarnings("ignore::gwi.exceptions.GWIWarning")
@pytest.mark.parametrize("name", KEPT)
def test_parts_survive_a_file(name, tmp_path):
    model = clone(KEPT[name])
    loaded = load(model.fit(*table(type(model))).save(tmp_path / "model.gwi"))

    def plain(estimator):
        values = estimator.get_params().items()
        return {key: (type(value) if hasattr(value, "get_params") else value) for key, value in values}

    wanted = plain(model)
    found = plain(loaded)
    if name == "network":
        assert list(found.pop("mean__hidden")) == list(wanted.pop("mean__hidden"))
    assert found == wanted
    # The options of a model that was read are those of a fit that gives it again.
    again = clone(loaded).fit(*table(type(model)))
    x = table(type(model))[0]
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "nonsense"}, r'^covariance must be "auto", .* or "zero"; got \'nonsense\'\.$'),
        ({"covariance": Gaussian()}, r"^covariance must be .*; got Gaussian\(\)\.$"),
        ({"covariance": Covariance("nonsense")}, r"^covariance must be .*; got 'nonsense'\.$"),
        ({"covariance": Covariance(weight=-1.0)}, r'^weight must be "auto" or a positive number; got -1\.0\.$'),
        ({"covariance": Covariance(weight="much")}, r'^weight must be "auto" or a positive number; got \'much\'\.$'),
        ({"covariance": Covariance(num_inducing=0)}, r'^num_inducing must be "auto" or a whole number, at least one; got 0\.$'),
        ({"covariance": Covariance(num_inducing=2.5)}, r"^num_inducing must be .*; got 2\.5\.$"),
        ({"covariance": Covariance(inducing_points="nonsense")}, r"^inducing_points must be .*; got 'nonsense'\.$"),
        ({"covariance": Covariance(kernel_fit="nonsense")}, r'^kernel_fit must be "targets" or "residuals"; got \'nonsense\'\.$'),
        ({"likelihood": Covariance()}, r"^likelihood must be .*; got Covariance\(\)\.$"),
        (
            {"max_time": "soon"},
            r"^max_time must be None, a number of seconds, at least zero, or gwi\.MaxTime\(.*\); got 'soon'\.$",
        ),
        ({"max_time": -1}, r"^max_time must be .*; got -1\.$"),
        ({"mean": Network("wide")}, r'^hidden must be "auto" or a list of widths, such as \(64, 64\); got \'wide\'\.$'),
        ({"mean": Network((8, 0))}, r"^each width in hidden must be a whole number, at least one; got 0\.$"),
        ({"mean": ["svgp", Network(max_steps=0)]}, r'^max_steps must be "auto" or a whole number, at least one; got 0\.$'),
        ({"mean": Frozen("a name")}, r"^Frozen takes a torch module; got 'a name'\.$"),
        ({"mean": Joint("a name")}, r"^Joint takes a torch module; got 'a name'\.$"),
        ({"mean": Joint(mlp(2, 3), max_epochs=0)}, r"^max_epochs must be None or a whole number, at least one; got 0\.$"),
        ({"mean": Joint(mlp(2, 3), learning_rate=-1.0)}, r'^learning_rate must be "auto" or a positive number; got -1\.0\.$'),
        ({"mean": Paper(max_steps=0)}, r"^max_steps must be None or a whole number, at least one; got 0\.$"),
        ({"mean": Covariance()}, r"^mean must be .*; got Covariance\(\)\.$"),
        ({"mean": ["svgp", Paper()]}, r"^mean must be .*; got Paper\(\)\.$"),
        ({"kernel": Features()}, r"^A kernel on features needs a network"),
    ],
    ids=str,
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_wrong_values_are_named_in_one_sentence(estimator, options, message):
    with pytest.raises(ValueError, match=message) as raised:
        estimator(**options).fit(*table(estimator))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            GWIRegressor(likelihood=Gaussian("nonsense")),
            r'^noise must be "auto", "constant" or "input-dependent"; got \'nonsense\'\.$',
        ),
        (GWIRegressor(likelihood=Gaussian(tails="nonsense")), r'^tails must be "auto" or "normal"; got \'nonsense\'\.$'),
        (GWIRegressor(tempering=10**400), r"^tempering must be .*a positive number; got 1000"),
        (GWIRegressor(likelihood="softmax"), r"^likelihood must be .*; got 'softmax'\.$"),
        (GWIRegressor(tempering=-1.0), r"^tempering must be .*; got -1\.0\.$"),
        (GWIClassifier(likelihood=RobustMax(1.0)), r"^epsilon must be strictly between 0 and 1; got 1\.0\.$"),
        (GWIClassifier(likelihood=Gaussian()), r"^likelihood must be .*; got Gaussian\(\)\.$"),
        (GWIClassifier(tempering="nonsense"), r"^tempering must be .*; got 'nonsense'\.$"),
    ],
    ids=str,
)
def test_wrong_values_of_one_task_are_named_in_one_sentence(model, message):
    with pytest.raises(ValueError, match=message) as raised:
        model.fit(*table(type(model)))
    assert "\n" not in str(raised.value)


# What the classifier has of the regressor


def test_the_plan_of_a_classifier_keeps_to_max_time():
    x, y = three_classes(300)
    model = GWIClassifier(max_time=0.1, random_state=0).fit(x, y)
    names = [member.name for member in model.summary_.members]
    assert "network" in classification_members(300, 4, 3)
    assert "network" not in names
    assert len(names) > 2
    assert "planned for max_time=0.1 s" in str(model.summary_)


@pytest.mark.parametrize("lengthscale", [1e-3, 1e-2])
def test_a_classifier_whose_kernel_sees_no_row_near_another_is_warned_of(lengthscale):
    kernel = default_kernel(2, lengthscale=lengthscale).requires_grad_(False)
    with pytest.warns(GWIWarning, match="length-scales-at-bounds") as caught:
        GWIClassifier("linear", kernel=kernel, random_state=0).fit(*three_classes(60))
    assert {warning.filename for warning in caught if warning.category is GWIWarning} == {__file__}


def test_a_classifier_without_a_fault_is_not_warned_of():
    x, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GWIWarning)
        GWIClassifier(["svgp", ExtraTreesClassifier(10)], random_state=0).fit(x[::2], y[::2])
