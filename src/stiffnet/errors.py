"""Every exception this package raises on purpose; each message ends with what to do.

On the command line such an error is one sentence on stderr, and its ``exit_code`` is the status.
"""


class StiffnetError(Exception):
    """Base class: catching it catches every deliberate failure of ours."""

    exit_code = 2


class StepError(StiffnetError, ValueError):
    """A network whose steps cannot be found, or a step that cannot be measured or gated."""


class NoStepsError(StepError):
    """A network without residual steps."""


class NonFiniteError(StepError):
    """A state or a rate that is NaN, infinite or of norm zero, so that no index exists."""

    exit_code = 3


class ShapeChangesError(StepError):
    """A step whose Jacobian is not square, so that it has no eigenvalues."""


class FeatureMapError(StiffnetError, ValueError):
    """A network or a layer that gives no map of features over the image."""


class OdeError(StiffnetError, ValueError):
    """A differential equation, a step or a tolerance that no solver can work with."""


class FoldError(StiffnetError, ValueError):
    """A module that has no exact folded equivalent."""


class ExportError(StiffnetError, ValueError):
    """A network that cannot be written as a file of another format."""


class RecipeError(StiffnetError, ValueError):
    """A recipe that contradicts itself."""


class UnknownNameError(StiffnetError, LookupError):
    """A name that no table has an entry for (a ``KeyError`` would print only its repr)."""


class CheckpointError(StiffnetError, ValueError):
    """Weights that do not belong to the network they were given to."""


class DataError(StiffnetError, ValueError):
    """Images or labels that cannot be used."""

    exit_code = 3


class UnsafeFileError(CheckpointError):
    """A file that could run code if it were opened the usual way."""

    exit_code = 4


class CorruptFileError(CheckpointError):
    """A file that is damaged or not what its name says."""

    exit_code = 5


class StorageError(StiffnetError, OSError):
    """A file or folder that could not be read or written: disk full, permission, missing."""

    exit_code = 6
