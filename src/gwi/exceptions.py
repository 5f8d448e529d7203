"""Every error and warning of gwi."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake of the user's, said in one sentence; the command shows it without a traceback."""


class MissingPackageError(UserError, ModuleNotFoundError):
    """A package that an extra of gwi brings is not installed; the sentence says what to install.

    Args:
        sentence: what is shown.
        name: of the package.
    """

    def __init__(self, sentence: str, name: str = ""):
        ModuleNotFoundError.__init__(self, sentence, name=name)


class ModelFileError(ValueError):
    """A file that is no model file, or is damaged, or is of a later version.

    Examples:
        >>> import pathlib
        >>> import tempfile
        >>> import gwi
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "notes.gwi"
        ...     _ = path.write_text("no model")
        ...     try:
        ...         gwi.load(path)
        ...     except gwi.exceptions.ModelFileError as error:
        ...         print(type(error).__name__)
        ModelFileError
    """


class UnsavableError(TypeError):
    """A part of the model that cannot be written without running code when it is read."""


class UnexportableError(TypeError):
    """A part of the model that has no form in ONNX."""


class OutputError(OSError):
    """A file that cannot be written: its name, why, and what to do, in one sentence."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written ({self.strerror}); free some space there, or choose another place."


class NotPositiveDefiniteError(ArithmeticError):
    """A matrix that should be positive definite is not, and no tolerable jitter makes it so.

    Examples:
        >>> import torch
        >>> from gwi.core.linalg import cholesky
        >>> from gwi.exceptions import NotPositiveDefiniteError
        >>> try:
        ...     cholesky(-torch.eye(2, dtype=torch.float64))
        ... except NotPositiveDefiniteError as error:
        ...     print(type(error).__name__)
        NotPositiveDefiniteError
    """


class JitterWarning(UserWarning):
    """A factorisation succeeded only with a jitter large enough to show in results.

    Examples:
        >>> import torch
        >>> import warnings
        >>> from gwi.core.linalg import cholesky
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = cholesky(torch.tensor([[1.0, 1 + 1e-7], [1 + 1e-7, 1.0]], dtype=torch.float64))
        >>> [warning.category.__name__ for warning in caught]
        ['JitterWarning']
    """


class GWIWarning(UserWarning):
    """A fit has a fault that makes its uncertainty worthless, or rows are unlike those of the fit.

    Args:
        message: for users of Python.
        for_command: the same for users of the command, who have other options; the message unless given.

    Examples:
        >>> import warnings
        >>> from gwi.exceptions import GWIWarning
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always", GWIWarning)
        ...     warnings.warn(GWIWarning("Rows are unlike those of the fit."))
        >>> str(caught[0].message)
        'Rows are unlike those of the fit.'
    """

    def __init__(self, message: str, for_command: str = ""):
        super().__init__(message)
        self.for_command = for_command or message


class CheckpointWarning(RuntimeWarning):
    """A checkpoint that could not be written, or not be read."""
