"""Exceptions of the engine, one for each kind of failure that a program can act on."""


class Error(Exception):
    """Any failure of the engine. The message names the thing, what was expected and what was found."""


class RequestError(Error, ValueError):
    """A prompt, parameter or option is wrong."""


class ModelError(Error):
    """A model, tokenizer or template file is bad, absent or not supported."""


class DoesNotFitError(Error, MemoryError):
    """The work needs more memory than the limits allow."""


class DeviceUnavailableError(Error):
    """The device that was asked for is absent or cannot be used."""


class DeviceLostError(Error):
    """The device failed; this process cannot use it any more."""


class InternalError(Error, RuntimeError):
    """A mistake of the engine, or the system failed in a way that no option can mend."""
