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
    """A file that is no model file, or is damaged, or is of a later version."""


class UnsavableError(TypeError):
    """A part of the model that cannot be written without running code when it is read."""


class UnexportableError(TypeError):
    """A part of the model that has no form in ONNX."""


class OutputError(OSError):
    """A file that cannot be written: its name, why, and what to do, in one sentence."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written ({self.strerror}); make room there, or give another place."


class NotPositiveDefiniteError(ArithmeticError):
    """A matrix that should be positive definite is not, and no tolerable jitter makes it so."""


class JitterWarning(UserWarning):
    """A factorisation succeeded only with a jitter large enough to show in results."""


class GWIWarning(UserWarning):
    """A fit has a fault that makes its uncertainty worthless, or rows are unlike those of the fit.

    Args:
        message: for users of Python.
        for_command: the same for users of the command, who have other options; the message unless given.
    """

    def __init__(self, message: str, for_command: str = ""):
        super().__init__(message)
        self.for_command = for_command or message


class CheckpointWarning(RuntimeWarning):
    """A checkpoint that could not be written, or not be read."""
