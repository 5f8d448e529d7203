"""The command that writes a model as an ONNX graph."""

from __future__ import annotations

from typing import Annotated

import typer

import gwi.cli.console as console
from gwi.exceptions import UserError

AnyModel = Annotated[console.Place, console.at(help="a model that gwi fit or GWIRegressor.save wrote")]
OnnxFile = Annotated[console.Place, console.at(help="file to write the graph to, such as model.onnx")]


def export(
    model: AnyModel,
    output: OnnxFile,
    levels: Annotated[
        str, typer.Option(help="levels of the quantiles, separated by commas; none for a file without quantiles")
    ] = "0.025,0.5,0.975",
    force: console.Force = False,
    quiet: console.Quiet = False,
) -> None:
    """Write a model as an ONNX graph, which predicts without Python; all its columns must be numbers."""
    console.check_output(output, force, model)
    chosen = levels_of(levels)
    from gwi.estimators.persistence import load
    from gwi.storage.header import user_errors

    with user_errors(model):
        fitted = load(model)
    fitted.export_onnx(output, chosen, overwrite=True)
    console.note(f"the graph is in {console.sized(output)}.", quiet)


def levels_of(text: str) -> tuple[float, ...]:
    """Those of a list parted by commas.

    Raises:
        UserError: naming what is no level.
    """
    if text.strip() == "none":
        return ()
    found = []
    for part in console.names(text):
        try:
            level = float(part)
        except ValueError:
            level = 0.0
        if not 0 < level < 1:
            raise UserError(f"--levels must be strictly between 0 and 1, separated by commas, or none; got {part!r}.")
        found.append(level)
    return tuple(found)
