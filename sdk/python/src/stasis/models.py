"""What the service and the binary answer, as classes."""

from ._model import Model
from ._models import *  # noqa: F403
from ._models import __all__ as _all

__all__ = ["Model", *_all]
