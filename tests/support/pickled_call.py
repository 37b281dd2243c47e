"""What a file that runs code when it is unpickled holds."""

from collections.abc import Callable


class Call:
    """Pickled as the call of a function, perhaps with a state."""

    def __init__(self, function: Callable, *arguments: object, state: object = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> tuple:
        return self.parts
